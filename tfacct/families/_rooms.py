"""The families there are, by their files: named as their `model_type`, with `__` for a hyphen."""

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Literal

from tfacct.families._base import FamilyConfig

Part = Literal["text", "vision", "audio"]
"""One of the models that a config of several holds."""


@cache
def names() -> list[str]:
    """Every known `model_type`."""
    rooms = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name.replace("__", "-") for name in rooms if not name.startswith("_"))


def config_class(model_type: str) -> type[FamilyConfig]:
    """The config of one family."""
    config: type[FamilyConfig] = _room(model_type).Config
    return config


def released(model_type: str) -> str:
    """The month in which a family's first model was released, as `2024-02`; nothing of own models."""
    month: str = getattr(_room(model_type), "RELEASED", "")
    return month


def newest_first(model_types: Iterable[str]) -> list[str]:
    """Families by the month of their release, those of one month by name."""
    return sorted(sorted(model_types), key=released, reverse=True)


def _room(model_type: str) -> ModuleType:
    return import_module(f"tfacct.families.{model_type.replace('-', '__')}")


def class_names(family: type[FamilyConfig]) -> list[str]:
    """The classes that are counted, by the first name of each."""
    heads = list(family.heads.items())
    first = [ending for i, (ending, head) in enumerate(heads) if head not in [other for _, other in heads[:i]]]
    return [f"{family.stems[0]}{ending}" for ending in first]
