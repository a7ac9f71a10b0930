"""What the reference model keeps of several residual streams, which each sublayer reads a weighted sum of."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import HyperConnection, HyperHead
from tfacct.ledger.kept import Kept
from tfacct.profiles.reference_lines import Lines

STREAMS = "B T Xm D"


def before(own: Lines, at: str, reads: str, part: HyperConnection, *, alike: bool) -> Iterator[Kept]:
    """The norm of all streams, weights made of it, and the sum that is read. `alike`: they are one vector still, of
    which all are views, and the norm reads a copy of them side by side."""
    weights = f"{at}.weights"
    every = "Xw" if part.mixes else "Xk"
    yield from _norm(own, f"{at}.norm", f"{at}.streams" if alike else reads)
    yield Kept(f"{at}.norm", STREAMS, by=(f"{weights}.weight",))
    yield Kept(weights, f"B T {every}", by=(f"{at}.base",))
    yield from _squashed(f"{at}.squashed", part)
    mix = (f"{at}.mix",) if part.mixes else ()
    yield Kept(reads, "B T D" if alike else STREAMS, by=(f"{at}.read", *mix))
    yield Kept(f"{at}.squashed", f"B T {every}", by=(f"{at}.read", f"{at}.result", *mix))


def _norm(own: Lines, at: str, reads: str) -> Iterator[Kept]:
    yield from own.rms(at, reads, STREAMS, "B T", "", less_one=False, scaled=False)


def _squashed(at: str, part: HyperConnection) -> Iterator[Kept]:
    """Weights between bounds; a matrix by a softmax, divided by the sums of its columns and rows in turn."""
    for name in ("reads", "gives"):
        yield Kept(f"{at}.{name}", "B T Xm", by=(at,))
    if part.mixes:
        yield Kept(f"{at}.softmax", "B T Xm Xn", by=(at,))
        divisions = 2 * max(part.rounds, 1) - 1  # the first is by columns alone
        yield Kept(f"{at}.divided", "B T Xm Xn", by=(at,), times=divisions)
        yield Kept(f"{at}.sums", "B T Xn", by=(at,), times=divisions)


def behind(at: str, result: str) -> Iterator[Kept]:
    """A sublayer's result, which goes to all streams."""
    yield Kept(result, "B T D", by=(f"{at}.result",))


def hyper_head(own: Lines, reads: str, part: HyperHead) -> Iterator[Kept]:
    """The norm of all streams, a weight of each, and their sum; a mean keeps nothing."""
    if not part.weighs:
        return
    at = part.name
    yield from _norm(own, f"{at}.norm", reads)
    yield Kept(f"{at}.norm", STREAMS, by=(f"{at}.weights.weight",))
    yield Kept(f"{at}.weights", "B T Xm", by=(f"{at}.base",))
    yield Kept(f"{at}.squashed", "B T Xm", by=(f"{at}.squashed",))
    yield Kept(reads, STREAMS, by=(f"{at}.sum",))
    yield Kept(f"{at}.bounded", "B T Xm", by=(f"{at}.sum",))
