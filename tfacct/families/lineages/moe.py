"""Decoders with experts whose lineage has few models: Kolibri 1, Flint, Grok-1, DBRX."""

from collections.abc import Mapping
from typing import Any

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import (
    Attention,
    Embedding,
    Experts,
    Head,
    LatentAttention,
    Norm,
    QKNorm,
    Rotary,
)
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families.lineages.decoder import (
    EXPERT_MODULES,
    EXPERT_TENSORS,
    QK_NORMS,
    Decoder,
    DecoderBase,
    Layer,
    Window,
)
from tfacct.families.lineages.family import Family, mlp_modules
from tfacct.families.lineages.vocabulary import (
    CAUSAL_MODEL,
    DECODER,
    FamilyConfig,
    JsonDict,
    LayerCount,
    LayerTypes,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
    check_top_k,
    divide_exactly,
    format_value,
    is_ignored_field,
    moe_layers,
    read_rope,
    require_even,
    validate,
)


class SharedExpertDecoder(Decoder):
    """Experts with one shared expert; norms of queries and keys."""

    task_heads = DECODER
    layer_module_names = {**EXPERT_MODULES, **QK_NORMS}
    layer_tensor_names = EXPERT_TENSORS
    qk_norm = QKNorm(0)

    def check(self) -> None:
        self.experts()

    def experts(self, *_: str, **own: Any) -> Experts:
        return super().experts(shared=self.shared_expert_intermediate_size)


class Kolibri1(SharedExpertDecoder):
    """Kolibri 1: windows in all layers but every fifth, which has no rotary embedding; norms around every sublayer;
    experts with a shared expert in every layer."""

    defaults = dict(
        vocab_size=128000,
        hidden_size=2560,
        num_hidden_layers=50,
        num_attention_heads=48,
        num_key_value_heads=4,
        head_dim=128,
        max_position_embeddings=262144,
    )
    intermediate_size: PositiveInt | None = None  # type: ignore[assignment]
    sliding_window: Window = 513
    layer_types: LayerTypes | None = None
    moe_intermediate_size: PositiveInt = 512
    shared_expert_intermediate_size: PositiveInt = 512
    num_experts: PositiveInt = 384
    num_experts_per_tok: PositiveInt = 6

    reference_only = "intermediate_size"
    attribute_map = {"num_local_experts": "num_experts"}
    checkpoint_conversion_mapping = (
        (r"\.post_attn_norm\.", ".post_self_attn_layernorm."),
        (r"\.post_ffn_norm\.", ".post_mlp_layernorm."),
        (r"\.moe\.router\.expert_bias$", ".mlp.gate.e_score_correction_bias"),
    )
    layer_module_names = {
        **mlp_modules("mlp.shared_experts", at="mlp.shared"),
        "attn_post_norm": "post_self_attn_layernorm",
        "mlp_post_norm": "post_mlp_layernorm",
    }
    norms = "around"

    def layers(self) -> list[Layer]:
        windows = self.windows(lambda number: (number + 1) % 5 != 0, self.sliding_window)
        return [Layer(window, experts=True, rotary=window is not None) for window in windows]


class Flint(SharedExpertDecoder):
    """Flint: Qwen3's attention with sinks, and a rotary embedding only in layers with a window; two dense layers, then
    experts with a shared expert."""

    defaults = dict(
        vocab_size=150144,
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=49,
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
        max_position_embeddings=262144,
    )
    attention_bias: StrictBool = False
    sliding_window: Window = 513
    layer_types: LayerTypes | None = None
    moe_intermediate_size: PositiveInt = 512
    shared_expert_intermediate_size: PositiveInt = 1024
    num_experts: PositiveInt = 256
    num_experts_per_tok: PositiveInt = 6
    decoder_sparse_step: PositiveInt = 1
    mlp_only_layers: list[NonNegativeInt] | None = None

    checkpoint_conversion_mapping = ((r"\.softmax_offset$", ".sinks"),)
    layer_module_names = {**mlp_modules("mlp.shared_expert", at="mlp.shared"), "attn.sinks": "self_attn"}
    layer_tensor_names = {"attn.sinks.weight": "self_attn.sinks"}

    def has_window(self, number: int) -> bool:
        """True of layers that have the window, if layer_types is absent."""
        return number >= 2 and number % 4 != 1 and number != self.num_hidden_layers - 1

    def layers(self) -> list[Layer]:
        windows = self.windows(self.has_window, self.sliding_window)
        dense = [0, 1] if self.mlp_only_layers is None else self.mlp_only_layers
        routed = moe_layers(self.num_hidden_layers, self.decoder_sparse_step, dense)
        return [Layer(window, some, rotary=window is not None) for window, some in zip(windows, routed, strict=True)]

    def attention(self, layer: Layer, **own: Any) -> Attention | LatentAttention:
        return super().attention(layer, sinks=True, **own)


class Grok1(DecoderBase):
    """Grok-1: norms around attention and experts, bounded attention scores, experts in every layer. The fields are
    those of the PyTorch port; no field that counts has a default."""

    vocab_size: PositiveInt
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: LayerCount
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    num_experts: PositiveInt
    num_experts_per_tok: PositiveInt
    max_position_embeddings: PositiveInt
    tie_word_embeddings: StrictBool = True
    residual_moe: StrictBool = False
    hidden_act: StrictStr = "gelu"
    rms_norm_eps: PositiveFloat = 1e-5
    rope_theta: PositiveFloat = 10_000.0
    attn_output_multiplier: PositiveFloat = 1.0
    max_attn_value: PositiveFloat = 30.0
    embedding_multiplier_scale: PositiveFloat = 1.0
    output_multiplier_scale: PositiveFloat = 1.0

    class_prefixes = ("Grok1Model", "Grok1")
    reference_only = "residual_moe"
    required_values = {"residual_moe": False}
    attribute_map = {"num_local_experts": "num_experts"}
    ignored_fields = "output_router_logits router_aux_loss_coef"
    task_heads = {"ForCausalLM": CAUSAL_MODEL}
    norms = "around"

    @property
    def head_dim(self) -> int:
        return divide_exactly(self.hidden_size, self.num_attention_heads, "hidden_size by num_attention_heads")

    def check(self) -> None:
        super().check()
        self.experts()

    def layers(self) -> list[Layer]:
        return [Layer(experts=True)] * self.num_hidden_layers

    def rope(self) -> Rotary:
        return Rotary(self.rope_theta)

    def attention(self, layer: Layer, **own: Any) -> Attention | LatentAttention:
        return super().attention(layer, scale=self.attn_output_multiplier, softcap=self.max_attn_value, **own)

    def experts(self, *_: str, **own: Any) -> Experts:
        return super().experts(width="intermediate_size")

    def embeddings_and_head(self) -> dict[str, Any]:
        return self.scaled_embeddings_and_head(self.embedding_multiplier_scale, self.output_multiplier_scale)


DBRX_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "attn_config": {"kv_n_heads": 1, "clip_qkv": None, "rope_theta": None},
    "ffn_config": {"ffn_hidden_size": 3584, "moe_num_experts": 4, "moe_top_k": 1, "ffn_act_fn": None},
}
"""Fields of both inner configs that are read here, and the class's defaults."""
DBRX_IGNORED = frozenset(
    """
    attn_pdrop moe_jitter_eps moe_loss_weight moe_normalize_expert_weights uniform_expert_assignment hidden_size
    model_type id2label
    """.split()
)
"""Fields of both that change no count."""
DBRX_PROJECTIONS = {"gate_proj": "w1", "up_proj": "v1", "down_proj": "w2"}


class Dbrx(Family):
    """DBRX: experts in every layer, bounded queries, keys and values, LayerNorms without bias."""

    vocab_size: PositiveInt = 32000
    d_model: PositiveInt = 2048
    n_layers: LayerCount = 24
    n_heads: PositiveInt = 16
    max_seq_len: PositiveInt = 2048
    attn_config: JsonDict | None = None
    ffn_config: JsonDict | None = None
    num_key_value_heads: PositiveInt | None = None
    tie_word_embeddings: StrictBool = False
    rope_theta: PositiveFloat | None = None
    rope_scaling: JsonDict | None = None
    rope_parameters: JsonDict | None = None

    reference_only = "num_key_value_heads -attn_config -ffn_config"
    required_values = {"tie_word_embeddings": False}
    attribute_map = {
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "max_position_embeddings": "max_seq_len",
    }
    task_heads = DECODER
    base_model_prefix = "transformer"
    transposed_weights = ("blocks.*.mlp.experts.down_proj",)
    module_names = {"embed": "transformer.wte", "final_norm": "transformer.norm_f", "lm_head": "lm_head"}
    layer_path = "transformer.blocks.*"
    layer_module_names = {
        "attn_norm": "norm_attn_norm.norm_1",
        **dict.fromkeys((f"attn.{name}_proj" for name in "qkv"), "norm_attn_norm.attn.Wqkv"),
        **dict.fromkeys(("attn.scores", "attn.values"), "norm_attn_norm.attn"),
        "attn.o_proj": "norm_attn_norm.attn.out_proj",
        "mlp_norm": "norm_attn_norm.norm_2",
        "mlp.router": "ffn.router.layer",
        **{f"mlp.experts.{name}": "ffn.experts.mlp" for name in DBRX_PROJECTIONS},
    }
    layer_tensor_names = {
        f"mlp.experts.{ours}.weight": f"ffn.experts.mlp.{theirs}" for ours, theirs in DBRX_PROJECTIONS.items()
    }

    @property
    def context(self) -> int:
        return self.max_seq_len

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked fields, with defaults of the inner configs."""
        config, defaulted, unknown = validate(cls, raw)
        for field, known in DBRX_FIELDS.items():
            given = getattr(config, field) or {}
            sizes = {name: size for name, size in known.items() if size is not None and name not in given}
            defaulted |= {f"{field}.{name}": size for name, size in sizes.items()}
        return config, defaulted, unknown

    def hf_unsupported(self) -> str | None:
        """It needs two fields of attn_config that have no default."""
        given = self.attn_config or {}
        missing = [name for name in ("clip_qkv", "rope_theta") if given.get(name) is None]
        return f"it reads attn_config.{missing[0]}, which this config has not" if missing else None

    def inner(self, field: str) -> dict[str, Any]:
        """Values of an inner config. Raises ConfigError."""
        known, given = DBRX_FIELDS[field], getattr(self, field) or {}
        for name, value in given.items():
            read = name in known or name in DBRX_IGNORED or is_ignored_field(name)
            if not read and value not in (None, False, 0):
                raise self.refused(f"{field}.{name}", value)
        found = {name: given.get(name, default) for name, default in known.items()}
        for name, default in known.items():
            size = found[name]
            if isinstance(default, int) and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
                raise ConfigError(f"{field}.{name} must be a whole number from 1, not {format_value(size)}")
            number = isinstance(size, (int, float)) and not isinstance(size, bool) and size > 0
            if name in ("clip_qkv", "rope_theta") and size is not None and not number:
                raise ConfigError(f"{field}.{name} must be a number above 0, not {format_value(size)}")
        return found

    def architecture(self) -> Transformer:
        self.check()
        hidden, heads = self.d_model, self.n_heads
        attn, ffn = self.inner("attn_config"), self.inner("ffn_config")
        kv_heads, experts, active = attn["kv_n_heads"], ffn["moe_num_experts"], ffn["moe_top_k"]
        if self.num_key_value_heads not in (None, kv_heads):  # the class writes it, too
            raise self.refused("num_key_value_heads", self.num_key_value_heads)
        check_top_k(active, experts, ("moe_top_k", "moe_num_experts"))
        act = ffn["ffn_act_fn"] or {}
        if not isinstance(act, Mapping):
            raise ConfigError(f"ffn_config.ffn_act_fn must be an object of fields, not {format_value(act)}")
        attention = Attention(
            hidden=hidden,
            kv_heads=kv_heads,
            group=divide_exactly(heads, kv_heads, "n_heads by attn_config.kv_n_heads"),
            head_dim=require_even(divide_exactly(hidden, heads, "d_model by n_heads"), "d_model / n_heads ="),
            clip=attn["clip_qkv"],
            rotary=read_rope(self.rope_theta, self.rope_scaling, self.rope_parameters),
        )
        sizes: dict[str, Any] = {"experts": experts, "active": active, "width": ffn["ffn_hidden_size"]}
        mlp = Experts(hidden=hidden, **sizes, activation=act.get("name", "silu"))
        norm = Norm(hidden=hidden, kind="layer", learned="scale")
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            stacks=stacks([Block.of(attention, mlp, norm=norm)] * self.n_layers),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size),
        )
