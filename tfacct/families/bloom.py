"""BLOOM: ALiBi instead of positions; a norm after the token table; q, k and v in one matrix."""

from typing import ClassVar

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch, share
from tfacct.families._endings import CLASSIFYING, TOKENS_CLASSIFIED

RELEASED = "2022-07"


class Config(FamilyConfig):
    """`BloomConfig`, with its class's defaults. The head is tied unless the config says otherwise."""

    vocab_size: Count
    hidden_size: Count
    n_layer: Layers
    n_head: Count
    seq_length: Count = 2048
    tie_word_embeddings: Switch = True
    layer_norm_epsilon: Real = 1e-5

    dropouts: ClassVar = {"residual": ("hidden_dropout", 0.0), "attention": ("attention_dropout", 0.0)}
    stems: ClassVar = ("Bloom",)
    fixed: ClassVar = frozenset({"G"})  # every head has its own keys
    uncounted: ClassVar = frozenset({"layer_norm_epsilon"})
    harmless: ClassVar = frozenset(
        """
        offset_alibi slow_but_exact attention_softmax_in_fp32 masked_softmax_fusion
        skip_bias_add skip_bias_add_qkv apply_residual_connection_post_layernorm n_inner
        """.split()
    )
    aliases: ClassVar = {
        "n_embed": "hidden_size",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
    }
    heads: ClassVar = {**CLASSIFYING, "ForTokenClassification": TOKENS_CLASSIFIED}
    body: ClassVar = "transformer."
    hf_paths: ClassVar = {
        "embed": "transformer.word_embeddings",
        "embed_norm": "transformer.word_embeddings_layernorm",
        "blocks.*.attn_norm": "transformer.h.*.input_layernorm",
        "blocks.*.attn.q_proj": "transformer.h.*.self_attention.query_key_value",
        "blocks.*.attn.k_proj": "transformer.h.*.self_attention.query_key_value",
        "blocks.*.attn.v_proj": "transformer.h.*.self_attention.query_key_value",
        "blocks.*.attn.scores": "transformer.h.*.self_attention",
        "blocks.*.attn.values": "transformer.h.*.self_attention",
        "blocks.*.attn.o_proj": "transformer.h.*.self_attention.dense",
        "blocks.*.mlp_norm": "transformer.h.*.post_attention_layernorm",
        "blocks.*.mlp.up_proj": "transformer.h.*.mlp.dense_h_to_4h",
        "blocks.*.mlp.down_proj": "transformer.h.*.mlp.dense_4h_to_h",
        "final_norm": "transformer.ln_f",
        "lm_head": "lm_head",
    }

    @property
    def context(self) -> int:
        """seq_length, the context it was trained with: ALiBi does not limit it."""
        return self.seq_length

    def architecture(self) -> Transformer:
        """Equal pre-norm blocks with biases; the network is four times as wide as the model."""
        hidden = self.hidden_size
        attention = Attention(
            hidden=hidden,
            kv_heads=self.n_head,
            group=1,
            head_dim=share(hidden, self.n_head, "hidden_size by n_head"),
            qkv_bias=True,
            out_bias=True,
            alibi=True,
        )
        norm = Norm(hidden=hidden, kind="layer", eps=self.layer_norm_epsilon)
        network = FeedForward(hidden=hidden, width=4 * hidden, bias=True, activation="gelu_pytorch_tanh")
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            embed_norm=norm,
            stacks=stacks([Block.of(attention, network, norm=norm)] * self.n_layer),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )
