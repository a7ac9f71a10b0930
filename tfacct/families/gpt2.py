"""GPT-2: LayerNorm, learned positions, multi-head attention, biases everywhere, a tied head."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch, Word, share
from tfacct.families._endings import CAUSAL_MODEL, CLASSIFYING, TOKENS_CLASSIFIED

RELEASED = "2019-02"


class Config(FamilyConfig):
    """`GPT2Config`, with its class's defaults."""

    vocab_size: Count
    n_embd: Count
    n_layer: Layers
    n_head: Count
    n_positions: Count = 1024
    n_inner: Count = Field(default_factory=lambda fields: 4 * fields["n_embd"])
    tie_word_embeddings: Switch = True
    activation_function: Word = "gelu_new"
    layer_norm_epsilon: Real = 1e-5

    stems: ClassVar = ("GPT2",)
    fixed: ClassVar = frozenset({"G"})  # every head has its own keys
    uncounted: ClassVar = frozenset({"activation_function", "layer_norm_epsilon"})
    harmless: ClassVar = frozenset(
        """
        n_ctx scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn
        apply_query_key_layer_scaling normalize_attention_scores
        summary_activation summary_proj_to_labels summary_type summary_use_proj
        """.split()
    )
    dropouts: ClassVar = {
        "embedding": ("embd_pdrop", 0.1),
        "residual": ("resid_pdrop", 0.1),
        "attention": ("attn_pdrop", 0.1),
    }
    aliases: ClassVar = {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
    }
    heads: ClassVar = {"LMHeadModel": CAUSAL_MODEL, **CLASSIFYING, "ForTokenClassification": TOKENS_CLASSIFIED}
    body: ClassVar = "transformer."
    inputs_first: ClassVar = ("blocks.",)
    hf_paths: ClassVar = {
        "embed": "transformer.wte",
        "pos_embed": "transformer.wpe",
        "blocks.*.attn_norm": "transformer.h.*.ln_1",
        "blocks.*.attn.q_proj": "transformer.h.*.attn.c_attn",
        "blocks.*.attn.k_proj": "transformer.h.*.attn.c_attn",
        "blocks.*.attn.v_proj": "transformer.h.*.attn.c_attn",
        "blocks.*.attn.scores": "transformer.h.*.attn",
        "blocks.*.attn.values": "transformer.h.*.attn",
        "blocks.*.attn.o_proj": "transformer.h.*.attn.c_proj",
        "blocks.*.mlp_norm": "transformer.h.*.ln_2",
        "blocks.*.mlp.up_proj": "transformer.h.*.mlp.c_fc",
        "blocks.*.mlp.down_proj": "transformer.h.*.mlp.c_proj",
        "final_norm": "transformer.ln_f",
        "lm_head": "lm_head",
    }

    @property
    def context(self) -> int:
        """n_positions."""
        return self.n_positions

    def architecture(self) -> Transformer:
        """Equal pre-norm blocks; heads of n_embd / n_head."""
        hidden = self.n_embd
        norm = Norm(hidden=hidden, kind="layer", eps=self.layer_norm_epsilon)
        attn = Attention(
            hidden=hidden,
            kv_heads=self.n_head,
            group=1,
            head_dim=share(hidden, self.n_head, "n_embd by n_head"),
            qkv_bias=True,
            out_bias=True,
        )
        mlp = FeedForward(hidden=hidden, width=self.n_inner, bias=True, activation=self.activation_function)
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            positions=Positions(rows=self.n_positions, hidden=hidden),
            stacks=(Stack(Block.of(attn, mlp, norm=norm), self.n_layer),),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )
