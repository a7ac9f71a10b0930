"""What is not supported: types and classes, with a reason for each (in `unsupported.toml`), and additional layers in a
config: multi-token prediction (MTP) layers, and drafts."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.families.known_fields import MTP_LAYERS

DSPARK = "dspark_target_layer_ids"
"""Model layers that a DSpark draft reads: the draft has one layer for each, in place of MTP layers."""
LAYERS_PER_MODULE = "mtp_transformer_layers"


class NotIncluded(NamedTuple):
    """Layers of one kind, and their field."""

    kind: str
    field: str
    layers: int


@cache
def _tables() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@cache
def unsupported_types() -> dict[str, str]:
    """Every unsupported `model_type` with its reason."""
    groups = _tables()["groups"].items()
    return {**_tables()["types"], **{name: reason for reason, types in groups for name in types.split()}}


def unsupported_classes() -> dict[str, str]:
    """Unsupported classes around known base models, with the reason."""
    return _tables()["classes"]


def not_included(fields: Mapping[str, Any]) -> NotIncluded | None:
    """The layers that the counts do not include; None if a config has none. Raises ConfigError."""
    read = fields.get(DSPARK)
    if isinstance(read, list) and read:
        return NotIncluded("DSpark", DSPARK, len(read))
    named = {name: _count(name, fields[name]) for name in MTP_LAYERS if fields.get(name) is not None}
    field = max(named, key=lambda name: named[name], default="")
    if not field or not named[field] or fields.get("use_mtp") is False or fields.get("mtp") is True:
        return None
    each = _count(LAYERS_PER_MODULE, fields.get(LAYERS_PER_MODULE, 1)) if field == "num_mtp_modules" else 1
    return NotIncluded("MTP", field, named[field] * each)


def _count(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ConfigError(f"{name} = {format_value(value)} must be a whole number, 0 or more")
