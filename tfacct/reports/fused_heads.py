"""Heads that torch's fused kernels of attention do not take as they are, and what runs instead."""

from __future__ import annotations

from tfacct.architecture.parts import Attention, LatentAttention
from tfacct.architecture.transformer import Transformer

WIDEST, STEP = 256, 8
"""The widest head that torch's flash kernel takes, and what it pads others to a multiple of."""


def beyond_kernels(shape: Transformer, *, full: bool) -> str | None:
    """Reason why a step with sdpa is not counted, `full` in fp32; None if it is."""
    for part in shape.attentions:
        latent = isinstance(part, LatentAttention)
        widths = (part.query, part.value_dim) if isinstance(part, LatentAttention) else (part.axes()["H"],)
        heads = next((one for one in widths if one % STEP or (one > WIDEST and not latent)), None)
        if heads is not None:
            return f"sdpa has not been measured with heads of {heads}: {_instead(heads, flash=not full and not latent)}"
        if full and isinstance(part, Attention) and part.group != 1:
            return (
                "the formula has no grouped heads in fp32 with sdpa: torch runs its math kernel for them, which saves"
                " the scores of all queries and keys"
            )
    return None


def _instead(heads: int, *, flash: bool) -> str:
    measured = f"multiples of {STEP} up to {WIDEST} have"
    if not flash:  # in fp32, or where queries and values differ in width, the flash kernel does not run at all
        return measured
    if heads > WIDEST:
        return f"{measured}, and torch's flash kernel takes none wider, so another one would run"
    return f"{measured}, and torch pads others for its flash kernel, here to {-(-heads // STEP) * STEP}"
