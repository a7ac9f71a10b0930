"""DeepSeek's language models: multi-head latent attention, dense layers first, then experts and a shared expert."""

from dataclasses import replace
from typing import Annotated, Any

from tfacct.architecture.blocks import MtpHead
from tfacct.architecture.parts import Experts, MtpProjection
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._fields import MTP_LAYERS
from tfacct.families.lineages.decoder import DecoderBase, Layer, SharedExperts
from tfacct.families.lineages.dsa import DsaDecoder
from tfacct.families.lineages.mla import MlaDecoder
from tfacct.families.lineages.vocabulary import (
    CLASSIFYING,
    NonNegativeInt,
    PositiveInt,
    StrictBool,
    check_top_k,
    int_between,
)
from tfacct.ledger.groups import Ledger


class DeepseekBase(SharedExperts, MlaDecoder):
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
    ignored_fields = "topk_method scoring_func aux_loss_alpha seq_aux ep_size"

    def experts(self, *_: str, **own: Any) -> Experts:
        check_top_k(self.num_experts_per_tok, self.n_routed_experts, ("num_experts_per_tok", "n_routed_experts"))
        return super().experts(**own)


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


class MtpLayers(DecoderBase):
    """Layers that predict further tokens (MTP), which the class leaves out. `mtp` is a field of this program: if true,
    they are counted too."""

    num_nextn_predict_layers: Annotated[int, int_between(0, 100)] = 1
    mtp: StrictBool = False
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


class DeepseekV3(MtpLayers, DeepseekBase):
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
    nested_defaults = dict(vocab_size=129280, hidden_size=7168, num_hidden_layers=61, num_attention_heads=128)


class DeepseekV32(MtpLayers, DsaDecoder):
    """DeepSeek-V3.2: V3's block, and in every layer an indexer that chooses the keys of each token. `mtp` is a field of
    this program: if true, the layers that predict further tokens (MTP) are counted too, each with an indexer."""

    defaults = dict(
        vocab_size=129280,
        hidden_size=7168,
        intermediate_size=18432,
        num_hidden_layers=61,
        num_attention_heads=128,
        num_key_value_heads=128,
        max_position_embeddings=163840,
        index_n_heads=64,
    )
    q_lora_rank: PositiveInt = 1536


class KimiK2(DeepseekV3):
    """Kimi K2: DeepSeek-V3's block, with more experts and fewer heads."""

    class_prefixes = ("DeepseekV3",)
    hf_model_type = "deepseek_v3"
