"""The fields of a `quantization_config`. Each is read by name; a field that no method reads is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value

LARGEST = 1 << 20
"""No group or block is larger."""
FEW = 3
"""Known words that an error gives in its sentence; more are in its hint."""


class Read:
    """Fields that are read one by one. `where` is what a message calls their object; empty where that is a file."""

    def __init__(self, fields: Mapping[str, Any], where: str = "quantization_config") -> None:
        self.fields, self.where, self.asked = fields, where, {"quant_method"}

    def path(self, field: str) -> str:
        """What a message calls a field."""
        return f"{self.where}.{field}" if self.where else field

    def has(self, field: str) -> bool:
        """True if the config has the field, null or not."""
        return field in self.fields

    def get(self, field: str) -> Any:
        """A field as it stands; None where it is missing."""
        self.asked.add(field)
        return self.fields.get(field)

    def needed(self, field: str) -> Read:
        """Itself, where the config has the field. Raises ConfigError where it does not."""
        if self.fields.get(field) is None:
            raise ConfigError(f"{self.path(field)} is missing: bytes are not guessed")
        return self

    def refuse(self, field: str, wanted: str, hint: str | None = None) -> ConfigError:
        """A field whose value is not known."""
        return ConfigError(f"{self.path(field)} = {format_value(self.fields.get(field))} is not known: {wanted}", hint)

    def one(self, field: str, known: tuple[str, ...], default: str) -> str:
        """A word, one of those known."""
        value = self.get(field)
        if value is None:
            return default
        if value not in known:
            if len(known) > FEW:
                raise self.refuse(field, "bytes are not guessed", f"known: {', '.join(known)}")
            raise self.refuse(field, f"{' or '.join(known)} is")
        return str(value)

    def whole(self, field: str, default: int, least: int = 1) -> int:
        """A whole number."""
        value = self.get(field)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST:
            raise self.refuse(field, "a whole number is")
        return value

    def number(self, field: str, known: tuple[int, ...], default: int) -> int:
        """A whole number, one of those known."""
        value = self.whole(field, default, least=0)
        if value not in known:
            raise self.refuse(field, f"{', '.join(map(str, known))} are" if len(known) > 1 else f"{known[0]} is")
        return value

    def switch(self, field: str, default: bool = False) -> bool:
        """True or false."""
        value = self.get(field)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(field, "true or false is")
        return value

    def pair(self, field: str, default: tuple[int, int] | None) -> tuple[int, int] | None:
        """Two sizes; None where it is null."""
        value = self.get(field)
        if value is None:
            return default
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            raise self.refuse(field, "two sizes are")
        if not all(isinstance(size, int) and not isinstance(size, bool) and 0 < size <= LARGEST for size in value):
            raise self.refuse(field, "two sizes are")
        return value[0], value[1]

    def inner(self, field: str) -> Read | None:
        """An object of fields; None where it is missing."""
        value = self.get(field)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.refuse(field, "an object of fields is")
        return Read(value, self.path(field))

    def none(self, *fields: str) -> None:
        """Fields that change bytes in ways that are not counted, unless they are off."""
        for field in fields:
            if self.get(field) not in (None, False, [], {}):
                raise self.refuse(field, "nothing but null is")

    def done(self, harmless: str = "") -> None:
        """Refuse every field that was neither asked for nor is `harmless`: known to change no byte."""
        for field in self.fields:
            if field not in self.asked and field not in harmless.split():
                raise self.refuse(field, "bytes are not guessed")
