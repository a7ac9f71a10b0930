"""What experts of the reference model keep: the router, their own networks, and the one that all tokens go through."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import Experts
from tfacct.ledger.kept import Kept
from tfacct.profiles.reference_lines import Lines, is_

ROOTED = "sqrtsoftplus"
"""A scoring whose root is taken last: it keeps what the router made, and the result."""


def experts(own: Lines, at: str, reads: str, part: Experts) -> Iterator[Kept]:
    """Experts: gate and up each keep their own rows of the tokens that they were sent."""
    if part.scoring not in ("softmax", "sigmoid", ROOTED):
        raise own.refuse(f"experts that are scored by {part.scoring}")
    yield from _routed(own, at, reads, part)
    weighting, wide = f"{at}.weighting", "D" if part.latent is None else "Dl"
    sent = reads
    if part.norms is not None:
        sent = f"{at}.experts_norm"
        yield from _normed(own, sent, reads)
    if part.latent is not None:
        sent, given = f"{at}.latent_down", sent
        yield Kept(given, "B T D", by=(f"{sent}.weight",))
    if part.latent_norms is not None:
        yield from own.rms(f"{at}.latent_norm", sent, "B T Dl", "B T", "Dl", less_one=True)
        sent = f"{at}.latent_norm"
    yield from _bank(own, f"{at}.experts", sent, part, wide)
    made, rows = f"{at}.experts.down_proj.result", f"B T A {wide}"
    if part.latent_norms is not None:
        yield from own.scaled_first(f"{at}.result_norm", made, rows, "B T A", wide)
        made = f"{at}.result_norm"
    yield Kept(f"{at}.shares", "B T A", by=(weighting,))
    yield Kept(made, rows, by=(weighting,))
    if part.latent is not None:
        yield Kept(f"{at}.weighted", f"B T {wide}", by=(f"{at}.latent_up.weight",))
    if part.norms is not None:
        yield from _normed(own, f"{at}.experts_post_norm", f"{at}.weighted")
    if part.shared_width is not None:
        yield from _shared(own, at, reads, part)


def _normed(own: Lines, at: str, reads: str) -> Iterator[Kept]:
    """An RMSNorm of the stream."""
    yield from own.rms(at, reads, "B T D", "B T", "D", less_one=False)


def _routed(own: Lines, at: str, reads: str, part: Experts) -> Iterator[Kept]:
    """The router's scores, and which of them are chosen."""
    routing, gather, spec = f"{at}.routing", f"{at}.gather", f"B T {'E' if part.idle is None else 'Er'}"
    if part.norms is not None:
        yield from _normed(own, f"{at}.router_norm", reads)
        reads = f"{at}.router_norm.scaled"
    if part.router_width is None:
        yield Kept(reads, "B T D", by=(f"{at}.router.weight",))
    else:
        yield from _network(own, f"{at}.router", reads, follows=part.follows)
    yield Kept(routing, spec, by=(routing, *(() if part.norms is not None else (gather,))))
    if part.norms is not None:
        yield Kept(f"{routing}.weighed", spec, by=(gather,))
    if part.scoring == ROOTED:
        yield Kept(f"{at}.router", spec, by=(routing,))
    yield Kept(f"{at}.chosen", "B T A", by=(gather,), role="index")
    if part.scaling is not None:  # shares are divided by their sum
        yield Kept(f"{at}.unscaled", "B T A", by=(f"{at}.division",))
        yield Kept(f"{at}.sum", "B T", by=(f"{at}.division",))


def _network(own: Lines, at: str, reads: str, *, follows: bool) -> Iterator[Kept]:
    """A router that is a network: what it reads behind its first product, and what the router before read there."""
    now, spec = f"{at}.down_proj", "B T Rr"
    yield Kept(reads, "B T D", by=(f"{now}.weight",))
    if follows:
        now = f"{at}.follow"
        yield Kept(f"{now}.before", spec, by=(now,))
    yield from own.rms(f"{at}.norm", now, spec, "B T", "Rr", less_one=False)
    yield Kept(f"{at}.norm", spec, by=(f"{at}.fc1.weight",))
    yield from own.activated(f"{at}.act1", f"{at}.fc1", "gelu", "B T Rm", (f"{at}.fc2.weight",))
    yield from own.activated(f"{at}.act2", f"{at}.fc2", "gelu", spec, (f"{at}.out_proj.weight",))


def _shared(own: Lines, at: str, reads: str, part: Experts) -> Iterator[Kept]:
    """The network that all tokens go through."""
    read = reads
    if part.norms is not None:
        read = f"{at}.shared_norm"
        yield from _normed(own, read, reads)
    yield from own.network(
        f"{at}.shared", read, part.shared_axis, part.activation, gated=part.gated, bound=part.bound is not None
    )
    if part.norms is not None:
        yield from _normed(own, f"{at}.shared_post_norm", f"{at}.shared.out")
    if part.shared_gate:
        weighting = f"{at}.shared_weighting"
        yield Kept(reads, "B T D", by=(f"{at}.shared_gate.weight",))
        yield Kept(f"{at}.shared_gate", "B T", by=(f"{at}.sigmoid", weighting))
        yield Kept(f"{at}.shared.out", "B T D", by=(weighting,))


def _bank(own: Lines, at: str, reads: str, part: Experts, wide: str) -> Iterator[Kept]:
    """The experts' own networks; `wide`: the letter of what they read."""
    gate, up, down, act = (f"{at}.{which}" for which in ("gate_proj", "up_proj", "down_proj", "act"))
    viewed = is_(part.active, 1) or (is_(own.batch, 1) and is_(own.tokens, 1))
    for product in (gate, up) if part.gated else (up,):
        rows = Kept(reads, f"B T {wide}", by=(f"{product}.weight",))
        yield rows if viewed else Kept(f"{product}.rows", f"B T A {wide}", by=rows.by)
    if part.gated:
        yield from own.gated(
            act, gate, up, part.activation, "B T A Fe", (f"{down}.weight",), bound=part.bound is not None
        )
    else:
        yield from own.activated(act, up, part.activation, "B T A Fe", (f"{down}.weight",))
