"""One room per `model_type`. A file here is a family: nothing else names it.

Each room holds a `Config`: the fields it reads, the transformer they describe, and the table from our paths to
those of the transformers class. (Annotations are not postponed in these rooms: pydantic would compile each one by
itself, and those of class variables again for every class that inherits them.)
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from tfacct.errors import ConfigError, nearest
from tfacct.families._base import FamilyConfig

__all__ = ["OWN", "FamilyConfig", "Reading", "config_class", "language_model", "names", "own_model", "read"]

OWN = "own"
"""The type of a model that is put together from parts: its config is tables."""

WITH_OTHERS = {"gemma3": ("text_config", "gemma3_text")}
"""Types of several models together: the field that the language model's config stands in, and its type."""


class Reading(NamedTuple):
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


def language_model(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The config of the language model in a config of several models, and the fields of the others, which are not
    counted. Raises ConfigError."""
    model_type = raw.get("model_type")
    if not isinstance(model_type, str) or model_type not in WITH_OTHERS:
        return raw, ()
    field, own_type = WITH_OTHERS[model_type]
    inside = raw.get(field)
    if not isinstance(inside, Mapping):
        raise ConfigError(f"model_type {model_type!r} keeps its language model in {field}, which is missing")
    others = tuple(name for name in raw if name.endswith("_config") and name != field and name != "quantization_config")
    kept = {name: raw[name] for name in ("quantization_config", "torch_dtype", "dtype") if name in raw}
    tie = {name: raw[name] for name in ("tie_word_embeddings",) if name in raw}  # which the whole model goes by
    return {**kept, **inside, **tie, "model_type": inside.get("model_type", own_type)}, others


def own_model(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tables of an own model as fields of dotted names; any other config as it is."""
    if raw.get("model_type", OWN) != OWN or "model" not in raw:
        return raw
    from tfacct.families._own_tables import flattened

    return {"model_type": OWN, **flattened({name: value for name, value in raw.items() if name != "model_type"})}


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
    config, defaulted, unknown = family.read(raw)
    return Reading(model_type, config, defaulted, unknown)
