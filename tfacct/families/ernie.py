"""Baidu's ERNIE 4.5: Llama's layer, with biases on all projections or on none, and a tied head."""

from operator import attrgetter
from typing import Annotated, Any

from pydantic_core import core_schema

from tfacct.architecture.parts import Experts
from tfacct.families.decoder import Decoder, MoeWithShared, expert_modules, expert_tensors
from tfacct.families.family import NULL_HEADS
from tfacct.families.fields import CoreSchema, NonNegativeInt, PositiveInt, StrictBool, int_between
from tfacct.families.layer_kinds import MlpLayerTypes
from tfacct.families.task_heads import inside_composite

Pair = Annotated[
    list[int], CoreSchema(core_schema.list_schema(int_between(1).schema, strict=True, min_length=2, max_length=2))
]
ROUTER_BIAS = "gate.moe_statics.e_score_correction_bias"


class ErnieBase(Decoder):
    """The fields that ERNIE's models share. use_bias is attention_bias and mlp_bias."""

    sizes = dict(vocab=103424, context=131072)
    defaults = dict(tie_word_embeddings=True, rms_norm_eps=1e-5, rope_theta=500_000.0)
    use_bias: StrictBool = False
    attention_bias = mlp_bias = property(attrgetter("use_bias"))
    rope_pairs = "neighbours"


class Ernie4_5(ErnieBase):
    """ERNIE 4.5, the dense models: Llama's layer, with biases on all projections or on none, and a tied head."""

    sizes = dict(hidden=1024, mlp=3072, layers=18, heads=16, kv_heads=2, head_dim=128)
    class_prefixes = ("Ernie4_5", "Ernie4_5_")
    dropouts = {}
    ignored_fields = "compression_ratio rope_is_neox_style use_3d_rope use_flash_attention"
    null_means = NULL_HEADS


class ErnieMoeBase(MoeWithShared, ErnieBase):
    """The fields that ERNIE's models with experts share."""

    sizes = dict(hidden=2560, mlp=12288, layers=28, heads=20, kv_heads=4)
    moe_k: PositiveInt = 6
    moe_num_experts: PositiveInt = 64
    moe_num_shared_experts: NonNegativeInt = 2
    attribute_map = {"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"}
    heads_fill_hidden_size = True
    expert_count, shared_expert_count, expert_top_k = "moe_num_experts", "moe_num_shared_experts", "moe_k"
    # Router and experts have no biases.
    experts_options = dict(shared_bias=attrgetter("use_bias"), shared_first=True, choice_bias=True)


class Ernie4_5_Moe(ErnieMoeBase):
    """ERNIE 4.5 with experts: its dense models' attention, experts with a shared expert in a range of layers."""

    moe_intermediate_size: PositiveInt = 1536
    moe_layer_start_index: NonNegativeInt = 1
    moe_layer_end_index: Annotated[int, int_between(-1)] = -1
    moe_layer_interval: PositiveInt = 1
    checkpoint_conversion_mapping = ((r"\.mlp\.moe_statics\.", ".mlp.gate.moe_statics."),)
    ignored_fields = """moe_norm_min moe_capacity moe_gate moe_use_aux_free moe_aux_loss_lambda
        moe_layer_feed_fake_token moe_dropout_prob moe_orthogonal_loss_lambda moe_use_hard_gate compression_ratio
        enable_delay_scale_loss fuse_ln fuse_linear fuse_rms_norm fuse_rope fuse_swiglu use_flash_attention
        use_sparse_head_and_loss_fn use_recompute use_rmsnorm weight_share_add_bias ignored_index micro_batch_size
        num_acc_steps"""
    layer_tensor_names = {"mlp.routing.bias": f"mlp.{ROUTER_BIAS}"}
    head_options = dict(bias=attrgetter("use_bias"))

    def moe_layers(self) -> list[bool]:
        last = self.num_hidden_layers - 1 if self.moe_layer_end_index == -1 else self.moe_layer_end_index
        first, step = self.moe_layer_start_index, self.moe_layer_interval
        return [first <= number <= last and (number + 1) % step == 0 for number in range(self.num_hidden_layers)]


class Ernie4_5_VLMoe(ErnieMoeBase):
    """ERNIE 4.5 VL's language model: ERNIE 4.5's layers, with experts for text and others for images."""

    moe_intermediate_size: Pair | None = None
    mlp_layer_types: MlpLayerTypes | None = None
    class_prefixes = ("Ernie4_5_VLMoe", "Ernie4_5_VLMoeText")
    ignored_fields = "moe_norm_min"
    task_heads = inside_composite("Ernie4_5_VLMoeForConditionalGeneration", "Ernie4_5_VLMoeTextModel")
    layer_module_names = {**expert_modules("mlp.text_moe"), "mlp.others.router": "mlp.vision_moe.gate"}
    layer_tensor_names = {
        "mlp.routing.bias": f"mlp.text_moe.{ROUTER_BIAS}",
        "mlp.others.routing.bias": f"mlp.vision_moe.{ROUTER_BIAS}",
        **expert_tensors("mlp.text_moe"),
        **{name.replace("mlp.", "mlp.others."): hf_name for name, hf_name in expert_tensors("mlp.vision_moe").items()},
    }

    def experts(self, **overrides: Any) -> Experts:
        """Experts for text, with a shared expert, and experts for images. Raises ConfigError."""
        width, others = self.moe_intermediate_size or (1536, 512)
        return super().experts(width=width, others=others)
