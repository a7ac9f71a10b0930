"""Names of parts in messages."""

from __future__ import annotations

import re

from tfacct.architecture.parts import Part


def in_words(part: Part) -> str:
    """Name of a part in a message: `ShortConvolution` is a short convolution."""
    return part.label or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(part).__name__).lower()
