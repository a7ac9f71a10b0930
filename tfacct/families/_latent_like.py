"""Shared by the families with latent attention: its sizes, and the form in which it runs."""

from typing import ClassVar, Literal

from pydantic import Field

from tfacct.architecture.parts import LatentAttention, Rotary
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Switch, even
from tfacct.families._llama_like import LlamaLike

_OWN = "blocks.*.attn."
_THEIRS = "model.layers.*.self_attn."


class LatentLike(LlamaLike):
    """The fields of latent attention.

    `latent_attention` is a field of this program, not of published configs: how attention is run. `expanded` is what
    transformers does, `absorbed` what engines do when they decode, `auto` whichever of the two takes fewer FLOPs in a
    step, `unpacked` keeps the keys and values of all heads.
    """

    head_dim: Count | None = None  # type: ignore[assignment]
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    attention_bias: Switch = False
    q_lora_rank: Count | None = 1536
    kv_lora_rank: Count = 512
    qk_nope_head_dim: Count = 128
    qk_rope_head_dim: Count = 64
    v_head_dim: Count = 128
    latent_attention: Literal["auto", "expanded", "absorbed", "unpacked"] = "auto"

    uncounted: ClassVar = LlamaLike.uncounted | {"head_dim", "num_key_value_heads"}
    nulls: ClassVar = {"num_key_value_heads": "num_attention_heads"}
    sums: ClassVar = {"qk_head_dim": ("qk_nope_head_dim", "qk_rope_head_dim")}
    harmless: ClassVar = frozenset({"rope_interleave"})
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        f"{_OWN}q_a_proj": f"{_THEIRS}q_a_proj",
        f"{_OWN}q_a_norm": f"{_THEIRS}q_a_layernorm",
        f"{_OWN}q_b_proj": f"{_THEIRS}q_b_proj",
        f"{_OWN}kv_a_proj": f"{_THEIRS}kv_a_proj_with_mqa",
        f"{_OWN}kv_a_norm": f"{_THEIRS}kv_a_layernorm",
        f"{_OWN}k_b_proj": f"{_THEIRS}kv_b_proj",
        f"{_OWN}v_b_proj": f"{_THEIRS}kv_b_proj",
    }

    def class_cannot(self) -> str | None:
        """Reason why the class cannot be asked: it runs latent attention in one way."""
        if self.latent_attention not in ("auto", "expanded"):
            return "it runs latent_attention = expanded only"
        return None

    def latent(self) -> LatentAttention:
        """Latent attention. Raises ConfigError where heads would share keys."""
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
            rope_dim=even(self.qk_rope_head_dim, "qk_rope_head_dim") if self.qk_rope_head_dim else None,
            value_dim=self.v_head_dim,
            q_rank=self.q_lora_rank,
            bias=self.attention_bias,
            rotary=Rotary(self.rotary().base, self.rotary().scaling, "neighbours"),
            form=self.latent_attention,
        )
