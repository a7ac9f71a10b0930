"""ViT: an encoder of images, of patches and a class token, with norms in front of the sublayers."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.parts import Pooler
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Real, Switch, Word
from tfacct.families._endings import Ending
from tfacct.families._towers import ATTENTION_IN_FILES, VIT_LAYER, ImageTower

RELEASED = "2020-10"


class Config(ImageTower):
    """`model_type = "vit"`: `ViTModel`, or the class that `architectures` names."""

    layer_norm_eps: Real = 1e-12
    qkv_bias: Switch = True
    pooler_output_size: Any = None
    pooler_act: Word = "tanh"

    dropouts: ClassVar = {
        "embedding": ("hidden_dropout_prob", 0.0),
        "residual": ("hidden_dropout_prob", 0.0),
        "attention": ("attention_probs_dropout_prob", 0.0),
    }
    stems: ClassVar = ("ViT",)
    in_files: ClassVar = (
        (r"(^|\.)encoder\.layer\.", r"\1layers."),
        *ATTENTION_IN_FILES,
        (r"\.intermediate\.dense\.", ".mlp.fc1."),
        (r"\.output\.dense\.", ".mlp.fc2."),
    )
    body: ClassVar = "vit."
    uncounted: ClassVar = ImageTower.uncounted | {"pooler_output_size", "pooler_act"}
    harmless: ClassVar = ImageTower.harmless | {"encoder_stride"}
    heads: ClassVar[Mapping[str, Ending]] = {
        "Model": Ending("AutoModel", "none", pooler=True, paths={"pooler": "pooler.dense"}, body=""),
        "ForImageClassification": Ending(
            "AutoModelForImageClassification",
            "classes",
            bias=True,
            first=True,
            paths={"classifier": "classifier"},
            gives=False,
        ),
    }
    hf_paths: ClassVar = {
        "embed.project": "vit.embeddings.patch_embeddings.projection",
        **{f"blocks.*.{ours}": f"vit.layers.*.{theirs}" for ours, theirs in VIT_LAYER.items()},
        "final_norm": "vit.layernorm",
    }
    hf_tensors: ClassVar = {
        "embed.class.weight": "vit.embeddings.cls_token",
        "pos_embed.weight": "vit.embeddings.position_embeddings",
    }

    def pooler(self, hidden: Any) -> Pooler:
        """Product of the class token's vector."""
        return Pooler(hidden=hidden, activation=self.pooler_act)

    def architecture(self) -> Transformer:
        """Patches, a class token, positions, pre-norm blocks and a norm."""
        if self.pooler_output_size not in (None, self.hidden_size):
            raise self.refused("pooler_output_size", self.pooler_output_size)
        return Transformer(
            **self.tables(), stacks=(self.stack(qkv_bias=self.qkv_bias),), final_norm=self.norm(), head=None
        )
