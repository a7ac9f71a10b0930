"""Parts of blocks that are written out, by their places."""

from __future__ import annotations

from typing import NamedTuple

from tfacct.architecture.parts import Attention, FeedForward, Norm


class Parts(NamedTuple):
    """Parts of a block, each behind its norm. Without a second norm both read what the first gives."""

    attn_norm: Norm
    attn: Attention
    mlp_norm: Norm | None
    mlp: FeedForward
