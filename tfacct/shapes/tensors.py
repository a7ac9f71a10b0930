"""Torch's names: which function of tensors goes by each, as a function, a method or an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from math import prod
from typing import Any

from tfacct.shapes.dtypes import CPU, FP64, LONG, META
from tfacct.shapes.eager import Meter, Tensor, backward, new
from tfacct.shapes.library import Torch

FUNCTIONS: dict[str, str] = {
    **dict.fromkeys(("empty", "zeros", "ones"), "made"),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like"), "made_like"),
    **dict.fromkeys(("cos", "sin", "floor", "ceil", "sign"), "unlike"),
    **{"cat": "join", "stack": "stacked", "unflatten": "x_unflatten", "split": "x_split", "clamp": "bounded"},
    "div": "unlike",
}
METHODS: dict[str, str] = {
    **dict.fromkeys(("cos", "sin", "floor", "ceil", "sign", "remainder"), "unlike"),
    **dict.fromkeys(("view", "reshape"), "x_reshape"),
    **dict.fromkeys(("tril", "triu"), "x_triangle"),
    **{"sum": "total", "mean": "average", "float": "wide", "new_zeros": "x_new", "clamp": "bounded"},
}
NAMES = (
    *("expand", "flatten", "unflatten", "narrow", "split", "unbind", "detach", "clone", "requires_grad_", "to"),
    *("add_", "mul_", "masked_fill", "index_select", "new_full"),
)
METHODS |= {name: f"x_{name}" for name in NAMES}

_running: ContextVar[Torch] = ContextVar("torch over shapes")


class _Library:
    """Methods of tensors."""

    def method(self, x: Tensor, name: str) -> Any:
        if name in PROPERTIES:
            return PROPERTIES[name](x)
        found = METHODS.get(name, name)
        if name.startswith("__") or not hasattr(Torch, found):
            raise AttributeError(name)
        return partial(getattr(_running.get(), found), x)


PROPERTIES: dict[str, Callable[[Tensor], Any]] = {
    "dtype": lambda x: x.each,
    "device": lambda x: META if x.each else CPU,
    "is_meta": lambda x: bool(x.each),
    "requires_grad": lambda x: x.needs,
    "dim": lambda x: lambda: len(x.shape),
    "numel": lambda x: lambda: prod(x.shape),
    "long": lambda x: lambda: _running.get().x_to(x, LONG),
    "double": lambda x: lambda: _running.get().x_to(x, FP64),
}
Tensor.library = _Library()


def _operator(name: str, *, turned: bool = False) -> Callable[[Any, Any], Any]:
    def run(x: Any, y: Any = None) -> Any:
        own = getattr(_running.get(), name)
        return own(y, x) if turned else own(x, y)

    return run


OPERATORS = {
    **{"add": "plus", "sub": "minus", "mul": "times", "truediv": "over", "pow": "powered"},
    **dict.fromkeys(("floordiv", "mod", "and", "or"), "unlike"),
    "matmul": "matmul",
}
SPECIAL: dict[str, Callable[..., Any]] = {
    **{f"__{name}__": _operator(own) for name, own in OPERATORS.items()},
    **{f"__r{name}__": _operator(own, turned=True) for name, own in OPERATORS.items()},
    **{f"__{name}__": _operator("compared") for name in ("lt", "le", "gt", "ge")},
    "__getitem__": _operator("at"),
    "__neg__": lambda x: _running.get().neg(x),
    "__invert__": lambda x: _running.get().unlike(x),
    "__iter__": lambda x: iter(_running.get().x_unbind(x)),
}
for _name, _run in SPECIAL.items():
    setattr(Tensor, _name, _run)


@contextmanager
def counted(meter: Meter) -> Iterator[Torch]:
    """Functions and methods make tensors of this meter."""
    made = Torch(meter)
    token = _running.set(made)
    try:
        yield made
    finally:
        _running.reset(token)


def function(name: str) -> Callable[..., Any]:
    """A function of torch, whichever meter counts once it is called."""
    own = FUNCTIONS.get(name, name)
    if not hasattr(Torch, own):
        raise AttributeError(name)
    return lambda *given, **named: getattr(_running.get(), own)(*given, **named)


def run_backward(meter: Meter, loss: Tensor) -> None:
    """The backward pass of a number."""
    assert loss.node is not None
    ones = new(meter, (), loss.each)  # which the caller has to the end
    backward(meter, loss.node, ones)


def meter() -> Meter:
    """What counts now."""
    return _running.get().meter
