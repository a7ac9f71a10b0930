"""GPT, the first one: GPT-2's parts with the norms behind the sublayers, and none at the end."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch, Word, share
from tfacct.families._endings import BODY, CAUSAL_MODEL, SCORED, Ending
from tfacct.families.gpt2 import Config as Gpt2

RELEASED = "2018-06"

ACTIVATIONS = {"gelu": "gelu_new"}
"""Names by which the class runs another activation."""
TABLES = {"embed": "transformer.tokens_embed", "pos_embed": "transformer.positions_embed"}


class Config(FamilyConfig):
    """`OpenAIGPTConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 40478
    n_embd: Count = 768
    n_layer: Layers = 12
    n_head: Count = 12
    n_positions: Count = 512
    tie_word_embeddings: Switch = True
    afn: Word = "gelu"
    layer_norm_epsilon: Real = 1e-5

    stems: ClassVar = ("OpenAIGPT",)
    fixed: ClassVar = frozenset({"G"})  # every head has its own keys
    uncounted: ClassVar = frozenset({"afn", "layer_norm_epsilon"})
    harmless: ClassVar = Gpt2.harmless
    aliases: ClassVar = Gpt2.aliases
    heads: ClassVar[Mapping[str, Ending]] = {
        "LMHeadModel": replace(CAUSAL_MODEL, gives=False),
        "Model": replace(BODY, gives=False),
        "ForSequenceClassification": replace(SCORED, gives=False),
    }
    class_whole: ClassVar = True
    body: ClassVar = "transformer."
    inputs_first: ClassVar = ("blocks.",)
    hf_paths: ClassVar = {**{ours: their for ours, their in Gpt2.hf_paths.items() if ours != "final_norm"}, **TABLES}

    @property
    def context(self) -> int:
        """n_positions."""
        return self.n_positions

    def class_keeps(self) -> Transformer:
        """Nothing."""
        return self.transformer().mapped(
            lambda part: replace(part, keep=False) if isinstance(part, Attention) else part
        )

    def architecture(self) -> Transformer:
        """Equal post-norm blocks; heads of n_embd / n_head."""
        hidden = self.n_embd
        attention = Attention(
            hidden=hidden,
            kv_heads=self.n_head,
            group=1,
            head_dim=share(hidden, self.n_head, "n_embd by n_head"),
            qkv_bias=True,
            out_bias=True,
        )
        network = FeedForward(
            hidden=hidden, width=4 * hidden, bias=True, activation=ACTIVATIONS.get(self.afn, self.afn)
        )
        norm = Norm(hidden=hidden, kind="layer", eps=self.layer_norm_epsilon)
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            positions=Positions(rows=self.n_positions, hidden=hidden),
            stacks=(Stack(Block.of(attention, network, norm=norm, order="post"), self.n_layer),),
            final_norm=None,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )
