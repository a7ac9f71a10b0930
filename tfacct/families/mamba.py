"""Mamba, Mamba-2 and the hybrids of both with attention."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo
from pydantic_core import core_schema

from tfacct.architecture.blocks import Block, Stack, Sublayer
from tfacct.architecture.parts import (
    AdaptedFeedForward,
    Attention,
    FeedForward,
    JoinedAttention,
    Residual,
    Rotary,
    Scales,
    SharedOutput,
)
from tfacct.architecture.parts import Mamba as MambaMixer
from tfacct.architecture.parts import Mamba2 as Mamba2Mixer
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.base.spelling import setting
from tfacct.families.decoder import Decoder, DecoderBase, Layer, expert_modules, expert_tensors
from tfacct.families.family import SAME_AS_QUERY_HEADS, attention_modules, mlp_modules, submodules
from tfacct.families.fields import (
    CoreSchema,
    LayerCount,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
    divide_exactly,
    require_even,
)
from tfacct.families.hybrid import PADS, ConvolutionFamily, HybridDecoder, HybridFamily
from tfacct.families.layer_kinds import FULL, LayerTypes, validated_layer_types
from tfacct.families.task_heads import CLASSIFYING, DECODER
from tfacct.ledger.einsum import chunks
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD
from tfacct.ledger.workload import Workload

AUTO = "auto"


def _positive_or_auto(given: object, info: ValidationInfo) -> object:
    if given == AUTO or (isinstance(given, int) and not isinstance(given, bool) and given >= 1):
        return given
    raise ConfigError(f'{info.field_name} must be a whole number from 1 or "auto", not {format_value(given)}')


PositiveIntOrAuto = Annotated[PositiveInt | str, BeforeValidator(_positive_or_auto)]


def dt_rank(given: int | str, hidden: int) -> int:
    """The rank of the step size; `auto` is a sixteenth of the hidden size, rounded up."""
    return given if isinstance(given, int) else -(-hidden // 16)


def mamba_modules(module: str, inside: str = "conv dt_proj read_out", **modules: str) -> dict[str, str]:
    """Modules of a Mamba layer: those that it computes directly, and its submodules."""
    return submodules("mamba", module, **dict.fromkeys(inside.split(), ""), **modules)


def mamba2_modules(module: str) -> dict[str, str]:
    """The same of a Mamba-2 layer."""
    inside = "conv chunk_scores chunk_values state_write state_read read_out"
    return mamba_modules(module, inside, in_proj="in_proj", out_norm="norm", out_proj="out_proj")


def mamba_tensors(module: str, **named: str) -> dict[str, str]:
    """Tensors of a Mamba layer, by default those of the first Mamba."""
    named = named or {"dt_proj.weight": "dt_proj.weight", "dt_proj.bias": "dt_proj.bias", "recurrence.weight": "A_log"}
    both = {"conv.weight": "conv1d.weight", "conv.bias": "conv1d.bias", "skip.weight": "D", **named}
    return submodules("mamba", module, **both)


def mamba2_tensors(module: str) -> dict[str, str]:
    """The same of a Mamba-2 layer."""
    return mamba_tensors(module, **{"step.bias": "dt_bias", "decay.weight": "A_log"})


class Mamba2Family(ConvolutionFamily):
    """A family with Mamba-2, whose class passes states between chunks with a matmul over all pairs of chunks."""

    hf_extra_note = (
        f"{PADS}; and it passes states between chunks with a matmul over all pairs of chunks"  # as reports print it
    )

    def mamba2_mixer(self, **overrides: Any) -> Mamba2Mixer:
        """The mixer, from the fields that Mamba-2 and Nemotron-H share, and `overrides`."""
        return Mamba2Mixer(
            hidden=self.hidden_size,
            groups=self.n_groups,
            kernel=self.conv_kernel,
            chunk=self.chunk_size,
            bias=self.use_bias,
            conv_bias=self.use_conv_bias,
            eps=self.layer_norm_epsilon,
            **overrides,
        )

    def hf_extra_flops(self, work: Workload) -> Mapping[str, int]:
        """FLOPs of weighting each state, and the initial one, for each chunk."""
        mixer = self.mixer()
        count = chunks(work.tokens, work.context, mixer.chunk)
        pairs = (count + 1) ** 2 if count else 0
        states = work.batch * mixer.inner * mixer.state
        return {"blocks.*.mamba.state_write": FLOPS_PER_MULTIPLY_ADD * pairs * states}


class MambaBase(ConvolutionFamily, DecoderBase):
    """Equal Mamba layers and no attention."""

    hidden_size: PositiveInt
    num_hidden_layers: LayerCount
    state_size: PositiveInt = 128
    expand: PositiveInt = 2
    conv_kernel: PositiveInt = 4
    use_bias: StrictBool = False
    use_conv_bias: StrictBool = True
    tie_word_embeddings: StrictBool = False
    hidden_act: StrictStr = "silu"
    layer_norm_epsilon: PositiveFloat = 1e-5
    rms_norm: StrictBool | None = None

    reference_only = "rms_norm"
    task_heads = DECODER
    base_model_prefix = "backbone"
    module_names = {"embed": ".embeddings", "final_norm": ".norm_f", "lm_head": "lm_head"}
    layer_module_names = {"mamba_norm": "norm"}
    conv_kernel_field, eps_field = "conv_kernel", "layer_norm_epsilon"
    context = 2048  # training context of the published models; there is no field for it

    def check(self) -> None:
        self.require_if_given({"rms_norm": True})

    def block(self, layer: Layer) -> Block:
        return Block.of(self.mixer(), norm=self.norm())


class Mamba(MambaBase):
    """Mamba: no attention; each layer is a short convolution and a recurrence over a state of fixed size."""

    defaults = dict(state_size=16, tie_word_embeddings=True)
    intermediate_size: PositiveInt = Field(default_factory=lambda fields: fields["expand"] * fields["hidden_size"])
    time_step_rank: PositiveIntOrAuto = AUTO
    pad_vocab_size_multiple: PositiveInt | None = None

    reference_only = "pad_vocab_size_multiple"
    ignored_fields = """residual_in_fp32 rescale_prenorm_residual time_step_scale time_step_min time_step_max
        time_step_floor time_step_init_scheme use_mambapy use_associative_scan fused_add_norm"""
    layer_module_names = mamba_modules("mixer", in_proj="in_proj", x_proj="x_proj", out_proj="out_proj")
    layer_tensor_names = mamba_tensors("mixer")
    hf_no_chunked_prefill = "its recurrence starts from zero in a later chunk"

    def check_width(self) -> None:
        """Raises ConfigError if expand and another intermediate_size are given; the class writes it next to any
        width."""
        wide = self.expand * self.hidden_size
        if self.expand != type(self).model_fields["expand"].default and "intermediate_size" in self.model_fields_set:
            hint = f"remove one: {setting('intermediate_size')} takes expand"
            self.agrees("intermediate_size", wide, "expand · hidden_size", hint=hint)

    def check(self) -> None:
        self.check_width()
        if self.vocab_size % (self.pad_vocab_size_multiple or 1):
            raise ConfigError(
                f"vocab_size = {self.vocab_size:,} is not a multiple of pad_vocab_size_multiple ="
                f" {self.pad_vocab_size_multiple:,}: the stored embedding has more rows",
                "give vocab_size as it is stored, rounded up",
            )
        super().check()

    def mixer(self, **overrides: Any) -> MambaMixer:
        return MambaMixer(
            hidden=self.hidden_size,
            inner=self.intermediate_size,
            state=self.state_size,
            kernel=self.conv_kernel,
            rank=dt_rank(self.time_step_rank, self.hidden_size),
            bias=self.use_bias,
            conv_bias=self.use_conv_bias,
            activation=self.hidden_act,
            **overrides,
        )


class FalconMamba(Mamba):
    """FalconMamba: Mamba, with weightless RMSNorms on dt, B and C."""

    sizes = dict(vocab=50280, hidden=768, layers=32)
    num_hidden_layers: LayerCount = 32
    mixer_rms_eps: PositiveFloat = 1e-6
    ignored_fields = "use_falcon_mambapy"

    def check_width(self) -> None:
        """intermediate_size wins over expand."""

    def mixer(self, **overrides: Any) -> MambaMixer:
        return super().mixer(norms="plain", eps=self.mixer_rms_eps)


class Mamba2(Mamba2Family, MambaBase):
    """Mamba-2: no attention; each layer is a short convolution and a recurrence, computed in chunks."""

    sizes = dict(vocab=32768, hidden=4096, layers=64)
    num_heads: PositiveInt = 128
    head_dim: PositiveInt = 64
    n_groups: PositiveInt = 8
    chunk_size: PositiveInt = 256

    ignored_fields = """residual_in_fp32 rescale_prenorm_residual time_step_rank time_step_min time_step_max
        time_step_floor time_step_limit norm_before_gate"""
    layer_module_names = mamba2_modules("mixer")
    layer_tensor_names = mamba2_tensors("mixer")

    def mixer(self) -> Mamba2Mixer:
        inner, wide = self.num_heads * self.head_dim, self.expand * self.hidden_size
        if inner != wide:
            raise ConfigError(f"num_heads · head_dim = {inner:,} contradicts expand · hidden_size = {wide:,}")
        group = self.divide("num_heads", "n_groups")
        sizes = {"group": group, "head_dim": self.head_dim, "state": self.state_size}
        return self.mamba2_mixer(**sizes, activation=self.hidden_act)


class Mamba2Hybrid(Mamba2Family, HybridDecoder):
    """The fields of Mamba-2 that hybrids share."""

    mamba_n_heads: PositiveInt = 128
    mamba_d_head: PositiveIntOrAuto = AUTO
    mamba_n_groups: PositiveInt = 1
    mamba_d_state: PositiveInt = 256
    mamba_d_conv: PositiveInt = 4
    mamba_expand: PositiveInt = 2
    mamba_chunk_size: PositiveInt = 256
    mamba_conv_bias: StrictBool = True
    mamba_proj_bias: StrictBool = False

    ignored_fields = "num_logits_to_keep z_loss_coefficient time_step_limit use_mamba_kernels"
    layer_module_names = {"mamba_norm": "input_layernorm", **mamba2_modules("mamba")}
    layer_tensor_names = mamba2_tensors("mamba")

    def mamba_width(self) -> tuple[int, str]:
        """Channels of all heads, and the fields that give them."""
        return self.mamba_expand * self.hidden_size, "mamba_expand · hidden_size"

    def mixer(self, **overrides: Any) -> Mamba2Mixer:
        heads, (wide, fields) = self.mamba_n_heads, self.mamba_width()
        size = divide_exactly(wide, heads, f"{fields} by mamba_n_heads")
        if self.mamba_d_head not in (AUTO, size):
            raise ConfigError(
                f"mamba_n_heads · mamba_d_head = {heads:,} · {self.mamba_d_head:,} contradicts {fields} = {wide:,}"
            )
        return Mamba2Mixer(
            hidden=self.hidden_size,
            groups=self.mamba_n_groups,
            group=self.divide("mamba_n_heads", "mamba_n_groups"),
            head_dim=size,
            state=self.mamba_d_state,
            kernel=self.mamba_d_conv,
            chunk=self.mamba_chunk_size,
            bias=self.mamba_proj_bias,
            conv_bias=self.mamba_conv_bias,
            activation=self.hidden_act,
            eps=self.rms_norm_eps,
            **overrides,
        )


FINAL_LAYERNORM = {"final_norm": "model.final_layernorm"}
FEED_FORWARD = {"mlp_norm": "pre_ff_layernorm", **mlp_modules("feed_forward")}


class Bamba(Mamba2Hybrid):
    """Bamba: Mamba-2 in most layers, grouped-query attention with half-rotary heads in a few."""

    sizes = dict(vocab=128000, hidden=4096, mlp=14336, layers=32, heads=32, kv_heads=8, context=262144)
    defaults = dict(rms_norm_eps=1e-5)
    attn_layer_indices: list[NonNegativeInt] | None = None
    attention_bias: StrictBool = False
    mlp_bias: StrictBool = False
    null_means = {"num_key_value_heads": "num_attention_heads"}
    ignored_fields = "attn_rotary_emb"
    module_names = FINAL_LAYERNORM
    layer_module_names = FEED_FORWARD
    partial_rotary = True

    def layers(self) -> list[Layer]:
        """Attention in the layers of attn_layer_indices."""
        attends = self.attn_layer_indices or []
        return [Layer(kind=FULL if number in attends else "") for number in range(self.num_hidden_layers)]

    def rotary_size(self, layer: Any = None) -> int:
        return require_even(self.head_dim // 2, "head_dim / 2 =")


def _floats(count: int) -> CoreSchema:
    """A list of `count` numbers."""
    number = core_schema.float_schema(strict=True, allow_inf_nan=False)
    return CoreSchema(core_schema.list_schema(number, strict=True, min_length=count, max_length=count))


class FalconH1(Mamba2Hybrid):
    """Falcon-H1: attention and Mamba-2 in every layer, after the same norm; both results are added. Constants scale the
    inputs and outputs of both."""

    sizes = dict(vocab=128000, hidden=4096, mlp=14336, layers=32, heads=32, kv_heads=8, context=8192)
    defaults = dict(rms_norm_eps=1e-5)
    attention_bias: StrictBool = False
    mlp_bias: StrictBool = False
    projectors_bias: StrictBool = False
    mamba_d_ssm: PositiveInt | None = 1024
    mamba_rms_norm: StrictBool = False
    mamba_norm_before_gate: StrictBool = True
    lm_head_multiplier: PositiveFloat = 1.0
    embedding_multiplier: PositiveFloat = 1.0
    mlp_multipliers: Annotated[list[float], _floats(2)] | None = None
    key_multiplier: PositiveFloat = 1.0
    attention_out_multiplier: PositiveFloat = 1.0
    attention_in_multiplier: PositiveFloat = 1.0
    ssm_multipliers: Annotated[list[float], _floats(5)] | None = None
    ssm_in_multiplier: PositiveFloat = 1.0
    ssm_out_multiplier: PositiveFloat = 1.0

    reference_only = "mlp_multipliers ssm_multipliers mamba_norm_before_gate"
    null_means = {"num_key_value_heads": "num_attention_heads"}
    ignored_fields = "attn_layer_indices mamba_use_mlp mlp_expansion_factor"
    module_names = FINAL_LAYERNORM
    layer_module_names = FEED_FORWARD
    embedding_options = dict(scaled=True, factor=attrgetter("embedding_multiplier"))
    head_options = dict(logit_scale=attrgetter("lm_head_multiplier"))

    def mamba_width(self) -> tuple[int, str]:
        return super().mamba_width() if self.mamba_d_ssm is None else (self.mamba_d_ssm, "mamba_d_ssm")

    def mixer(self, **overrides: Any) -> Mamba2Mixer:
        return super().mixer(
            norm=None if not self.mamba_rms_norm else "before" if self.mamba_norm_before_gate else "after",
            out_bias=self.projectors_bias,
            factors=tuple(self.ssm_multipliers or (1.0,) * 5),
        )

    def layers(self) -> list[Layer]:
        return [Layer(kind=FULL)] * self.num_hidden_layers

    def block(self, layer: Layer) -> Block:
        """Mamba-2 and attention in parallel, then an MLP."""
        attention, norm = self.attention(layer, scales=Scales(keys=self.key_multiplier)), self.norm()
        gate_scale, down_scale = self.mlp_multipliers or (1.0, 1.0)
        mlp: Any = self.mlp(layer)
        factors = self.ssm_out_multiplier, self.attention_out_multiplier, down_scale
        mixed, attended, down = (Residual(hidden=self.hidden_size, factor=factor) for factor in factors)
        sublayers = (
            Sublayer(self.mixer(), norm, add=mixed, scale=self.ssm_in_multiplier),
            Sublayer(attention, add=attended, scale=self.attention_in_multiplier, parallel=True),
            Sublayer(replace(mlp, gate_scale=gate_scale), norm, add=down),
        )
        return Block(sublayers)


class Jamba(HybridDecoder):
    """Jamba: Mamba in most layers, grouped-query attention in every eighth, experts in every second."""

    sizes = dict(vocab=65536, hidden=4096, mlp=14336, layers=32, heads=32, kv_heads=8, context=262144)
    num_experts: PositiveInt = 16
    num_experts_per_tok: PositiveInt = 2
    expert_layer_period: PositiveInt = 2
    expert_layer_offset: NonNegativeInt = 1
    attn_layer_period: PositiveInt = 8
    attn_layer_offset: NonNegativeInt = 4
    mamba_d_state: PositiveInt = 16
    mamba_d_conv: PositiveInt = 4
    mamba_expand: PositiveInt = 2
    mamba_dt_rank: PositiveIntOrAuto = AUTO
    mamba_conv_bias: StrictBool = True
    mamba_proj_bias: StrictBool = False
    attribute_map = {"num_local_experts": "num_experts"}
    ignored_fields = """use_mamba_kernels mamba_inner_layernorms use_mambapy use_associative_scan num_logits_to_keep
        calc_logits_for_entire_prompt"""
    task_heads = CLASSIFYING
    mixer_norms = {"dt_norm": "dt_layernorm", "b_norm": "b_layernorm", "c_norm": "c_layernorm"}
    module_names = FINAL_LAYERNORM
    layer_module_names = {
        "mamba_norm": "input_layernorm",
        **FEED_FORWARD,
        **mamba_modules("mamba", in_proj="in_proj", x_proj="x_proj", out_proj="out_proj", **mixer_norms),
        **expert_modules("feed_forward", "router"),
    }
    layer_tensor_names = {**mamba_tensors("mamba"), **expert_tensors("feed_forward")}
    hf_no_chunked_prefill = Mamba.hf_no_chunked_prefill
    expert_width = "intermediate_size"

    def layers_every(self, name: str) -> list[bool]:
        """True for each layer that matches a period and an offset. Raises ConfigError."""
        period, offset = getattr(self, f"{name}_layer_period"), getattr(self, f"{name}_layer_offset")
        if offset >= period:
            raise ConfigError(f"{name}_layer_offset = {offset:,} must be smaller than {name}_layer_period = {period:,}")
        return [number % period == offset for number in range(self.num_hidden_layers)]

    def layers(self) -> list[Layer]:
        both = zip(self.layers_every("attn"), self.layers_every("expert"), strict=True)
        several = self.num_experts > 1
        return [
            Layer(kind=FULL if attends else "", experts=routed and several, rotary=False) for attends, routed in both
        ]

    def mixer(self) -> MambaMixer:
        return MambaMixer(
            hidden=self.hidden_size,
            inner=self.mamba_expand * self.hidden_size,
            state=self.mamba_d_state,
            kernel=self.mamba_d_conv,
            rank=dt_rank(self.mamba_dt_rank, self.hidden_size),
            bias=self.mamba_proj_bias,
            conv_bias=self.mamba_conv_bias,
            activation=self.hidden_act,
            norms="scaled",
            eps=self.rms_norm_eps,
        )


MAMBA, HYBRID = "linear_attention", "hybrid"
SHARED_WEIGHTS = (
    *("attn_norm", "attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.o_proj"),
    *("mlp_norm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)


def shared_layer_modules(module: str) -> dict[str, str]:
    """Modules of hybrid layers: those of the shared transformer layer, and the projection after it."""
    return {
        "attn_norm": f"{module}.input_layernorm",
        **attention_modules(f"{module}.self_attn"),
        "mlp_norm": f"{module}.pre_ff_layernorm",
        **mlp_modules(f"{module}.feed_forward"),
        "shared_out.proj": "linear",
    }


def joined_head_dim(fields: dict[str, Any]) -> int:
    """2 · hidden_size / num_attention_heads: attention reads two concatenated vectors of the hidden size."""
    hidden, heads = fields["hidden_size"], fields["num_attention_heads"]
    return divide_exactly(2 * hidden, heads, "2 · hidden_size by num_attention_heads")


class ZambaDecoder(HybridFamily, Decoder):
    """Mamba in every layer; in hybrid layers, attention and an MLP before it, whose weights those layers share."""

    defaults = dict(
        head_dim=Field(default_factory=joined_head_dim), tie_word_embeddings=True, hidden_act="gelu", rms_norm_eps=1e-5
    )
    attention_hidden_size: PositiveInt | None = None
    n_mamba_heads: PositiveInt = 2
    mamba_d_state: PositiveInt = 16
    mamba_d_conv: PositiveInt = 4
    mamba_expand: PositiveInt = 2
    layers_block_type: LayerTypes | None = None
    required_values = {"tie_word_embeddings": True}
    attribute_map = {"layer_types": "layers_block_type", "attention_head_dim": "head_dim"}
    task_heads = CLASSIFYING
    module_names = FINAL_LAYERNORM
    layer_module_names = {"mamba_norm": "input_layernorm"}

    def layer_kinds(self) -> list[str]:
        """The kind of each layer. Raises ConfigError."""
        given = self.default_layer_types() if self.layers_block_type is None else self.layers_block_type
        kinds = [MAMBA if kind == "mamba" else kind for kind in given]
        return validated_layer_types(kinds, self.num_hidden_layers, (HYBRID, MAMBA), "layers_block_type")

    def hybrid_layers(self) -> list[int]:
        return [number for number, kind in enumerate(self.layer_kinds()) if kind == HYBRID]

    def sharing_layers(self) -> list[list[int]]:
        """The layers that use each shared transformer layer."""
        hybrid = self.hybrid_layers()
        return [hybrid] if hybrid else []

    def attention(self, layer: Layer, *, rotary: Rotary | None = None, **overrides: Any) -> Attention:
        """Attention over the residual stream concatenated with the embeddings. Raises ConfigError."""
        size, hidden = self.head_dim, self.hidden_size
        if self.num_attention_heads * size != 2 * hidden:
            raise ConfigError(f"head_dim = {size:,} contradicts 2 · hidden_size / num_attention_heads")
        self.agrees("attention_hidden_size", 2 * hidden, "2 · hidden_size")
        return JoinedAttention(
            hidden=hidden,
            kv_heads=self.num_key_value_heads,
            group=self.divide("num_attention_heads", "num_key_value_heads"),
            head_dim=size if rotary is None else require_even(size),
            rotary=rotary,
            scale=(size / 2) ** -0.5,
            **overrides,
        )

    def block(self, layer: Layer) -> Block:
        """A Mamba layer, or a hybrid one."""
        if layer.kind == MAMBA:
            return Block.of(self.mixer(), norm=self.norm())
        sublayers = (
            Sublayer(self.attention(layer), replace(self.norm(), joined=True), gives="next"),
            Sublayer(self.mlp(layer), self.norm(), gives="next"),
            Sublayer(SharedOutput(hidden=self.hidden_size), gives="sum"),
            Sublayer(self.mixer(), self.norm()),
        )
        return Block(sublayers)

    def architecture(self) -> Transformer:
        """A stack of Mamba layers, and one of hybrid layers for each shared transformer layer. Raises ConfigError."""
        self.check()
        alone = [number for number, kind in enumerate(self.layer_kinds()) if kind == MAMBA]
        found = [
            Stack(self.block(Layer(kind=HYBRID)), len(layers), tuple(layers), shared_weights=SHARED_WEIGHTS)
            for layers in self.sharing_layers()
        ]
        if alone:
            found.append(Stack(self.block(Layer(kind=MAMBA)), len(alone), tuple(alone)))
        ends: dict[str, Any] = self.embeddings_and_head()
        return Transformer(stacks=tuple(sorted(found, key=lambda stack: stack.numbers[0])), **ends)

    def _with_hybrid_layers(self, table: Mapping[str, str]) -> dict[str, str]:
        found = dict(table)  # hybrid layers have their mixer elsewhere
        for number in self.hybrid_layers():
            for path, hf_path in table.items():
                if path.startswith("blocks.*.mamba"):
                    found[path.replace("*", f"{number}")] = hf_path.replace(".*.", f".{number}.mamba_decoder.")
        return found

    def hf_module_names(self) -> Mapping[str, str]:
        return self._with_hybrid_layers(super().hf_module_names())

    def hf_tensor_names(self) -> dict[str, str]:
        return self._with_hybrid_layers(super().hf_tensor_names())


class Zamba2(Mamba2Family, ZambaDecoder):
    """Zamba2: Mamba-2 in every layer; some have attention and an MLP before it, with weights shared between those
    layers, except adapters."""

    sizes = dict(
        vocab=32000,
        hidden=2560,
        mlp=Field(default_factory=lambda fields: 4 * fields["hidden_size"]),
        layers=54,
        heads=32,
        kv_heads=SAME_AS_QUERY_HEADS,
        context=4096,
    )
    defaults = dict(n_mamba_heads=8, mamba_d_state=64)
    use_long_context: StrictBool = False
    hybrid_layer_ids: list[NonNegativeInt] | None = None
    num_mem_blocks: PositiveInt = 1
    adapter_rank: PositiveInt = 128
    use_shared_attention_adapter: StrictBool = False
    use_mem_rope: StrictBool = False
    add_bias_linear: StrictBool = False
    mamba_headdim: PositiveInt | None = None
    mamba_ngroups: PositiveInt = 1
    chunk_size: PositiveInt = 256
    time_step_min: PositiveFloat = 0.001

    reference_only = "use_mem_rope"
    null_means = {"num_key_value_heads": "num_attention_heads"}
    ignored_fields = """kv_channels num_query_groups num_logits_to_keep time_step_floor time_step_max use_conv_bias
        use_mamba_kernels use_mem_eff_path"""
    layer_module_names = {
        **shared_layer_modules("shared_transformer"),
        **dict.fromkeys(("mlp.gate_proj", "mlp.up_proj"), "shared_transformer.feed_forward.gate_up_proj"),
        **mamba2_modules("mamba"),
    }
    layer_tensor_names = mamba2_tensors("mamba")

    context = property(lambda self: 16_384 if self.use_long_context else self.max_position_embeddings)

    def default_layer_types(self) -> list[str]:
        """The kind of each layer, if layers_block_type is absent."""
        return [HYBRID if number in (6, 12, 18, 24, 30, 36, 42, 47, 51) else MAMBA for number in range(54)]

    def layer_kinds(self) -> list[str]:
        kinds = super().layer_kinds()
        hybrid = [number for number, kind in enumerate(kinds) if kind == HYBRID]
        if self.hybrid_layer_ids not in (None, hybrid):
            raise ConfigError(
                f"hybrid_layer_ids = {self.hybrid_layer_ids} contradicts layers_block_type, which gives {hybrid}"
            )
        return kinds

    def sharing_layers(self) -> list[list[int]]:
        """Hybrid layers use the num_mem_blocks shared layers in turn."""
        hybrid, count = self.hybrid_layers(), self.num_mem_blocks
        return [hybrid[first::count] for first in range(min(count, len(hybrid)))]

    def mixer(self) -> Mamba2Mixer:
        heads, inner = self.n_mamba_heads, self.mamba_expand * self.hidden_size
        size = divide_exactly(inner, heads, "mamba_expand · hidden_size by n_mamba_heads")
        self.agrees("mamba_headdim", size, "mamba_expand · hidden_size / n_mamba_heads")
        return Mamba2Mixer(
            hidden=self.hidden_size,
            groups=self.mamba_ngroups,
            group=self.divide("n_mamba_heads", "mamba_ngroups"),
            head_dim=size,
            state=self.mamba_d_state,
            kernel=self.mamba_d_conv,
            chunk=self.chunk_size,
            bias=self.add_bias_linear,
            least_step=self.time_step_min,
        )

    def attention(self, layer: Layer, **overrides: Any) -> Attention:
        adapted = self.use_shared_attention_adapter
        if adapted and self.num_key_value_heads != self.num_attention_heads:
            raise self.refused("num_key_value_heads", self.num_key_value_heads)
        rotary = self.rope() if self.use_mem_rope else None
        return super().attention(layer, rotary=rotary, adapter=self.adapter_rank if adapted else None)

    def mlp(self, layer: Layer) -> FeedForward:
        return AdaptedFeedForward.of(self.dense_mlp(bias=self.add_bias_linear), adapter=self.adapter_rank)

    def _adapters(self, *, stored: bool) -> Iterator[tuple[str, str]]:
        """Adapters of each hybrid layer: ledger module → module of the class, in a list in the shared layer. They are
        stored in the first layer that uses it."""
        layers = self.hybrid_layers()
        for use, number in enumerate(layers):
            owner = layers[use % self.num_mem_blocks] if stored else number
            layer, module = f"blocks.{number}", f"model.layers.{owner}.shared_transformer"
            for name in "qkv":
                for place, which in enumerate(("down", "up")):
                    at = f"self_attn.linear_{name}_adapter_list.{use}.{place}"
                    yield f"{layer}.attn.{name}_adapter_{which}", f"{module}.{at}"
            at = f"{module}.feed_forward.gate_up_proj_adapter_list.{use}"
            yield f"{layer}.mlp.adapter_down", f"{at}.0"
            yield from ((f"{layer}.mlp.{which}_adapter_up", f"{at}.1") for which in ("gate", "up"))

    def hf_module_names(self) -> Mapping[str, str]:
        return {**super().hf_module_names(), **dict(self._adapters(stored=False))}

    def hf_tensor_names(self) -> dict[str, str]:
        stored = {f"{path}.weight": f"{hf_path}.weight" for path, hf_path in self._adapters(stored=True)}
        return {**super().hf_tensor_names(), **self.task_head.renamed(stored, "model.")}
