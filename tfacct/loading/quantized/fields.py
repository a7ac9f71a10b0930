"""Fields of a `quantization_config`. Each is read by name; a field that was not read is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value

LARGEST = 1 << 20
"""Largest group or block."""
FEW = 3
"""Most supported values in an error message; more are in the hint."""


class FieldReader:
    """Reads and checks fields. `where`: name of the object in messages, empty for a file."""

    def __init__(self, fields: Mapping[str, Any], where: str = "quantization_config") -> None:
        self.fields, self.where, self.read = fields, where, {"quant_method"}

    def path(self, field: str) -> str:
        """Name of a field in messages."""
        return f"{self.where}.{field}" if self.where else field

    def has(self, field: str) -> bool:
        """True if the field is present, even if null."""
        return field in self.fields

    def get(self, field: str) -> Any:
        """Value of a field; None if it is missing."""
        self.read.add(field)
        return self.fields.get(field)

    def needed(self, field: str) -> FieldReader:
        """Return self. Raises ConfigError if the field is missing."""
        if self.fields.get(field) is None:
            raise ConfigError(f"{self.path(field)} is missing, so the bytes are unknown")
        return self

    def unsupported(self, field: str, problem: str = "", hint: str | None = None) -> ConfigError:
        """Error for an unsupported value of a field."""
        value = format_value(self.fields.get(field))
        return ConfigError(f"{self.path(field)} = {value} is not supported{problem and f': {problem}'}", hint)

    def choice(self, field: str, known: tuple[str, ...], default: str) -> str:
        """Value of a string field, one of `known`."""
        value = self.get(field)
        if value is None:
            return default
        if value not in known:
            if len(known) > FEW:
                raise self.unsupported(field, hint=f"known: {', '.join(known)}")
            raise self.unsupported(field, f"expected {' or '.join(known)}")
        return str(value)

    def integer(self, field: str, default: int, least: int = 1) -> int:
        """Value of an integer field, at least `least`."""
        value = self.get(field)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST:
            raise self.unsupported(field, "expected a whole number")
        return value

    def integer_choice(self, field: str, known: tuple[int, ...], default: int) -> int:
        """Value of an integer field, one of `known`."""
        value = self.integer(field, default, least=0)
        if value not in known:
            raise self.unsupported(field, f"expected {'one of ' if len(known) > 1 else ''}{', '.join(map(str, known))}")
        return value

    def bits(self, known: tuple[int, ...]) -> int:
        """Value of `bits`, one of `known`. Raises ConfigError if it is missing."""
        return self.needed("bits").integer_choice("bits", known, 0)

    def group(self) -> int | None:
        """Inputs per group from `group_size`; None for all (-1 in the config). Raises ConfigError if it is missing."""
        size = self.needed("group_size").integer("group_size", 0, least=-1)
        if size == 0:
            raise ConfigError(f"{self.path('group_size')} must be above 0, or -1")
        return None if size == -1 else size

    def boolean(self, field: str, default: bool = False) -> bool:
        """Value of a boolean field."""
        value = self.get(field)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.unsupported(field, "expected true or false")
        return value

    def pair(self, field: str, default: tuple[int, int] | None) -> tuple[int, int] | None:
        """Value of a field with two sizes; `default` if null."""
        value = self.get(field)
        if value is None:
            return default
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            raise self.unsupported(field, "expected two sizes")
        if not all(isinstance(size, int) and not isinstance(size, bool) and 0 < size <= LARGEST for size in value):
            raise self.unsupported(field, "expected two sizes")
        return value[0], value[1]

    def inner(self, field: str) -> FieldReader | None:
        """Reader for an object in a field; None if it is missing."""
        value = self.get(field)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.unsupported(field, "expected an object with fields")
        return FieldReader(value, self.path(field))

    def require_off(self, *fields: str) -> None:
        """Check that these fields are off, because they change bytes in unsupported ways. Raises ConfigError."""
        for field in fields:
            if self.get(field) not in (None, False, [], {}):
                raise self.unsupported(field, "expected null")

    def check_all_read(self, ignored: str = "") -> None:
        """Check that every field was read or is in `ignored`: fields that change no bytes. Raises ConfigError."""
        for field in self.fields:
            if field not in self.read and field not in ignored.split():
                raise self.unsupported(field)
