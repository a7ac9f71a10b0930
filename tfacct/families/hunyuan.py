"""Tencent's Hunyuan models."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tfacct.architecture.parts import Experts, Gate, HyperConnection, QKNorm
from tfacct.families.decoder import (
    EXPERT_TENSORS,
    QK_NORMS,
    SINK_TENSORS,
    Decoder,
    Layer,
    MoeWithShared,
    expert_modules,
)
from tfacct.families.family import SAME_AS_QUERY_HEADS, mlp_modules
from tfacct.families.family_config import FamilyConfig
from tfacct.families.fields import NonNegativeInt, PositiveFloat, PositiveInt, PositiveIntOrList, StrictBool
from tfacct.families.hyper_connections import HyperConnected
from tfacct.families.layer_kinds import MlpLayerTypes, check_first_dense, check_length, sparse_layers
from tfacct.families.mla import DsaDecoder, IndexerTypes, check_first_indexer
from tfacct.families.task_heads import CLASSIFYING


class HunYuanDenseV1(Decoder):
    """Hunyuan's dense models: Llama's layer, with norms of queries and keys after their rotary embedding."""

    sizes = dict(vocab=290943, hidden=4096, mlp=11008, layers=32, heads=32, kv_heads=SAME_AS_QUERY_HEADS, context=2048)
    defaults = dict(rms_norm_eps=1e-5)
    head_dim: PositiveInt = Field()  # the class cannot be built without it
    attention_bias: StrictBool = False
    use_qk_norm: StrictBool = True
    required_values = {"use_qk_norm": True}
    attribute_map = {"attention_head_dim": "head_dim"}
    ignored_fields = """add_classification_head class_num cla_share_factor dense_list eod_token_id im_end_id
        im_newline_id im_start_id mask_init_id norm_type org_vocab_size pad_id pool_type position_embedding_xdrope
        text_end_id text_start_id video_end_id video_start_id num_media_embeds use_rotary_pos_emb
        anyres_vit_max_image_size"""
    task_heads = CLASSIFYING
    layer_module_names = {"attn.q_norm": "self_attn.query_layernorm", "attn.k_norm": "self_attn.key_layernorm"}
    qk_norm = QKNorm(0, late=True)


class HunYuanMoEV1(HunYuanDenseV1):
    """Hunyuan with experts: as its dense models, but with experts and one shared expert in every layer. The number of
    active experts may differ by layer."""

    num_experts: PositiveInt = 1
    moe_topk: PositiveIntOrList = 1
    moe_intermediate_size: PositiveIntOrList | None = None
    num_shared_expert: PositiveIntOrList | None = None
    reference_only = "moe_intermediate_size num_shared_expert"
    attribute_map = {"num_experts_per_tok": "moe_topk", "num_local_experts": "num_experts"}
    ignored_fields = """capacity_factor group_limited_greedy moe_drop_tokens moe_layer_num_skipped
        moe_random_routing_dropped_token n_group routed_scaling_factor skip_cls_token topk_group use_mixed_mlp_moe"""
    layer_module_names = {**expert_modules(router="gate.wg"), **mlp_modules("mlp.shared_mlp", at="mlp.shared")}
    layer_tensor_names = EXPERT_TENSORS
    expert_width, expert_top_k = "intermediate_size", "moe_topk"

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked fields; num_experts_per_tok may repeat the single number in moe_topk."""
        listed, once = raw.get("moe_topk"), raw.get("num_experts_per_tok")
        if isinstance(listed, list) and listed and all(number == once for number in listed):
            raw = {name: value for name, value in raw.items() if name != "num_experts_per_tok"}
        return super().read(raw)

    def check(self) -> None:
        super().check()
        for name, only in (("moe_intermediate_size", self.intermediate_size), ("num_shared_expert", 1)):
            given = getattr(self, name)
            if given is not None and {*(given if isinstance(given, list) else [given])} != {only}:
                raise self.refused(name, given)

    def layers(self) -> list[Layer]:
        """Raises ConfigError."""
        layers, given = self.num_hidden_layers, self.moe_topk
        if isinstance(given, int):
            return [Layer(top_k=given)] * layers
        check_length("moe_topk", given, layers, longer=True)
        return [Layer(top_k=top_k) for top_k in given[:layers]]

    def mlp(self, layer: Layer) -> Experts:
        return self.experts(active=layer.top_k, shared_alike=True, shared_first=True)


class HYV3(MoeWithShared, Decoder):
    """Hunyuan 3: Qwen3's attention; a dense layer, then experts with a shared expert."""

    sizes = dict(vocab=120832, hidden=4096, mlp=13312, layers=80, heads=64, kv_heads=8, head_dim=128, context=131072)
    defaults = dict(rope_theta=11_158_840.0, rms_norm_eps=1e-5)
    attention_bias: StrictBool = False
    mlp_bias: StrictBool = False
    moe_intermediate_size: PositiveInt = 1536
    num_experts: PositiveInt = 192
    num_experts_per_tok: PositiveInt = 8
    num_shared_experts: PositiveInt = 1
    mlp_layer_types: MlpLayerTypes | None = None
    required_values = {"mlp_bias": False}
    attribute_map = {"num_local_experts": "num_experts"}
    ignored_fields = "router_scaling_factor enable_moe_fp32_combine"
    checkpoint_conversion_mapping = (
        (r"\.mlp\.router\.gate\.", ".mlp.gate."),
        (r"\.mlp\.shared_mlp\.", ".mlp.shared_experts."),
    )
    layer_module_names = QK_NORMS
    expert_count, shared_expert_count = "num_experts", "num_shared_experts"
    qk_norm = QKNorm(0)


class HYV4(HyperConnected, DsaDecoder):
    """Hunyuan V4: GLM-5's attention with an indexer, a gate and sinks, between several residual streams that are not
    mixed."""

    sizes = dict(vocab=120832, hidden=2816, mlp=6912, layers=34, heads=32, kv_heads=32, context=262144)
    defaults = dict(
        moe_intermediate_size=768, rms_norm_eps=1e-5, qk_nope_head_dim=192, v_head_dim=256, index_n_heads=16
    )
    q_lora_rank: PositiveInt = 1536
    first_k_dense_replace: NonNegativeInt | None = None  # type: ignore[assignment]
    indexer_types: IndexerTypes | None = None
    hc_magnitude: PositiveFloat = 2.0
    reference_only = "first_k_dense_replace"
    ignored_fields = "learnable_sink_init swiglu_limit"
    checkpoint_conversion_mapping = (
        (r"\.hc_pre\.hc_", ".hc_"),
        (r"\.hc_attn_layer\.hc_", ".attn_hc."),
        (r"\.hc_mlp_layer\.hc_", ".ffn_hc."),
        (r"\.hc_head_(fn|base|scale)$", r".hc_\1"),
        (r"\.learnable_sink_param$", ".sinks"),
        (r"\.linear_gate\.", ".gate_proj."),
    )
    constant_axes = frozenset({"Xl", "Xg"})
    keep_in_fp32_modules = ("self_attn.indexer.weights_proj", "lm_head")
    layer_module_names = {"attn.gate_proj": "self_attn.gate_proj"}
    layer_tensor_names = SINK_TENSORS
    rope_pairs = "halves"
    attention_options = dict(gate=Gate(), sinks=True)
    indexer_options = dict(rotated="last")

    def indexers(self) -> list[bool]:
        layers = self.num_hidden_layers
        if self.indexer_types is None:
            return [number == 0 or (number - 1) % 4 == 0 for number in range(layers)]
        return check_first_indexer([kind == "full" for kind in self.indexer_types], layers)

    def moe_layers(self) -> list[bool]:
        routed = sparse_layers(self.mlp_layer_types, self.num_hidden_layers)
        check_first_dense(self.first_k_dense_replace, routed)
        return routed

    def hyper_connection(self) -> HyperConnection:
        return HyperConnection(**self.streams(), bound=self.hc_magnitude)
