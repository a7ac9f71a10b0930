"""RWKV-4."""

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter

from pydantic import Field

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import ChannelMix, Embedding, Head, Norm, TimeMix
from tfacct.architecture.transformer import Transformer
from tfacct.families.family import Family
from tfacct.families.fields import LayerCount, PositiveFloat, PositiveInt, StrictBool
from tfacct.families.task_heads import DECODER
from tfacct.ledger.paths import starred
from tfacct.ledger.workload import Workload


class Rwkv(Family):
    """RWKV-4: no attention; weighted means of all tokens so far, and MLPs that also read the token before."""

    vocab_size: PositiveInt = 50277
    context_length: PositiveInt = 1024
    hidden_size: PositiveInt = 4096
    num_hidden_layers: LayerCount = 32
    attention_hidden_size: PositiveInt = Field(default_factory=lambda fields: fields["hidden_size"])
    intermediate_size: PositiveInt = Field(default_factory=lambda fields: 4 * fields["hidden_size"])
    tie_word_embeddings: StrictBool = False
    layer_norm_epsilon: PositiveFloat = 1e-5

    attribute_map = {"max_position_embeddings": "context_length"}
    ignored_fields = "rescale_every"
    constant_axes = frozenset({"Sw"})
    task_heads = DECODER
    base_model_prefix = "rwkv"
    layer_path = "rwkv.blocks.*"
    module_names = {
        "embed": "rwkv.embeddings",
        "embed_norm": "rwkv.blocks.0.pre_ln",
        "final_norm": "rwkv.ln_out",
        "lm_head": "head",
    }
    layer_module_names = {
        "time_mix_norm": "ln1",
        **{
            f"time_mix.{ours}_proj": f"attention.{theirs}"
            for ours, theirs in {"k": "key", "v": "value", "r": "receptance", "o": "output"}.items()
        },
        "channel_mix_norm": "ln2",
        **{
            f"channel_mix.{ours}_proj": f"feed_forward.{theirs}"
            for ours, theirs in {"up": "key", "down": "value", "r": "receptance"}.items()
        },
    }
    layer_tensor_names = {
        "time_mix.k_mix.weight": "attention.time_mix_key",
        "time_mix.v_mix.weight": "attention.time_mix_value",
        "time_mix.r_mix.weight": "attention.time_mix_receptance",
        "time_mix.recurrence.weight": "attention.time_decay",
        "time_mix.mean.weight": "attention.time_first",
        "channel_mix.k_mix.weight": "feed_forward.time_mix_key",
        "channel_mix.r_mix.weight": "feed_forward.time_mix_receptance",
    }
    hf_extra_note = (
        "in a step of one token for each sequence, it mixes that of each with the tokens before of all of them, and so "
        "runs every product once for each pair of sequences"
    )
    context = property(attrgetter("context_length"))

    def architecture(self) -> Transformer:
        """Equal layers; LayerNorms also after the embedding and before the head."""
        hidden = self.hidden_size
        norm = Norm(hidden=hidden, kind="layer", eps=self.layer_norm_epsilon)
        time_mix = TimeMix(hidden=hidden, inner=self.attention_hidden_size)
        channel_mix = ChannelMix(hidden=hidden, width=self.intermediate_size)
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            embed_norm=norm,
            stacks=stacks([Block.of(time_mix, channel_mix, norm=norm)] * self.num_hidden_layers),
            final_norm=Norm(hidden=hidden, kind="layer", eps=1e-5),  # its epsilon is not the config's
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )

    def hf_unsupported(self) -> str | None:
        """Its states have hidden_size channels. It divides by layers − 1 and by channels − 1 when it is built."""
        if self.attention_hidden_size != self.hidden_size:
            return "it does not run where attention_hidden_size is not hidden_size"
        if 1 in (self.num_hidden_layers, self.attention_hidden_size):
            return "it cannot be built with one layer or with one channel"
        return None

    def hf_extra_flops(self, work: Workload) -> Mapping[str, int]:
        """With one new token of several sequences, the class runs that of each for every other one too."""
        if work.tokens > 1 or work.batch == 1:
            return {}
        counted = self.transformer().ledger().flops(replace(work, logits="all").axes(), unfolded=True)
        return {starred(path): flops * (work.batch - 1) for path, flops in counted.items()}
