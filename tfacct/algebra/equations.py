"""Equations between metrics, as a user types them: `kv_cache_bytes=weights_bytes`, `share.attn=50%`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from tfacct.accounts.metrics import Metric, Point, metric
from tfacct.base import units
from tfacct.base.errors import NotFoundError, UsageError, cut
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.einsum import Size

_SIDE = re.compile(r"(?:(\d+(?:\.\d+)?)\s*\*\s*)?([a-z_][\w.]*)", re.ASCII)


@record
class Side:
    """A side of an equation: `times` × a metric, or the number `times`, in bytes if `sized`."""

    text: str
    times: Fraction
    metric: Metric | None = None
    sized: bool = False

    def at(self, point: Point) -> Size:
        """Value at a point; exact for ints."""
        if self.metric is None:
            return self.times
        value = self.metric.of(point)
        return value * (self.times.numerator if self.times.denominator == 1 else self.times)


@record
class Equation:
    """An equation of two sides, `left = right`."""

    left: Side
    right: Side

    @property
    def metrics(self) -> list[Metric]:
        """The metrics of both sides."""
        return [side.metric for side in (self.left, self.right) if side.metric is not None]

    def difference(self, point: Point) -> Size:
        """Left − right at a point."""
        return self.left.at(point) - self.right.at(point)

    def __str__(self) -> str:
        return f"{self.left.text} = {self.right.text}"


def read(text: str, point: Point) -> Equation:
    """Parse an equation: `kv_cache_bytes=weights_bytes`, `total_bytes=24GiB`, `share.attn=0.5`. Raises UsageError."""
    sides = [side.strip() for side in text.split("=")]
    if len(sides) != 2 or not all(sides):
        raise UsageError(f"{option('until')} is LEFT=RIGHT, not {text!r}", 'for example "kv_cache_bytes=weights_bytes"')
    named = [_metric_side(side, point) for side in sides]
    units_ = [side.metric.unit for side in named if side is not None and side.metric is not None]
    left, right = (side or _number_side(text, units_) for side, text in zip(named, sides, strict=True))
    if left.metric is None and right.metric is None:
        raise UsageError(f"{text!r} has no metric on either side", 'for example "total_bytes=24GiB"')
    if left.metric is None:
        left, right = right, left
    assert left.metric is not None
    _comparable(left.metric, right)
    return Equation(left, right)


def _metric_side(text: str, point: Point) -> Side | None:
    """Side with a metric or a multiple of one; None if the text is not a name."""
    match = _SIDE.fullmatch(text)
    if match is None:
        return None
    try:
        return Side(text, Fraction(match[1] or 1), metric(match[2], [point.ledger]))
    except NotFoundError as error:
        if match[2].startswith(("flops.", "share.")):
            half = option("until", "share.attn_scores_values=0.5")
            error.hint = f"{error.hint}; {half} is where attention takes half of all FLOPs"
        raise


def _number_side(text: str, units_: Sequence[str]) -> Side:
    """Side with a number. The units of the other side decide whether `8B` is parameters or bytes."""
    if "bytes" in units_ and re.fullmatch(r"[\d.]+(e\+?\d+|\s*[KMGTP]i?)", text, re.IGNORECASE):
        text += "B"
    sized = re.fullmatch(r".*[\d\s]([KMGTP]i?)?B", text, re.IGNORECASE) is not None
    if sized and ("bytes" in units_ or units.read_number(text) is None):
        size = Fraction(units.read_bytes(option("until"), text))
        return Side(re.sub(r"(?<=\d)(?=[KMGTPB])", " ", text), size, sized=True)
    number = units.read_number(text.removesuffix("%"))
    if number is None or len(text) > 40:
        raise UsageError(f"{cut(text, 60)!r} is neither a metric nor a number", "for example 24GiB, 6e9, 50% or 4.5T")
    return Side(text, number / 100 if text.endswith("%") else number)


def _comparable(left: Metric, right: Side) -> None:
    """Check that both sides have the same unit. Raises UsageError."""
    if right.metric is not None:
        if right.metric.unit != left.unit:
            raise UsageError(f"{left.name} is in {left.unit}, {right.metric.name} in {right.metric.unit}")
    elif (left.unit == "bytes") != right.sized:
        wanted = "a size with its unit: 24GiB, 80GB" if left.unit == "bytes" else "a number without bytes: 0.5, 4.5T"
        what = "a share" if left.unit == "share" else f"in {left.unit}"
        raise UsageError(f"{left.name} is {what}, so it cannot be {right.text!r}", wanted)
    elif left.unit == "share" and not 0 < right.times < 1:
        raise UsageError(f"{left.name} is a share, between 0 and 1, so it cannot be {right.text!r}")
