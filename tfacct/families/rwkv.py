"""RWKV-4: no attention; weighted means of all tokens so far, and networks that see the token before."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import ChannelMix, Embedding, Head, Norm, TimeMix
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch
from tfacct.families._endings import DECODER
from tfacct.ledger.paths import starred
from tfacct.ledger.workload import Workload

RELEASED = "2023-05"

FINAL_EPS = 1e-5
"""Epsilon of the last norm, which the class builds without that of its config."""
MIXER, NETWORK = "rwkv.blocks.*.attention", "rwkv.blocks.*.feed_forward"


class Config(FamilyConfig):
    """`RwkvConfig`, with its class's defaults."""

    vocab_size: Count = 50277
    context_length: Count = 1024
    hidden_size: Count = 4096
    num_hidden_layers: Layers = 32
    attention_hidden_size: Count = Field(default_factory=lambda fields: fields["hidden_size"])
    intermediate_size: Count = Field(default_factory=lambda fields: 4 * fields["hidden_size"])
    tie_word_embeddings: Switch = False
    layer_norm_epsilon: Real = 1e-5

    stems: ClassVar = ("Rwkv",)
    uncounted: ClassVar = frozenset({"layer_norm_epsilon"})
    fixed: ClassVar = frozenset({"Sw"})
    harmless: ClassVar = frozenset({"rescale_every"})
    aliases: ClassVar = {"max_position_embeddings": "context_length"}
    heads: ClassVar = DECODER
    body: ClassVar = "rwkv."
    hf_paths: ClassVar = {
        "embed": "rwkv.embeddings",
        "embed_norm": "rwkv.blocks.0.pre_ln",
        "blocks.*.time_mix_norm": "rwkv.blocks.*.ln1",
        "blocks.*.time_mix.k_proj": f"{MIXER}.key",
        "blocks.*.time_mix.v_proj": f"{MIXER}.value",
        "blocks.*.time_mix.r_proj": f"{MIXER}.receptance",
        "blocks.*.time_mix.o_proj": f"{MIXER}.output",
        "blocks.*.channel_mix_norm": "rwkv.blocks.*.ln2",
        "blocks.*.channel_mix.up_proj": f"{NETWORK}.key",
        "blocks.*.channel_mix.down_proj": f"{NETWORK}.value",
        "blocks.*.channel_mix.r_proj": f"{NETWORK}.receptance",
        "final_norm": "rwkv.ln_out",
        "lm_head": "head",
    }
    hf_tensors: ClassVar = {
        "blocks.*.time_mix.k_mix.weight": f"{MIXER}.time_mix_key",
        "blocks.*.time_mix.v_mix.weight": f"{MIXER}.time_mix_value",
        "blocks.*.time_mix.r_mix.weight": f"{MIXER}.time_mix_receptance",
        "blocks.*.time_mix.recurrence.weight": f"{MIXER}.time_decay",
        "blocks.*.time_mix.mean.weight": f"{MIXER}.time_first",
        "blocks.*.channel_mix.k_mix.weight": f"{NETWORK}.time_mix_key",
        "blocks.*.channel_mix.r_mix.weight": f"{NETWORK}.time_mix_receptance",
    }
    class_extra: ClassVar = (
        "in a step of one token for each sequence, it mixes that of each with the tokens before of all of them, and so "
        "runs every product once for each pair of sequences"
    )

    @property
    def context(self) -> int:
        """context_length: what the model was trained with. The recurrence sets no end."""
        return self.context_length

    def architecture(self) -> Transformer:
        """Equal blocks of two halves, each behind a LayerNorm; one more LayerNorm behind the table."""
        hidden = self.hidden_size
        norm = Norm(hidden=hidden, kind="layer", eps=self.layer_norm_epsilon)
        halves = (
            TimeMix(hidden=hidden, inner=self.attention_hidden_size),
            ChannelMix(hidden=hidden, width=self.intermediate_size),
        )
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            embed_norm=norm,
            stacks=stacks([Block.of(*halves, norm=norm)] * self.num_hidden_layers),
            final_norm=Norm(hidden=hidden, kind="layer", eps=FINAL_EPS),
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )

    def class_cannot(self) -> str | None:
        """Its states have hidden_size channels, whatever its recurrence has, and it divides by layers and channels less
        1 when it is built."""
        if self.attention_hidden_size != self.hidden_size:
            return "it does not run where attention_hidden_size is not hidden_size"
        if 1 in (self.num_hidden_layers, self.attention_hidden_size):
            return "it cannot be built with one layer or with one channel"
        return None

    def class_adds(self, work: Workload) -> Mapping[str, int]:
        """One new token of several sequences: the class runs that of each for every other one too."""
        if work.tokens > 1 or work.batch == 1:
            return {}
        counted = self.transformer().ledger().flops(replace(work, logits="all").axes(), unfolded=True)
        return {starred(path): flops * (work.batch - 1) for path, flops in counted.items()}
