"""Qwen3-VL's encoder of images: a table of positions made for each image, and mergers behind some of its blocks too."""

from math import isqrt
from typing import ClassVar

from tfacct.architecture.parts import Deepstack, FeedForward, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, UpTo, Word
from tfacct.families._qwen_vision import EPS, PATHS, QwenVision

RELEASED = "2025-09"


class Config(QwenVision):
    """`Qwen3VLVisionConfig`, with its class's defaults."""

    depth: Count = 27
    hidden_size: Count = 1152
    intermediate_size: Count = 4304
    patch_size: Count = 16
    out_hidden_size: Count = 3584
    num_position_embeddings: Count = 2304
    deepstack_visual_indexes: tuple[UpTo, ...] = (8, 16, 24)
    hidden_act: Word = "gelu_pytorch_tanh"

    stems: ClassVar = ("Qwen3VLVision",)
    patch_bias: ClassVar = True
    hf_paths: ClassVar = {
        **PATHS,
        "pos_embed": "pos_embed",
        "blocks.*.mlp.up_proj": "blocks.*.mlp.linear_fc1",
        "blocks.*.mlp.down_proj": "blocks.*.mlp.linear_fc2",
        "merger.norm": "merger.norm",
        "merger.up_proj": "merger.linear_fc1",
        "merger.down_proj": "merger.linear_fc2",
    }

    @property
    def context(self) -> int:
        """num_position_embeddings, the square of a number that mergers divide. Raises ConfigError."""
        side = isqrt(self.num_position_embeddings)
        if side**2 != self.num_position_embeddings:
            raise ConfigError(
                f"num_position_embeddings = {self.num_position_embeddings:,} is not the square of a number"
            )
        whole = max(side - side % self.spatial_merge_size, self.spatial_merge_size)
        return whole * whole

    @property
    def hidden(self) -> int:
        """hidden_size."""
        return self.hidden_size

    def network(self) -> FeedForward:
        """Network with biases."""
        return FeedForward(hidden=self.hidden_size, width=self.intermediate_size, bias=True, activation=self.hidden_act)

    def architecture(self) -> Transformer:
        """Patches, positions, pre-norm blocks and mergers. Raises ConfigError."""
        positions = Positions(rows=self.num_position_embeddings, hidden=self.hidden_size, tiles=self.tiles)
        merger = self.merger(self.out_hidden_size)
        return self.whole(merger, positions=positions, deepstack=self.deepstack())

    def deepstack(self) -> Deepstack | None:
        """Mergers behind earlier blocks. Raises ConfigError."""
        behind = self.deepstack_visual_indexes
        if len(set(behind)) < len(behind) or any(number >= self.depth for number in behind):
            raise ConfigError(
                f"deepstack_visual_indexes = {list(behind)} must be different blocks of {self.depth:,}, counted from 0"
            )
        hidden, patches, out = self.hidden_size, self.spatial_merge_size**2, self.out_hidden_size
        own = Deepstack(hidden=hidden, patches=patches, out=out, eps=EPS, joined=True, behind=behind)
        return own if behind else None

    def class_paths(self) -> dict[str, str]:
        """With the mergers, by their places in the list."""
        names = {"norm": "norm", "up_proj": "linear_fc1", "down_proj": "linear_fc2"}
        return {
            **self.hf_paths,
            **{
                f"deepstack.{i}.{ours}": f"deepstack_merger_list.{i}.{theirs}"
                for i in range(len(self.deepstack_visual_indexes))
                for ours, theirs in names.items()
            },
        }
