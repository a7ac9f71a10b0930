"""Records: frozen dataclasses that are ten times faster to define."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, dataclass_transform, overload

ClassT = TypeVar("ClassT")


@overload
def record(cls: type[ClassT], /) -> type[ClassT]: ...
@overload
def record(*, kw_only: bool = False) -> Callable[[type[ClassT]], type[ClassT]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[ClassT] | None = None, /, *, kw_only: bool = False) -> Any:
    """Return `cls` as `@dataclass(frozen=True, slots=True)` would make it, with equality, hash and repr by fields.

    A dataclass compiles each method from source text. A command defines about ninety classes and creates objects of a
    third of them, so here only `__init__` is compiled, when the first object is created; other methods are shared.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(3), Point(3) == Point(3, 0), len({Point(3), Point(3)})
    (Point(x=3, y=0), True, 1)
    """

    def build(cls: type[ClassT]) -> type[ClassT]:
        # Marked as frozen so that subclasses may inherit; without the methods that dataclass would compile for it.
        bases = [vars(base)["__dataclass_params__"] for base in cls.__mro__ if "__dataclass_params__" in vars(base)]
        for base in bases:
            base.frozen = False
        built: Any = dataclass(slots=True, kw_only=kw_only, init=False, eq=False, repr=False)(cls)
        for base in (*bases, built.__dataclass_params__):
            base.frozen = True
        for name, method in (_SHARED | _field_methods(fields(built)) | {"__init__": _lazy_init(built)}).items():
            if name not in vars(cls):
                setattr(built, name, method)
        return built  # type: ignore[no-any-return]

    return build if cls is None else build(cls)


def _field_methods(entries: tuple[Field[Any], ...]) -> dict[str, Callable[..., Any]]:
    """Return the methods that read an object's fields."""
    shown_names = [entry.name for entry in entries if entry.repr]
    key = attrgetter(*[entry.name for entry in entries if entry.compare] or ["__class__"])

    def equal(self: object, other: object) -> Any:
        return key(self) == key(other) if type(self) is type(other) else NotImplemented

    def hash_fields(self: object) -> int:
        return hash(key(self))

    def represent(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown_names)})"

    return {"__eq__": equal, "__hash__": hash_fields, "__repr__": represent}


def _lazy_init(cls: Any) -> Callable[..., None]:
    """Return an `__init__` that replaces itself with the compiled one on its first call."""

    def first(self: object, *values: object, **named: object) -> None:
        cls.__init__ = _compiled(cls)
        cls.__init__(self, *values, **named)

    return first


def _compiled(cls: Any) -> Callable[..., None]:
    """Return the `__init__` of `cls`, compiled from source text like that of a dataclass."""
    known: dict[str, Any] = {"MISSING": MISSING, "put": object.__setattr__}
    by_kind: dict[bool, list[str]] = {False: [], True: []}
    body = []
    for entry in fields(cls):
        name = value = entry.name
        made = entry.default_factory is not MISSING
        known |= {f"else_{name}": entry.default, f"make_{name}": entry.default_factory}
        by_kind[entry.kw_only is True].append(f"{name}=else_{name}" if made or entry.default is not MISSING else name)
        value = f"make_{name}() if {name} is MISSING else {name}" if made else name
        body.append(f" put(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    parameters = ", ".join(["self", *by_kind[False], *(["*", *by_kind[True]] if by_kind[True] else [])])
    exec("\n".join([f"def __init__({parameters}):", *(body or [" pass"])]), known)
    known["__init__"].__annotations__ = {entry.name: entry.type for entry in fields(cls)} | {"return": None}
    return known["__init__"]  # type: ignore[no-any-return]


class _Signature:
    """Signature for `inspect.signature`, from the compiled `__init__` of a class."""

    def __get__(self, _: object, cls: Any) -> inspect.Signature:
        init = _compiled(cls) if cls.__init__.__name__ == "first" else cls.__init__
        signature = inspect.signature(init)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


def _raise_frozen(_: object, name: str, *__: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to or delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, entry.name) for entry in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for entry, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, entry.name, value)


_SHARED: dict[str, Any] = {
    "__setattr__": _raise_frozen,
    "__delattr__": _raise_frozen,
    "__getstate__": _state,
    "__setstate__": _set_state,
    "__signature__": _Signature(),
}
