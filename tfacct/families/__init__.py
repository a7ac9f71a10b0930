"""One room per `model_type`. A file here is a family: nothing else names it.

Each room holds a `Config`: the fields it reads, the transformer they describe, and the table from our paths to
those of the transformers class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from tfacct.errors import ConfigError, nearest
from tfacct.families._base import FamilyConfig, fields_of, validate

__all__ = ["FamilyConfig", "Reading", "config_class", "fields_of", "names", "read"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A config that was read: its checked fields, those that were defaulted, and the names nobody knows."""

    family: str
    config: FamilyConfig
    defaulted: dict[str, Any]
    unknown: list[str]


@cache
def names() -> list[str]:
    """Every known `model_type`."""
    rooms = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name for name in rooms if not name.startswith("_"))


def config_class(model_type: str) -> type[FamilyConfig]:
    """The config of one family."""
    config: type[FamilyConfig] = import_module(f"tfacct.families.{model_type}").Config
    return config


def read(raw: Mapping[str, Any]) -> Reading:
    """Check a `config.json` and read what its family reads. Raises ConfigError."""
    model_type = raw.get("model_type")
    if model_type is None:
        raise ConfigError(
            "the config has no model_type", f'known: {", ".join(names())}; add "model_type": … to the file'
        )
    if not isinstance(model_type, str) or model_type not in names():
        close = nearest(model_type, names()) if isinstance(model_type, str) else None
        raise ConfigError(f"unknown model_type {model_type!r}", close or f"known: {', '.join(names())}")
    family = config_class(model_type)
    config, defaulted, unknown = validate(family, raw)
    return Reading(model_type, config, defaulted, unknown)
