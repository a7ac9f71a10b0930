"""GLM-4.5: Llama's attention, half of each head rotated; dense layers first, then experts beside a shared network."""

from typing import ClassVar

from tfacct.architecture.parts import Experts, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Fraction, Layers, Real, Switch, UpTo
from tfacct.families._endings import DECODER
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, check_active
from tfacct.families._llama_like import QK_NORM_PATHS
from tfacct.families._part_rotated import PartRotated

RELEASED = "2025-07"


class Config(PartRotated):
    """`Glm4MoeConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 151552
    hidden_size: Count = 4096
    intermediate_size: Count = 10944
    num_hidden_layers: Layers = 46
    num_attention_heads: Count = 96
    num_key_value_heads: Count = 8
    max_position_embeddings: Count = 131072
    partial_rotary_factor: Fraction = 0.5
    attention_bias: Switch = False
    use_qk_norm: Switch = False
    rms_norm_eps: Real = 1e-5
    moe_intermediate_size: Count = 1408
    n_routed_experts: Count = 128
    n_shared_experts: Count = 1
    num_experts_per_tok: Count = 8
    first_k_dense_replace: UpTo = 1

    stems: ClassVar[tuple[str, ...]] = ("Glm4Moe",)
    in_files: ClassVar[tuple[tuple[str, str], ...]] = (  # of Ling, whose rooms are this one's
        (r"^model\.word_embeddings\.", "model.embed_tokens."),
        (r"\.attention\.query_key_value\.", ".self_attn.qkv_proj."),
        (r"\.attention\.dense\.", ".self_attn.o_proj."),
        (r"\.attention\.query_layernorm\.", ".self_attn.q_norm."),
        (r"\.attention\.key_layernorm\.", ".self_attn.k_norm."),
    )
    aliases: ClassVar = {"num_local_experts": "n_routed_experts"}
    harmless: ClassVar = frozenset({"n_group", "topk_group", "routed_scaling_factor"})
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        **PartRotated.hf_paths,
        **ROUTED_PATHS,
        **QK_NORM_PATHS,
        **{
            f"blocks.*.mlp.shared.{name}": f"model.layers.*.mlp.shared_experts.{name}"
            for name in ("gate_proj", "up_proj", "down_proj")
        },
    }
    hf_tensors: ClassVar = ROUTED_TENSORS

    def architecture(self) -> Transformer:
        """Dense layers in front, experts behind."""
        check_active(self.num_experts_per_tok, self.n_routed_experts, ("num_experts_per_tok", "n_routed_experts"))
        norm = QKNorm(self.rms_norm_eps) if self.use_qk_norm else None
        attention = self.attention(qkv_bias=self.attention_bias, qk_norm=norm)
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.n_routed_experts,
            active=self.num_experts_per_tok,
            width=self.moe_intermediate_size,
            shared=self.n_shared_experts * self.moe_intermediate_size,
            activation=self.activation,
        )
        dense = min(self.first_k_dense_replace, self.num_hidden_layers)
        blocks = [self.block(attention, self.feed_forward())] * dense
        return self.decoder([*blocks, *[self.block(attention, experts)] * (self.num_hidden_layers - dense)])
