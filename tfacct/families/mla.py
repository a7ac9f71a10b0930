"""What DeepSeek's models brought: multi-head latent attention (MLA), and experts with a shared expert."""

from typing import Any, ClassVar, Literal

from tfacct.architecture.parts import LatentAttention
from tfacct.base.errors import ConfigError
from tfacct.families.decoder import Decoder, Layer, SharedExperts
from tfacct.families.family import SAME_AS_QUERY_HEADS
from tfacct.families.fields import PositiveInt, StrictBool, require_even


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
    ignored_fields = "rope_interleave"
    rope_pairs: ClassVar[Literal["halves", "neighbours"]] = "neighbours"
    sums = {"qk_head_dim": ("qk_nope_head_dim", "qk_rope_head_dim")}
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
        how: dict[str, Any] = {
            "heads": self.num_attention_heads,
            "kv_rank": self.kv_lora_rank,
            "nope_dim": self.qk_nope_head_dim,
            "rope_dim": require_even(self.qk_rope_head_dim, "qk_rope_head_dim") if self.qk_rope_head_dim else None,
            "value_dim": self.v_head_dim,
            "q_rank": self.q_lora_rank,
            "bias": self.attention_bias,
            "rotary": self.rope(),
            "form": self.latent_attention,
        }
        return LatentAttention(hidden=self.hidden_size, **{**how, **self.options("attention", **own)})


class DeepseekExperts(SharedExperts):
    """Experts under DeepSeek's names. How its router chooses them changes no count."""

    attribute_map = {"num_local_experts": "n_routed_experts"}
    ignored_fields = "topk_method scoring_func aux_loss_alpha seq_aux ep_size"
