"""Step 3.5 and 3.7: a gate for each head, more heads in windowed layers; dense layers first, then experts."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic_core import core_schema

from tfacct.architecture.parts import Attention, Experts, Norm, QKNorm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Checked, Count, Fields, Layers, Real, Switch, UpTo, even, share, turned_part
from tfacct.families._endings import inside
from tfacct.families._experts import BESIDE_PATHS, ROUTED_TENSORS, LayerNetworks, check_active, check_first_dense
from tfacct.families._layers import FULL, SLIDING, LayerTypes, kinds_of_layers
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2026-02"

_NUMBER = core_schema.float_schema(gt=0)
RealOrList = Annotated[
    float | list[float],
    Checked(core_schema.union_schema([_NUMBER, core_schema.list_schema(_NUMBER, strict=True, min_length=1)])),
]
Numbers = Annotated[
    str | list[int],
    Checked(
        core_schema.union_schema([core_schema.str_schema(), core_schema.list_schema(core_schema.int_schema(ge=0))])
    ),
]
"""Numbers of layers, as a list or with commas between them."""
OTHER = ("attention_type", "num_attention_heads", "num_attention_groups", "head_dim", "true_head_dim")
"""Fields of attention_other_setting."""


class Config(LlamaLike):
    """`Step3p7TextConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 128815
    hidden_size: Count = 4096
    intermediate_size: Count = 11264
    num_hidden_layers: Layers = 45
    num_attention_heads: Count = 64
    num_key_value_heads: Count = 8
    head_dim: Count = 128
    max_position_embeddings: Count = 128000
    rms_norm_eps: Real = 1e-5
    rope_theta: RealOrList | None = None  # type: ignore[assignment]
    rope_parameters: Fields | None = None
    partial_rotary_factors: list[float] | None = Field(default=None)
    attention_bias: Switch = False
    mlp_bias: Switch = False
    gating: Switch = True
    use_head_wise_attn_gate: Switch = True
    query_pre_attn_scalar: Real | None = None
    sliding_window: Window | None = None
    num_sliding_attention_heads: Count | None = None
    attention_other_setting: Fields | None = None
    layer_types: LayerTypes | None = None
    mlp_layer_types: LayerNetworks | None = None
    moe_layers_enum: Numbers | None = None
    first_k_dense_replace: UpTo | None = None
    moe_intermediate_size: Count = 1280
    n_routed_experts: Count = 288
    num_experts_per_tok: Count = 8
    share_expert_dim: Count = 1280
    num_nextn_predict_layers: UpTo = 0

    stems: ClassVar = ("Step3p7", "Step3p7Text", "Step3p7Flash")
    in_files: ClassVar = (
        (r"^model\.layers\.\*\.moe\.(gate|up|down)_proj\.weight$", r"blocks.*.mlp.experts.\1_proj.weight"),
        (r"\.moe\.router_bias$", ".mlp.gate.e_score_correction_bias"),
        (r"\.moe\.gate\.", ".mlp.gate."),
        (r"\.share_expert\.", ".mlp.shared_experts."),
    )
    heads: ClassVar = inside("Step3p7ForConditionalGeneration", "Step3p7TextModel")
    heads |= {"ForCausalLM": heads["ForConditionalGeneration"]}
    uncounted: ClassVar = LlamaLike.uncounted | {
        "first_k_dense_replace",
        "gating",
        "num_nextn_predict_layers",
        "query_pre_attn_scalar",
        "use_head_wise_attn_gate",
    }
    aliases: ClassVar = {
        "num_attention_groups": "num_key_value_heads",
        "moe_num_experts": "n_routed_experts",
        "num_experts": "n_routed_experts",
        "moe_top_k": "num_experts_per_tok",
        "share_expert_dims": "share_expert_dim",
    }
    harmless: ClassVar = frozenset(
        """
        moe_router_scaling_factor swiglu_limits swiglu_limits_shared att_impl_type
        moe_router_activation norm_expert_weight need_fp32_gate use_moe_router_bias use_moe zero_centered
        yarn_only_types n_shared_experts scoring_func moe_layer_offset moe_every_n_layer use_rope_layers
        """.split()
    )
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **BESIDE_PATHS,
        **QK_NORM_PATHS,
        "blocks.*.attn.gate_proj": "model.layers.*.self_attn.g_proj",
    }
    hf_tensors: ClassVar = ROUTED_TENSORS

    def norm(self) -> Norm:
        """RMSNorm whose weight is the scale less 1."""
        return Norm(hidden=self.hidden_size, kind="rms", eps=self.rms_norm_eps, less_one=True)

    def listed(self, given: list[Any], name: str) -> list[Any]:
        """A list with one entry for each layer, and, it may be, for those that predict further tokens. Raises
        ConfigError."""
        layers = self.num_hidden_layers
        if len(given) not in (layers, layers + self.num_nextn_predict_layers):
            raise ConfigError(f"{name} names {len(given):,} layers, and num_hidden_layers is {layers:,}")
        return given[:layers]

    def kinds(self) -> list[str]:
        """The kind of each layer. Raises ConfigError."""
        layers = self.num_hidden_layers
        if self.layer_types is None:
            return [FULL] * layers
        kinds = kinds_of_layers(self.listed(self.layer_types, "layer_types"), layers, (FULL, SLIDING))
        if SLIDING in kinds and self.sliding_window is None:
            raise ConfigError(f"layer {kinds.index(SLIDING)} has {SLIDING}, but sliding_window is missing")
        return kinds

    def routed(self) -> list[bool]:
        """Booleans, one for each layer: whether it has experts. Raises ConfigError."""
        layers, named = self.num_hidden_layers, self.moe_layers_enum
        if self.mlp_layer_types is not None:
            return [kind == "sparse" for kind in self.listed(self.mlp_layer_types, "mlp_layer_types")]
        if named is None:
            return [number >= 3 for number in range(layers)]
        try:
            numbers = {int(one) for one in (named.split(",") if isinstance(named, str) else named) if str(one).strip()}
        except ValueError:
            raise self.refused("moe_layers_enum", named) from None
        return [number in numbers for number in range(layers)]

    def sliding_heads(self) -> int:
        """Query heads of a layer with a window. Raises ConfigError."""
        other = self.attention_other_setting or {}
        built: dict[str, Any] = {"num_attention_groups": self.num_key_value_heads, "head_dim": self.head_dim}
        built |= {"true_head_dim": self.head_dim, "attention_type": SLIDING}
        for name, value in other.items():
            if name not in OTHER or value != built.get(name, value):
                raise self.refused(f"attention_other_setting.{name}", value)
        said = self.num_sliding_attention_heads or other.get("num_attention_heads", self.num_attention_heads)
        if not isinstance(said, int) or isinstance(said, bool) or said < 1:
            raise ConfigError("attention_other_setting.num_attention_heads must be a whole number from 1")
        return said

    def turned(self, kind: str, kinds: list[str]) -> tuple[Rotary, int]:
        """The angles of a kind of layers, and how much of a head they turn. Raises ConfigError."""
        own, first = self.rope_parameters or {}, kinds.index(kind)
        if all(isinstance(own.get(one), Mapping) for one in kinds):
            spelled: Mapping[str, Any] = own[kind]
        else:
            theta, parts = self.rope_theta or 10_000.0, self.partial_rotary_factors
            base = self.listed(theta, "rope_theta")[first] if isinstance(theta, list) else theta
            part = 1.0 if parts is None else self.listed(parts, "partial_rotary_factors")[first]
            more = (self.rope_scaling or {}) if kind == FULL else {}
            spelled = {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": part, **more}
        size = int(self.head_dim * turned_part(1.0, spelled))
        return Rotary(spelled.get("rope_theta") or 10_000.0, spelled), even(size, "rotated elements of a head:")

    def of_kind(self, kind: str, kinds: list[str]) -> Attention:
        """Attention of one kind of layers. Raises ConfigError."""
        rotary, size = self.turned(kind, kinds)
        heads = self.num_attention_heads if kind == FULL else self.sliding_heads()
        return Attention(
            hidden=self.hidden_size,
            kv_heads=self.num_key_value_heads,
            group=share(heads, self.num_key_value_heads, "query heads of a layer by num_key_value_heads"),
            head_dim=self.head_dim,
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            qk_norm=QKNorm(self.rms_norm_eps, less_one=True),
            rotary=rotary,
            rope_dim=None if size == self.head_dim else size,
            scale=(self.query_pre_attn_scalar or self.head_dim) ** -0.5,
            window=self.sliding_window if kind == SLIDING else None,
            gated=True,
            gate_bias=False,
            gates="heads",
        )

    def architecture(self) -> Transformer:
        """Windows and experts as the lists say."""
        for name in ("gating", "use_head_wise_attn_gate"):
            if not getattr(self, name):
                raise self.refused(name, False)
        check_active(self.num_experts_per_tok, self.n_routed_experts, ("num_experts_per_tok", "n_routed_experts"))
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.n_routed_experts,
            active=self.num_experts_per_tok,
            width=self.moe_intermediate_size,
            shared=self.share_expert_dim,
            shared_bias=self.mlp_bias,
            activation="silu",
        )
        kinds, dense = self.kinds(), self.feed_forward(bias=self.mlp_bias)
        attentions = {kind: self.of_kind(kind, kinds) for kind in dict.fromkeys(kinds)}
        check_first_dense(self.first_k_dense_replace, self.routed())
        per_layer = list(zip(kinds, self.routed(), strict=True))
        made = {
            (kind, routed): self.block(attentions[kind], experts if routed else dense)
            for kind, routed in dict.fromkeys(per_layer)
        }
        return self.decoder([made[layer] for layer in per_layer])
