"""GPT-NeoX, BLOOM, Falcon and MPT: LayerNorm, q, k and v in one matrix, rotary embedding or ALiBi."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from tfacct.architecture.parts import Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.families.decoder import AnyAttention, Layer
from tfacct.families.family import attention_modules, mlp_modules
from tfacct.families.fields import (
    Fraction,
    JsonDict,
    LayerCount,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
    divide_exactly,
    is_positive,
    read_partial_rotary_factor,
    read_rope,
    require_even,
)
from tfacct.families.gpt import CLASSIFIERS, LayerNormDecoder, four_times
from tfacct.families.task_heads import DECODER


def megatron_modules(attention: str) -> dict[str, str]:
    """Modules of a layer by Megatron's names."""
    qkv = "query_key_value"
    return {
        "attn_norm": "input_layernorm",
        **attention_modules(attention, qkv, qkv, qkv, "dense"),
        "mlp_norm": "post_attention_layernorm",
        **mlp_modules("mlp", "dense_h_to_4h", "dense_4h_to_h", None),
    }


class GPTNeoXLike(LayerNormDecoder):
    """GPT-NeoX's layer, without assumptions about its biases."""

    hidden_size: PositiveInt
    num_hidden_layers: LayerCount
    num_attention_heads: PositiveInt
    hidden_act: StrictStr = "gelu"
    layer_norm_eps: PositiveFloat = 1e-5
    rotary_pct: Fraction
    rotary_emb_base: PositiveFloat | None = None
    rope_theta: PositiveFloat | None = None
    rope_scaling: JsonDict | None = None
    rope_parameters: JsonDict | None = None
    max_position_embeddings: PositiveInt = 2048

    eps_field = "layer_norm_eps"
    module_names = {"embed": ".embed_in", "final_norm": ".final_layer_norm", "lm_head": "lm_head"}
    layer_module_names = megatron_modules("attention")

    def layer_rope(self, layer: Layer) -> Rotary:
        return read_rope(self.rope_theta or self.rotary_emb_base, self.rope_scaling, self.rope_parameters)

    def attention(self, layer: Layer, **overrides: Any) -> AnyAttention:
        rotary_dim = int(self.head_dim * read_partial_rotary_factor(self.rotary_pct, self.rope_parameters))
        rope_dim = require_even(rotary_dim, "rotary_pct · head_dim =")
        return super().attention(layer, rope_dim=rope_dim, **overrides)


class GPTNeoX(GPTNeoXLike):
    """GPT-NeoX and Pythia: attention and MLP in parallel, each with its norm; rotary embedding on part of each head."""

    defaults = dict(rotary_pct=0.25, tie_word_embeddings=False)
    intermediate_size: PositiveInt = 24576
    attention_bias: StrictBool = True
    use_parallel_residual: StrictBool = True

    reference_only = "use_parallel_residual"
    dropouts = dict(
        embedding=("hidden_dropout", 0.0), residual=("hidden_dropout", 0.0), attention=("attention_dropout", 0.0)
    )
    checkpoint_conversion_mapping = ((r"^embed_out\.", "lm_head."),)
    task_heads = CLASSIFIERS
    base_model_prefix = "gpt_neox"
    order = property(lambda self: "parallel" if self.use_parallel_residual else "pre")


class GPTNeoXJapanese(GPTNeoXLike):
    """GPT-NeoX Japanese: attention and MLP one after the other, without biases except in the last layer's attention."""

    sizes = dict(vocab=32000, hidden=2560, layers=32, heads=32)
    defaults = dict(rotary_pct=1.0)
    intermediate_multiple_size: PositiveInt = 4

    attention_bias = mlp_bias = False
    intermediate_size = property(lambda self: self.intermediate_multiple_size * self.hidden_size)
    task_heads = DECODER
    base_model_prefix = "gpt_neox_japanese"
    module_names = {"lm_head": "embed_out"}
    layer_tensor_names = {"attn.o_proj.bias": "attention.dense_bias"}

    def layers(self) -> list[Layer]:
        return [Layer()] * (self.num_hidden_layers - 1) + [Layer(kind="last")]

    def attention(self, layer: Layer, **overrides: Any) -> AnyAttention:
        return super().attention(layer, out_bias=layer.kind == "last")


class Bloom(LayerNormDecoder):
    """BLOOM: ALiBi instead of positions, and a norm after the embeddings."""

    hidden_size: PositiveInt
    n_layer: LayerCount
    n_head: PositiveInt
    seq_length: PositiveInt = 2048
    layer_norm_epsilon: PositiveFloat = 1e-5

    attribute_map = {"n_embed": "hidden_size", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}
    ignored_fields = """offset_alibi slow_but_exact attention_softmax_in_fp32 masked_softmax_fusion skip_bias_add
        skip_bias_add_qkv apply_residual_connection_post_layernorm n_inner"""
    dropouts = dict(residual=("hidden_dropout", 0.0), attention=("attention_dropout", 0.0))
    drops_in_attention = True
    intermediate_size = property(lambda self: 4 * self.hidden_size)
    task_heads = CLASSIFIERS
    base_model_prefix = "transformer"
    layer_path = ".h.*"
    module_names = {
        "embed": ".word_embeddings",
        "embed_norm": ".word_embeddings_layernorm",
        "final_norm": ".ln_f",
        "lm_head": "lm_head",
    }
    layer_module_names = megatron_modules("self_attention")
    activation = "gelu_pytorch_tanh"
    context = property(attrgetter("seq_length"))  # training context: ALiBi does not limit it
    attention_options = dict(alibi=True)
    embedding_norm = True


class Falcon(LayerNormDecoder):
    """Falcon: attention and MLP in parallel. 7B has one key/value head and one norm, 40B several and two, 1B ALiBi."""

    hidden_size: PositiveInt
    num_hidden_layers: LayerCount
    num_attention_heads: PositiveInt
    ffn_hidden_size: PositiveInt = four_times("hidden_size")
    max_position_embeddings: PositiveInt = 2048
    new_decoder_architecture: StrictBool = False
    multi_query: StrictBool = True
    num_kv_heads: PositiveInt | None = None
    parallel_attn: StrictBool = True
    num_ln_in_parallel_attn: PositiveInt | None = None
    bias: StrictBool = False
    alibi: StrictBool = False
    activation: StrictStr = "gelu"
    layer_norm_epsilon: PositiveFloat = 1e-5
    rope_theta: PositiveFloat | None = None
    rope_scaling: JsonDict | None = None
    rope_parameters: JsonDict | None = None

    attribute_map = {"n_embed": "hidden_size"}
    reference_only = "alibi"
    ignored_fields = "apply_residual_connection_post_layernorm"
    attention_bias = mlp_bias = property(lambda self: self.bias)
    intermediate_size = property(lambda self: self.ffn_hidden_size)
    constant_axes = frozenset()
    dropouts = dict(residual=("hidden_dropout", 0.0))
    task_heads = CLASSIFIERS
    hf_cache_differs = "it caches one copy per query head"
    base_model_prefix = "transformer"
    layer_path = ".h.*"
    module_names = {"embed": ".word_embeddings", "final_norm": ".ln_f", "lm_head": "lm_head"}
    layer_module_names = megatron_modules("self_attention")
    attention_options = dict(alibi=attrgetter("alibi"))
    order = property(lambda self: "parallel" if self.parallel_attn else "pre")
    shares_norm = property(lambda self: self.parallel_attn and not self.has_two_norms)

    @property
    def has_two_norms(self) -> bool:
        """True if attention and MLP, in parallel, have separate norms."""
        return self.new_decoder_architecture and self.num_ln_in_parallel_attn in (None, 2)

    @property
    def kv_heads(self) -> int:
        """num_kv_heads in the new architecture; otherwise one, or one per query head."""
        if self.new_decoder_architecture:
            return self.num_kv_heads or self.num_attention_heads
        return 1 if self.multi_query else self.num_attention_heads

    def hf_module_names(self) -> Mapping[str, str]:
        """Module names; those of the norms depend on the architecture."""
        norms = {"blocks.*.attn_norm": "transformer.h.*.ln_attn", "blocks.*.mlp_norm": "transformer.h.*.ln_mlp"}
        return {**super().hf_module_names(), **(norms if self.has_two_norms else {})}

    def hf_cache(self) -> Transformer:
        """The class caches grouped keys and values once per query head."""
        model = self.transformer()
        return model.with_kv_heads(None) if self.new_decoder_architecture else model

    def check(self) -> None:
        """Raises ConfigError for configs that the class cannot run."""
        if self.new_decoder_architecture and not self.parallel_attn:
            raise ConfigError("new_decoder_architecture is always parallel, but parallel_attn is false")
        if self.num_ln_in_parallel_attn == 2 and not self.new_decoder_architecture:
            raise ConfigError("num_ln_in_parallel_attn = 2 needs new_decoder_architecture = true")
        grouped = self.num_kv_heads not in (None, self.num_attention_heads)
        if grouped and not self.new_decoder_architecture and not self.multi_query:
            raise ConfigError(f"num_kv_heads = {self.num_kv_heads:,} needs new_decoder_architecture = true")
        if self.num_ln_in_parallel_attn not in (None, 1, 2):
            raise ConfigError(f"num_ln_in_parallel_attn must be 1 or 2, not {self.num_ln_in_parallel_attn:,}")

    def head_sizes(self, layer: Layer) -> dict[str, int]:
        head_dim, heads, kv_heads = self.head_dim, self.num_attention_heads, self.kv_heads
        group = divide_exactly(heads, kv_heads, "num_attention_heads by num_kv_heads")
        return {"kv_heads": kv_heads, "group": group, "head_dim": head_dim if self.alibi else require_even(head_dim)}

    def layer_rope(self, layer: Layer) -> Rotary | None:
        return None if self.alibi else self.rope()


class Mpt(LayerNormDecoder):
    """MPT: ALiBi, LayerNorm with a scale only, no biases."""

    sizes = dict(vocab=50368)
    d_model: PositiveInt = 2048
    n_layers: LayerCount = 24
    n_heads: PositiveInt = 16
    max_seq_len: PositiveInt = 2048
    expansion_ratio: PositiveInt = 4
    no_bias: StrictBool = True
    attn_config: JsonDict | None = None
    layer_norm_epsilon: PositiveFloat = 1e-5

    attribute_map = {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
    reference_only = "expansion_ratio no_bias -attn_config"
    ignored_fields = "learned_pos_emb embedding_fraction init_device init_config logit_scale norm_type verbose"
    built_by_class = {
        "attn_config.attn_type": "multihead_attention",
        "attn_config.alibi": True,
        "attn_config.qk_ln": False,
        "attn_config.prefix_lm": False,
        "expansion_ratio": 4,
        "no_bias": True,
    }
    """Fields that the class does not read, and what it builds."""
    attention_bias = mlp_bias = False
    intermediate_size = property(lambda self: 4 * self.d_model)
    class_prefixes = ("Mpt", "MPT")  # published files have MPT
    task_heads = CLASSIFIERS
    base_model_prefix = "transformer"
    layer_path = ".blocks.*"
    module_names = {"embed": ".wte", "final_norm": ".norm_f", "lm_head": "lm_head"}
    layer_module_names = {
        "attn_norm": "norm_1",
        **attention_modules("attn", "Wqkv", "Wqkv", "Wqkv", "out_proj"),
        "mlp_norm": "norm_2",
        **mlp_modules("ffn", gate=None),
    }
    activation = "gelu"
    context = property(attrgetter("max_seq_len"))
    norm_learned = "scale"

    def check(self) -> None:
        attn_config = self.attn_config or {}
        for name, built in self.built_by_class.items():
            inner = name.removeprefix("attn_config.")
            value = getattr(self, name) if inner == name else attn_config.get(inner, built)
            if value != built:
                raise ConfigError(f"{name} = {format_value(value)}: the class supports only {format_value(built)}")
        for name in ("clip_qkv", "softmax_scale"):
            value = attn_config.get(name)
            if value is not None and not is_positive(value):
                raise ConfigError(f"attn_config.{name} must be a number above 0, not {format_value(value)}")

    def attention(self, layer: Layer, **overrides: Any) -> AnyAttention:
        attn_config = self.attn_config or {}
        clip, scale = attn_config.get("clip_qkv"), attn_config.get("softmax_scale")
        return super().attention(layer, alibi=True, clip=clip, scale=scale)
