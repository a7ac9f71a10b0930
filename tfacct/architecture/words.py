"""Parts in words, for messages that name one."""

from __future__ import annotations

import re

from tfacct.architecture.parts import Part

NAMES = {
    "AltUp": "AltUp",
    "DeltaNet": "DeltaNet",
    "Mamba": "Mamba",
    "Mamba2": "Mamba-2",
    "ChannelMix": "RWKV's mixing of channels",
    "TimeMix": "RWKV's mixing of tokens",
    "HeadedMamba": "Mamba with heads",
    "HyperConnection": "hyper-connections",
    "HyperHead": "hyper-connections",
    "HyperResult": "hyper-connections",
    "PerLayerEmbedding": "per-layer embeddings",
    "PerLayerInput": "per-layer embeddings",
    "Scale": "a scaled stream",
}
"""Parts that have a name of their own, or that are many of a kind."""


def in_words(part: Part) -> str:
    """A part as a message names it: `ShortConvolution` is a short convolution."""
    name = type(part).__name__
    return NAMES.get(name) or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
