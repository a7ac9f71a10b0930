"""JetMoE."""

from typing import Any

from tfacct.architecture.parts import SentAttention
from tfacct.base.errors import ConfigError
from tfacct.families.decoder import Decoder, Layer
from tfacct.families.family import ABSENT
from tfacct.families.fields import PositiveInt, require_even
from tfacct.families.task_heads import CLASSIFYING

EXPERT_TENSORS = {
    "attn.experts.q_proj": "self_attention.experts.input_linear",
    "attn.experts.o_proj": "self_attention.experts.output_linear",
    "mlp.experts.gate_proj": "mlp.input_linear",
    "mlp.experts.up_proj": "mlp.input_linear",
    "mlp.experts.down_proj": "mlp.output_linear",
}


class JetMoe(Decoder):
    """JetMoE: experts in the MLP, and in attention for the projections of queries and outputs."""

    sizes = dict(vocab=32000, hidden=2048, mlp=5632, layers=12, kv_heads=16, head_dim=128, context=4096)
    defaults = dict(tie_word_embeddings=True)
    num_attention_heads: PositiveInt | None = None  # type: ignore[assignment]  # follows from the next two
    num_experts_per_tok: PositiveInt = 2
    num_local_experts: PositiveInt = 8

    attribute_map = {"kv_channels": "head_dim", "activation_function": "hidden_act"}
    ignored_fields = "aux_loss_coef"
    task_heads = CLASSIFYING
    layer_module_names = {
        **dict.fromkeys(("attn.q_proj", "attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), ABSENT),
        "attn.router": "self_attention.experts.router.layer",
        **{f"attn.{which}_proj": "self_attention.kv_proj" for which in "kv"},
        **{f"attn.{name}": "self_attention" for name in ("scores", "values")},
        "mlp.router": "mlp.router.layer",
        **EXPERT_TENSORS,
    }
    layer_tensor_names = {
        **{f"{ours}.weight": f"{theirs}.weight" for ours, theirs in EXPERT_TENSORS.items()},
        "attn.sum.bias": "self_attention.experts.bias",
        "mlp.sum.bias": "mlp.bias",
    }
    all_layers_have_experts = True
    expert_count, expert_width = "num_local_experts", "intermediate_size"
    experts_options = dict(sum_bias=True)

    def check(self) -> None:
        self.experts()
        heads = self.num_key_value_heads * self.num_experts_per_tok
        if self.num_attention_heads not in (None, heads):
            raise ConfigError(
                f"num_attention_heads = {self.num_attention_heads:,} contradicts num_key_value_heads ·"
                f" num_experts_per_tok = {heads:,}"
            )

    def attention(self, layer: Layer, **own: Any) -> Any:
        return SentAttention(
            hidden=self.hidden_size,
            kv_heads=self.num_key_value_heads,
            group=self.num_experts_per_tok,
            head_dim=require_even(self.head_dim),
            experts=self.num_local_experts,
            rotary=self.rope(),
        )
