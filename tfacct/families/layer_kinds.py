"""Layers with a window, a rotary embedding or experts, from lists in a config."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeAlias

from pydantic_core import core_schema

from tfacct.architecture.parts import Experts, Part
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.base.spelling import setting
from tfacct.families.fields import CoreSchema, is_size

LayerTypes: TypeAlias = Annotated[list[str], CoreSchema(core_schema.list_schema(core_schema.str_schema(), strict=True))]
Flags: TypeAlias = Annotated[list[int], CoreSchema(core_schema.list_schema(core_schema.int_schema(ge=0, le=1)))]
MlpLayerTypes: TypeAlias = Annotated[
    list[str], CoreSchema(core_schema.list_schema(core_schema.literal_schema(["dense", "sparse"]), strict=True))
]
FULL, SLIDING = "full_attention", "sliding_attention"
HIDDEN = "num_hidden_layers"


def check_length(
    name: str, given: Sequence[object], layers: int, hint: str | None = None, *, of: str = HIDDEN, longer: bool = False
) -> None:
    """Raises ConfigError for a list that does not have one entry per layer. `of`: the field with the number of layers.
    `longer`: the class ignores further entries."""
    if len(given) < layers or (len(given) > layers and not longer):
        raise ConfigError(f"{name} names {len(given):,} layers, and {of} is {layers:,}", hint)


def layer_kinds(
    given: list[str] | None, layers: int, default: Callable[[int], str], known: tuple[str, str]
) -> list[str]:
    """The kind of each layer, by the config's layer_types, or by `default` without it. Raises ConfigError."""
    kinds = given if given is not None else [default(number) for number in range(layers)]
    check_length("layer_types", kinds, layers, f"{setting('layer_types')} gives the family's own pattern")
    for number, kind in enumerate(kinds):
        if kind not in known:
            raise ConfigError(f"layer_types[{number}] = {kind!r} is not supported: use {' or '.join(known)}")
    return kinds


def rope_parameters_by_kind(
    given: Mapping[str, Any] | None, default: Mapping[str, Any], window: int | None
) -> Mapping[str, Any]:
    """The RoPE parameters of one kind of layer, from rope_parameters with an entry per kind. Raises ConfigError."""
    spelled = (given or default).get(FULL if window is None else SLIDING)
    if not isinstance(spelled, Mapping):
        raise ConfigError(f"rope_parameters needs entries for {FULL} and {SLIDING}")
    return spelled


def rope_of_kind(given: Mapping[str, Any] | None, window: int | None) -> Mapping[str, Any]:
    """The same, empty without an entry for this kind of layer. Raises ConfigError."""
    kind = FULL if window is None else SLIDING
    spelled = (given or {}).get(kind) or {}
    if not isinstance(spelled, Mapping):
        raise ConfigError(f"rope_parameters.{kind} must be an object with fields, not {format_value(spelled)}")
    return spelled


def rope_layers(given: list[int] | None, layers: int, interval: int) -> list[bool]:
    """True for each layer with rotary embedding. `given`: the config's no_rope_layers; without it, every `interval`-th
    layer has none. Raises ConfigError."""
    if given is None:
        return [(number + 1) % interval != 0 for number in range(layers)]
    hint = f"{setting('no_rope_layers')} gives the family's own pattern"
    check_length("no_rope_layers", given, layers, hint, longer=True)
    return [bool(flag) for flag in given[:layers]]


def layer_windows(
    given: list[str] | None, layers: int, window: int | None, default: Callable[[int], bool], switch: str = ""
) -> list[int | None]:
    """The window of each layer; None for full attention.

    `given`: the config's layer_types; without it, `default` is true for layers with the window. Raises ConfigError.
    """
    kinds = layer_kinds(given, layers, lambda number: SLIDING if default(number) else FULL, (FULL, SLIDING))
    if SLIDING in kinds and not window:
        reason = f"{switch} is off" if switch else "sliding_window is null"
        raise ConfigError(
            f"layer {kinds.index(SLIDING)} has {SLIDING}, but {reason}",
            f"give sliding_window, or {setting('layer_types', FULL)} for full attention in every layer",
        )
    return [window if kind == SLIDING else None for kind in kinds]


def validated_layer_types(given: list[str], layers: int, known: Sequence[str], field: str = "layer_types") -> list[str]:
    """The kinds in a list, one per layer. Raises ConfigError."""
    check_length(field, given, layers)
    for number, kind in enumerate(given):
        if kind not in known:
            raise ConfigError(f"{field}[{number}] = {kind!r} is not supported: use {' or '.join(known)}")
    return given


def check_first_dense(message: int | None, routed: Sequence[bool]) -> None:
    """Raises ConfigError if first_k_dense_replace, which a class ignores, contradicts the layers that it builds."""
    if message is not None and [number >= message for number in range(len(routed))] != list(routed):
        first = next((number for number, one in enumerate(routed) if one), len(routed))
        raise ConfigError(
            f"first_k_dense_replace = {message:,} contradicts the layer types: the first layer with experts is"
            f" {first:,}"
        )


def check_top_k(active: int, experts: int, names: tuple[str, str]) -> None:
    """Raises ConfigError if the number of active experts exceeds the number of experts."""
    if active > experts:
        raise ConfigError(f"{names[0]} = {active:,} is more than {names[1]} = {experts:,}")


def moe_layers(layers: int, step: int, dense: list[int] | None) -> list[bool]:
    """True for each layer with experts: every `step`-th layer, except those listed as `dense`."""
    return [number not in (dense or []) and (number + 1) % step == 0 for number in range(layers)]


def with_all_experts(shape: Transformer) -> Transformer:
    """The model with every token routed to all experts."""

    def to_all(part: Part) -> Part:
        return replace(part, active=part.experts) if isinstance(part, Experts) else part

    return shape.mapped(to_all)


def sparse_layers(given: list[str] | None, layers: int) -> list[bool]:
    """True for each layer with experts. `given`: the config's mlp_layer_types; without it, the first layer is dense and
    all others have experts. Raises ConfigError."""
    if given is None:
        return [number > 0 for number in range(layers)]
    check_length("mlp_layer_types", given, layers, f"{setting('mlp_layer_types')} gives the family's own pattern")
    return [kind == "sparse" for kind in given]


def sizes_by_layer(config: Any, names: Collection[str]) -> dict[int, dict[str, int]]:
    """Sizes with these names of single layers, by their number in `per_layer_config`. Raises ConfigError."""
    found: dict[int, dict[str, int]] = {}
    for text, fields in (config.per_layer_config or {}).items():
        sizes = fields if isinstance(fields, Mapping) else {"": fields}
        if not text.isdigit() or int(text) >= config.num_hidden_layers:
            raise ConfigError(f"per_layer_config names layer {format_value(text)}, of {config.num_hidden_layers:,}")
        for name, value in sizes.items():
            at = f"per_layer_config.{text}.{name}"
            if name not in names:
                raise config.refused(at, value)
            if not is_size(value):
                raise ConfigError(f"{at} must be a whole number, not {format_value(value)}")
        found[int(text)] = dict(sizes)
    return found
