"""MiniMax-M3's encoder of images: CLIP's blocks behind a norm, turned by frame, row and column of a patch."""

from typing import ClassVar

from tfacct.architecture.parts import Patches, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Fields, Layers
from tfacct.families._endings import Ending
from tfacct.families._qwen_vision import turned_by
from tfacct.families._towers import LAYER, ImageTower

RELEASED = "2026-06"

AXES = 3
"""Frame, row and column, of which each turns as many pairs of a head."""


class Config(ImageTower):
    """`MiniMaxM3VLVisionConfig`, with its class's defaults."""

    hidden_size: Count = 1280
    intermediate_size: Count = 5120
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 16
    image_size: Count = 2016
    patch_size: Count = 14
    temporal_patch_size: Count = 2
    spatial_merge_size: Count = 2
    rope_parameters: Fields | None = None

    stems: ClassVar = ("MiniMaxM3VLVision",)
    body: ClassVar = ""
    class_token: ClassVar = False
    uncounted: ClassVar = ImageTower.uncounted | {"spatial_merge_size", "rope_parameters"}
    fixed: ClassVar = ImageTower.fixed - {"Xc"}
    heads: ClassVar = {"Model": Ending("models.minimax_m3_vl.modeling_minimax_m3_vl.MiniMaxM3VLVisionModel", "none")}
    hf_paths: ClassVar = {
        "embed.project": "embeddings.proj",
        "embed_norm": "pre_layrnorm",
        **{f"blocks.*.{ours}": f"layers.*.{theirs}" for ours, theirs in LAYER.items()},
    }

    @property
    def tiles(self) -> tuple[int, ...]:
        """Sides of the tiles in which patches come: those that the whole merges."""
        return (self.spatial_merge_size,)

    def architecture(self) -> Transformer:
        """Patches and a norm, then pre-norm blocks. Raises ConfigError."""
        said = self.rope_parameters or {}
        if said.get("rope_type", "axial") != "axial":
            raise ConfigError(f"rope_type = {said['rope_type']!r}: the class turns by frame, row and column only")
        turned = 2 * AXES * (self.head_dim // AXES // 2)
        rotary = Rotary(turned_by(said), grid=True, tiles=self.tiles, timed=True)
        how = {"rotary": rotary, "rope_dim": turned} if turned else {}
        pixels = self.temporal_patch_size * self.patch_size**2
        patches = Patches(channels=self.num_channels, pixels=pixels, hidden=self.hidden_size, bias=False)
        stacks = (self.stack(**how),)
        return Transformer(embed=patches, embed_norm=self.norm(), stacks=stacks, final_norm=None, head=None)
