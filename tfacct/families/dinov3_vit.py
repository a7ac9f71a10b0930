"""DINOv3: DINOv2's blocks with registers, turned by row and column in place of a table of positions."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, FeedForward, Patches, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.families import dinov2
from tfacct.families._base import Count, Real, Switch, UpTo, share
from tfacct.families._endings import Ending
from tfacct.families._towers import ImageTower

RELEASED = "2025-08"

LAYER = "model.layer.*"


class Config(ImageTower):
    """`model_type = "dinov3_vit"`: `DINOv3ViTModel`."""

    hidden_size: Count = 384
    intermediate_size: Count = 1536
    num_attention_heads: Count = 6
    rope_theta: Real = 100.0
    query_bias: Switch = True
    key_bias: Switch = False
    value_bias: Switch = True
    proj_bias: Switch = True
    mlp_bias: Switch = True
    use_gated_mlp: Switch = False
    num_register_tokens: UpTo = 0

    stems: ClassVar = ("DINOv3ViT",)
    in_files: ClassVar = ((r"^layer\.", "model.layer."),)
    body: ClassVar = ""
    uncounted: ClassVar = ImageTower.uncounted | {"rope_theta"}
    harmless: ClassVar = dinov2.Config.harmless | {"pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale"}
    fixed: ClassVar = ImageTower.fixed - {"Xc"}
    heads: ClassVar[Mapping[str, Ending]] = {"Model": Ending("AutoModel", "none", body="")}
    hf_paths: ClassVar = {
        "embed.project": "embeddings.patch_embeddings",
        **dinov2.block_paths(LAYER),
        **{f"blocks.*.mlp.{name}": f"{LAYER}.mlp.{name}" for name in ("gate_proj", "up_proj", "down_proj")},
        "final_norm": "norm",
    }
    hf_tensors: ClassVar = {
        **dinov2.block_tensors(LAYER),
        "embed.further.weight": "embeddings.register_tokens",
    }

    @property
    def further(self) -> int:  # type: ignore[override]
        """The registers."""
        return self.num_register_tokens

    def attention(self) -> Attention:
        """Heads with keys of their own, turned by row and column. Raises ConfigError."""
        if self.query_bias != self.value_bias or (self.key_bias and not self.query_bias):
            raise self.refused("query_bias", self.query_bias)
        share(self.head_dim, 4, "the size of a head by 4")
        return Attention(
            hidden=self.hidden_size,
            kv_heads=self.num_attention_heads,
            group=1,
            head_dim=self.head_dim,
            qkv_bias=self.query_bias,
            key_bias=self.key_bias,
            out_bias=self.proj_bias,
            causal=False,
            rotary=Rotary(self.rope_theta, grid=True, tiles=(), centred=1 + self.further),
            channel_scale=True,
        )

    def architecture(self) -> Transformer:
        """Patches behind a class token and registers, pre-norm blocks with factors, and a norm."""
        tokens: dict[str, Any] = {"front": 1 + self.further, "further": self.further, "masked": True}
        network = FeedForward(
            hidden=self.hidden_size,
            width=self.intermediate_size,
            gated=self.use_gated_mlp,
            bias=self.mlp_bias,
            activation=self.hidden_act,
            channel_scale=True,
        )
        block = Block.of(self.attention(), network, norm=self.norm())
        return Transformer(
            embed=Patches(channels=self.num_channels, pixels=self.patch_size**2, hidden=self.hidden_size, **tokens),
            stacks=(Stack(block, self.num_hidden_layers),),
            final_norm=self.norm(),
            head=None,
        )
