"""Ling and Ring 2.5: lightning attention in most layers, latent attention in every layer_group_size-th."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import LatentAttention
from tfacct.families._base import Count
from tfacct.families._deepseek_like import DeepseekLike
from tfacct.families._latent_like import LatentLike
from tfacct.families._ling_like import LingLike

RELEASED = "2026-02"


class Config(LingLike, LatentLike):
    """`BailingMoeV2_5Config` of its own code, with its defaults: transformers has no class for it."""

    head_dim: Count = 128
    num_key_value_heads: Count = 4
    q_lora_rank: Count | None = None

    stems: ClassVar = ("BailingMoeV2_5", "DeepseekV3")
    class_type: ClassVar = "deepseek_v3"
    hf_paths: ClassVar = DeepseekLike.hf_paths
    hf_tensors: ClassVar = DeepseekLike.hf_tensors
    uncounted: ClassVar = LingLike.uncounted | {"num_key_value_heads", "attention_bias"}
    nulls: ClassVar = {}
    harmless: ClassVar = LingLike.harmless | LatentLike.harmless

    def class_cannot(self) -> str | None:
        """Reason why the class cannot be asked."""
        return LingLike.class_cannot(self) or LatentLike.class_cannot(self)

    def class_fields(self) -> Mapping[str, Any]:
        """Its fields by the class's names; heads have keys of their own, and its head_dim is no size."""
        own = {name: value for name, value in LingLike.class_fields(self).items() if name != "head_dim"}
        heads = {"num_key_value_heads": self.num_attention_heads, "q_lora_rank": self.q_lora_rank}
        return {**own, **heads, "partial_rotary_factor": 1.0, "head_dim": self.qk_rope_head_dim}

    def attending(self) -> LatentAttention:
        """Latent attention, whose heads have keys of their own, whatever num_key_value_heads says."""
        if self.attention_bias:
            raise self.refused("attention_bias", True)
        own = self.model_copy(update={"num_key_value_heads": self.num_attention_heads})
        return replace(LatentLike.latent(own), bias=self.use_qkv_bias)
