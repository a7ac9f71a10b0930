"""gpt-oss: every other layer has a window; learned sinks, biases everywhere, experts in every layer."""

from typing import ClassVar

from tfacct.architecture.parts import Experts
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Real, Switch
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, check_active
from tfacct.families._layers import LayerTypes, windows
from tfacct.families._llama_like import LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2025-08"


class Biased(LlamaLike):
    """Experts with biases in every layer, which the privacy filter has too."""

    num_local_experts: Count = 128
    num_experts_per_tok: Count = 4

    def experts(self) -> Experts:
        """They are as wide as intermediate_size says. Raises ConfigError."""
        check_active(self.num_experts_per_tok, self.num_local_experts, ("num_experts_per_tok", "num_local_experts"))
        return Experts(
            hidden=self.hidden_size,
            experts=self.num_local_experts,
            active=self.num_experts_per_tok,
            width=self.intermediate_size,
            bias=True,
            activation=self.activation,
        )


class Config(Biased):
    """`GptOssConfig`, with its class's defaults. intermediate_size is the width of one expert."""

    intermediate_size: Count = 2880
    num_key_value_heads: Count = 8
    head_dim: Count = 64
    max_position_embeddings: Count = 131072
    sliding_window: Window | None = 128
    layer_types: LayerTypes | None = None
    attention_bias: Switch = True
    rms_norm_eps: Real = 1e-5
    rope_theta: Real | None = 150_000.0

    stems: ClassVar = ("GptOss",)
    aliases: ClassVar = {"num_experts": "num_local_experts", "experts_per_token": "num_experts_per_tok"}
    harmless: ClassVar = frozenset(
        """
        initial_context_length swiglu_limit swiglu_alpha
        """.split()
    )
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **ROUTED_PATHS,
        "blocks.*.mlp.router": "model.layers.*.mlp.router",
        "blocks.*.attn.sinks": "model.layers.*.self_attn",
    }
    inputs_first: ClassVar = ("blocks.*.mlp.experts.",)
    hf_tensors: ClassVar = {
        **ROUTED_TENSORS,
        "blocks.*.mlp.experts.gate_proj.bias": "model.layers.*.mlp.experts.gate_up_proj_bias",
        "blocks.*.mlp.experts.up_proj.bias": "model.layers.*.mlp.experts.gate_up_proj_bias",
        "blocks.*.mlp.experts.down_proj.bias": "model.layers.*.mlp.experts.down_proj_bias",
        "blocks.*.attn.sinks.weight": "model.layers.*.self_attn.sinks",
    }

    def architecture(self) -> Transformer:
        """Biases on the router and the experts, and where attention_bias says so on all four projections."""
        experts = self.experts()
        own = {"qkv_bias": self.attention_bias, "out_bias": self.attention_bias, "sinks": True}
        per_layer = windows(
            self.layer_types, self.num_hidden_layers, self.sliding_window, lambda number: number % 2 == 0
        )
        kinds = {
            window: self.block(self.attention(window=window, **own), experts) for window in dict.fromkeys(per_layer)
        }
        return self.decoder([kinds[window] for window in per_layer])
