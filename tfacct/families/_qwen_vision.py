"""Shared by Qwen's encoders of images: blocks turned by row and column, and patches merged behind them."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, FeedForward, GatedMerger, Merger, Norm, Patches, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Fields, Layers, Word, share, shown
from tfacct.families._endings import Ending

EPS = 1e-6
BASE = 10_000.0
LARGEST = 1280
"""Rows for the language model that the largest image gives, as the image processor of Qwen2-VL has it: 28² · 1,280
pixels, 28 being two patches on a side."""
PATHS = {
    "embed.project": "patch_embed.proj",
    "blocks.*.attn_norm": "blocks.*.norm1",
    **{f"blocks.*.attn.{name}_proj": "blocks.*.attn.qkv" for name in "qkv"},
    **{f"blocks.*.attn.{name}": "blocks.*.attn" for name in ("scores", "values")},
    "blocks.*.attn.o_proj": "blocks.*.attn.proj",
    "blocks.*.mlp_norm": "blocks.*.norm2",
}
"""Modules that all of them have by the same names, ours → the class's."""
IMAGES_SAID = (
    "A patch stands for temporal_patch_size frames: an image is doubled, and frames of a video that are taken together"
    " see one another only, so they are a sequence of their own (--batch)."
)


def turned_by(said: Mapping[str, Any], otherwise: float = BASE) -> float:
    """Base of the angles by which heads turn, from `rope_parameters`. Raises ConfigError."""
    theta = said.get("rope_theta", otherwise)
    if not isinstance(theta, (int, float)) or isinstance(theta, bool) or not theta > 0:
        raise ConfigError(f"rope_parameters.rope_theta must be a number above 0, not {shown(theta)}")
    return float(theta)


class QwenVision(FamilyConfig):
    """Fields of an encoder of images of any sides."""

    depth: Layers = 32
    num_heads: Count = 16
    in_channels: Count = 3
    patch_size: Count = 14
    spatial_merge_size: Count = 2
    temporal_patch_size: Count = 2
    hidden_act: Word = "silu"
    rope_parameters: Fields | None = None
    in_chans: Count | None = None
    spatial_patch_size: Count | None = None

    body: ClassVar = ""
    aliases: ClassVar = {"num_attention_heads": "num_heads", "num_hidden_layers": "depth"}
    uncounted: ClassVar[frozenset[str]] = frozenset(("hidden_act", "rope_parameters", "in_chans", "spatial_patch_size"))
    harmless: ClassVar[frozenset[str]] = frozenset(("tokens_per_second",))
    heads: ClassVar[Mapping[str, Ending]] = {"Model": Ending("AutoModel", "none")}
    fixed: ClassVar = frozenset("G")
    patch_bias: ClassVar[bool] = False
    norms: ClassVar[Literal["layer", "rms"]] = "layer"

    @property
    def context(self) -> int:
        """Patches of the largest image that the image processor takes by default."""
        return LARGEST * self.spatial_merge_size**2

    @property
    def hidden(self) -> int:
        """Width of the stream."""
        raise NotImplementedError

    @property
    def eps(self) -> float:
        """What norms add to a variance; no field of most classes says it."""
        return EPS

    @property
    def tiles(self) -> tuple[int, ...]:
        """Sides of the tiles in which patches come: those that are merged."""
        return (self.spatial_merge_size,)

    def norm(self) -> Norm:
        """Norm over the width of the stream."""
        return Norm(hidden=self.hidden, kind=self.norms, eps=self.eps)

    def network(self) -> FeedForward:
        """Network of each block."""
        raise NotImplementedError

    def attention(self) -> Attention:
        """Heads with keys of their own that turn by row and column. Raises ConfigError."""
        return Attention(
            hidden=self.hidden,
            kv_heads=self.num_heads,
            group=1,
            head_dim=4
            * share(share(self.hidden, self.num_heads, "the width by num_heads"), 4, "the size of a head by 4"),
            qkv_bias=True,
            out_bias=True,
            causal=False,
            rotary=self._turned(),
        )

    def _turned(self) -> Rotary:
        said = self.rope_parameters or {}
        if said.get("rope_type", "axial") != "axial":
            raise ConfigError(f"rope_type = {said['rope_type']!r}: the class turns by row and column only")
        return Rotary(turned_by(said), grid=True, tiles=self.tiles)

    def merger(self, out: int) -> Merger:
        """What joins patches behind the blocks."""
        return Merger(hidden=self.hidden, patches=self.spatial_merge_size**2, out=out, norm=self.norms, eps=EPS)

    def whole(self, merger: Merger | GatedMerger | None, *stacks: Stack, **more: Any) -> Transformer:
        """Patches, blocks, and the merger where there is one. Raises ConfigError."""
        for name, read in (("in_chans", "in_channels"), ("spatial_patch_size", "patch_size")):
            if getattr(self, name) not in (None, getattr(self, read)):
                raise ConfigError(f"{name} = {getattr(self, name):,} is not read by the class: it reads {read}")
        pixels = self.temporal_patch_size * self.patch_size**2
        how: dict[str, Any] = {"bias": self.patch_bias, "norm_eps": self.eps if "embed.norm" in self.hf_paths else None}
        patches = Patches(channels=self.in_channels, pixels=pixels, hidden=self.hidden, **how)
        stacks = stacks or (Stack(Block.of(self.attention(), self.network(), norm=self.norm()), self.depth),)
        ends = {"final_norm": None, "merger": merger, **more}
        return Transformer(embed=patches, stacks=stacks, head=None, **ends)
