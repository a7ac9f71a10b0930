"""Records: frozen dataclasses that cost a third less to define."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

ClassT = TypeVar("ClassT")


@overload
def record(cls: type[ClassT], /) -> type[ClassT]: ...
@overload
def record(*, kw_only: bool = False) -> Callable[[type[ClassT]], type[ClassT]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[ClassT] | None = None, /, *, kw_only: bool = False) -> Any:
    """Return `cls` as `@dataclass(frozen=True, slots=True)` makes it: equal, hashed and shown by its fields.

    A dataclass compiles each of its methods from text. Every command defines some seventy classes before it answers, so
    the three methods that need no text of their own are shared.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(3), Point(3) == Point(3, 0), len({Point(3), Point(3)})
    (Point(x=3, y=0), True, 1)
    """

    def made(cls: type[ClassT]) -> type[ClassT]:
        done: Any = dataclass(frozen=True, slots=True, kw_only=kw_only, eq=False, repr=False)(cls)
        named = [entry.name for entry in fields(done) if entry.repr]
        key = attrgetter(*[entry.name for entry in fields(done) if entry.compare] or ["__class__"])

        def equal(self: object, other: object) -> Any:
            return key(self) == key(other) if type(self) is type(other) else NotImplemented

        def hashed(self: object) -> int:
            return hash(key(self))

        def shown(self: object) -> str:
            return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in named)})"

        for name, method in {"__eq__": equal, "__hash__": hashed, "__repr__": shown}.items():
            if name not in vars(cls):
                setattr(done, name, method)
        return done  # type: ignore[no-any-return]

    return made if cls is None else made(cls)
