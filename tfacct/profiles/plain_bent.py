"""A network of two products whose activation has two learned numbers (xIELU), written out in the pass's dtype."""

from __future__ import annotations

from tfacct.architecture.parts import FeedForward
from tfacct.base.errors import ConfigError
from tfacct.ledger.kept import Run
from tfacct.profiles import plain
from tfacct.profiles import plain_operations as own
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_views as views
from tfacct.profiles.transformers_attention import Attending
from tfacct.profiles.written import LEAF, Trace, Value
from tfacct.profiles.written_storage import Storage


def network(at: str, reads: str, part: FeedForward, how: Attending) -> Run:
    """The run of such a network. Raises ConfigError for one with a gate or biases."""
    if part.gated or part.bias or part.norm is not None:
        raise ConfigError(f"{how.name}: no rule for a network with xIELU and a gate or biases")
    ones = frozenset("B") if how.batch == 1 else frozenset[str]()

    def write(t: Trace, x: Value) -> Value:
        act = xielu(t, plain.linear(t, x, f"{at}.up_proj", ("F",)), f"{at}.act")
        return plain.linear(t, act, f"{at}.down_proj", ("D",))

    return plain.part(reads, write, ones, (at, repr(part)), full=how.full, apart=how.habits.apart)


def xielu(t: Trace, x: Value, at: str) -> Value:
    """XIELUActivation in Python: a square above 0, an exponential below, each times a number of its own."""
    above = _number(t, f"{at}.weight")
    below = _number(t, f"{at}.bias")
    below = Value(t.new((), below.role, f"{at}.below"), (), below.node)  # and a constant
    t.named(f"{at}.where")
    mask = t.new(x.storage.laid, "flag", f"{at}.mask")
    square = own.times(t, x, above, f"{at}.slope", f"{at}.slope.result")
    square = own.times(t, square, x, f"{at}.square")
    line = ops.scaled(t, x)
    upper = ops.total(t, square, line)
    del square, line
    least = _least(t, x, f"{at}.least")
    curve = own.exponent(t, least, f"{at}.exponent", f"{at}.exponent.result")
    del least
    curve = own.less(t, curve, x, path=f"{at}.curve")
    curve = own.times(t, curve, below, f"{at}.bent")
    line = ops.scaled(t, x)
    lower = ops.total(t, curve, line)
    del curve, line
    t.named(f"{at}.where")
    laid, role = x.storage.laid, x.role

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        return [b.new(laid, role) for _ in range(2)]

    node = t.node((upper.node, lower.node), back)
    t.save(node, mask)
    t.after = True
    return Value(t.new(laid, role, f"{at}.result"), x.axes, node)


def _number(t: Trace, name: str) -> Value:
    """A learned number, behind a softplus that keeps it."""
    t.named(name)
    return Value(t.new((), "work", f"{name}.softplus"), (), t.node((LEAF,), views.finish))


def _least(t: Trace, x: Value, name: str) -> Value:
    """The lesser of a tensor and a constant, which compares with it again backwards."""
    t.named(name)
    laid, role = x.storage.laid, x.role

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        equal = b.new(laid, "flag")
        half = b.new(laid, role)
        made = b.new(laid, role)
        del equal, half
        more = b.new(laid, "flag")
        del more
        return [made]

    node = t.node((x.node,), back)
    t.save(node, x.storage)
    t.after = True
    return Value(t.new(laid, role), x.axes, node)
