"""FLOPs per token, and the part of a device's peak that they are: model FLOPs utilization (MFU)."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, get_args

from tfacct.accounts.metrics import Point, flops_of, moved, rule_of_thumb
from tfacct.base.errors import UsageError, nearest
from tfacct.base.spelling import option
from tfacct.ledger import paths

Convention = Literal["palm", "full"]
"""palm: 6·N + 12·L·H·Q·T, as most reports of MFU count. full: every product, all T × S pairs, as tfacct counts."""


def flops_per_token(point: Point, convention: Convention = "full") -> Fraction:
    """FLOPs per new token of a forward pass or, for a Point that trains, of a training step. Raises UsageError."""
    if convention not in get_args(Convention):
        said = f"{option('convention')} is palm or full, not {convention!r}"
        raise UsageError(said, nearest(str(convention), get_args(Convention)))
    whole = _palm(point) if convention == "palm" else flops_of(point)
    return Fraction(int(whole), int(point.tokens))


def _palm(point: Point) -> int:
    """FLOPs by PaLM's formula, for all tokens: per token 6·N + 12·L·H·Q·T in training, a third of it forward.

    Chowdhery et al., "PaLM" (arXiv 2204.02311), appendix B. N are the parameters that a token meets, embeddings
    included; T is the context, in blocks with a window too; 12·L·H·Q are the FLOPs of scores and values in training for
    each key, with H heads of size Q in L blocks.
    """
    if point.work.source or point.ledger.instead is not None or point.ledger.together > 1:
        kind = "a decoder alone" if point.ledger.instead is None else "a model without latent attention"
        raise UsageError(f"PaLM's formula is that of {kind}", f"{option('convention', 'full')} counts every product")
    one_pair = moved(point, context=1, tokens=1, batch=1)
    each_key = flops_of(one_pair, lambda _path, line: paths.component_of(line) == paths.SCORES)
    return int(rule_of_thumb(point) + each_key * point.work.context * point.tokens)


def utilization(per_token: float, tokens_per_second: float, peak: float) -> float:
    """Part of the `peak`, in FLOP/s, that tokens at this speed use."""
    return per_token * tokens_per_second / peak


def above_peak(share: float) -> str | None:
    """The warning about a utilization that no device reaches; None at or below 100 %."""
    if share <= 1:
        return None
    return f"MFU of {share:.0%} is above 100%: the peak or the speed is misstated, or the kernel skips masked pairs."
