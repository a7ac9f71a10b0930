"""The families there are, by their files: named as their `model_type`, with `__` for a hyphen."""

from functools import cache
from importlib import import_module
from pathlib import Path
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
    config: type[FamilyConfig] = import_module(f"tfacct.families.{model_type.replace('-', '__')}").Config
    return config


def class_names(family: type[FamilyConfig]) -> list[str]:
    """The classes that are counted, by the first name of each."""
    heads = list(family.heads.items())
    first = [ending for i, (ending, head) in enumerate(heads) if head not in [other for _, other in heads[:i]]]
    return [f"{family.stems[0]}{ending}" for ending in first]
