"""Layers with a window: shared by the families that mix layers."""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeAlias

from pydantic_core import core_schema

from tfacct.base.errors import ConfigError
from tfacct.families._base import Checked

LayerTypes: TypeAlias = Annotated[list[str], Checked(core_schema.list_schema(core_schema.str_schema(), strict=True))]
FULL, SLIDING = "full_attention", "sliding_attention"


def windows(
    given: list[str] | None, layers: int, window: int | None, default: Callable[[int], bool], switch: str = ""
) -> list[int | None]:
    """The window of each layer, None where it sees everything.

    `given` are the config's layer_types; where it has none, `default` says which layers slide. Raises ConfigError.
    """
    kinds = given if given is not None else [SLIDING if default(number) else FULL for number in range(layers)]
    if len(kinds) != layers:
        raise ConfigError(
            f"layer_types names {len(kinds):,} layers, and num_hidden_layers is {layers:,}",
            "layer_types=null gives the family's own pattern",
        )
    for number, kind in enumerate(kinds):
        if kind not in (FULL, SLIDING):
            raise ConfigError(f"layer_types[{number}] = {kind!r} is not understood: write {FULL} or {SLIDING}")
    if SLIDING in kinds and not window:
        why = f"{switch} is off" if switch else "sliding_window is null"
        raise ConfigError(
            f"layer {kinds.index(SLIDING)} has {SLIDING}, but {why}",
            "give sliding_window, or set every entry of layer_types to full_attention",
        )
    return [window if kind == SLIDING else None for kind in kinds]


def kinds_of_layers(given: list[str], layers: int, known: Sequence[str], field: str = "layer_types") -> list[str]:
    """The kinds that a list names, one for each layer. Raises ConfigError."""
    if len(given) != layers:
        raise ConfigError(f"{field} names {len(given):,} layers, and num_hidden_layers is {layers:,}")
    for number, kind in enumerate(given):
        if kind not in known:
            raise ConfigError(f"{field}[{number}] = {kind!r} is not understood: write {' or '.join(known)}")
    return given
