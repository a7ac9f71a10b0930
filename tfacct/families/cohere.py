"""Cohere's models: attention and MLP in parallel after one LayerNorm; a tied head with scaled logits."""

from dataclasses import replace
from operator import attrgetter
from typing import Any

from pydantic import Field

from tfacct.architecture.parts import Experts, FeedForward, Norm, QKNorm, Rotary
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.families.decoder import QK_NORMS, Decoder, Layer, Window, expert_modules, expert_tensors
from tfacct.families.family import ABSENT, SAME_AS_QUERY_HEADS, mlp_modules
from tfacct.families.fields import JsonDict, NonNegativeInt, PositiveFloat, PositiveInt, StrictBool, StrictStr
from tfacct.families.layer_kinds import FULL, SLIDING, LayerTypes, MlpLayerTypes, sparse_layers
from tfacct.families.task_heads import BODY, CAUSAL_MODEL

IGNORED_FIELDS = """use_parallel_block use_parallel_embedding use_embedding_sharing use_gated_activation
    position_embedding_type rotary_pct layer_switch order_of_interleaved_layers"""


class CohereBase(Decoder):
    """The fields that Cohere's models share."""

    sizes = dict(vocab=256000, hidden=8192, mlp=22528, layers=40, heads=64, kv_heads=SAME_AS_QUERY_HEADS, context=8192)
    defaults = dict(tie_word_embeddings=True)
    attention_bias: StrictBool = False
    layer_norm_eps: PositiveFloat = 1e-5
    logit_scale: PositiveFloat = 0.0625
    rope_pairs = "neighbours"
    norm_kind, norm_learned, eps_field = "layer", "scale", "layer_norm_eps"
    order, shares_norm = "parallel", True
    head_options = dict(logit_scale=attrgetter("logit_scale"))


class Cohere(CohereBase):
    """Command R: attention and MLP in parallel after one LayerNorm, a tied head with scaled logits."""

    defaults = dict(rope_theta=500_000.0)
    use_qk_norm: StrictBool = False
    ignored_fields = IGNORED_FIELDS
    layer_module_names = QK_NORMS
    qk_norm = QKNorm(0, kind="layer", per_head=True, shift=False)


class Cohere2(CohereBase):
    """Command R7B and Command A: Command R's layer; three layers of four have a window and a rotary embedding, the
    fourth has neither."""

    sliding_window: Window | None = 4096
    layer_types: LayerTypes | None = None
    sliding_window_pattern: PositiveInt = 4
    ignored_fields = f"{IGNORED_FIELDS} _sliding_window_pattern"
    heads_fill_hidden_size = True

    def has_window(self, number: int) -> bool:
        """True for layers with the window, if layer_types is absent."""
        return (number + 1) % self.sliding_window_pattern != 0

    def layers(self) -> list[Layer]:
        windows = self.windows(self.has_window, self.sliding_window)
        return [Layer(window, rotary=window is not None) for window in windows]


class Cohere2Moe(Cohere2):
    """Cohere's models with experts: Command A's layer and windows; dense MLPs in the first layers, then experts."""

    sizes = dict(head_dim=128)
    rms_norm_eps: PositiveFloat | None = None  # type: ignore[assignment]
    prefix_dense_sliding_window_pattern: PositiveInt = 1
    prefix_dense_intermediate_size: PositiveInt | None = None
    first_k_dense_replace: NonNegativeInt = 0
    mlp_layer_types: MlpLayerTypes | None = None
    num_experts: PositiveInt = 8
    num_experts_per_tok: PositiveInt = 2
    num_shared_experts: NonNegativeInt = 0
    expert_selection_fn: StrictStr = "softmax"
    shared_expert_combination_strategy: StrictStr = "average"
    norm_topk_prob: StrictBool = True
    reference_only = "norm_topk_prob"
    layer_module_names = {**expert_modules(), **mlp_modules("mlp.shared_experts", at="mlp.shared"), "mlp_norm": ABSENT}
    layer_tensor_names = expert_tensors()
    heads_fill_hidden_size = False
    expert_width, shared_expert_count = "intermediate_size", "num_shared_experts"

    def norm(self) -> Norm:
        """RMSNorm if rms_norm_eps is given, else Cohere's norm."""
        eps = self.rms_norm_eps
        return super().norm() if eps is None else Norm(hidden=self.hidden_size, kind="rms", eps=eps)

    def has_window(self, number: int) -> bool:
        """True for layers with the window, if layer_types is absent."""
        first = self.first_k_dense_replace
        if number < first:
            return (number + 1) % self.prefix_dense_sliding_window_pattern != 0
        return super().has_window(number - first)

    def layers(self) -> list[Layer]:
        layers, first = self.num_hidden_layers, self.first_k_dense_replace
        if first > layers:
            raise ConfigError(f"first_k_dense_replace = {first:,} is more than num_hidden_layers = {layers:,}")
        windows = self.windows(self.has_window, self.sliding_window)
        listed, dense_rotary = self.mlp_layer_types, self.prefix_dense_sliding_window_pattern == 1
        routed = [number >= first for number in range(layers)] if listed is None else sparse_layers(listed, layers)
        return [
            Layer(window, some, rotary=window is not None or (dense_rotary and not some))
            for window, some in zip(windows, routed, strict=True)
        ]

    def mlp(self, layer: Layer) -> FeedForward | Experts:
        if layer.experts:
            return self.experts()
        return self.dense_mlp(width=self.prefix_dense_intermediate_size or self.intermediate_size)

    def experts(self, **overrides: Any) -> Experts:
        experts = super().experts()
        choices = {
            "expert_selection_fn": ("softmax", "sigmoid"),
            "shared_expert_combination_strategy": ("sum", "average"),
        }
        for name, known in choices.items():
            value = getattr(self, name)
            if value not in known:
                raise ConfigError(f"{name} = {format_value(value)}: the class supports only {' and '.join(known)}")
        normalized = self.expert_selection_fn == "sigmoid" and self.norm_topk_prob
        return replace(experts, scoring=self.expert_selection_fn, scaling=1.0 if normalized else None)


class CohereCompass(CohereBase):
    """Cohere's North: Command R's layer, with a rotary embedding that pairs the halves of a head. Each kind of layer
    has its own rotary embedding, or none."""

    logit_scale: PositiveFloat | None = None  # type: ignore[assignment]
    sliding_window: Window | None = 4096
    layer_types: LayerTypes | None = None
    rope_parameters: JsonDict = Field()
    class_prefixes = ("CohereCompass", "CohereCompassText")
    task_heads = {"ForCausalLM": CAUSAL_MODEL, "Model": BODY}
    ignored_fields = "pooling"
    heads_fill_hidden_size = True

    def layers(self) -> list[Layer]:
        return [Layer(window) for window in self.windows(lambda _number: False, self.sliding_window)]

    def layer_rope(self, layer: Layer) -> Rotary | None:
        """Rotary embedding by kind of layer; null means none. Raises ConfigError."""
        kind = FULL if layer.window is None else SLIDING
        given: Any = self.rope_parameters.get(kind, kind)
        if given is None:
            return None
        if not isinstance(given, dict):
            raise ConfigError(f"rope_parameters needs an entry for {kind} (or null), because there are {kind} layers")
        return Rotary(given.get("rope_theta") or 10_000.0, given)
