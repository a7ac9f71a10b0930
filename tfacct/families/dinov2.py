"""DINOv2: ViT's blocks, with a learned factor for each channel of what its sublayers add."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, FeedForward, Patches, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Real, Switch
from tfacct.families._endings import Ending
from tfacct.families._towers import ATTENTION_IN_FILES, ImageTower

RELEASED = "2023-04"

LAYER = "encoder.layer.*"


def block_paths(layer: str) -> dict[str, str]:
    """Norms and attention of a block, ours → the class's, in DINOv3 too."""
    return {
        "blocks.*.attn_norm": f"{layer}.norm1",
        **{f"blocks.*.attn.{name}_proj": f"{layer}.attention.{name}_proj" for name in "qkvo"},
        **{f"blocks.*.attn.{name}": f"{layer}.attention" for name in ("scores", "values")},
        "blocks.*.mlp_norm": f"{layer}.norm2",
    }


def block_tensors(layer: str) -> dict[str, str]:
    """Factors of its channels, and the two tokens in front of the patches."""
    return {
        "embed.class.weight": "embeddings.cls_token",
        "embed.mask.weight": "embeddings.mask_token",
        "blocks.*.attn.channel_scale.weight": f"{layer}.layer_scale1.lambda1",
        "blocks.*.mlp.channel_scale.weight": f"{layer}.layer_scale2.lambda1",
    }


NETWORK = {
    False: {"up_proj": "fc1", "down_proj": "fc2"},
    True: {name: name for name in ("gate_proj", "up_proj", "down_proj")},
}
"""Products of a network, gated or not, ours → the class's."""


class Config(ImageTower):
    """`model_type = "dinov2"`: `Dinov2Model`."""

    intermediate_size: Count | None = None  # type: ignore[assignment]  # a field that the class does not read
    layer_norm_eps: Real = 1e-6
    patch_size: Count = 14
    mlp_ratio: Count = 4
    qkv_bias: Switch = True
    use_swiglu_ffn: Switch = False
    use_mask_token: Switch = True

    stems: ClassVar = ("Dinov2",)
    in_files: ClassVar = (
        *ATTENTION_IN_FILES,
        (r"\.mlp\.weights_in\.", ".mlp.gate_up_proj."),
        (r"\.mlp\.weights_out\.", ".mlp.down_proj."),
    )
    body: ClassVar = ""
    uncounted: ClassVar = ImageTower.uncounted | {"intermediate_size"}
    harmless: ClassVar = ImageTower.harmless | frozenset(
        """
        layerscale_value drop_path_rate apply_layernorm reshape_hidden_states out_features out_indices stage_names
        _out_features _out_indices
        """.split()
    )
    heads: ClassVar[Mapping[str, Ending]] = {"Model": Ending("AutoModel", "none", body="")}
    hf_paths: ClassVar = {
        "embed.project": "embeddings.patch_embeddings.projection",
        **block_paths(LAYER),
        "final_norm": "layernorm",
    }
    hf_tensors: ClassVar = {
        **block_tensors(LAYER),
        "pos_embed.weight": "embeddings.position_embeddings",
    }

    def class_paths(self) -> Mapping[str, str]:
        """The network's products have other names where it is gated."""
        own = NETWORK[self.use_swiglu_ffn].items()
        return {**self.hf_paths, **{f"blocks.*.mlp.{ours}": f"{LAYER}.mlp.{theirs}" for ours, theirs in own}}

    @property
    def width(self) -> int:
        """Width of the network."""
        whole = self.hidden_size * self.mlp_ratio
        return (int(whole * 2 / 3) + 7) // 8 * 8 if self.use_swiglu_ffn else whole

    @property
    def masked(self) -> bool:
        """True if a token is stored for patches that training hides."""
        return self.use_mask_token

    def tables(self) -> dict[str, Any]:
        """Patches behind the learned tokens, and a table of positions for all of them but the further ones."""
        hidden, pixels = self.hidden_size, self.patch_size**2
        front, further = 1 + self.further, self.further or None
        tokens: dict[str, Any] = {"front": front, "further": further, "masked": self.masked}
        rows = self.context - self.further
        return {
            "embed": Patches(channels=self.num_channels, pixels=pixels, hidden=hidden, **tokens),
            "positions": Positions(rows=rows, hidden=hidden, front=front if further else None),
        }

    def architecture(self) -> Transformer:
        """Patches, a class token, positions, pre-norm blocks with factors, and a norm."""
        hidden, heads = self.hidden_size, self.num_attention_heads
        attention = Attention(
            hidden=hidden,
            kv_heads=heads,
            group=1,
            head_dim=self.head_dim,
            qkv_bias=self.qkv_bias,
            out_bias=True,
            causal=False,
            channel_scale=True,
        )
        gated = self.use_swiglu_ffn
        network = FeedForward(
            hidden=hidden,
            width=self.width,
            gated=gated,
            bias=True,
            activation="silu" if gated else self.hidden_act,
            channel_scale=True,
        )
        block = Block.of(attention, network, norm=self.norm())
        return Transformer(
            **self.tables(), stacks=(Stack(block, self.num_hidden_layers),), final_norm=self.norm(), head=None
        )
