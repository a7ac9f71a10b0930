"""BEiT: ViT's blocks, with learned scores of how far patches are apart and a learned factor for each channel."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, FeedForward, Picked, RelativeBias
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FromZero, Real, Switch
from tfacct.families._endings import Ending
from tfacct.families._towers import ATTENTION_IN_FILES, VIT_LAYER, ImageTower

RELEASED = "2021-06"

TABLE = "relative_position_bias_table"


class Config(ImageTower):
    """`model_type = "beit"`: `BeitModel`, or the class that `architectures` names."""

    layer_norm_eps: Real = 1e-12
    use_mask_token: Switch = False
    use_absolute_position_embeddings: Switch = False
    use_relative_position_bias: Switch = False
    use_shared_relative_position_bias: Switch = False
    layer_scale_init_value: FromZero = 0.1
    use_mean_pooling: Switch = True
    vocab_size: Count = 8192

    stems: ClassVar = ("Beit",)
    body: ClassVar = "beit."
    in_files: ClassVar = (
        (r"(^|\.)encoder\.layer\.", r"\1layers."),
        (r"(^|\.)encoder\.relative_position_bias\.", r"\1shared_position_bias."),
        *ATTENTION_IN_FILES,
        (r"\.attention\.attention\.relative_position_bias\.", ".relative_position_bias."),
        (r"\.intermediate\.dense\.", ".mlp.fc1."),
        (r"\.output\.dense\.", ".mlp.fc2."),
    )
    uncounted: ClassVar = ImageTower.uncounted | {"vocab_size"}
    harmless: ClassVar = ImageTower.harmless | frozenset(
        """
        drop_path_rate pool_scales use_auxiliary_head auxiliary_loss_weight auxiliary_channels auxiliary_num_convs
        auxiliary_concat_input semantic_loss_ignore_index out_features out_indices stage_names _out_features
        _out_indices add_fpn reshape_hidden_states segmentation_indices
        """.split()
    )
    heads: ClassVar[Mapping[str, Ending]] = {
        "Model": Ending("AutoModel", "none", pooler=True, paths={"pooler.norm": "pooler.layernorm"}, body=""),
        "ForImageClassification": Ending(
            "AutoModelForImageClassification",
            "classes",
            pooler=True,
            bias=True,
            paths={"pooler.norm": "beit.pooler.layernorm", "classifier": "classifier"},
            gives=False,
        ),
    }
    hf_paths: ClassVar = {
        "embed.project": "beit.embeddings.patch_embeddings.projection",
        **{f"blocks.*.{ours}": f"beit.layers.*.{theirs}" for ours, theirs in VIT_LAYER.items()},
        "final_norm": "beit.layernorm",
    }
    hf_tensors: ClassVar = {
        "embed.class.weight": "beit.embeddings.cls_token",
        "embed.mask.weight": "beit.embeddings.mask_token",
        "pos_embed.weight": "beit.embeddings.position_embeddings",
        "rel_bias.weight": f"beit.shared_position_bias.{TABLE}",
        "blocks.*.attn.rel_bias.weight": f"beit.layers.*.relative_position_bias.{TABLE}",
        "blocks.*.attn.channel_scale.weight": "beit.layers.*.lambda_1",
        "blocks.*.mlp.channel_scale.weight": "beit.layers.*.lambda_2",
    }

    @property
    def across(self) -> int:
        """Patches on a side of an image."""
        return self.image_size // self.patch_size

    @property
    def buckets(self) -> int:
        """Distances by rows and by columns, and three of the class token."""
        return (2 * self.across - 1) ** 2 + 3

    def pooler(self, hidden: Any) -> Picked:
        """Mean of the patches behind a norm, or the class token's vector."""
        if not self.use_mean_pooling:
            return Picked(hidden=hidden)
        return Picked(hidden=hidden, reads="mean", norm_eps=self.layer_norm_eps)

    def architecture(self) -> Transformer:
        """Patches, a class token, pre-norm blocks with scores of distances. Raises ConfigError."""
        own, shared = self.use_relative_position_bias, self.use_shared_relative_position_bias
        if own and shared:
            raise self.refused("use_shared_relative_position_bias", shared)
        hidden, heads, scaled = self.hidden_size, self.num_attention_heads, self.layer_scale_init_value > 0
        tables = self.tables()
        tables["embed"] = replace(tables["embed"], masked=self.use_mask_token)
        if not self.use_absolute_position_embeddings:
            del tables["positions"]
        of_all: dict[str, Any] = {"across": self.across, "buckets": self.buckets}
        attention = Attention(
            hidden=hidden,
            kv_heads=heads,
            group=1,
            head_dim=self.head_dim,
            qkv_bias=True,
            key_bias=False,
            out_bias=True,
            causal=False,
            channel_scale=scaled,
            biased=own or shared,
            **(of_all if own else {}),
        )
        network = FeedForward(
            hidden=hidden, width=self.intermediate_size, bias=True, activation=self.hidden_act, channel_scale=scaled
        )
        return Transformer(
            **tables,
            bias=RelativeBias(kv_heads=heads, group=1, **of_all) if shared else None,
            stacks=(Stack(Block.of(attention, network, norm=self.norm()), self.num_hidden_layers),),
            final_norm=None if self.use_mean_pooling else self.norm(),
            head=None,
        )
