"""Keys of JSON objects, each declared once: its name, its type, and how it is computed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

P = ParamSpec("P")


class Key:
    """A key of a JSON object: its value, and a condition if it is not in every object. On a report with one model it is
    an attribute with the model's value."""

    def __init__(self, value: Callable[..., Any], when: Callable[..., Any] | None) -> None:
        self.value, self.when = value, when

    def __set_name__(self, kind: type, name: str) -> None:
        self.name = name

    def __get__(self, report: Any, kind: type) -> Any:
        return self if report is None else report.__getattr__(self.name)


class Keys(Generic[P]):
    """Declares keys that are computed from arguments of these types.

    >>> key = Keys[int]()
    >>> class Square(Object):
    ...     side: int = key(lambda side: side)
    ...     area: int = key(lambda side: side**2)
    ...     half: int = key(lambda side: side // 2, when=lambda side: side % 2 == 0)
    ...     name: str
    >>> values_of(Square, 3, name="small"), values_of(Square, 4)
    ({'side': 3, 'area': 9, 'name': 'small'}, {'side': 4, 'area': 16, 'half': 2})
    """

    def __call__(self, value: Callable[P, Any], when: Callable[P, Any] | None = None) -> Any:
        """A key with this value; `when`: only in objects for which this is true."""
        return Key(value, when)


class Object:
    """A JSON object with declared keys. Its values are plain dicts, which type checkers see as objects of this type."""

    if TYPE_CHECKING:

        def __getitem__(self, name: str) -> Any: ...


@cache
def keys_of(kind: type) -> dict[str, Key | None]:
    """The keys of a kind of object, those of its bases first; None for keys that are not declared with a value. The
    key `class` is declared as `class_`."""
    found: dict[str, Key | None] = {}
    for base in reversed(kind.__mro__):
        if "__dataclass_fields__" not in vars(base):
            declared = (name for name in vars(base).get("__annotations__", {}) if name[0] != "_")
            found |= {name.rstrip("_"): vars(base).get(name) for name in declared}
    return found


def values_of(kind: type, *about: Any, **others: Any) -> dict[str, Any]:
    """The object of this kind about something, its keys in order. `others`: values of keys declared without one."""
    found = {
        name: others[name] if key is None else key.value(*about)
        for name, key in keys_of(kind).items()
        if (name in others if key is None else key.when is None or key.when(*about))
    }
    return found | others
