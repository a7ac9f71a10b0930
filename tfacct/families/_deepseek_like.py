"""Shared by DeepSeek's families: latent attention, dense layers first, then experts beside a shared network."""

from typing import ClassVar, Literal

from pydantic import Field

from tfacct.architecture.parts import Experts, LatentAttention, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Switch, UpTo, even
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, check_active
from tfacct.families._llama_like import LlamaLike

_OWN = "blocks.*.attn."
_THEIRS = "model.layers.*.self_attn."


class DeepseekLike(LlamaLike):
    """The fields that DeepSeek-V2 and V3 spell alike.

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
    moe_intermediate_size: Count
    n_routed_experts: Count
    n_shared_experts: UpTo
    num_experts_per_tok: Count
    first_k_dense_replace: UpTo
    moe_layer_freq: Count = 1
    latent_attention: Literal["auto", "expanded", "absorbed", "unpacked"] = "auto"

    uncounted: ClassVar = LlamaLike.uncounted | {"head_dim", "num_key_value_heads", "moe_layer_freq"}
    nulls: ClassVar = {"num_key_value_heads": "num_attention_heads"}
    aliases: ClassVar = {"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"}
    harmless: ClassVar = frozenset(
        """
        n_group topk_group topk_method routed_scaling_factor scoring_func aux_loss_alpha seq_aux
        rope_interleave ep_size qk_head_dim
        """.split()
    )
    hf_tensors: ClassVar = ROUTED_TENSORS
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **ROUTED_PATHS,
        f"{_OWN}q_a_proj": f"{_THEIRS}q_a_proj",
        f"{_OWN}q_a_norm": f"{_THEIRS}q_a_layernorm",
        f"{_OWN}q_b_proj": f"{_THEIRS}q_b_proj",
        f"{_OWN}kv_a_proj": f"{_THEIRS}kv_a_proj_with_mqa",
        f"{_OWN}kv_a_norm": f"{_THEIRS}kv_a_layernorm",
        f"{_OWN}k_b_proj": f"{_THEIRS}kv_b_proj",
        f"{_OWN}v_b_proj": f"{_THEIRS}kv_b_proj",
        **{
            f"blocks.*.mlp.shared.{name}": f"model.layers.*.mlp.shared_experts.{name}"
            for name in ("gate_proj", "up_proj", "down_proj")
        },
    }
    gotchas: ClassVar[tuple[str, ...]] = (
        "latent_attention is a field of this program, never of a published config. It says how attention runs. "
        "`expanded` keeps the latent and rebuilds the keys and values of all tokens in every step, as transformers "
        "does. `absorbed` keeps the latent and computes in its space, as engines do in decode steps. `auto` (default) "
        "is whichever of these two takes fewer FLOPs in the step asked about. `unpacked` keeps the keys and values of "
        "all heads. The parameters are the same in every form.",
        "A null q_lora_rank means queries without a latent, as in V2-Lite; an absent one means 1,536.",
        "head_dim and num_key_value_heads change nothing. The class sets head_dim itself; a num_key_value_heads other "
        "than num_attention_heads is refused.",
        "attention_bias applies to q_a_proj, kv_a_proj and o_proj only.",
        "The class stores k_b_proj and v_b_proj as one matrix, `kv_b_proj`, and the shared experts as one network, as "
        "wide as n_shared_experts experts.",
        "A moe_layer_freq other than 1 is refused.",
    )

    def class_cannot(self) -> str | None:
        """Reason why the class cannot be asked: it runs latent attention in one way."""
        if self.latent_attention not in ("auto", "expanded"):
            return "it runs latent_attention = expanded only"
        return None

    @property
    def biased_networks(self) -> bool:
        """True if dense and shared networks have biases."""
        return False

    def architecture(self) -> Transformer:
        """The first first_k_dense_replace layers are dense; a shared network as wide as n_shared_experts experts."""
        check_active(self.num_experts_per_tok, self.n_routed_experts, ("num_experts_per_tok", "n_routed_experts"))
        if self.moe_layer_freq != 1:
            raise self.refused("moe_layer_freq", self.moe_layer_freq)
        if self.num_key_value_heads != self.num_attention_heads:
            raise ConfigError(
                f"num_key_value_heads = {self.num_key_value_heads:,}, but with a latent every head has keys of its"
                f" own: num_attention_heads = {self.num_attention_heads:,}"
            )
        if self.biased_networks and not self.n_shared_experts:
            raise ConfigError("mlp_bias = true with n_shared_experts = 0: biases on a network of width 0")
        attention = LatentAttention(
            hidden=self.hidden_size,
            heads=self.num_attention_heads,
            kv_rank=self.kv_lora_rank,
            nope_dim=self.qk_nope_head_dim,
            rope_dim=even(self.qk_rope_head_dim, "qk_rope_head_dim"),
            value_dim=self.v_head_dim,
            q_rank=self.q_lora_rank,
            bias=self.attention_bias,
            rotary=Rotary(self.rotary().base, self.rotary().scaling, "neighbours"),
            form=self.latent_attention,
        )
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.n_routed_experts,
            active=self.num_experts_per_tok,
            width=self.moe_intermediate_size,
            shared=self.n_shared_experts * self.moe_intermediate_size or None,
            shared_bias=self.biased_networks,
            activation=self.activation,
        )
        dense = min(self.first_k_dense_replace, self.num_hidden_layers)
        blocks = [self.block(attention, self.feed_forward(bias=self.biased_networks))] * dense
        return self.decoder([*blocks, *[self.block(attention, experts)] * (self.num_hidden_layers - dense)])
