"""Attention of Longformer and LED: windows that overlap by half, over sequences padded to whole windows."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from tfacct.architecture.blocks import Block, Stack, stacks
from tfacct.architecture.parts import Attention, OverlappingAttention
from tfacct.base.errors import ConfigError


def chunk_attention_modules(theirs: str) -> dict[str, str]:
    """Modules of attention except its last projection; global tokens have projections of their own."""
    names = {"q": "query", "k": "key", "v": "value"}
    return {
        **{f"attn.{our}_proj": f"{theirs}.{their}" for our, their in names.items()},
        **{f"attn.{our}_global_proj": f"{theirs}.{their}_global" for our, their in names.items()},
        "attn.scores": theirs,
        "attn.values": theirs,
    }


def window_sizes(attention_window: int | list[int], layers: int, field: str, padded: str) -> list[int]:
    """The window of each layer; `field` has the number of layers, `padded` is what is padded. Raises ConfigError."""
    windows = attention_window if isinstance(attention_window, list) else [attention_window] * layers
    if len(windows) != layers:
        raise ConfigError(f"attention_window has {len(windows)} entries for {field} = {layers:,}")
    longest = max(windows)
    for window in windows:
        if window % 2:
            raise ConfigError(f"attention_window = {window:,} is odd: half of it lies on each side of a token")
        if window == 2:
            raise ConfigError("attention_window = 2: the class takes none of fewer than 4 tokens")
        if longest % window:
            raise ConfigError(
                f"attention_window has {window:,} and {longest:,}: {padded} is padded to whole windows of the"
                " longest, which are no whole number of the others"
            )
    return windows


def with_windows(block: Block, windows: Sequence[int]) -> tuple[Stack, ...]:
    """Layers like this one, with attention in these windows."""
    attention, *others = block.sublayers
    sizes: dict[str, Any] = {field.name: getattr(attention.part, field.name) for field in fields(Attention)}

    def windowed(window: int) -> Block:
        part = OverlappingAttention(**sizes, half=window // 2, longest=max(windows))
        return replace(block, sublayers=(replace(attention, part=part), *others))

    blocks = {window: windowed(window) for window in windows}
    return stacks([blocks[window] for window in windows])
