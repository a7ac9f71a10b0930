"""What of the transformers classes runs in fp32 under autocast, beside products in 16 bits."""

from __future__ import annotations

from collections.abc import Iterable

from tfacct.ledger.kept import Held, Kept, Role, Run

WIDE: dict[Role, Role | None] = {"work": "full", "upcast": "full", "cast": None, "copy": None}
"""Roles of a pass in fp32, as they are where another part of it is in 16 bits; None: no such tensor is made."""
STREAM_WIDE = Held("B T D", "full")


def as_full(run: Run) -> Run:
    """The run of a pass in fp32, beside parts in 16 bits."""
    kept = tuple(
        Kept(line.path, line.spec, line.by, role, line.times)
        for line in run.kept
        if (role := WIDE.get(line.role, line.role)) is not None
    )
    moments = tuple(moment._replace(held=full(moment.held)) for moment in run.moments)
    ahead = tuple(moment._replace(held=full(moment.held)) for moment in run.ahead)
    return Run(run.order, kept, moments, ahead, full(run.early))


def full(tensors: Iterable[Held]) -> tuple[Held, ...]:
    return tuple(held._replace(role=role) for held in tensors if (role := WIDE.get(held.role, held.role)) is not None)
