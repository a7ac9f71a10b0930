"""SigLIP's encoder of images: patches, no class token, and a pooler that attends to all of them."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.parts import AttentionPooler
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Real, Switch, Word
from tfacct.families._endings import Ending
from tfacct.families._towers import ImageTower, class_table

RELEASED = "2023-03"

HEAD = {
    **{f"pooler.{name}": "head.attention" for name in ("q_proj", "k_proj", "v_proj", "scores", "values", "o_proj")},
    "pooler.norm": "head.layernorm",
    "pooler.mlp.up_proj": "head.mlp.fc1",
    "pooler.mlp.down_proj": "head.mlp.fc2",
}
PROJECTIONS = {
    f"pooler.{name}_proj.{tensor}": f"head.attention.in_proj_{tensor}"
    for name in "qkv"
    for tensor in ("weight", "bias")
}


class Config(ImageTower):
    """`SiglipVisionConfig`, with its class's defaults."""

    hidden_act: Word = "gelu_pytorch_tanh"
    layer_norm_eps: Real = 1e-6
    vision_use_head: Switch = True

    stems: ClassVar = ("SiglipVision",)
    in_files: ClassVar = ((r"^vision_model\.", ""),)
    body: ClassVar = ""
    harmless: ClassVar = ImageTower.harmless | frozenset(
        "num_image_tokens num_positions projection_dim projector_hidden_act vocab_size".split()
    )
    class_token: ClassVar = False
    fixed: ClassVar = ImageTower.fixed - {"Xc"} | {"Qp"}
    heads: ClassVar[Mapping[str, Ending]] = {"Model": Ending("AutoModel", "none", pooler=True)}
    hf_paths: ClassVar = {**class_table("", "patch_embedding", ("final_norm", "post_layernorm")), **HEAD}
    hf_tensors: ClassVar = {
        "pooler.probe.weight": "head.probe",
        **PROJECTIONS,
        "pooler.o_proj.weight": "head.attention.out_proj.weight",
        "pooler.o_proj.bias": "head.attention.out_proj.bias",
    }

    def pooler(self, hidden: Any) -> AttentionPooler | None:
        """Attention of a learned query, where the class has it."""
        if not self.vision_use_head:
            return None
        return AttentionPooler(
            hidden=hidden,
            heads=self.num_attention_heads,
            head_dim=self.head_dim,
            width=self.intermediate_size,
            activation=self.hidden_act,
            eps=self.layer_norm_eps,
        )

    def architecture(self) -> Transformer:
        """Patches, positions, pre-norm blocks and a norm."""
        return Transformer(**self.tables(), stacks=(self.stack(),), final_norm=self.norm(), head=None)
