"""A collective, and the bytes that one rank sends for it."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import ceil
from typing import Literal, NamedTuple, TypeAlias, get_args

from tfacct.ledger.einsum import rounded_up

Kind: TypeAlias = Literal["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "send"]
Over: TypeAlias = Literal["tp", "cp", "ulysses", "ep", "pp", "fsdp", "dp"]
When: TypeAlias = Literal["forward", "recompute", "backward", "update"]
Of: TypeAlias = Literal["stream", "shared weights", "weights", "experts", "logits", "keys", "heads"]


class Collective(NamedTuple):
    """The calls of one collective in a step, needed by the ledger line `what`.

    `bytes`: size of all results on one rank. `sent`: bytes that one rank sends, in a ring or to each other rank.
    `because`: the axis that requires the collective. `of`: what is sent: the residual stream, weights that every `tp`
    rank has, an FSDP unit, tokens of experts, logits, keys and values, or heads."""

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
    """A ring collective with a result of `result` bytes. A rank sends all shards but one for an all-gather, as many for
    a reduce-scatter, and both for an all-reduce."""
    shares = {"all-gather": 1, "all-reduce": 2, "reduce-scatter": 1}[kind]
    share = result if kind == "reduce-scatter" else rounded_up(result, ranks)
    sent = shares * (ranks - 1) * share
    return Collective(what, kind, over, when, of, calls, calls * result, calls * sent, because)


def to_all(what: str, when: When, calls: int, given: int | Fraction, result: int | Fraction, ranks: int) -> Collective:
    """An all-to-all over `ep`. A rank keeps one of the equal parts of its tensor; bytes are rounded up."""
    sent = ceil(Fraction(given * (ranks - 1), ranks))
    return Collective(what, "all-to-all", "ep", when, "experts", calls, calls * ceil(result), calls * sent, "E")


def sent_over(lines: Iterable[Collective]) -> dict[str, int]:
    """Sent bytes by axis of the layout, and collective if the axis has one: `all-to-all over ep`."""
    lines, found = [line for line in lines if line.sent], dict[str, int]()
    for axis in get_args(Over):
        of_axis = [line for line in lines if line.over == axis]
        kinds = {line.kind for line in of_axis}
        name = f"{kinds.pop()} over {axis}" if len(kinds) == 1 else f"over {axis}"
        found |= {name: sum(line.sent for line in of_axis)} if of_axis else {}
    return found
