"""DeepSeek's language models: multi-head latent attention, dense layers first, then experts and a shared expert."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic_core import core_schema

from tfacct.architecture.blocks import Block, MtpHead, Sublayer
from tfacct.architecture.parts import Experts, Gate, GatedNorm, Indexer, LatentAttention, MtpProjection, QKNorm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.base.record import record
from tfacct.families.decoder import (
    EXPERT_MODULES,
    EXPERT_TENSORS,
    QK_NORMS,
    Decoder,
    DecoderBase,
    Layer,
    Window,
)
from tfacct.families.family import ABSENT, mlp_modules, submodules
from tfacct.families.fields import (
    CoreSchema,
    JsonDict,
    LayerCount,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
    int_between,
    is_size,
    require_even,
)
from tfacct.families.glm import GlmMoeDsa
from tfacct.families.hybrid import LINEAR, KimiExperts, LowRankKimiDeltaDecoder
from tfacct.families.known_fields import MTP_LAYERS
from tfacct.families.layer_kinds import (
    FULL,
    SLIDING,
    Flags,
    LayerTypes,
    MlpLayerTypes,
    check_length,
    check_top_k,
    rope_layers,
    validated_layer_types,
)
from tfacct.families.mistral import read_temperature
from tfacct.families.mla import INDEXED, REUSED, DeepseekExperts, DsaDecoder, MlaDecoder, mla_modules
from tfacct.families.task_heads import CAUSAL_MODEL, CLASSIFYING, DECODER, LABELLING, inside_composite
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import Line, Matmul, Pointwise


class DeepseekBase(DeepseekExperts, MlaDecoder):
    """The fields that V2 and V3 share."""

    n_shared_experts: NonNegativeInt
    first_k_dense_replace: NonNegativeInt
    moe_layer_freq: PositiveInt = 1
    required_values = {"moe_layer_freq": 1}
    attribute_map = {"num_experts": "n_routed_experts"}


class DeepseekV2(DeepseekBase):
    """DeepSeek-V2 and V2-Lite: latent attention, with and without a latent for the queries, and experts."""

    sizes = dict(mlp=11008, context=2048)
    defaults = dict(moe_intermediate_size=1407, n_routed_experts=64, n_shared_experts=2, first_k_dense_replace=0)
    num_experts_per_tok: PositiveInt = Field()
    mlp_bias: StrictBool = False
    task_heads = CLASSIFYING

    def experts(self, **overrides: Any) -> Experts:
        """mlp_bias applies to dense layers and shared experts, not to routed experts."""
        if self.mlp_bias and not self.n_shared_experts:
            raise ConfigError("mlp_bias = true with n_shared_experts = 0: biases on an MLP of width 0")
        return super().experts(shared_bias=self.mlp_bias, **overrides)


class MtpLayers(DecoderBase):
    """Multi-token prediction (MTP) layers, which the class does not have. `mtp` is a field of tfacct: if true, they are
    counted."""

    num_nextn_predict_layers: Annotated[int, int_between(0, 100)] = 1
    mtp: StrictBool = False
    reference_only = "num_nextn_predict_layers"
    attribute_map = dict.fromkeys(MTP_LAYERS[1:], MTP_LAYERS[0])

    def hf_unsupported(self) -> str | None:
        return "it has no MTP layers: leave mtp out" if self.mtp else super().hf_unsupported()

    def architecture(self) -> Transformer:
        """The architecture, with MTP layers if requested, each a layer with experts."""
        shape = super().architecture()
        if not self.mtp or not self.num_nextn_predict_layers:
            return shape
        joining = MtpProjection(hidden=self.hidden_size, eps=self.rms_norm_eps)
        routed = self.block(Layer(experts=True))
        return replace(shape, mtp=MtpHead(joining, routed, self.norm(), self.num_nextn_predict_layers))

    def with_additional_layers(self) -> Ledger | None:
        """Ledger with the multi-token prediction heads."""
        return self.model_copy(update={"mtp": True}).transformer().ledger()


class DeepseekV3(MtpLayers, DeepseekBase):
    """DeepSeek-V3 and R1: V2's layer at a larger size, and a router whose bias is a buffer, not a parameter. `mtp` is a
    field of tfacct: if true, multi-token prediction (MTP) layers are also counted."""

    sizes = dict(mlp=18432, kv_heads=128, context=4096)
    defaults = dict(moe_intermediate_size=2048, n_routed_experts=256, first_k_dense_replace=3)
    nested_defaults = dict(vocab_size=129280, hidden_size=7168, num_hidden_layers=61, num_attention_heads=128)
    task_heads = LABELLING


class DeepseekV32(MtpLayers, DsaDecoder):
    """DeepSeek-V3.2: V3's layer, and in every layer an indexer that selects the keys for each token. `mtp` is a
    field of tfacct: if true, multi-token prediction (MTP) layers are also counted, each with an indexer."""

    sizes = dict(vocab=129280, hidden=7168, mlp=18432, layers=61, heads=128, kv_heads=128, context=163840)
    defaults = dict(index_n_heads=64)
    q_lora_rank: PositiveInt = 1536


class KimiK2(DeepseekV3):
    """Kimi K2: DeepSeek-V3's layer, with more experts and fewer heads."""

    class_prefixes = ("DeepseekV3",)
    hf_model_type = "deepseek_v3"


class Youtu(MlaDecoder):
    """Youtu-LLM: DeepSeek-V3's latent attention, and a dense MLP in every layer."""

    sizes = dict(vocab=128256, hidden=2048, mlp=6144, layers=32, heads=16, kv_heads=16, context=131072)
    defaults = dict(tie_word_embeddings=True)
    ignored_fields = "embedding_initializer_range"


class AXK1(DeepseekExperts, MlaDecoder):
    """A.X K1: DeepSeek-V3's layer, with a norm after the experts."""

    sizes = dict(vocab=163840, hidden=7168, mlp=18432, layers=61, heads=64, kv_heads=64, context=32768)
    defaults = dict(moe_intermediate_size=2048, n_routed_experts=192)
    q_lora_rank: PositiveInt = 1536
    mlp_layer_types: MlpLayerTypes | None = None
    first_k_dense_replace: NonNegativeInt = 1
    moe_layer_freq: PositiveInt = 1
    task_heads = CLASSIFYING
    checkpoint_conversion_mapping = ((r"(?<!mlp)\.post_mlp_layernorm\.", ".mlp.post_mlp_layernorm."),)
    layer_module_names = {"mlp_post_norm": "mlp.post_mlp_layernorm"}

    def block(self, layer: Layer) -> Block:
        block = super().block(layer)
        if not layer.experts:
            return block
        attention, experts = block.sublayers
        return replace(block, sublayers=(attention, replace(experts, post_norm=self.norm())))


def gated_norm_modules(norm: str, module: str) -> dict[str, str]:
    """Modules of a norm, and of the small MLP that gates it."""
    return {norm: f"{module}.norm", **submodules(norm, module, gate_down="mlp.fc1", gate_up="mlp.fc2")}


class AXK2(DsaDecoder):
    """A.X K2: DeepSeek-V3.2's layer with gated attention; small MLPs gate the norms, and queries come from a latent and
    its norm together."""

    sizes = dict(vocab=163840, hidden=2048, mlp=5120, layers=48, heads=32, kv_heads=32, context=131072)
    defaults = dict(
        kv_lora_rank=128,
        qk_nope_head_dim=64,
        qk_rope_head_dim=32,
        v_head_dim=64,
        moe_intermediate_size=512,
        n_routed_experts=128,
        first_k_dense_replace=1,
        index_n_heads=16,
    )
    q_lora_rank: PositiveInt = 384
    gated_norm_rank: PositiveInt = 16
    required_values = {"moe_layer_freq": ABSENT}
    task_heads = CLASSIFYING
    layer_module_names = {
        **gated_norm_modules("attn_norm", "input_layernorm"),
        **gated_norm_modules("mlp_norm", "post_attention_layernorm"),
        **submodules("attn", "self_attn", q_b_proj="q_gate_proj", gate_proj="q_gate_proj"),
    }
    checkpoint_conversion_mapping = (
        (r"\.W_down\.", ".mlp.fc1."),
        (r"\.W_up\.", ".mlp.fc2."),
        (r"\.self_attn\.q_b_proj\.", ".self_attn.q_gate_proj."),
    )
    attention_options = dict(paired=True, gate=Gate())

    def hf_module_names(self) -> Mapping[str, str]:
        """The norm before a dense MLP has no gate."""
        dense = (number for number, routed in enumerate(self.moe_layers()) if not routed)
        norms = {f"blocks.{number}.mlp_norm": f"model.layers.{number}.post_attention_layernorm" for number in dense}
        return {**super().hf_module_names(), **norms}

    def block(self, layer: Layer) -> Block:
        gated = GatedNorm(hidden=self.hidden_size, kind="rms", eps=self.norm().eps, gate_rank=self.gated_norm_rank)
        before_mlp = gated if layer.experts else self.norm()
        return Block((Sublayer(self.attention(layer), gated), Sublayer(self.mlp(layer), before_mlp)))


class Dots1(DeepseekExperts, Decoder):
    """dots.llm1: Qwen3's attention, windows in the last layers; dense layers first, then experts and a shared
    expert."""

    sizes = dict(vocab=152064, hidden=4608, mlp=10944, layers=62, heads=32, kv_heads=32, context=2048)
    defaults = dict(moe_intermediate_size=1408)
    n_shared_experts: PositiveInt = Field()
    num_experts_per_tok: PositiveInt = Field()
    attention_bias: StrictBool = False
    first_k_dense_replace: NonNegativeInt = 0
    sliding_window: Window | None = 4096
    max_window_layers: NonNegativeInt = 62
    layer_types: LayerTypes | None = None
    v_head_dim: PositiveInt | None = None
    reference_only = "v_head_dim"
    null_means = {"num_key_value_heads": "num_attention_heads"}
    layer_module_names = QK_NORMS
    qk_norm = QKNorm(0)

    def check(self) -> None:
        super().check()
        self.require_if_given({"v_head_dim": self.head_dim})

    def layers(self) -> list[Layer]:
        window, first = self.sliding_window, self.max_window_layers
        windows = self.windows(lambda number: window is not None and number >= first, window)
        return [Layer(window, experts=some) for window, some in zip(windows, self.moe_layers(), strict=True)]


MISTRAL4_ROPE = {
    "type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 128.0,
    "original_max_position_embeddings": 8192,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale_all_dim": 1.0,
    "mscale": 1.0,
    "llama_4_scaling_beta": 0.1,
}


class Mistral4(DeepseekBase):
    """Mistral Small 4's language model: DeepSeek-V3's latent attention and experts; queries grow with their
    position."""

    sizes = dict(vocab=131072, hidden=4096, mlp=12288, layers=36, heads=32, kv_heads=32, context=1048576)
    defaults = dict(
        rope_parameters=MISTRAL4_ROPE,
        q_lora_rank=1024,
        kv_lora_rank=256,
        qk_nope_head_dim=64,
        moe_intermediate_size=2048,
        n_routed_experts=128,
        num_experts_per_tok=4,
        first_k_dense_replace=0,
    )
    task_heads = {
        "ForCausalLM": replace(CAUSAL_MODEL, auto="AutoModelForImageTextToText"),
        **{name: head for name, head in LABELLING.items() if head != CAUSAL_MODEL},
    }

    def attention(self, layer: Layer, **overrides: Any) -> LatentAttention:
        return super().attention(layer, temperature=read_temperature(self.rope_parameters or MISTRAL4_ROPE))


MISTRAL_LARGE4_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 2048.0,
    "original_max_position_embeddings": 512,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "attention_factor": 1.0,
}


@record(kw_only=True)
class StreamIndexer(Indexer):
    """An indexer with queries from the residual stream, after its own LayerNorm; they are scaled by the logarithm of
    their position, with two learned scalars per head."""

    mesh_unsupported: ClassVar[str] = "an indexer that reads the residual stream"

    def _queries(self, at: str) -> Iterator[Line]:
        yield Pointwise(f"{at}.q_norm", "B T D", weight="D", bias="D", kind="norm_layer")
        yield Matmul(f"{at}.q_proj", "B T D, D Nx Hx -> B T Nx Hx")
        yield Pointwise(f"{at}.q_scale", "B T Nx Hx", weight="Nx", bias="Nx")


class MistralLarge4(GlmMoeDsa):
    """Mistral Large 4's language model: GLM-5's sparse attention, some layers without rotary embedding, some that reuse
    latents of an earlier layer; a dense layer, then experts and a shared expert."""

    sizes = dict(vocab=204800, mlp=24576, layers=72, context=1048576)
    defaults = dict(
        qk_nope_head_dim=64,
        v_head_dim=128,
        moe_intermediate_size=6144,
        n_routed_experts=128,
        num_experts_per_tok=4,
        first_k_dense_replace=1,
        rope_parameters=MISTRAL_LARGE4_ROPE,
    )
    q_lora_rank: None = None  # type: ignore[assignment]
    n_shared_experts: PositiveInt = 1
    no_rope_layers: Flags | None = None
    no_rope_layer_interval: PositiveInt = 4
    kv_source_layers: list[NonNegativeInt] | None = None
    final_logit_softcapping: PositiveFloat = 30.0
    class_prefixes = ("MistralLarge4", "MistralLarge4Text")
    task_heads = inside_composite("MistralLarge4ForConditionalGeneration", "MistralLarge4TextModel")
    layer_module_names = {"attn.indexer.q_norm": "self_attn.indexer.q_input_norm"}
    layer_tensor_names = {
        f"attn.{at}q_scale.{name}": f"self_attn.{at}softmax_scaling.{hf_name}"
        for at in ("", "indexer.")
        for name, hf_name in (("weight", "scale"), ("bias", "bias"))
    }
    head_options = dict(softcap=attrgetter("final_logit_softcapping"))
    attention_options = dict(temperature="learned", eps=attrgetter("rms_norm_eps"))
    indexer_kind = StreamIndexer

    def latent_layers(self, rotary: list[bool]) -> list[bool]:
        """True for each layer that computes a latent; the others reuse that of an earlier layer. Raises ConfigError."""
        layers = self.num_hidden_layers
        sources = [*range(layers)] if self.kv_source_layers is None else self.kv_source_layers
        check_length("kv_source_layers", sources, layers)
        last: dict[bool, int] = {}
        for number, source in enumerate(sources):
            if source > number or sources[source] != source:
                raise ConfigError(
                    f"kv_source_layers: layer {number:,} reads the latents of layer {source:,}, which is not an"
                    " earlier layer with its own latents"
                )
            if source == number and number in sources[number + 1 :]:
                last[rotary[number]] = number
            if source != number and last.get(rotary[number]) != source:  # the class reads the last of its kind
                raise ConfigError(
                    f"kv_source_layers: layer {number:,} reads the latents of layer {source:,}, but the class gives"
                    " it the latents of the last shared layer with the same use of rotary embedding"
                )
        return [source == number for number, source in enumerate(sources)]

    def layers(self) -> list[Layer]:
        rotary = rope_layers(self.no_rope_layers, self.num_hidden_layers, self.no_rope_layer_interval)
        kinds = ["" if indexed else REUSED for indexed in self.indexers()]
        rows = zip(kinds, self.moe_layers(), rotary, self.latent_layers(rotary), strict=True)
        return [Layer(None, some, rotates, kind, borrowed=not indexed) for kind, some, rotates, indexed in rows]

    def attention(self, layer: Any, **overrides: Any) -> LatentAttention:
        """Latent attention; without rotary embedding, the whole key comes from the latent."""
        without_rope = {"rope_dim": None, "nope_dim": self.qk_nope_head_dim + self.qk_rope_head_dim, "rotary": None}
        return super().attention(layer, borrowed=layer.borrowed, **({} if layer.rotary else without_rope))


class LongcatFlash(MlaDecoder):
    """LongCat-Flash: each of its layers is two here, both with DeepSeek-V3's latent attention and a dense MLP; the
    first also has experts, whose result is added after the second. Some experts are the identity."""

    sizes = dict(vocab=131072, hidden=6144, mlp=12288, heads=64, context=131072)
    defaults = dict(rms_norm_eps=1e-5, rope_theta=10_000_000.0)
    num_layers: LayerCount = 28
    num_hidden_layers: PositiveInt | None = None  # type: ignore[assignment]  # the class reads num_layers, and twice
    q_lora_rank: PositiveInt = 1536
    moe_intermediate_size: PositiveInt = 2048
    n_routed_experts: PositiveInt = 512
    num_experts_per_tok: PositiveInt = 12
    zero_expert_num: NonNegativeInt | None = 256
    zero_expert_type: StrictStr = "identity"
    router_bias: StrictBool = False
    mla_scale_q_lora: StrictBool = True
    mla_scale_kv_lora: StrictBool = True

    required_values = {
        "zero_expert_type": "identity",
        "router_bias": False,
        "tie_word_embeddings": False,
        "mla_scale_q_lora": True,
        "mla_scale_kv_lora": True,
    }
    reference_only = "num_hidden_layers tie_word_embeddings"
    task_heads = {name: DECODER[name] for name in ("ForCausalLM", "Model")}
    attribute_map = {
        "ffn_hidden_size": "intermediate_size",
        "expert_ffn_hidden_size": "moe_intermediate_size",
        "moe_topk": "num_experts_per_tok",
        "num_local_experts": "n_routed_experts",
        "num_experts": "n_routed_experts",
    }
    ignored_fields = "routed_scaling_factor attention_method router_dtype"
    expert_count = "n_routed_experts"
    attention_options = dict(stretch="queries")

    def hf_module_names(self) -> Mapping[str, str]:
        layers = {
            f"blocks.{number}.{path}": f"model.layers.{number // 2}.{hf_path}"
            for number in range(2 * self.num_layers)
            for path, hf_path in self.modules_of(number % 2).items()
        }
        ends = {path: hf_path for path, hf_path in super().hf_module_names().items() if not path.startswith("blocks.")}
        return {**ends, **layers}

    def modules_of(self, half: int) -> dict[str, str]:
        """Modules of the first or the second of the two layers."""
        names = {
            "attn_norm": f"input_layernorm.{half}",
            **mla_modules(f"self_attn.{half}"),
            "mlp_norm": f"post_attention_layernorm.{half}",
            **mlp_modules(f"mlps.{half}", at="mlp" if half else "mlp.shared"),
        }
        return names if half else {**names, **EXPERT_MODULES, "mlp.router": "mlp.router"}

    def hf_tensor_names(self) -> dict[str, str]:
        tensors = {**EXPERT_TENSORS, "mlp.router.weight": "mlp.router.classifier.weight"}
        found = {
            f"blocks.{2 * number}.{name}": f"model.layers.{number}.{hf_name}"
            for number in range(self.num_layers)
            for name, hf_name in tensors.items()
        }
        return self.task_head.renamed(found, f"{self.base_model_prefix}.")

    def hf_unsupported(self) -> str | None:
        if self.zero_expert_num:
            return "it stores a matrix for each zero-computation expert"
        return "its experts read the routing values, which do not exist on the meta device"

    def check(self) -> None:
        super().check()
        if self.num_hidden_layers not in (None, self.num_layers, 2 * self.num_layers):
            raise ConfigError(
                f"num_hidden_layers = {self.num_hidden_layers:,} contradicts num_layers = {self.num_layers:,}, of two"
                " sublayer pairs each"
            )
        check_top_k(self.num_experts_per_tok, self.n_routed_experts, ("moe_topk", "n_routed_experts"))

    def layers(self) -> list[Layer]:
        return [Layer(experts=True), Layer()] * self.num_layers

    def experts(self, **overrides: Any) -> Experts:
        return super().experts(idle=self.zero_expert_num or None, late=True, shared=self.intermediate_size)


DOTS3_KINDS = (INDEXED[0], SLIDING, FULL)
DOTS3_WINDOW_SIZES = """num_attention_heads num_key_value_heads q_lora_rank kv_lora_rank head_dim qk_nope_head_dim
    qk_rope_head_dim v_head_dim""".split()
"""Sizes of layers with a window: `swa_…`, or in per_layer_config."""
Frequency = Annotated[
    int | list[int],
    CoreSchema(
        core_schema.union_schema(
            [
                int_between(1).schema,
                core_schema.list_schema(core_schema.int_schema(strict=True, ge=0, le=1), strict=True),
            ],
            custom_error_type="frequency",
            custom_error_message="must be a whole number from 1, or a list of 0 and 1",
        )
    ),
]


class Dots3Note(DsaDecoder):
    """dots3-note's language model: gated latent attention with a norm of the rotary part of keys; some layers have an
    indexer, the others a window and different sizes."""

    sizes = dict(vocab=152064, hidden=5120, mlp=13824, layers=46, heads=128, kv_heads=128, context=524288)
    defaults = dict(rms_norm_eps=1e-5, moe_intermediate_size=1536, first_k_dense_replace=1, index_n_heads=64)
    q_lora_rank: PositiveInt = 1024
    shared_experts_intermediate_size: PositiveInt = 1536
    n_shared_experts: PositiveInt = 1
    moe_layer_freq: Frequency = 1  # type: ignore[assignment]
    sliding_window: PositiveInt | None = None
    use_dsa: StrictBool | None = None
    use_sliding_window: StrictBool = True
    per_layer_config: JsonDict | None = None
    swa_num_attention_heads: PositiveInt = 64
    swa_num_key_value_heads: PositiveInt = 64
    swa_q_lora_rank: PositiveInt = 1024
    swa_kv_lora_rank: PositiveInt = 1024
    swa_head_dim: PositiveInt = 256
    swa_qk_nope_head_dim: PositiveInt = 192
    swa_qk_rope_head_dim: PositiveInt | None = None
    swa_v_head_dim: PositiveInt = 128
    swa_rope_theta: PositiveFloat | None = 50_000.0
    indexer_options = dict(pairs="neighbours")
    attention_options = dict(stretch="latents", rope_norm=True, gate=Gate("heads"), eps=attrgetter("rms_norm_eps"))
    class_prefixes = ("Dots3Note", "Dots3NoteText")
    reference_only = "-layer_types -per_layer_config swa_num_key_value_heads"
    attribute_map = {
        "moe_shared_expert_intermediate_size": "shared_experts_intermediate_size",
        "sliding_window_size": "sliding_window",
    }
    keep_in_fp32_modules = ()
    required_values = {"moe_layer_freq": ABSENT}
    layer_module_names = submodules("attn", "self_attn", rope_norm="k_rope_only_layernorm", gate_proj="g_proj")

    def kinds(self) -> list[str]:
        """Kind of each layer. Raises ConfigError."""
        indexed = self.per_layer_config is None if self.use_dsa is None else self.use_dsa
        full = INDEXED[0] if indexed or self.use_dsa is None else FULL
        layers = self.num_hidden_layers
        if self.layer_types is None:
            slides = self.use_sliding_window
            return [full if not slides or number < 2 or number % 4 == 1 else SLIDING for number in range(layers)]
        kinds = validated_layer_types(self.layer_types, layers, DOTS3_KINDS)
        if self.use_dsa is None and not indexed:
            return kinds
        return [kind if kind == SLIDING else full for kind in kinds]

    def moe_layers(self) -> list[bool]:
        if self.mlp_layer_types is not None or isinstance(self.moe_layer_freq, int):
            return super().moe_layers()
        check_length("moe_layer_freq", self.moe_layer_freq, self.num_hidden_layers)
        return [number >= self.first_k_dense_replace and bool(some) for number, some in enumerate(self.moe_layer_freq)]

    def layers(self) -> list[Layer]:
        both = zip(self.kinds(), self.moe_layers(), strict=True)
        return [Layer(kind=kind, experts=some) for kind, some in both]

    def window_sizes(self) -> dict[str, int]:
        """Sizes of the layers with a window. Raises ConfigError."""
        if self.per_layer_config is None:
            sizes = {name: getattr(self, f"swa_{name}") for name in DOTS3_WINDOW_SIZES}
            if sizes["qk_rope_head_dim"] is None:
                sizes["qk_rope_head_dim"] = sizes["head_dim"] - sizes["qk_nope_head_dim"]
            return sizes
        slides = [number for number, kind in enumerate(self.kinds()) if kind == SLIDING]
        given = {int(text) if text.isdigit() else -1: fields for text, fields in self.per_layer_config.items()}
        each = list(given.values())
        alike = all(isinstance(fields, Mapping) and fields == each[0] for fields in each)
        if sorted(given) != slides or not alike:
            raise self.refused("per_layer_config", self.per_layer_config)
        sizes = each[0] if each else {}
        for name, value in sizes.items():
            if name not in DOTS3_WINDOW_SIZES:
                raise self.refused(f"per_layer_config.{name}", value)
            if not is_size(value):
                raise ConfigError(f"per_layer_config.{name} must be a whole number, not {format_value(value)}")
        return {**{name: getattr(self, name) for name in DOTS3_WINDOW_SIZES}, "head_dim": self.head_dim or 256, **sizes}

    def rope_of(self, kind: str) -> Rotary:
        """Rotary embedding of a kind of layer. Raises ConfigError."""
        parameters = self.rope_parameters or self.rope_scaling or {}
        parameters = parameters.get(kind, parameters)
        if not isinstance(parameters, Mapping):
            raise ConfigError(f"rope_parameters.{kind} must be an object with fields, not {format_value(parameters)}")
        base = self.swa_rope_theta if kind == SLIDING else self.rope_theta or 80_000_000.0
        scaling = {name: value for name, value in parameters.items() if name != "partial_rotary_factor"}
        return Rotary(parameters.get("rope_theta") or base or 50_000.0, scaling or None, "neighbours")

    def attention(self, layer: Layer, **overrides: Any) -> LatentAttention:
        """Attention with an indexer, a window, or neither. Raises ConfigError."""
        overrides = {"rotary": self.rope_of(layer.kind)}
        if layer.kind == INDEXED[0]:
            return super().attention(layer, **overrides)
        if layer.kind == SLIDING:
            overrides |= self.window_attention()
        return MlaDecoder.attention(self, layer, **overrides)

    def window_attention(self) -> dict[str, Any]:
        """Sizes of attention in a layer with a window. Raises ConfigError."""
        sizes = self.window_sizes()
        if sizes["num_key_value_heads"] != sizes["num_attention_heads"]:
            raise ConfigError("latent attention computes keys for every head, in windowed layers too")
        if sizes["qk_rope_head_dim"] < 1 or sizes["head_dim"] != sizes["qk_nope_head_dim"] + sizes["qk_rope_head_dim"]:
            raise ConfigError(
                f"head_dim = {sizes['head_dim']:,} of windowed layers is not the sum of qk_nope_head_dim ="
                f" {sizes['qk_nope_head_dim']:,} and qk_rope_head_dim = {sizes['qk_rope_head_dim']:,}"
            )
        return {
            "heads": sizes["num_attention_heads"],
            "q_rank": sizes["q_lora_rank"],
            "kv_rank": sizes["kv_lora_rank"],
            "nope_dim": sizes["qk_nope_head_dim"],
            "rope_dim": require_even(sizes["qk_rope_head_dim"], "qk_rope_head_dim of windowed layers"),
            "value_dim": sizes["v_head_dim"],
            "window": self.sliding_window or 512,
        }

    def check(self) -> None:
        self.require(self.required_values)
        if self.index_head_dim < self.qk_rope_head_dim:
            raise ConfigError(
                f"index_head_dim = {self.index_head_dim:,} must be at least"
                f" qk_rope_head_dim = {self.qk_rope_head_dim:,}, its rotary part"
            )
        require_even(self.qk_rope_head_dim, "qk_rope_head_dim")
        self.window_sizes()

    def experts(self, **overrides: Any) -> Experts:
        return super().experts(shared=self.n_shared_experts * self.shared_experts_intermediate_size)


class KimiLinear(KimiExperts, LowRankKimiDeltaDecoder, MlaDecoder):
    """Kimi Linear: DeltaNet with per-channel decays (KDA) in most layers, latent attention without rotary
    embedding in the others; dense layers first, then experts and a shared expert."""

    sizes = dict(vocab=163840, hidden=2304, mlp=9216, layers=27, heads=32, kv_heads=32, context=1048576)
    defaults = dict(rms_norm_eps=1e-5, q_lora_rank=None, moe_intermediate_size=1024, num_local_experts=256)
    first_k_dense_replace: NonNegativeInt = 1
    mlp_layer_types: LayerTypes | None = None
    mla_use_nope: StrictBool = True
    moe_layer_freq: PositiveInt = 1
    required_values = {"mla_use_nope": True, "moe_layer_freq": 1, "tie_word_embeddings": False}
    checkpoint_conversion_mapping = (LowRankKimiDeltaDecoder.published_forget_gate,)
    ignored_fields = "moe_renormalize moe_router_activation_func num_expert_group use_grouped_topk"

    def experts(self, **overrides: Any) -> Experts:
        check_top_k(self.num_experts_per_tok, self.num_local_experts, ("num_experts_per_tok", "num_experts"))
        return super().experts()

    def moe_layers(self) -> list[bool]:
        layers, first = self.num_hidden_layers, self.first_k_dense_replace
        given = self.mlp_layer_types or ["dense" if number < first else "sparse" for number in range(layers)]
        kinds = validated_layer_types(given, layers, ("dense", "sparse"), "mlp_layer_types")
        return [kind == "sparse" for kind in kinds]

    def delta_kinds(self) -> list[str]:
        """The kind of each layer, by layer_types, linear_attn_config or default. Raises ConfigError."""
        layers, given = self.num_hidden_layers, self.linear_attn_config or {}
        for name in given:
            if name not in (*self.size_fields.values(), "full_attn_layers", "kda_layers"):
                raise self.refused(f"linear_attn_config.{name}", given[name])
        if self.layer_types is not None or not {"full_attn_layers", "kda_layers"} <= given.keys():
            return self.kinds(lambda number: number > 0 and number % 4 == 0)
        found = {
            number: kind  # the class reads kda_layers last
            for name, kind in (("full_attn_layers", FULL), ("kda_layers", LINEAR))
            for number in self.listed_layers(name)
        }
        for number in range(1, layers + 1):
            if number not in found:
                raise ConfigError(
                    f"linear_attn_config names layer {number} neither in full_attn_layers nor in kda_layers"
                )
        return [found[number] for number in range(1, layers + 1)]

    def listed_layers(self, name: str) -> list[int]:
        """Layers in a list of linear_attn_config, which counts them from 1. Raises ConfigError."""
        given, layers = (self.linear_attn_config or {})[name], self.num_hidden_layers
        if isinstance(given, list) and all(type(n) is int and 1 <= n <= layers for n in given):
            return given
        raise ConfigError(f"linear_attn_config.{name} must list layers from 1 to {layers:,}, not {format_value(given)}")

    def layers(self) -> list[Layer]:
        both = zip(self.delta_kinds(), self.moe_layers(), strict=True)
        return [Layer(kind=kind, experts=some) for kind, some in both]
