"""Shared by the families with experts: which layers have them, and the names the transformers classes give them."""

from collections.abc import Mapping
from dataclasses import replace

from tfacct.architecture.parts import Experts, Part
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError

ROUTED_PATHS: Mapping[str, str] = {
    "blocks.*.mlp.router": "model.layers.*.mlp.gate",
    "blocks.*.mlp.experts.gate_proj": "model.layers.*.mlp.experts",
    "blocks.*.mlp.experts.up_proj": "model.layers.*.mlp.experts",
    "blocks.*.mlp.experts.down_proj": "model.layers.*.mlp.experts",
}
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
