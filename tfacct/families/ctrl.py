"""CTRL: GPT-2's blocks with a ReLU; sines for positions, computed and not stored, and a head with a bias."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch, share
from tfacct.families._endings import BODY, CAUSAL_MODEL, SCORED
from tfacct.families.gpt2 import Config as Gpt2

RELEASED = "2019-09"

EPS = 1e-6
"""The ε of the norms in its blocks, whatever layer_norm_epsilon says."""
LAYER = {
    "attn_norm": "layernorm1",
    "attn.q_proj": "multi_head_attention.Wq",
    "attn.k_proj": "multi_head_attention.Wk",
    "attn.v_proj": "multi_head_attention.Wv",
    "attn.scores": "multi_head_attention",
    "attn.values": "multi_head_attention",
    "attn.o_proj": "multi_head_attention.dense",
    "mlp_norm": "layernorm2",
    "mlp.up_proj": "ffn.0",
    "mlp.down_proj": "ffn.2",
}


class Config(FamilyConfig):
    """`CTRLConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 246534
    n_positions: Count = 256
    n_embd: Count = 1280
    dff: Count = 8192
    n_layer: Layers = 48
    n_head: Count = 16
    tie_word_embeddings: Switch = True
    layer_norm_epsilon: Real = 1e-6

    stems: ClassVar = ("CTRL",)
    fixed: ClassVar = frozenset({"G"})  # every head has its own keys
    uncounted: ClassVar = frozenset({"layer_norm_epsilon"})
    harmless: ClassVar = frozenset({"from_tf", *Gpt2.harmless})
    aliases: ClassVar = Gpt2.aliases
    heads: ClassVar = {
        "LMHeadModel": CAUSAL_MODEL,
        "Model": BODY,
        "ForSequenceClassification": replace(SCORED, paths={"classifier": "classifier"}, gives=False),
    }
    body: ClassVar = "transformer."
    hf_paths: ClassVar = {
        "embed": "transformer.w",
        **{f"blocks.*.{ours}": f"transformer.h.*.{theirs}" for ours, theirs in LAYER.items()},
        "final_norm": "transformer.layernorm",
        "lm_head": "lm_head",
    }

    @property
    def context(self) -> int:
        """n_positions."""
        return self.n_positions

    def architecture(self) -> Transformer:
        """Equal pre-norm blocks; heads of n_embd / n_head."""
        hidden = self.n_embd
        attention = Attention(
            hidden=hidden,
            kv_heads=self.n_head,
            group=1,
            head_dim=share(hidden, self.n_head, "n_embd by n_head"),
            qkv_bias=True,
            out_bias=True,
        )
        network = FeedForward(hidden=hidden, width=self.dff, bias=True, activation="relu")
        block = Block.of(attention, network, norm=Norm(hidden=hidden, kind="layer", eps=EPS))
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden, scaled=True),
            positions=Positions(rows=self.n_positions, hidden=hidden, stored=False, halves=True, even=True),
            stacks=(Stack(block, self.n_layer),),
            final_norm=Norm(hidden=hidden, kind="layer", eps=self.layer_norm_epsilon),
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings, bias=True),
        )
