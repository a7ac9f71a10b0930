"""Phi-3.5-MoE: Mixtral's block, with LayerNorms and biases on demand."""

from typing import ClassVar

from tfacct.architecture.parts import Experts, Head, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Layers, Real, Switch
from tfacct.families._endings import CLASSIFYING
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, check_active
from tfacct.families._llama_like import LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2024-08"


class Config(LlamaLike):
    """`PhimoeConfig`, with its class's defaults, sizes too. intermediate_size is the width of one expert."""

    vocab_size: Count = 32064
    hidden_size: Count = 4096
    intermediate_size: Count = 6400
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 8
    max_position_embeddings: Count = 131072
    sliding_window: Window | None = None
    attention_bias: Switch = False
    lm_head_bias: Switch = False
    rms_norm_eps: Real = 1e-5
    rope_theta: Real | None = 1_000_000.0
    num_local_experts: Count = 16
    num_experts_per_tok: Count = 2

    fixed: ClassVar = frozenset({"A"})  # the class picks two experts
    stems: ClassVar = ("Phimoe", "PhiMoE")  # the published files write PhiMoE
    in_files: ClassVar = ((r"\.(block_sparse_moe|mlp)\.gate\.", ".mlp.router."),)
    heads: ClassVar = CLASSIFYING
    aliases: ClassVar = {"num_experts": "num_local_experts"}
    harmless: ClassVar = frozenset({"input_jitter_noise"})
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **ROUTED_PATHS,
        "blocks.*.mlp.router": "model.layers.*.mlp.router",
    }
    hf_tensors: ClassVar = ROUTED_TENSORS

    def norm(self) -> Norm:
        """LayerNorm over the hidden size."""
        return Norm(hidden=self.hidden_size, kind="layer", eps=self.rms_norm_eps)

    def architecture(self) -> Transformer:
        """The window, where there is one, in every layer."""
        if self.num_experts_per_tok != 2:
            raise ConfigError(
                f"num_experts_per_tok = {self.num_experts_per_tok:,}, but the class sends a token to 2 experts"
            )
        check_active(self.num_experts_per_tok, self.num_local_experts, ("num_experts_per_tok", "num_local_experts"))
        biased = {"qkv_bias": self.attention_bias, "out_bias": self.attention_bias}
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.num_local_experts,
            active=self.num_experts_per_tok,
            width=self.intermediate_size,
            activation=self.activation,
        )
        head = Head(
            hidden=self.hidden_size, vocab=self.vocab_size, tied=self.tie_word_embeddings, bias=self.lm_head_bias
        )
        block = self.block(self.attention(window=self.sliding_window, **biased), experts)
        return self.decoder(self.equal_blocks(block), head=head)
