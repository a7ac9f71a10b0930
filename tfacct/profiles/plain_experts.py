"""Experts written out in the pass's dtype, by what their classes choose them by."""

from __future__ import annotations

from tfacct.architecture.parts import Experts
from tfacct.base.errors import ConfigError
from tfacct.ledger.kept import Run
from tfacct.profiles import plain
from tfacct.profiles import plain_operations as own
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
    beside = how.habits.scored_first
    others = part.shared is None or part.shared_gate or part.shared_bias if beside else part.shared_width is not None
    if part.bias or others or part.activation not in SMOOTH:
        raise ConfigError(f"{how.name}: no rule for experts with biases or beside a shared network")
    ones = frozenset("B") if how.batch == 1 else frozenset[str]()
    ones |= frozenset("A") if part.active == 1 else frozenset[str]()

    def write(t: Trace, x: Value) -> Value:
        if beside:
            return _beside(t, x, at)
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


def _beside(t: Trace, x: Value, at: str) -> Value:
    """AfmoeSparseMoeBlock: the router, the shared network, the experts; both results are the block's to its end."""
    logits = ops.cast(t, plain.linear(t, x, f"{at}.router", ("E",)), "full")
    scores = ops.activation(t, logits, f"{at}.router.act", result=True)
    corrected = [t.new(axes, "full") for axes in (EVERY, CHOSEN)]
    shares, _index = chosen(t, scores, f"{at}.router.act.chosen")
    shares = divided(t, shares, f"{at}.router.act.sum")
    shares = ops.scaled(t, shares)
    del corrected, scores
    shared = _network(t, x, f"{at}.shared")
    routed = ops.cast(t, grouped(t, x, shares, trained=True), "work")
    return ops.total(t, shared, routed)


def _network(t: Trace, x: Value, at: str) -> Value:
    """The shared network, gated."""
    act = ops.activation(t, plain.linear(t, x, f"{at}.gate_proj", ("Fs",)), f"{at}.act")
    up = plain.linear(t, x, f"{at}.up_proj", ("Fs",))
    both = own.times(t, act, up, f"{at}.product", f"{at}.product")
    del act, up
    return plain.linear(t, both, f"{at}.down_proj", ("D",))


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
