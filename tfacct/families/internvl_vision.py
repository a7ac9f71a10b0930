"""InternVL's encoder of images: ViT's, with a learned factor for each channel of what its sublayers add."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, FeedForward, Norm, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.base.complaints import shown
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Layers, Real, Switch, Word
from tfacct.families._endings import Ending
from tfacct.families._towers import ImageTower

RELEASED = "2025-04"

LAYER = "encoder.layer.*"
OWN_EPS = 1e-6
"""That of the norms of queries and keys, which no field says."""


def _side(given: Any) -> Any:
    """One side of a square that is given by both. Raises ConfigError."""
    if not isinstance(given, list):
        return given
    if len(set(map(str, given))) != 1 or len(given) != 2:
        must_be = "must be a whole number, or two that are the same"
        raise ConfigError(f"image_size and patch_size {must_be}, not {shown(given)}")
    return given[0]


Side = Annotated[Count, BeforeValidator(_side)]


class Config(ImageTower):
    """`InternVLVisionConfig`, with its class's defaults."""

    hidden_size: Count = 1024
    intermediate_size: Count = 4096
    num_hidden_layers: Layers = 24
    num_attention_heads: Count = 16
    image_size: Side = 448
    patch_size: Side = 14
    layer_norm_eps: Real = 1e-6
    attention_bias: Switch = False
    use_qk_norm: Switch = False
    norm_type: Word = "layer_norm"
    use_mask_token: Switch = False
    use_absolute_position_embeddings: Switch = True
    use_mean_pooling: Switch = True

    stems: ClassVar = ("InternVLVision",)
    body: ClassVar = ""
    harmless: ClassVar = ImageTower.harmless | {"layer_scale_init_value"}
    heads: ClassVar[Mapping[str, Ending]] = {"Model": Ending("AutoModel", "none")}
    hf_paths: ClassVar = {
        "embed.project": "embeddings.patch_embeddings.projection",
        "blocks.*.attn_norm": f"{LAYER}.layernorm_before",
        **{f"blocks.*.attn.{name}_proj": f"{LAYER}.attention.{name}_proj" for name in "qkv"},
        **{f"blocks.*.attn.{name}": f"{LAYER}.attention" for name in ("scores", "values")},
        **{f"blocks.*.attn.{name}_norm": f"{LAYER}.attention.{name}_norm" for name in "qk"},
        "blocks.*.attn.o_proj": f"{LAYER}.attention.projection_layer",
        "blocks.*.mlp_norm": f"{LAYER}.layernorm_after",
        "blocks.*.mlp.up_proj": f"{LAYER}.mlp.fc1",
        "blocks.*.mlp.down_proj": f"{LAYER}.mlp.fc2",
        "final_norm": "layernorm",
    }
    hf_tensors: ClassVar = {
        "embed.class.weight": "embeddings.cls_token",
        "pos_embed.weight": "embeddings.position_embeddings",
        "blocks.*.attn.channel_scale.weight": f"{LAYER}.lambda_1",
        "blocks.*.mlp.channel_scale.weight": f"{LAYER}.lambda_2",
    }

    def architecture(self) -> Transformer:
        """Patches, a class token, positions, and pre-norm blocks. Raises ConfigError."""
        for name, understood in (("use_mask_token", False), ("use_absolute_position_embeddings", True)):
            if getattr(self, name) != understood:
                raise self.refused(name, getattr(self, name))
        if self.norm_type not in ("layer_norm", "rms_norm"):
            raise self.refused("norm_type", self.norm_type)
        hidden, heads, eps = self.hidden_size, self.num_attention_heads, self.layer_norm_eps
        norm = self.norm() if self.norm_type == "layer_norm" else Norm(hidden=hidden, kind="rms", eps=eps)
        attention = Attention(
            hidden=hidden,
            kv_heads=heads,
            group=1,
            head_dim=self.head_dim,
            qkv_bias=self.attention_bias,
            out_bias=True,
            causal=False,
            qk_norm=QKNorm(OWN_EPS, together=True) if self.use_qk_norm else None,
            channel_scale=True,
        )
        network = FeedForward(
            hidden=hidden, width=self.intermediate_size, bias=True, activation=self.hidden_act, channel_scale=True
        )
        return Transformer(
            **self.tables(),
            stacks=(Stack(Block.of(attention, network, norm=norm), self.num_hidden_layers),),
            final_norm=None if self.use_mean_pooling else self.norm(),
            head=None,
        )
