"""Microsoft's Phi models."""

from operator import attrgetter
from typing import Any

from tfacct.architecture.parts import QKNorm, Rotary
from tfacct.base.errors import ConfigError
from tfacct.families.decoder import (
    DIVIDED_HEAD_DIM,
    QK_LAYERNORMS,
    AnyAttention,
    DecoderBase,
    ExpertsInEveryLayer,
    Layer,
)
from tfacct.families.family import SAME_AS_QUERY_HEADS, attention_modules, mlp_modules
from tfacct.families.fields import Fraction, JsonDict, LayerCount, PositiveFloat, PositiveInt, StrictBool, StrictStr
from tfacct.families.llama import SIZES
from tfacct.families.mistral import Mistral
from tfacct.families.task_heads import CLASSIFYING, LABELLING


class Phi(DecoderBase):
    """Phi-1, 1.5 and 2: attention and MLP read the same norm; biases everywhere, even on the head."""

    hidden_size: PositiveInt
    num_hidden_layers: LayerCount
    num_attention_heads: PositiveInt
    intermediate_size: PositiveInt = 8192
    num_key_value_heads: PositiveInt = SAME_AS_QUERY_HEADS
    max_position_embeddings: PositiveInt = 2048
    qk_layernorm: StrictBool = False
    tie_word_embeddings: StrictBool = False
    hidden_act: StrictStr = "gelu_new"
    layer_norm_eps: PositiveFloat = 1e-5
    partial_rotary_factor: Fraction = 0.5
    rope_theta: PositiveFloat | None = None
    rope_scaling: JsonDict | None = None
    rope_parameters: JsonDict | None = None
    dropouts = {
        "embedding": ("embd_pdrop", 0.0),
        "residual": ("resid_pdrop", 0.0),
        "attention": ("attention_dropout", 0.0),
    }
    task_heads = LABELLING
    module_names = {"embed": "model.embed_tokens", "final_norm": "model.final_layernorm", "lm_head": "lm_head"}
    layer_module_names = {
        "attn_norm": "input_layernorm",
        **attention_modules("self_attn", o="dense"),
        **QK_LAYERNORMS,
        **mlp_modules("mlp", up="fc1", down="fc2", gate=None),
    }
    norm_kind, eps_field, mlp_gated, qk_norm = "layer", "layer_norm_eps", False, QKNorm(0, kind="layer")
    attention_bias = mlp_bias = True
    order, shares_norm = "parallel", True
    head_dim = DIVIDED_HEAD_DIM
    head_options = dict(bias=True)
    partial_rotary = True


class Phi3(Mistral):
    """Phi-3 and Phi-4: Llama's layer with q, k and v in one matrix, gate and up in another, a window in every layer."""

    sizes = dict(mlp=8192, kv_heads=SAME_AS_QUERY_HEADS, context=4096)
    defaults = dict(sliding_window=None, rms_norm_eps=1e-5)
    partial_rotary_factor: Fraction = 1.0
    nested_defaults = {**SIZES, "vocab_size": 32064, "hidden_size": 3072}
    dropouts = {"residual": ("resid_pdrop", 0.0), "attention": ("attention_dropout", 0.0)}
    ignored_fields = "embd_layer attention_bias full_attn_mod interpolate_factor"
    layer_module_names = {
        **attention_modules("self_attn", "qkv_proj", "qkv_proj", "qkv_proj"),
        **mlp_modules("mlp", up="gate_up_proj", gate="gate_up_proj"),
    }
    partial_rotary = True

    def rope(self) -> Rotary:
        """`longrope`, also under its two earlier names."""
        rope = super().rope()
        longer = rope._replace(scaling={**(rope.scaling or {}), "rope_type": "longrope"})
        return longer if rope.scaled in ("su", "yarn") else rope

    def attention(self, layer: Layer, **overrides: Any) -> AnyAttention:
        """Part of each head may have no rotary embedding."""
        rotary_dim = self.rotary_size()
        return super().attention(layer, rope_dim=None if rotary_dim == self.head_dim else rotary_dim, **overrides)


class Phimoe(ExpertsInEveryLayer, Mistral):
    """Phi-3.5-MoE: Mixtral's layer, with LayerNorm, and with biases if attention_bias or lm_head_bias is set."""

    sizes = dict(vocab=32064, hidden=4096, mlp=6400, layers=32, heads=32)
    defaults = dict(sliding_window=None, rms_norm_eps=1e-5, rope_theta=1_000_000.0, num_local_experts=16)
    attention_bias: StrictBool = False
    lm_head_bias: StrictBool = False
    class_prefixes = ("Phimoe", "PhiMoE")  # the published files write PhiMoE
    constant_axes = frozenset({"A"})  # the class chooses two experts
    checkpoint_conversion_mapping = ((r"\.(block_sparse_moe|mlp)\.gate\.", ".mlp.router."),)
    task_heads = CLASSIFYING
    ignored_fields = "input_jitter_noise"
    layer_module_names = {"mlp.router": "mlp.router"}
    norm_kind = "layer"
    head_options = dict(bias=attrgetter("lm_head_bias"))

    def check(self) -> None:
        if self.num_experts_per_tok != 2:
            raise ConfigError(
                f"num_experts_per_tok = {self.num_experts_per_tok:,}, but the class routes each token to 2 experts"
            )
