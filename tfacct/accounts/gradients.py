"""Bytes of gradients by the operation that finishes each, in the backward pass of a training step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, partial
from itertools import accumulate

from tfacct.accounts.training import ENDS, Step
from tfacct.ledger.einsum import Size
from tfacct.ledger.groups import Group

TABLE, POSITIONS, HEAD = "embed", "pos_embed", "lm_head.weight"
PRODUCT_BIAS = "_proj.bias"


class Gradients:
    """Gradients of a step: `of` the first block of a kind and an operation, and those of `biases` among them, which
    come last, by the kind. `tied`: the token table's, where the head has made one too. `rows`: the table's."""

    def __init__(self, step: Step) -> None:
        self.all: Size = 0
        self.of: dict[tuple[int, str], Size] = {}
        self.biases: dict[int, dict[str, Size]] = {}
        self.rows: Size = 0
        own = set[str]().union(*(section.run.order for section in step.run.sections))
        for kind, path, bytes_, copies in step.gradients():
            itself = path in own and path.endswith(".bias")
            owner = kind, path if itself else _operation(path)
            self.of[owner] = self.of.get(owner, 0) + bytes_
            if path.endswith(PRODUCT_BIAS) and not itself:
                self.biases.setdefault(kind, {})[owner[1]] = bytes_
            if path == "embed.weight":
                self.rows += bytes_
            self.all += copies * bytes_
        self.tied = self.rows if _twice(step) else 0
        if TABLE not in step.run.front.run.order:  # a stage behind the first has a tied table as its head alone
            self.of[ENDS, HEAD] = self.of.pop((ENDS, TABLE), self.of.get((ENDS, HEAD), 0))
        self.of[ENDS, HEAD] = self.of.get((ENDS, HEAD), 0) + self.tied
        self._behind: dict[tuple[int, tuple[str, ...]], list[Size]] = {}

    def behind(self, kind: int, order: tuple[str, ...]) -> list[Size]:
        """Bytes of those that are finished once a place of an order is, of a kind of block, and beyond the last: none.
        Nobody may change the list, which kinds have together whose gradients are alike."""
        key = kind, order
        if key not in self._behind:
            found = suffixes(order, kind, self.of)
            own = order, found, self.biases.get(kind)
            known = self._behind.items()
            alike = (one for (other, names), one in known if (names, one, self.biases.get(other)) == own)
            self._behind[key] = next(alike, found)
        return self._behind[key]


def gradients_of(step: Step) -> Gradients:
    """Gradients of a step: they are worked out once, for whatever batch; of adapters once for these."""
    orders = [section.run.order for section in step.run.sections]
    key: tuple[object, ...] = (Gradients, step.stored, step.side, step.run.frozen, *orders)
    known = step.ledger.known
    if step.adapters:
        numbers = tuple([(section.count, section.numbers[0]) for section in step.run.blocks])
        key = (*key, id(step.adapters), numbers)
    if key not in known:
        known[key] = step.adapters, Gradients(step)  # the adapters stay, and with them what they are known by
    found: Gradients = known[key][1]
    return found


def suffixes(order: Iterable[str], kind: int, gradients: Mapping[tuple[int, str], Size]) -> list[Size]:
    """Bytes of the gradients that are finished once a place of the order is, and beyond the last: none."""
    sizes = [gradients.get((kind, name), 0) for name in order]
    return [*accumulate(reversed(sizes), initial=0)][::-1]


def _twice(step: Step) -> bool:
    """True if the table's gradient is made by the head too."""
    if TABLE not in step.run.front.run.order:
        return False
    if step.side == "encoder":
        return step.shares_table()
    return any(group.own.once(_twice, partial(_tied_head, group)) for group in step.ledger.groups)


def _tied_head(group: Group) -> bool:
    return any(line.path == "lm_head" and getattr(line, "weight", None) for line in group.lines)


@cache
def _operation(path: str) -> str:
    """The operation whose backward finishes a parameter's gradient."""
    owner, _, _ = path.rpartition(".")
    return owner if owner in (TABLE, POSITIONS) else f"{owner}.weight"
