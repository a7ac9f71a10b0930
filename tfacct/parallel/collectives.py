"""A collective, and what one rank sends for it."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Literal, NamedTuple, TypeAlias

from tfacct.ledger.einsum import rounded_up

Kind: TypeAlias = Literal["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "send"]
Over: TypeAlias = Literal["tp", "cp", "ulysses", "ep", "pp", "fsdp", "dp"]
When: TypeAlias = Literal["forward", "backward", "update"]
Of: TypeAlias = Literal["stream", "shared weights", "weights", "experts", "logits", "keys", "heads"]


class Collective(NamedTuple):
    """Calls of a collective that a line of the ledger, `what`, needs in a step.

    `bytes`: of all results on one rank. `sent`: bytes that one rank sends, in a ring or to each other rank. `because`:
    the axis that it follows from. `of`: the residual stream, weights that every rank of `tp` has, the weights of a unit
    of FSDP, tokens of experts, logits, keys and values, or heads."""

    what: str
    kind: Kind
    over: Over
    when: When
    of: Of
    calls: int
    bytes: int
    sent: int
    because: str


def collective(
    what: str, kind: Kind, over: Over, when: When, of: Of, calls: int, result: int, ranks: int, because: str
) -> Collective:
    """A collective whose `result` has so many bytes, run as a ring: a rank sends all shards but one of a gathered
    result, as many of a scattered one, and both for an all-reduce."""
    shares = {"all-gather": 1, "all-reduce": 2, "reduce-scatter": 1}[kind]
    share = result if kind == "reduce-scatter" else rounded_up(result, ranks)
    sent = shares * (ranks - 1) * share
    return Collective(what, kind, over, when, of, calls, calls * result, calls * sent, because)


def to_all(what: str, when: When, calls: int, given: int | Fraction, result: int | Fraction, ranks: int) -> Collective:
    """An all-to-all over `ep`: a rank keeps one of the equal parts of what it gives. Bytes are rounded up."""
    sent = ceil(Fraction(given * (ranks - 1), ranks))
    return Collective(what, "all-to-all", "ep", when, "experts", calls, calls * ceil(result), calls * sent, "E")
