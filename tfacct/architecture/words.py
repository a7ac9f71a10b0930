"""Names of parts in messages."""

from __future__ import annotations

import re

from tfacct.architecture.parts import Part


def in_words(part: Part) -> str:
    """A part as a message names it: `ShortConvolution` is a short convolution."""
    return part.label or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(part).__name__).lower()
