"""GPT-2 and its relatives: decoders with LayerNorm, biases, multi-head attention and mostly learned positions."""

from dataclasses import replace
from operator import attrgetter
from typing import Any

from pydantic import Field

from tfacct.architecture.parts import Attention, FeedForward, Norm, Positions, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.families.decoder import DIVIDED_HEAD_DIM, AnyAttention, DecoderBase, Layer
from tfacct.families.family import attention_modules, mlp_modules
from tfacct.families.fields import JsonDict, LayerCount, PositiveFloat, PositiveInt, StrictBool, StrictStr, require_even
from tfacct.families.layer_kinds import check_length
from tfacct.families.task_heads import CAUSAL_MODEL, CLASSIFYING, DECODER, TOKENS_CLASSIFIED

CLASSIFIERS = {**CLASSIFYING, "ForTokenClassification": TOKENS_CLASSIFIED}
SUMMARY = "summary_activation summary_proj_to_labels summary_type summary_use_proj"
PDROP = {
    name: (f"{at}_pdrop", 0.1) for name, at in (("embedding", "embd"), ("residual", "resid"), ("attention", "attn"))
}
NO_PDROP = {name: (field, 0.0) for name, (field, _) in PDROP.items()}


def four_times(field: str) -> Any:
    """The default of a width."""
    return Field(default_factory=lambda fields: 4 * fields[field])


class LayerNormDecoder(DecoderBase):
    """A decoder with LayerNorm, multi-head attention and an MLP of two matrices, whose fields may have any names.

    Biases everywhere, unless `attention_bias` or `mlp_bias` (fields or facts) are false.
    """

    defaults = dict(attention_bias=True, mlp_bias=True)
    tie_word_embeddings: StrictBool = True
    norm_kind, eps_field = "layer", "layer_norm_epsilon"
    mlp_gated = False
    constant_axes = frozenset("G")
    head_dim = DIVIDED_HEAD_DIM

    def head_sizes(self, layer: Any) -> dict[str, int]:
        return {"kv_heads": self.num_attention_heads, "group": 1, "head_dim": self.head_dim}

    def layer_rope(self, layer: Any) -> Rotary | None:
        return None

    def positions(self) -> Positions | None:
        """Position embedding, None if there is none."""
        return None

    def embeddings_and_head(self) -> dict[str, Any]:
        last = None if self.order == "post" else self.norm()
        return {**super().embeddings_and_head(), "positions": self.positions(), "final_norm": last}


class GPTFields(LayerNormDecoder):
    """Sizes with GPT-2's names, and learned positions."""

    n_embd: PositiveInt
    n_layer: LayerCount
    n_head: PositiveInt
    n_positions: PositiveInt
    layer_norm_epsilon: PositiveFloat = 1e-5

    attribute_map = {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
    }
    base_model_prefix = "transformer"
    layer_path = ".h.*"
    activation = property(attrgetter("activation_function"))
    intermediate_size = property(attrgetter("n_inner"))

    def positions(self) -> Positions | None:
        return Positions(rows=self.context, hidden=self.hidden_size)


class GPT2(GPTFields):
    """GPT-2: LayerNorm, learned positions, multi-head attention, biases everywhere, a tied head."""

    defaults = dict(n_positions=1024)
    n_inner: PositiveInt = four_times("n_embd")
    activation_function: StrictStr = "gelu_new"
    ignored_fields = f"""n_ctx scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn
        apply_query_key_layer_scaling normalize_attention_scores {SUMMARY}"""
    dropouts = PDROP
    drops_in_attention = True
    task_heads = {"LMHeadModel": CAUSAL_MODEL, **CLASSIFIERS}
    transposed_weights = ("blocks.",)
    module_names = {"embed": ".wte", "pos_embed": ".wpe", "final_norm": ".ln_f", "lm_head": "lm_head"}
    layer_module_names = {
        "attn_norm": "ln_1",
        **attention_modules("attn", "c_attn", "c_attn", "c_attn", "c_proj"),
        "mlp_norm": "ln_2",
        **mlp_modules("mlp", "c_fc", "c_proj", None),
    }


class GPTBigCode(GPTFields):
    """StarCoder and SantaCoder: GPT-2 with one key/value head for all query heads."""

    sizes = dict(vocab=50257)
    defaults = dict(n_embd=768, n_layer=12, n_head=12, n_positions=1024)
    n_inner: PositiveInt = four_times("n_embd")
    multi_query: StrictBool = True
    num_key_value_heads: PositiveInt | None = None
    activation_function: StrictStr = "gelu_pytorch_tanh"
    ignored_fields = f"""n_ctx scale_attn_weights attention_softmax_in_fp32 scale_attention_softmax_in_fp32
        inference_runner pad_key_length pre_allocate_kv_cache validate_runner_input max_batch_size
        summary_first_dropout {SUMMARY}"""
    constant_axes = frozenset()
    dropouts = PDROP
    drops_in_attention = True
    task_heads = CLASSIFIERS
    module_names, layer_module_names = GPT2.module_names, GPT2.layer_module_names

    @property
    def kv_heads(self) -> int:
        """One, or one per query head."""
        return 1 if self.multi_query else self.n_head

    def check(self) -> None:
        if self.num_key_value_heads not in (None, self.kv_heads):
            raise ConfigError(
                f"num_key_value_heads = {self.num_key_value_heads:,}, but multi_query ="
                f" {format_value(self.multi_query)} means {self.kv_heads:,}"
            )

    def head_sizes(self, layer: Layer) -> dict[str, int]:
        return {"kv_heads": self.kv_heads, "group": self.n_head // self.kv_heads, "head_dim": self.head_dim}


class OpenAIGPT(GPTFields):
    """GPT (1): GPT-2 with a norm after each sublayer instead of before, and no final norm."""

    sizes = dict(vocab=40478)
    defaults = dict(n_embd=768, n_layer=12, n_head=12, n_positions=512)
    afn: StrictStr = "gelu"
    ignored_fields = GPT2.ignored_fields
    dropouts = PDROP
    drops_in_attention = True
    task_heads = {
        name: replace(CLASSIFYING[name], gives=False) for name in ("LMHeadModel", "Model", "ForSequenceClassification")
    }
    transposed_weights = GPT2.transposed_weights
    hf_no_cache = True
    module_names = {"embed": ".tokens_embed", "pos_embed": ".positions_embed", "lm_head": "lm_head"}
    layer_module_names = GPT2.layer_module_names
    order = "post"

    intermediate_size = property(lambda self: 4 * self.n_embd)

    @property
    def activation(self) -> str:
        """The activation. The class has gelu_new under the name gelu."""
        return "gelu_new" if self.afn == "gelu" else self.afn

    def hf_cache(self) -> Transformer:
        """The class caches nothing."""
        return self.transformer().mapped(
            lambda part: replace(part, cache="none") if isinstance(part, Attention) else part
        )


class CTRL(LayerNormDecoder):
    """CTRL: GPT-2's layer with ReLU; sinusoidal positions, scaled embeddings and a head with a bias."""

    sizes = dict(vocab=246534)
    n_positions: PositiveInt = 256
    n_embd: PositiveInt = 1280
    dff: PositiveInt = 8192
    n_layer: LayerCount = 48
    n_head: PositiveInt = 16
    layer_norm_epsilon: PositiveFloat = 1e-6

    intermediate_size = property(lambda self: self.dff)
    attribute_map = GPTFields.attribute_map
    ignored_fields = f"from_tf {GPT2.ignored_fields}"
    dropouts = dict(embedding=("embd_pdrop", 0.1), residual=("resid_pdrop", 0.1))
    classifier = replace(CLASSIFYING["ForSequenceClassification"], paths={"classifier": "classifier"}, gives=False)
    task_heads = {"LMHeadModel": CAUSAL_MODEL, "Model": DECODER["Model"], "ForSequenceClassification": classifier}
    base_model_prefix = "transformer"
    layer_path = ".h.*"
    module_names = {"embed": ".w", "final_norm": ".layernorm", "lm_head": "lm_head"}
    layer_module_names = {
        "attn_norm": "layernorm1",
        **attention_modules("multi_head_attention", "Wq", "Wk", "Wv", "dense"),
        "mlp_norm": "layernorm2",
        **mlp_modules("ffn", "0", "2", None),
    }
    activation = "relu"
    head_options = dict(bias=True)
    embedding_options = dict(scaled=True)

    def norm(self) -> Norm:
        """A layer's norms ignore layer_norm_epsilon."""
        return replace(super().norm(), eps=1e-6)

    def positions(self) -> Positions:
        return Positions(rows=self.context, hidden=self.n_embd, layout="ctrl_sines")

    def embeddings_and_head(self) -> dict[str, Any]:
        return {**super().embeddings_and_head(), "final_norm": super().norm()}


class GPTNeo(LayerNormDecoder):
    """GPT-Neo: GPT-2 without biases on q, k and v, with unscaled scores and a window in every other layer."""

    sizes = dict(vocab=50257)
    hidden_size: PositiveInt = 2048
    num_layers: LayerCount = 24
    num_heads: PositiveInt = 16
    intermediate_size: PositiveInt = four_times("hidden_size")
    max_position_embeddings: PositiveInt = 2048
    attention_types: list[Any] | None = None
    attention_layers: list[Any] | None = None
    window_size: PositiveInt = 256
    activation_function: StrictStr = "gelu_new"
    layer_norm_epsilon: PositiveFloat = 1e-5

    activation = GPTFields.activation
    positions = GPTFields.positions
    attribute_map = {"num_hidden_layers": "num_layers", "num_attention_heads": "num_heads"}
    ignored_fields = f"summary_first_dropout {SUMMARY}"
    dropouts = dict(
        embedding=("embed_dropout", 0.0), residual=("resid_dropout", 0.0), attention=("attention_dropout", 0.0)
    )
    drops_in_attention = True
    task_heads = CLASSIFIERS
    hf_cache_differs = "it caches all keys even in windowed layers"
    hf_extra_note = "it computes scores for all keys even in windowed layers, and masks the rest"
    base_model_prefix = "transformer"
    layer_path = ".h.*"
    module_names = GPT2.module_names
    layer_module_names = {**GPT2.layer_module_names, **attention_modules("attn.attention", o="out_proj")}
    attention_options = dict(qkv_bias=False, scale=1.0)

    @property
    def layer_kinds(self) -> list[str]:
        """`global` or `local` for each layer, from pairs of a list of kinds and its number of repetitions.

        Raises ConfigError.
        """
        kinds: list[str] = []
        pairs = [[["global", "local"], 12]] if self.attention_types is None else self.attention_types
        for pair in pairs:
            names, times = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
            if not isinstance(names, list) or type(times) is not int or not 0 <= times <= 100_000:
                example = '[[["global", "local"], 12]]'
                raise ConfigError(f"attention_types must be a list as {example}, not {format_value(pairs)}")
            kinds += names * times
        return kinds

    def layers(self) -> list[Layer]:
        kinds = self.layer_kinds
        if self.attention_layers not in (None, kinds):
            raise ConfigError("attention_layers contradicts attention_types", "remove it: attention_layers=null")
        check_length("attention_types", kinds, self.num_layers, of="num_layers")
        for number, kind in enumerate(kinds):
            if kind not in ("global", "local"):
                raise ConfigError(f"layer {number} of attention_types is {format_value(kind)}: use global or local")
        return [Layer(self.window_size if kind == "local" else None) for kind in kinds]

    def hf_cache(self) -> Transformer:
        """The class caches all keys in every layer."""
        update = {"attention_types": [[["global"], self.num_layers]], "attention_layers": None}
        return self.model_copy(update=update).transformer()

    def hf_products(self) -> Transformer | None:
        """The class computes scores for all keys in every layer."""
        return self.hf_cache() if any(layer.window for layer in self.layers()) else None


class GPTJ(GPTFields):
    """GPT-J: attention and MLP in parallel after one norm, rotary embedding on part of each head."""

    sizes = dict(vocab=50400)
    defaults = dict(n_embd=4096, n_layer=28, n_head=16, n_positions=2048, tie_word_embeddings=False)
    n_inner: PositiveInt = four_times("n_embd")
    rotary_dim: PositiveInt = 64
    activation_function: StrictStr = "gelu_new"
    attention_bias = False
    reference_only = "rotary_dim"
    ignored_fields = f"n_ctx rotary scale_attn_weights summary_first_dropout {SUMMARY}"
    dropouts = NO_PDROP
    drops_in_attention = True
    task_heads = CLASSIFYING
    module_names = {"embed": ".wte", "final_norm": ".ln_f", "lm_head": "lm_head"}
    layer_module_names = {
        "attn_norm": "ln_1",
        **attention_modules("attn", o="out_proj"),
        **mlp_modules("mlp", "fc_in", "fc_out", None),
    }
    head_options = dict(bias=True)
    order, shares_norm = "parallel", True

    def positions(self) -> None:
        return None

    def attention(self, layer: Layer, **overrides: Any) -> AnyAttention:
        if self.rotary_dim > self.head_dim:
            raise ConfigError(
                f"rotary_dim = {self.rotary_dim:,}, but a head has n_embd / n_head = {self.head_dim:,} elements"
            )
        return super().attention(layer, rope_dim=require_even(self.rotary_dim, "rotary_dim ="))

    def layer_rope(self, layer: Layer) -> Rotary:
        return Rotary(10_000.0, None, "neighbours")


class CodeGen(GPTJ):
    """CodeGen: GPT-J with q, k and v in one matrix."""

    task_heads = DECODER
    layer_module_names = {f"attn.{name}_proj": "attn.qkv_proj" for name in "qkv"}

    def check(self) -> None:
        if self.n_head % 4:
            raise ConfigError(f"n_head = {self.n_head:,}: the class splits the heads into 4 equal parts")


class JAIS(GPTFields):
    """Jais and Cerebras' BTLM: GPT-2's layer with ALiBi and a gated MLP; constants scale embeddings and logits."""

    n_inner: PositiveInt = four_times("n_embd")
    position_embedding_type: StrictStr = "learned"
    activation_function: StrictStr = "gelu_new"
    mup_embeddings_scale: PositiveFloat = 1.0
    mup_scale_qk_dot_by_d: StrictBool = False
    mup_width_scale: PositiveFloat = 1.0
    mup_output_alpha: PositiveFloat = 1.0
    alibi_scaling: JsonDict | None = None
    attribute_map = {
        "embeddings_scale": "mup_embeddings_scale",
        "scale_qk_dot_by_d": "mup_scale_qk_dot_by_d",
        "width_scale": "mup_width_scale",
    }
    ignored_fields = "scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn pretrained_model"
    reference_only = "-position_embedding_type -activation_function mup_scale_qk_dot_by_d"
    task_heads = {"LMHeadModel": CAUSAL_MODEL}
    base_model_prefix = "model"
    alibi = property(lambda self: self.position_embedding_type == "alibi")
    logit_scale = property(lambda self: self.mup_output_alpha * self.mup_width_scale)
    embedding_options = dict(scaled=True, factor=attrgetter("mup_embeddings_scale"))
    head_options = dict(logit_scale=attrgetter("logit_scale"))

    def positions(self) -> Positions | None:
        return None if self.alibi else super().positions()

    def attention(self, layer: Layer, **overrides: Any) -> AnyAttention:
        scale = 1 / self.head_dim if self.mup_scale_qk_dot_by_d else None
        attention = super().attention(layer, alibi=self.alibi, scale=scale)
        if self.position_embedding_type not in ("learned", "alibi"):
            raise self.refused("position_embedding_type", self.position_embedding_type)
        return attention

    def dense_mlp(self, **overrides: Any) -> FeedForward:
        swiglu: dict[str, Any] = {"gated": True, "activation": "silu"}
        return super().dense_mlp(**(swiglu if self.activation_function == "swiglu" else {}))


class FairseqDecoder(LayerNormDecoder):
    """GPT-2's layer with fairseq's names; positions begin at the third row."""

    max_position_embeddings: PositiveInt = 2048

    layer_norm_epsilon = 1e-5
    layer_module_names = {
        "attn_norm": "self_attn_layer_norm",
        **attention_modules("self_attn", o="out_proj"),
        "mlp_norm": "final_layer_norm",
        "mlp.up_proj": "fc1",
        "mlp.down_proj": "fc2",
    }

    def positions(self) -> Positions | None:
        return Positions(rows=self.context + 2, hidden=self.hidden_size, offset=2)


class OPT(FairseqDecoder):
    """OPT: GPT-2's layer with ReLU. The 350m model has narrower embeddings, and norms after each sublayer."""

    hidden_size: PositiveInt
    num_hidden_layers: LayerCount
    num_attention_heads: PositiveInt
    ffn_dim: PositiveInt = 3072
    word_embed_proj_dim: PositiveInt | None = None
    do_layer_norm_before: StrictBool = True
    enable_bias: StrictBool = True
    layer_norm_elementwise_affine: StrictBool = True
    remove_final_layer_norm: StrictBool = False
    activation_function: StrictStr = "relu"

    intermediate_size = property(lambda self: self.ffn_dim)
    attention_bias = mlp_bias = property(lambda self: self.enable_bias)
    activation = GPTFields.activation
    required_values = {"layer_norm_elementwise_affine": True}
    reference_only = "-layer_norm_elementwise_affine"
    attribute_map = {"_remove_final_layer_norm": "remove_final_layer_norm"}
    ignored_fields = "layerdrop"
    dropouts = dict(residual=("dropout", 0.1), attention=("attention_dropout", 0.0))
    nested_defaults = dict(vocab_size=50272, hidden_size=768, num_hidden_layers=12, num_attention_heads=12)
    task_heads = CLASSIFYING
    layer_path = "model.decoder.layers.*"
    module_names = {
        "embed": "model.decoder.embed_tokens",
        "embed.project": "model.decoder.project_in",
        "pos_embed": "model.decoder.embed_positions",
        "final_norm": "model.decoder.final_layer_norm",
        "lm_head.project": "model.decoder.project_out",
        "lm_head": "lm_head",
    }
    head_options = dict(width=attrgetter("embedding_width"))
    embedding_options = dict(width=attrgetter("embedding_width"))
    order = property(lambda self: "pre" if self.do_layer_norm_before else "post")

    @property
    def embedding_width(self) -> int | None:
        """Width of the embeddings, if it is not hidden_size."""
        return None if self.word_embed_proj_dim == self.hidden_size else self.word_embed_proj_dim

    def check(self) -> None:
        super().check()
        if self.embedding_width is not None and self.task_head.head != "lm":
            raise ConfigError(
                f"word_embed_proj_dim = {self.embedding_width:,}: base models and classifiers with embeddings"
                " narrower than hidden_size are not supported"
            )

    def embeddings_and_head(self) -> dict[str, Any]:
        parts = super().embeddings_and_head()
        return {**parts, "final_norm": None} if self.remove_final_layer_norm else parts


class ScaledFairseqDecoder(FairseqDecoder):
    """Embeddings times √hidden_size."""

    scale_embedding: StrictBool = True

    ignored_fields = "layerdrop"
    module_names = {
        "embed": ".embed_tokens",
        "pos_embed": ".embed_positions",
        "final_norm": ".layer_norm",
        "lm_head": "lm_head",
    }
    embedding_options = dict(scaled=attrgetter("scale_embedding"))


class BioGpt(ScaledFairseqDecoder):
    """BioGPT: GPT-2's layer; embeddings are scaled, and positions begin at the third row."""

    sizes = dict(vocab=42384)
    defaults = dict(max_position_embeddings=1024)
    hidden_size: PositiveInt = 1024
    num_hidden_layers: LayerCount = 24
    num_attention_heads: PositiveInt = 16
    intermediate_size: PositiveInt = 4096
    hidden_act: StrictStr = "gelu"

    dropouts = dict(
        embedding=("hidden_dropout_prob", 0.1),
        residual=("hidden_dropout_prob", 0.1),
        attention=("attention_probs_dropout_prob", 0.1),
        mlp_product=("activation_dropout", 0.0),
    )
    task_heads = CLASSIFIERS
    base_model_prefix = "biogpt"
    module_names = {"lm_head": "output_projection"}


class XGLM(ScaledFairseqDecoder):
    """XGLM: GPT-2's layer with scaled embeddings and sinusoidal positions."""

    sizes = dict(vocab=256008)
    d_model: PositiveInt = 1024
    num_layers: LayerCount = 24
    attention_heads: PositiveInt = 16
    ffn_dim: PositiveInt = 4096
    activation_function: StrictStr = "gelu"

    intermediate_size = property(lambda self: self.ffn_dim)
    activation = GPTFields.activation
    attribute_map = {
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "attention_heads",
    }
    dropouts = dict(
        embedding=("dropout", 0.1),
        residual=("dropout", 0.1),
        attention=("attention_dropout", 0.1),
        mlp_product=("activation_dropout", 0.0),
    )
    task_heads = DECODER

    def positions(self) -> Positions:
        return Positions(rows=self.context + 2, hidden=self.d_model, offset=2, layout="sines_then_cosines")
