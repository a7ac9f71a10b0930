"""DeepSeek's language models: multi-head latent attention, dense layers first, then experts and a shared expert."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from tfacct.architecture.blocks import MtpHead
from tfacct.architecture.parts import Experts, LatentAttention, MtpProjection
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._fields import MTP_LAYERS
from tfacct.families.lineages.decoder import EXPERT_MODULES, EXPERT_TENSORS, Decoder, Layer
from tfacct.families.lineages.family import SAME_AS_QUERY_HEADS, mlp_modules
from tfacct.families.lineages.vocabulary import (
    CLASSIFYING,
    NonNegativeInt,
    PositiveInt,
    StrictBool,
    int_between,
    require_even,
)
from tfacct.ledger.groups import Ledger


class MlaDecoder(Decoder):
    """The fields of multi-head latent attention (MLA). `latent_attention` is a field of this program, not of published
    configs: `expanded` as in transformers, `absorbed` as engines decode, `auto` whichever takes fewer FLOPs in a step,
    or `unpacked`, which caches keys and values of all heads."""

    defaults = dict(num_key_value_heads=SAME_AS_QUERY_HEADS)
    head_dim: PositiveInt | None = None  # type: ignore[assignment]
    attention_bias: StrictBool = False
    q_lora_rank: PositiveInt | None = 1536
    kv_lora_rank: PositiveInt = 512
    qk_nope_head_dim: PositiveInt = 128
    qk_rope_head_dim: PositiveInt = 64
    v_head_dim: PositiveInt = 128
    latent_attention: Literal["auto", "expanded", "absorbed", "unpacked"] = "auto"
    reference_only = "head_dim num_key_value_heads"
    null_means = {"num_key_value_heads": "num_attention_heads"}
    ignored_fields = "rope_interleave qk_head_dim"
    layer_module_names = {
        f"attn.{ours}": f"self_attn.{theirs}"
        for ours, theirs in (
            *(("q_a_proj", "q_a_proj"), ("q_a_norm", "q_a_layernorm"), ("q_b_proj", "q_b_proj")),
            *(("kv_a_proj", "kv_a_proj_with_mqa"), ("kv_a_norm", "kv_a_layernorm")),
            *(("k_b_proj", "kv_b_proj"), ("v_b_proj", "kv_b_proj")),
        )
    }

    def hf_unsupported(self) -> str | None:
        runs = self.latent_attention in ("auto", "expanded")
        return None if runs else "it runs latent_attention = expanded only"

    def attention(self, layer: Layer, **own: Any) -> LatentAttention:
        """Latent attention. Raises ConfigError if heads would share keys."""
        if self.num_key_value_heads != self.num_attention_heads:
            raise ConfigError(
                f"num_key_value_heads = {self.num_key_value_heads:,}, but with a latent every head has keys of its"
                f" own: num_attention_heads = {self.num_attention_heads:,}"
            )
        return LatentAttention(
            hidden=self.hidden_size,
            heads=self.num_attention_heads,
            kv_rank=self.kv_lora_rank,
            nope_dim=self.qk_nope_head_dim,
            rope_dim=require_even(self.qk_rope_head_dim, "qk_rope_head_dim") if self.qk_rope_head_dim else None,
            value_dim=self.v_head_dim,
            q_rank=self.q_lora_rank,
            bias=self.attention_bias,
            rotary=self.rope()._replace(pairs="neighbours"),
            form=self.latent_attention,
            **own,
        )


class DeepseekBase(MlaDecoder):
    """The fields that V2 and V3 share."""

    moe_intermediate_size: PositiveInt
    n_routed_experts: PositiveInt
    n_shared_experts: NonNegativeInt
    num_experts_per_tok: PositiveInt
    first_k_dense_replace: NonNegativeInt
    moe_layer_freq: PositiveInt = 1
    reference_only = "moe_layer_freq"
    required_values = {"moe_layer_freq": 1}
    attribute_map = {"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"}
    ignored_fields = "n_group topk_group topk_method routed_scaling_factor scoring_func aux_loss_alpha seq_aux ep_size"
    layer_module_names = {**EXPERT_MODULES, **mlp_modules("mlp.shared_experts", at="mlp.shared")}
    layer_tensor_names = EXPERT_TENSORS

    def layers(self) -> list[Layer]:
        """The first first_k_dense_replace layers are dense."""
        return [Layer(experts=number >= self.first_k_dense_replace) for number in range(self.num_hidden_layers)]

    def experts(self, *_: str, **own: Any) -> Experts:
        """With one MLP as wide as n_shared_experts experts."""
        shared = self.n_shared_experts * self.moe_intermediate_size or None
        return super().experts("n_routed_experts", shared=shared, **own)


class DeepseekV2(DeepseekBase):
    """DeepSeek-V2 and V2-Lite: latent attention, with and without a latent for the queries, and experts."""

    defaults = dict(
        intermediate_size=11008,
        max_position_embeddings=2048,
        moe_intermediate_size=1407,
        n_routed_experts=64,
        n_shared_experts=2,
        first_k_dense_replace=0,
    )
    mlp_bias: StrictBool = False
    task_heads = CLASSIFYING

    def experts(self, *_: str, **own: Any) -> Experts:
        """mlp_bias applies to dense layers and shared experts, not to routed experts."""
        if self.mlp_bias and not self.n_shared_experts:
            raise ConfigError("mlp_bias = true with n_shared_experts = 0: biases on a network of width 0")
        return super().experts(shared_bias=self.mlp_bias, **own)


class DeepseekV3(DeepseekBase):
    """DeepSeek-V3 and R1: V2's block at a larger size, and a router whose bias is a buffer, not a parameter. `mtp` is a
    field of this program: if true, the layers that predict further tokens (MTP) are counted too."""

    defaults = dict(
        intermediate_size=18432,
        num_key_value_heads=128,
        max_position_embeddings=4096,
        moe_intermediate_size=2048,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        first_k_dense_replace=3,
    )
    num_nextn_predict_layers: Annotated[int, int_between(0, 100)] = 1
    mtp: StrictBool = False
    nested_defaults = dict(vocab_size=129280, hidden_size=7168, num_hidden_layers=61, num_attention_heads=128)
    reference_only = "num_nextn_predict_layers"
    attribute_map = dict.fromkeys(MTP_LAYERS[1:], MTP_LAYERS[0])

    def hf_unsupported(self) -> str | None:
        return "it has no MTP layers: leave mtp out" if self.mtp else super().hf_unsupported()

    def architecture(self) -> Transformer:
        """With MTP layers on request, each a layer with experts."""
        shape = super().architecture()
        if not self.mtp or not self.num_nextn_predict_layers:
            return shape
        joining = MtpProjection(hidden=self.hidden_size, eps=self.rms_norm_eps)
        routed = self.block(Layer(experts=True))
        return replace(shape, mtp=MtpHead(joining, routed, self.norm(), self.num_nextn_predict_layers))

    def with_further_layers(self) -> Ledger | None:
        """Ledger with the multi-token prediction heads."""
        return self.model_copy(update={"mtp": True}).transformer().ledger()


class KimiK2(DeepseekV3):
    """Kimi K2: DeepSeek-V3's block, with more experts and fewer heads."""

    class_prefixes = ("DeepseekV3",)
    hf_model_type = "deepseek_v3"
