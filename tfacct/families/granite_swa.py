"""Granite with windows: three layers of four have one; sinks beside the scores, angles by layer."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic_core import core_schema

from tfacct.architecture.parts import Experts
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Checked, Count, Layers, Real, Switch
from tfacct.families._granite_like import GraniteLike
from tfacct.families._layers import LayerTypes, windows
from tfacct.families.granite import Config as Granite
from tfacct.families.mistral import Window

RELEASED = "2026-07"

Bases: TypeAlias = Annotated[
    list[float],
    Checked(core_schema.list_schema(core_schema.float_schema(strict=True, ge=0, allow_inf_nan=False), strict=True)),
]
"""Base of the angles of each layer; 0 where it does not rotate."""
SINKS_PATH = {"blocks.*.attn.sinks": "model.layers.*.self_attn"}
SINKS_TENSOR = {"blocks.*.attn.sinks.weight": "model.layers.*.self_attn.sinks"}
GOTCHAS = (
    "Layers 0, 4, 8 … see everything and the others have the window unless layer_types says otherwise. An absent "
    "sliding_window means 128.",
    "Each query head has a sink: one learned score that belongs to no key.",
    "layer_rope_theta has the base of each layer's angles; a layer with 0 does not rotate queries and keys.",
)


class Windowed(GraniteLike):
    """What both of Granite's families with windows read beside their sizes."""

    attention_multiplier: Real | None = 1.0
    sliding_window: Window | None = 128
    layer_types: LayerTypes | None = None
    layer_rope_theta: Bases | None = None

    @property
    def bases(self) -> Sequence[float | None]:
        """Base of each layer's angles: 0 where it does not rotate, None where it is the model's. Raises ConfigError."""
        layers, given = self.num_hidden_layers, self.layer_rope_theta
        if given is None:
            return [None] * layers
        if len(given) < layers:
            raise ConfigError(
                f"layer_rope_theta names {len(given):,} layers, and num_hidden_layers is {layers:,}",
                "layer_rope_theta=null gives all layers the same base",
            )
        return given[:layers]

    def mixed(self, network: Experts | None = None) -> Transformer:
        """Layers with sinks, and windows and angles as the lists say. Raises ConfigError."""
        layers, plain = self.num_hidden_layers, self.rotary()
        seen = windows(self.layer_types, layers, self.sliding_window, lambda number: number % 4 != 0)
        per_layer = list(zip(seen, self.bases, strict=True))
        kinds = {}
        for window, base in dict.fromkeys(per_layer):
            angles: Any = plain if base is None else plain._replace(base=base) if base else None
            own = {"window": window, "rotary": angles, "sinks": True}
            kinds[window, base] = self.granite_block(network, **own)
        return self.decoder([kinds[kind] for kind in per_layer])


class Config(Windowed, Granite):
    """`GraniteSWAConfig`, with its class's defaults, sizes too. The head is tied unless the config says otherwise."""

    vocab_size: Count = 100352
    hidden_size: Count = 2560
    intermediate_size: Count = 8192
    num_hidden_layers: Layers = 24
    num_attention_heads: Count = 20
    num_key_value_heads: Count = 4
    max_position_embeddings: Count = 8192
    tie_word_embeddings: Switch = True
    rms_norm_eps: Real = 1e-5

    stems: ClassVar = ("GraniteSWA",)
    nulls: ClassVar = {"num_key_value_heads": "num_attention_heads"}
    hf_paths: ClassVar = {**Granite.hf_paths, **SINKS_PATH}
    hf_tensors: ClassVar = SINKS_TENSOR

    def architecture(self) -> Transformer:
        """attention_bias is on all four projections, mlp_bias on all three."""
        return self.mixed()
