"""Names of parts in messages, and of attention in transformers' classes."""

from __future__ import annotations

import re

from tfacct.architecture.parts import Part

ATTENTION_MODULES = frozenset(("self_attn", "attn", "attention", "self_attention", "linear_attn"))
"""Names of attention modules in transformers' classes, also of linear attention."""


def in_words(part: Part) -> str:
    """Name of a part in a message: `ShortConvolution` is a short convolution."""
    return part.label or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(part).__name__).lower()
