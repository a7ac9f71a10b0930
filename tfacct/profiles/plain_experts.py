"""Experts written out in the pass's dtype, by what their classes choose them by."""

from __future__ import annotations

from tfacct.architecture.parts import Experts
from tfacct.base.errors import ConfigError
from tfacct.ledger.kept import Run
from tfacct.profiles import plain
from tfacct.profiles import written_operations as ops
from tfacct.profiles.transformers_attention import Attending
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_experts import CHOSEN, grouped
from tfacct.profiles.written_networks import SMOOTH
from tfacct.profiles.written_operations import ROWS
from tfacct.profiles.written_storage import Axes, Storage

EVERY: Axes = (*ROWS, "E")


def experts(at: str, reads: str, part: Experts, how: Attending) -> Run:
    """The run of experts. Raises ConfigError for those without a rule."""
    if part.bias or part.shared_width is not None or part.activation not in SMOOTH:
        raise ConfigError(f"{how.name}: no rule for experts with biases or beside a shared network")
    ones = frozenset("B") if how.batch == 1 else frozenset[str]()
    ones |= frozenset("A") if part.active == 1 else frozenset[str]()

    def write(t: Trace, x: Value) -> Value:
        shares, _index = _scored(t, x, f"{at}.router", how)
        return grouped(t, x, shares, trained=True)

    key = at, repr(part), how.habits
    return plain.part(reads, write, ones, key, full=how.full, apart=how.habits.apart)


def _scored(t: Trace, x: Value, at: str, how: Attending) -> tuple[Value, Storage]:
    """Lfm2MoeTopKRouter: sigmoids of all scores, those of the chosen experts made to sum to 1, times a constant."""
    logits = plain.linear(t, x, at, ("E",))
    scores = ops.activation(t, logits, f"{at}.sigmoid", result=True)
    _corrected = [t.new(axes, "full") for axes in (EVERY, CHOSEN) if how.habits.corrected]  # and the highest of them
    shares, index = chosen(t, scores, f"{at}.softmax")
    if how.habits.shared_out:
        shares = divided(t, shares, f"{at}.sum")
    return ops.scaled(t, shares), index


def chosen(t: Trace, scores: Value, name: str) -> tuple[Value, Storage]:
    """The scores of the experts that a token is sent to, and which they are."""
    role = scores.role
    t.named(name)
    index = t.new(CHOSEN, "index", f"{name}.chosen")
    node = t.node((scores.node,), lambda b, _g: (b.new(EVERY, role),))
    t.save(node, index)
    t.after = True
    return Value(t.new(CHOSEN, role, f"{name}.shares"), CHOSEN, node), index


def divided(t: Trace, shares: Value, name: str) -> Value:
    """Shares of a token divided by their sum."""
    role = shares.role
    total = Value(t.new(ROWS, role), ROWS, t.node((shares.node,), lambda _b, g: (g,)))
    total = Value(t.new(ROWS, role, name), ROWS, total.node)  # a little more
    t.named(name)

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        made = b.new(CHOSEN, role)
        others = [b.new(CHOSEN, role) for _ in range(3)]
        summed = b.new(ROWS, role)
        del others
        return [made, summed]

    node = t.node((shares.node, total.node), back)
    t.save(node, total.storage, shares.storage)
    t.after = True
    return Value(t.new(CHOSEN, role), CHOSEN, node)
