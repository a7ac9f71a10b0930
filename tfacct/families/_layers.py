"""Layers with a window, layers that are not rotated: shared by the families that mix layers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from pydantic_core import core_schema

from tfacct.base.errors import ConfigError
from tfacct.families._base import Checked

LayerTypes: TypeAlias = Annotated[list[str], Checked(core_schema.list_schema(core_schema.str_schema(), strict=True))]
Flags: TypeAlias = Annotated[list[int], Checked(core_schema.list_schema(core_schema.int_schema(ge=0, le=1)))]
FULL, SLIDING = "full_attention", "sliding_attention"
HIDDEN = "num_hidden_layers"


def one_each(name: str, given: Sequence[object], layers: int, hint: str | None = None, *, of: str = HIDDEN) -> None:
    """Refuse a list of a config that has not one entry for each layer. `of`: the field that says how many there are.
    Raises ConfigError."""
    if len(given) != layers:
        raise ConfigError(f"{name} names {len(given):,} layers, and {of} is {layers:,}", hint)


def kinds_of(given: list[str] | None, layers: int, default: Callable[[int], str], known: tuple[str, str]) -> list[str]:
    """The kind of each layer, by the config's layer_types, or, where it has none, by `default`. Raises ConfigError."""
    kinds = given if given is not None else [default(number) for number in range(layers)]
    one_each("layer_types", kinds, layers, "layer_types=null gives the family's own pattern")
    for number, kind in enumerate(kinds):
        if kind not in known:
            raise ConfigError(f"layer_types[{number}] = {kind!r} is not understood: write {' or '.join(known)}")
    return kinds


def angles_of(given: Mapping[str, Any] | None, default: Mapping[str, Any], window: int | None) -> Mapping[str, Any]:
    """The angles of a layer's kind, in rope_parameters that name those of each. Raises ConfigError."""
    spelled = (given or default).get(FULL if window is None else SLIDING)
    if not isinstance(spelled, Mapping):
        raise ConfigError(f"rope_parameters must have the angles of {FULL} and of {SLIDING}")
    return spelled


def rotated(given: list[int] | None, layers: int, interval: int) -> list[bool]:
    """Booleans, one for each layer: whether queries and keys are rotated. `given` are the config's no_rope_layers;
    without them every `interval`-th layer is not. Raises ConfigError."""
    if given is None:
        return [(number + 1) % interval != 0 for number in range(layers)]
    if len(given) < layers:
        raise ConfigError(
            f"no_rope_layers names {len(given):,} layers, and num_hidden_layers is {layers:,}",
            "no_rope_layers=null gives the family's own pattern",
        )
    return [bool(flag) for flag in given[:layers]]


def windows(
    given: list[str] | None, layers: int, window: int | None, default: Callable[[int], bool], switch: str = ""
) -> list[int | None]:
    """The window of each layer, None where it sees everything.

    `given` are the config's layer_types; where it has none, `default` says which layers slide. Raises ConfigError.
    """
    kinds = kinds_of(given, layers, lambda number: SLIDING if default(number) else FULL, (FULL, SLIDING))
    if SLIDING in kinds and not window:
        why = f"{switch} is off" if switch else "sliding_window is null"
        raise ConfigError(
            f"layer {kinds.index(SLIDING)} has {SLIDING}, but {why}",
            "give sliding_window, or set every entry of layer_types to full_attention",
        )
    return [window if kind == SLIDING else None for kind in kinds]


def kinds_of_layers(given: list[str], layers: int, known: Sequence[str], field: str = "layer_types") -> list[str]:
    """The kinds that a list names, one for each layer. Raises ConfigError."""
    one_each(field, given, layers)
    for number, kind in enumerate(given):
        if kind not in known:
            raise ConfigError(f"{field}[{number}] = {kind!r} is not understood: write {' or '.join(known)}")
    return given
