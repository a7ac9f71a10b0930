"""GPT-NeoX and Pythia: attention and network side by side, each with its own norm; q, k and v in one matrix."""

from typing import ClassVar

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import (
    Count,
    FamilyConfig,
    Fields,
    Fraction,
    Layers,
    Real,
    Switch,
    Word,
    even,
    rotary,
    share,
    turned_part,
)
from tfacct.families._endings import CLASSIFYING, TOKENS_CLASSIFIED

RELEASED = "2022-04"


class Config(FamilyConfig):
    """`GPTNeoXConfig`, with its class's defaults."""

    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: Layers
    num_attention_heads: Count
    intermediate_size: Count = 24576
    max_position_embeddings: Count = 2048
    attention_bias: Switch = True
    use_parallel_residual: Switch = True
    tie_word_embeddings: Switch = False
    hidden_act: Word = "gelu"
    layer_norm_eps: Real = 1e-5
    rotary_pct: Fraction = 0.25
    rotary_emb_base: Real | None = None
    rope_theta: Real | None = None
    rope_scaling: Fields | None = None
    rope_parameters: Fields | None = None

    dropouts: ClassVar = {
        "embedding": ("hidden_dropout", 0.0),
        "residual": ("hidden_dropout", 0.0),
        "attention": ("attention_dropout", 0.0),
    }
    stems: ClassVar = ("GPTNeoX",)
    in_files: ClassVar = ((r"^embed_out\.", "lm_head."),)
    fixed: ClassVar = frozenset({"G"})  # every head has its own keys
    uncounted: ClassVar = frozenset(
        """
        hidden_act layer_norm_eps rotary_pct rotary_emb_base rope_theta rope_scaling rope_parameters
        use_parallel_residual
        """.split()
    )
    heads: ClassVar = {**CLASSIFYING, "ForTokenClassification": TOKENS_CLASSIFIED}
    body: ClassVar = "gpt_neox."
    hf_paths: ClassVar = {
        "embed": "gpt_neox.embed_in",
        "blocks.*.attn_norm": "gpt_neox.layers.*.input_layernorm",
        "blocks.*.attn.q_proj": "gpt_neox.layers.*.attention.query_key_value",
        "blocks.*.attn.k_proj": "gpt_neox.layers.*.attention.query_key_value",
        "blocks.*.attn.v_proj": "gpt_neox.layers.*.attention.query_key_value",
        "blocks.*.attn.scores": "gpt_neox.layers.*.attention",
        "blocks.*.attn.values": "gpt_neox.layers.*.attention",
        "blocks.*.attn.o_proj": "gpt_neox.layers.*.attention.dense",
        "blocks.*.mlp_norm": "gpt_neox.layers.*.post_attention_layernorm",
        "blocks.*.mlp.up_proj": "gpt_neox.layers.*.mlp.dense_h_to_4h",
        "blocks.*.mlp.down_proj": "gpt_neox.layers.*.mlp.dense_4h_to_h",
        "final_norm": "gpt_neox.final_layer_norm",
        "lm_head": "lm_head",
    }

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    def architecture(self) -> Transformer:
        """Parallel, or one after the other where use_parallel_residual is false."""
        hidden, heads = self.hidden_size, self.num_attention_heads
        head_dim = share(hidden, heads, "hidden_size by num_attention_heads")
        attention = Attention(
            hidden=hidden,
            kv_heads=heads,
            group=1,
            head_dim=head_dim,
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            rotary=rotary(self.rope_theta or self.rotary_emb_base, self.rope_scaling, self.rope_parameters),
            rope_dim=even(
                int(head_dim * turned_part(self.rotary_pct, self.rope_parameters)), "rotary_pct · head_dim ="
            ),
        )
        norm = Norm(hidden=hidden, kind="layer", eps=self.layer_norm_eps)
        network = FeedForward(hidden=hidden, width=self.intermediate_size, bias=True, activation=self.hidden_act)
        block = Block.of(attention, network, norm=norm, order="parallel" if self.use_parallel_residual else "pre")
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            stacks=stacks([block] * self.num_hidden_layers),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )
