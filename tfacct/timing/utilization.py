"""FLOPs per token, and their share of a device's peak: model FLOPs utilization (MFU)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import inf
from typing import Any, Literal

from tfacct.accounts.metrics import Point, flops_of, moved, rule_of_thumb
from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError, nearest
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.loading.devices import Device

Convention = Literal["full", "causal", "palm", "6nd"]
"""How FLOPs per token are counted; `CONVENTIONS` says what each counts."""
CONVENTIONS: Mapping[Convention, str] = {
    "full": "full attention",
    "causal": "causal pairs only",
    "palm": "PaLM: 6·N + 12·L·H·Q·T",
    "6nd": "6·N·D, no attention",
}
FORWARD: Mapping[Convention, str] = {**CONVENTIONS, "palm": "PaLM: 2·N + 4·L·H·Q·T", "6nd": "2·N·D, no attention"}
"""Every product with all T × S pairs, as `flops` counts; the same with the visible pairs alone; the formula of most
published MFU; the rule of thumb. `FORWARD`: of a forward pass, a third of the last two."""


def flops_per_token(point: Point, convention: Convention = "full") -> Fraction:
    """FLOPs per new token of a forward pass or, for a Point that trains, of a training step. Raises UsageError."""
    if convention not in CONVENTIONS:
        problem = f"{option('convention')} is {', '.join(CONVENTIONS)}, not {convention!r}"
        raise UsageError(problem, nearest(str(convention), list(CONVENTIONS)))
    if convention == "palm":
        flops = _palm(point)
    elif convention == "6nd":
        flops = int(rule_of_thumb(point))
    else:
        flops = int(flops_of(replace(point, masked=convention == "causal")))
    return Fraction(flops, int(point.tokens))


def conventions(point: Point) -> tuple[dict[Convention, float], list[str]]:
    """FLOPs per new token by convention; and why there are none in others."""
    found: dict[Convention, float] = {}
    missing = []
    for convention in CONVENTIONS:
        try:
            found[convention] = float(flops_per_token(point, convention))
        except TfacctError as error:
            missing.append(error.message)
    return found, missing


def _palm(point: Point) -> int:
    """FLOPs by PaLM's formula, for all tokens: per token 6·N + 12·L·H·Q·T in training, a third of it forward.

    Chowdhery et al., "PaLM" (arXiv 2204.02311), appendix B. N are the parameters that a token meets, embeddings
    included; T is the context, in blocks with a window too; 12·L·H·Q are the FLOPs of scores and values in training for
    each key, with H heads of size Q in L blocks.
    """
    if point.work.source or point.ledger.instead is not None or point.ledger.together > 1:
        kind = "encoder-decoders" if point.ledger.instead is None else "latent attention"
        raise UsageError(f"PaLM's formula does not cover {kind}", f"{option('convention', 'full')} counts every matmul")
    one_pair = moved(point, context=1, tokens=1, batch=1)
    each_key = flops_of(one_pair, lambda _path, line: paths.component_of(line) == paths.SCORES)
    return int(rule_of_thumb(point) + each_key * point.work.context * point.tokens)


def peak_of(device: Device, dtype: str | None = None) -> tuple[str, int]:
    """The dtype that a device multiplies in, bf16 where none is named, and its dense peak in FLOP/s. Raises TfacctError
    for one that it has no units for."""
    name = units.dtype_name(dtype or "bf16")
    if name not in device.peak:
        raise UsageError(f"{device.id} has no {name} units", f"choose {option('dtype')} from {', '.join(device.peak)}")
    return name, device.peak[name]


def above_peak(share: float) -> str | None:
    """The warning about a utilization that no device reaches; None at or below 100%."""
    if share <= 1:
        return None
    return f"MFU of {share:.0%} is above 100%: the peak or the speed is misstated, or the kernel skips masked pairs."


def check_positive(name: str, value: Any, most: float = inf, hint: str | None = None) -> None:
    """Raises UsageError for anything but a number above 0 and at most `most`."""
    try:
        number = 0.0 if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number <= most or number == inf:
        limit = "" if most == inf else f" and at most {most:,}"
        percent = f"{number:g}" if 1 < number <= 100 else "45"
        share = f"for example {float(percent) / 100:g} or {percent}%" if most == 1 else None
        raise UsageError(f"{option(name)} must be a number above 0{limit}, not {value!r}", hint or share)
