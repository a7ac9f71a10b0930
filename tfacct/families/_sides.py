"""Models of two sides whose encoder sees too: its field holds its own config, and that of what it sees by."""

from collections.abc import Mapping
from typing import Any

from tfacct.families._parts import VISIONS, part_of
from tfacct.families._wrappers import KEPT, Unwrapped, of_another
from tfacct.families.registry import Part

ENCODER = "encoder"
"""The field of the side that reads."""


def of_sides(raw: Mapping[str, Any], model_type: str, part: Part) -> Unwrapped:
    """Both sides without what the encoder sees by, or that. Raises ConfigError."""
    inside: Mapping[str, Any] = raw[ENCODER]
    if part != "text":
        kept = {name: raw[name] for name in KEPT if name in raw}
        return Unwrapped(*part_of({**kept, **inside, "model_type": model_type}, model_type, part))
    others = tuple(name for name, value in inside.items() if name != "text_config" and of_another(name, value))
    fields = {**raw, ENCODER: {name: value for name, value in inside.items() if name not in others}}
    between = VISIONS[model_type].between
    return Unwrapped(fields, (*others, *([between] if between else [])))
