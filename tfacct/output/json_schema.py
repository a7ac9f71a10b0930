"""JSON Schemas of Python types and of the keys of an answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from tfacct.output.answer import Answer, keys
from tfacct.output.keys import Object, keys_of

SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean", NoneType: "null"}


def facts(kind: type[Answer]) -> dict[str, Any]:
    """Types of a report's keys, by name."""
    typed = keys(kind, evaluated=True)
    typed.pop("lines", None)
    if kind._line is not None:
        typed["lines"] = list[kind._line]  # type: ignore[name-defined]
    return typed


class Schema:
    """Builds schemas of types and collects named objects. `meaning(record, key)`: the description of a key, if any."""

    def __init__(self, closed: bool, meaning: Callable[[str, str], str | None] | None = None) -> None:
        self.closed = closed
        self.meaning = meaning
        self.named: dict[str, Any] = {}

    def with_keys(
        self, properties: dict[str, Any], optional: set[str] | frozenset[str] = frozenset()
    ) -> dict[str, Any]:
        """Schema of an object with these properties; all are required except `optional`."""
        required = [key for key in properties if key not in optional]
        closed = {"additionalProperties": False} if self.closed else {}
        return {"type": "object", "required": required, "properties": properties, **closed}

    def object(
        self, typed: Mapping[str, Any], optional: set[str] | frozenset[str] = frozenset(), record: str = ""
    ) -> dict[str, Any]:
        """Schema of `record`, with keys of these types."""
        return self.with_keys(
            {key: self.of(hint) | self._described(record, key) for key, hint in typed.items()}, optional
        )

    def _described(self, record: str, key: str) -> dict[str, str]:
        text = self.meaning and self.meaning(record, key)
        return {"description": text} if text else {}

    def of(self, hint: Any) -> dict[str, Any]:
        """Schema of a type."""
        if hint is Any:
            return {}
        if hint in SCALARS:
            return {"type": SCALARS[hint]}
        if is_typeddict(hint) or (isinstance(hint, type) and issubclass(hint, Object)):
            return self._named_object(hint)
        inner = get_args(hint)
        match get_origin(hint):
            case origin if origin is Literal:
                return {"enum": list(inner)}
            case origin if origin in (Union, UnionType):
                return self._union([self.of(one) for one in inner])
            case origin if origin in (list, Sequence, Collection):
                return {"type": "array", "items": self.of(inner[0])}
            case origin if origin in (dict, Mapping):
                return {"type": "object", "additionalProperties": self.of(inner[1])}
        raise TypeError(f"no schema of {hint!r}")

    def _union(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        if all(part.keys() == {"type"} for part in parts):
            return {"type": [part["type"] for part in parts]}
        if all(part.keys() == {"enum"} or part == {"type": "null"} for part in parts):
            return {"enum": [word for part in parts for word in part.get("enum", [None])]}
        return {"anyOf": parts}

    def _named_object(self, kind: Any) -> dict[str, Any]:
        """Schema of a TypedDict, or of a class with keys."""
        if kind.__name__ not in self.named:
            self.named[kind.__name__] = {}
            hints = {key.rstrip("_"): hint for key, hint in get_type_hints(kind, include_extras=True).items()}
            marked = {key for key, hint in hints.items() if get_origin(hint) is NotRequired}
            plain = {key: get_args(hint)[0] if key in marked else hint for key, hint in hints.items()}
            optional = marked | {name for name, key in keys_of(kind).items() if key and key.when}
            self.named[kind.__name__] = {"description": kind.__doc__, **self.object(plain, optional, kind.__name__)}
        return {"$ref": f"#/$defs/{kind.__name__}"}
