"""Shared by LED and Longformer: an encoder whose tokens attend in windows that overlap, over whole ones."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from tfacct.architecture.blocks import Block, Stack, stacks
from tfacct.architecture.parts import Attention, OverlappingAttention
from tfacct.base.errors import ConfigError

NAMES = {"q": "query", "k": "key", "v": "value"}


def own_paths(module: str) -> dict[str, str]:
    """Products of `blocks.*.attn` but the last, ours → the class's, in its module of this name."""
    return {
        **{f"{which}_proj": f"{module}.{name}" for which, name in NAMES.items()},
        **{f"{which}_global_proj": f"{module}.{name}_global" for which, name in NAMES.items()},
        **dict.fromkeys(("scores", "values"), module),
    }


def each_window(said: int | list[int], blocks: int, field: str, read: str) -> list[int]:
    """Tokens of each block's window; `field`: what says how many blocks there are, `read`: what is padded. Raises
    ConfigError."""
    every = said if isinstance(said, list) else [said] * blocks
    if len(every) != blocks:
        raise ConfigError(f"attention_window has {len(every)} entries for {field} = {blocks:,}")
    longest = max(every)
    for window in every:
        if window % 2:
            raise ConfigError(f"attention_window = {window:,} is odd: half of it lies on each side of a token")
        if window == 2:
            raise ConfigError("attention_window = 2: the class takes none of fewer than 4 tokens")
        if longest % window:
            raise ConfigError(
                f"attention_window has {window:,} and {longest:,}: {read} is padded to whole windows of the"
                " longest, which are no whole number of the others"
            )
    return every


def windowed(block: Block, windows: Sequence[int]) -> tuple[Stack, ...]:
    """Stacks of blocks like this one, with attention in these windows."""
    of_window = {size: _in_windows(block, size, max(windows)) for size in windows}
    return stacks([of_window[size] for size in windows])


def _in_windows(block: Block, window: int, longest: int) -> Block:
    plain, network = (sublayer.part for sublayer in block.sublayers)
    own: dict[str, Any] = {field.name: getattr(plain, field.name) for field in fields(Attention)}
    attention = OverlappingAttention(**own, half=window // 2, longest=longest)
    return Block.of(attention, network, norm=block.sublayers[0].post_norm or block.sublayers[0].norm, order=block.order)
