"""Networks written out: gated or not, of one product or two, with activations of torch's and of Python's own."""

from __future__ import annotations

from tfacct.architecture.parts import FeedForward
from tfacct.base.errors import ConfigError
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_views as views
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_parts import NETWORK, How, product, products

SMOOTH = ("silu", "gelu", "gelu_pytorch_tanh")
"""Activations that are operations of torch and keep their input."""
OWN, RESULTS = (*SMOOTH, "relu", "tanh"), ("relu", "tanh")
"""Activations that are operations of torch, and those that save their results."""


def network(t: Trace, how: How, x: Value, part: FeedForward) -> Value:
    """A network, gated or not."""
    at = NETWORK
    if part.gated:
        return (_joint if how.habits.fused_gate else gated)(t, how, x, part)
    h = acted(t, product(t, how, x, f"{at}.up_proj", ("F",), bias=part.bias), part)
    return product(t, how, h, f"{at}.down_proj", ("D",), bias=part.bias)


def acted(t: Trace, x: Value, part: FeedForward) -> Value:
    """The activation of a network without a gate."""
    return (fast if part.activation == "gelu_fast" else activated)(t, x, f"{NETWORK}.act", part.activation)


def gated(t: Trace, how: How, x: Value, part: FeedForward, *, at: str = NETWORK, wide: str = "F") -> Value:
    """A gated network. `wide`: the letter of its width."""
    act = ops.activation(t, product(t, how, x, f"{at}.gate_proj", (wide,), bias=part.bias), f"{at}.act")
    up = product(t, how, x, f"{at}.up_proj", (wide,), bias=part.bias)
    both = ops.times(t, act, up, f"{at}.product")
    del act, up
    return product(t, how, both, f"{at}.down_proj", ("D",), bias=part.bias)


def _joint(t: Trace, how: How, x: Value, part: FeedForward) -> Value:
    """A gated network whose gate and up come from one product."""
    at = NETWORK
    whole, node = products(t, how, x, [(f"{at}.{which}_proj", ("F",)) for which in ("gate", "up")], (views.APART,))
    gate, up = views.chunks(
        t, whole, node, ("B", "T", views.APART), ("B", "T", views.APART, "F"), [("B", "T", "F")] * 2
    )
    del whole, node
    act = ops.activation(t, gate, f"{at}.act")
    up = ops.times(t, up, act, f"{at}.product")
    del act
    return product(t, how, up, f"{at}.down_proj", ("D",), bias=part.bias)


def activated(t: Trace, x: Value, name: str, function: str) -> Value:
    """An activation that is an operation of torch, or NewGELU. Raises ConfigError for another."""
    if function == "gelu_new":
        return ops.cubed(t, x, name)
    if function not in OWN:
        raise ConfigError(f"transformers under autocast: no rule for the activation {function!r}")
    return ops.activation(t, x, name, result=function in RESULTS)


def fast(t: Trace, x: Value, name: str, _: str) -> Value:
    """FastGELUActivation: the tanh approximation written out, all of it in 16 bits."""
    half = ops.scaled(t, x, path=f"{name}.half")
    slope = ops.scaled(t, x, path=f"{name}.slope")
    square = ops.scaled(t, x, path=f"{name}.bent")
    square = ops.times(t, square, x, f"{name}.square")
    square = ops.shifted(t, square, f"{name}.shifted")
    inner = ops.times(t, slope, square, f"{name}.inner")
    del slope, square
    inner = ops.activation(t, inner, f"{name}.tanh", result=True)
    inner = ops.shifted(t, inner, f"{name}.sum")
    return ops.times(t, half, inner, name)
