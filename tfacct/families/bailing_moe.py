"""Ling and Ring 2.0: GLM-4.5's block; dense layers first, then experts beside a shared network."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.parts import Attention
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Fraction, Layers, Real, Switch
from tfacct.families.glm4_moe import Config as Glm4Moe

RELEASED = "2025-09"


class Config(Glm4Moe):
    """`BailingMoeV2Config` of its own code, with its defaults, sizes too: transformers has no class for it."""

    vocab_size: Count = 157184
    hidden_size: Count = 2048
    intermediate_size: Count = 5120
    num_hidden_layers: Layers = 20
    num_attention_heads: Count = 16
    num_key_value_heads: Count = 4
    head_dim: Count = 128
    max_position_embeddings: Count = 32768
    partial_rotary_factor: Fraction = 1.0
    use_qk_norm: Switch = True
    rms_norm_eps: Real = 1e-6
    rope_theta: Real | None = 600_000.0
    moe_intermediate_size: Count = 512
    n_routed_experts: Count = 256
    moe_shared_expert_intermediate_size: Count | None = None
    use_bias: Switch = False
    in_blocks: Switch | None = None

    stems: ClassVar = ("BailingMoeV2", "Glm4Moe")
    class_type: ClassVar = "glm4_moe"
    uncounted: ClassVar = Glm4Moe.uncounted | {"moe_shared_expert_intermediate_size"}
    aliases: ClassVar = {
        **Glm4Moe.aliases,
        "num_experts": "n_routed_experts",
        "num_shared_experts": "n_shared_experts",
        "use_qkv_bias": "attention_bias",
    }
    harmless: ClassVar = Glm4Moe.harmless | frozenset(
        "use_rmsnorm score_function router_dtype moe_router_enable_expert_bias".split()
    )

    def architecture(self) -> Transformer:
        """GLM-4.5's blocks. Raises ConfigError."""
        wide = self.moe_shared_expert_intermediate_size
        if wide not in (None, self.moe_intermediate_size):
            raise self.refused("moe_shared_expert_intermediate_size", wide)
        if self.use_bias:
            raise self.refused("use_bias", True)
        return Glm4Moe.architecture(self)

    def attention(self, **own: Any) -> Attention:
        """GLM-4.5's; `in_blocks` is a field of this program and of no published config."""
        return super().attention(blocks=self.in_blocks is True, **own)

    def class_fields(self) -> Mapping[str, Any]:
        """Its fields, with their defaults, by the names of GLM-4.5."""
        return self.model_dump(include=set(Glm4Moe.model_fields), exclude_none=True)
