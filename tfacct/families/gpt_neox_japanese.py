"""GPT-NeoX Japanese: one sublayer after the other, without biases; only the last block's attention has one."""

from dataclasses import replace
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
from tfacct.families._endings import DECODER
from tfacct.families.gpt_neox import Config as GptNeox

RELEASED = "2022-09"

BODY_AT = "gpt_neox_japanese."


class Config(FamilyConfig):
    """`GPTNeoXJapaneseConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 32000
    hidden_size: Count = 2560
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    intermediate_multiple_size: Count = 4
    max_position_embeddings: Count = 2048
    tie_word_embeddings: Switch = True
    hidden_act: Word = "gelu"
    layer_norm_eps: Real = 1e-5
    rotary_pct: Fraction = 1.0
    rotary_emb_base: Real | None = None
    rope_theta: Real | None = None
    rope_scaling: Fields | None = None
    rope_parameters: Fields | None = None

    stems: ClassVar = ("GPTNeoXJapanese",)
    fixed: ClassVar = frozenset({"G"})  # every head has its own keys
    uncounted: ClassVar = GptNeox.uncounted - {"use_parallel_residual"}
    heads: ClassVar = DECODER
    body: ClassVar = BODY_AT
    hf_paths: ClassVar = {
        ours: theirs.replace("gpt_neox.", BODY_AT).replace("lm_head", "embed_out")
        for ours, theirs in GptNeox.hf_paths.items()
    }
    hf_tensors: ClassVar = {"blocks.*.attn.o_proj.bias": f"{BODY_AT}layers.*.attention.dense_bias"}

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    def architecture(self) -> Transformer:
        """Pre-norm blocks, of which the last has a bias."""
        hidden, heads = self.hidden_size, self.num_attention_heads
        head_dim = share(hidden, heads, "hidden_size by num_attention_heads")
        turned = int(head_dim * turned_part(self.rotary_pct, self.rope_parameters))
        attention = Attention(
            hidden=hidden,
            kv_heads=heads,
            group=1,
            head_dim=head_dim,
            rotary=rotary(self.rope_theta or self.rotary_emb_base, self.rope_scaling, self.rope_parameters),
            rope_dim=even(turned, "rotary_pct · head_dim ="),
        )
        norm = Norm(hidden=hidden, kind="layer", eps=self.layer_norm_eps)
        network = FeedForward(hidden=hidden, width=self.intermediate_multiple_size * hidden, activation=self.hidden_act)
        blocks = [Block.of(replace(attention, out_bias=biased), network, norm=norm) for biased in (False, True)]
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            stacks=stacks([blocks[0]] * (self.num_hidden_layers - 1) + [blocks[1]]),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )
