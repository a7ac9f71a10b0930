"""DiffLlama."""

from typing import Any

from tfacct.architecture.parts import DifferentialAttention
from tfacct.base.errors import ConfigError
from tfacct.families.decoder import Decoder, Layer
from tfacct.families.family import SAME_AS_QUERY_HEADS
from tfacct.families.fields import StrictBool


class DiffLlama(Decoder):
    """DiffLlama: Llama's block with differential attention, which subtracts the result of one head from another's."""

    sizes = dict(vocab=32000, hidden=2048, mlp=8192, layers=16, heads=32, kv_heads=SAME_AS_QUERY_HEADS, context=2048)
    defaults = dict(rms_norm_eps=1e-5)
    attention_bias: StrictBool = False
    ignored_fields = "lambda_std_dev"
    layer_module_names = {"attn.second_scores": "self_attn", "attn.second_values": "self_attn"}
    layer_tensor_names = {
        f"attn.{which}_lambda.{ours}": f"self_attn.lambda_{theirs}{number}"
        for number, which in ((1, "first"), (2, "second"))
        for ours, theirs in (("weight", "q"), ("bias", "k"))
    }

    def attention(self, layer: Layer, **own: Any) -> Any:
        kv_heads, biased = self.num_key_value_heads, self.attention_bias
        if kv_heads % 2:
            raise ConfigError(f"num_key_value_heads = {kv_heads:,} must be even: values are halved between them")
        how: dict[str, Any] = {**self.head_sizes(layer), "qkv_bias": biased, "out_bias": biased}
        return DifferentialAttention(hidden=self.hidden_size, rotary=self.rope(), eps=self.rms_norm_eps, **how)
