"""Signatures that spell every keyword of a group out, for `help` and notebooks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import ParamSpec, TypeVar

from tfacct.ledger.workload import Request, Step, Whole

P = ParamSpec("P")
R = TypeVar("R")


def spelled_out(method: Callable[P, R]) -> Callable[P, R]:
    """Return the method with every keyword of its group in its signature, and no other accepted."""
    given = signature(method)
    *own, rest = given.parameters.values()
    group = {"Unpack[Step]": Step, "Unpack[Whole]": Whole}[rest.annotation]
    defaults = signature(Request).parameters
    named = [defaults[name].replace(kind=Parameter.KEYWORD_ONLY) for name in defaults if name in group.__annotations__]
    spread = given.replace(parameters=[*own, *named])

    @wraps(method)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs.keys() - spread.parameters.keys():
            raise TypeError(f"{method.__qualname__}() got an unexpected keyword argument {name!r}")
        return method(*args, **kwargs)

    asked.__signature__ = spread  # type: ignore[attr-defined]
    return asked
