"""Shared by the families with experts: which layers have them, and the names the transformers classes give them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeAlias

from pydantic_core import core_schema

from tfacct.architecture.parts import Experts, Part
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Checked
from tfacct.families._layers import one_each

ROUTED_PATHS: Mapping[str, str] = {
    "blocks.*.mlp.router": "model.layers.*.mlp.gate",
    "blocks.*.mlp.experts.gate_proj": "model.layers.*.mlp.experts",
    "blocks.*.mlp.experts.up_proj": "model.layers.*.mlp.experts",
    "blocks.*.mlp.experts.down_proj": "model.layers.*.mlp.experts",
}
BESIDE_PATHS: Mapping[str, str] = {
    **ROUTED_PATHS,
    **{
        f"blocks.*.mlp.shared.{name}": f"model.layers.*.mlp.shared_experts.{name}"
        for name in ("gate_proj", "up_proj", "down_proj")
    },
}
"""The same with a shared network beside them."""
CHOICE = "blocks.*.mlp.routing.bias"
"""The bias by which the router chooses, where it is a parameter."""
LayerNetworks: TypeAlias = Annotated[
    list[str], Checked(core_schema.list_schema(core_schema.literal_schema(["dense", "sparse"]), strict=True))
]
"""mlp_layer_types."""
ROUTED_TENSORS: Mapping[str, str] = {
    "blocks.*.mlp.experts.gate_proj.weight": "model.layers.*.mlp.experts.gate_up_proj",
    "blocks.*.mlp.experts.up_proj.weight": "model.layers.*.mlp.experts.gate_up_proj",
    "blocks.*.mlp.experts.down_proj.weight": "model.layers.*.mlp.experts.down_proj",
}

SHARED_PATHS: Mapping[str, str] = {
    "blocks.*.mlp.shared.gate_proj": "model.layers.*.mlp.shared_expert.gate_proj",
    "blocks.*.mlp.shared.up_proj": "model.layers.*.mlp.shared_expert.up_proj",
    "blocks.*.mlp.shared.down_proj": "model.layers.*.mlp.shared_expert.down_proj",
    "blocks.*.mlp.shared_gate": "model.layers.*.mlp.shared_expert_gate",
}
"""Qwen's one shared network, and its gate."""


def check_first_dense(said: int | None, routed: Sequence[bool]) -> None:
    """Raise ConfigError where first_k_dense_replace, which a class does not read, says other layers than it builds."""
    if said is not None and [number >= said for number in range(len(routed))] != list(routed):
        first = next((number for number, one in enumerate(routed) if one), len(routed))
        raise ConfigError(
            f"first_k_dense_replace = {said:,} contradicts the layers: the first with experts is layer {first:,}"
        )


def check_active(active: int, experts: int, names: tuple[str, str]) -> None:
    """Refuse to send a token to more experts than there are."""
    if active > experts:
        raise ConfigError(f"{names[0]} = {active:,} is more than {names[1]} = {experts:,}")


def with_experts(layers: int, step: int, dense: list[int] | None) -> list[bool]:
    """Booleans, one for each layer: every `step`-th layer has experts, except those listed as `dense`."""
    return [number not in (dense or []) and (number + 1) % step == 0 for number in range(layers)]


def every_expert(shape: Transformer) -> Transformer:
    """Return the model with every token sent to all experts."""

    def to_all(part: Part) -> Part:
        return replace(part, active=part.experts) if isinstance(part, Experts) else part

    return shape.mapped(to_all)


def beside_shared(config: Any, experts: int, shared: int, **own: Any) -> Experts:
    """Experts of a config's moe_intermediate_size, beside a network as wide as `shared` of them. Raises ConfigError."""
    names = ("num_experts_per_tok", "the number of experts")
    check_active(config.num_experts_per_tok, experts, names)
    return Experts(
        hidden=config.hidden_size,
        experts=experts,
        active=config.num_experts_per_tok,
        width=config.moe_intermediate_size,
        shared=shared * config.moe_intermediate_size or None,
        activation=config.activation,
        **own,
    )


def beside_gated(config: Any) -> Experts:
    """Qwen's experts: beside them one shared network of a width of its own, behind a gate. Raises ConfigError."""
    check_active(config.num_experts_per_tok, config.num_experts, ("num_experts_per_tok", "num_experts"))
    return Experts(
        hidden=config.hidden_size,
        experts=config.num_experts,
        active=config.num_experts_per_tok,
        width=config.moe_intermediate_size,
        shared=config.shared_expert_intermediate_size,
        shared_gate=True,
        activation=config.activation,
    )


def dense_or_sparse(given: list[str] | None, layers: int) -> list[bool]:
    """Booleans, one for each layer: whether it has experts. `given` are the config's mlp_layer_types; without them the
    first layer is dense and all others have experts. Raises ConfigError."""
    if given is None:
        return [number > 0 for number in range(layers)]
    one_each("mlp_layer_types", given, layers, "mlp_layer_types=null gives the family's own pattern")
    return [kind == "sparse" for kind in given]
