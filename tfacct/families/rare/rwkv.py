"""RWKV-4, its time mixing and its channel mixing.

Peng et al., "RWKV: Reinventing RNNs for the Transformer Era" (arXiv 2305.13048), section 3 and appendix D, with the
matmuls of transformers' RwkvSelfAttention and RwkvFeedForward.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import DeltaNet, Mixer
from tfacct.architecture.parts.part import STATE_BITS
from tfacct.base.record import record
from tfacct.families.decoder import DecoderBase, Layer
from tfacct.families.family import submodules
from tfacct.families.fields import LayerCount, PositiveFloat, PositiveInt, StrictBool
from tfacct.families.task_heads import DECODER
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, State
from tfacct.ledger.paths import starred
from tfacct.ledger.workload import Workload


@record(kw_only=True)
class TimeMix(Mixer):
    """Time mixing: per channel (`inner` of them), a mean of the values of all tokens so far, weighted by their keys and
    by a decay.

    The state of a channel is two sums and their common exponent. Keys, values and the output gate are projections of a
    weighted mean of a token and the previous token, each with its own weights.
    """

    hidden: Size
    inner: Size

    name: ClassVar[str] = "time_mix"
    label: ClassVar[str] = "RWKV time mixing"
    listed_after: ClassVar[tuple[str, int]] = (DeltaNet.name, 0)
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "inner": "Dw"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Dw": "channels of RWKV's recurrence",
        "Sw": "state values per channel: two sums and their exponent",
    }
    made: ClassVar[dict[str, str]] = {"Sw": "3"}
    recurs: ClassVar[bool] = True
    hf_loop: ClassVar[str] = "the tokens in Python: 4,096 tokens take about a minute"
    recurrence: ClassVar[str] = "the recurrence of RWKV"

    def lines(self, at: str) -> Iterator[Line]:
        """Means of two tokens, projections, the recurrence and its read-out (pointwise work), the gate, the output
        projection, and the states: the last token, and the sums of each channel."""
        for name in "kvr":
            yield Pointwise(f"{at}.{name}_mix", "B T D", weight="D")
        for name in "kvr":
            yield Matmul(f"{at}.{name}_proj", "B T D, D Dw -> B T Dw")
        yield Pointwise(f"{at}.recurrence", "B T Dw Sw", weight="Dw")
        yield Pointwise(f"{at}.mean", "B T Dw", weight="Dw")
        yield Pointwise(f"{at}.gate", "B T Dw", kind="gate")
        yield Matmul(f"{at}.o_proj", "B T Dw, Dw D -> B T D")
        yield State(f"{at}.shift_state", "B D")
        yield State(f"{at}.sum_state", "B Dw Sw", STATE_BITS)


@record(kw_only=True)
class ChannelMix(Mixer):
    """Channel mixing: an MLP with a squared ReLU, and a gate of its result. Both are projections of a weighted mean of
    a token and the previous token, each with its own weights."""

    hidden: Size
    width: Size

    name: ClassVar[str] = "channel_mix"
    label: ClassVar[str] = "RWKV channel mixing"
    listed_after: ClassVar[tuple[str, int]] = (DeltaNet.name, 1)
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "width": "F"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "F": "feed-forward width",
        "Do": "output width of a square matrix (= D)",
    }
    made: ClassVar[dict[str, str]] = {"Do": "D"}

    def lines(self, at: str) -> Iterator[Line]:
        """Means of two tokens, the MLP, the gate, and the state: the last token."""
        for name in "kr":
            yield Pointwise(f"{at}.{name}_mix", "B T D", weight="D")
        yield Matmul(f"{at}.up_proj", "B T D, D F -> B T F")
        yield Pointwise(f"{at}.act", "B T F", kind="activation", function="relu2")
        yield Matmul(f"{at}.down_proj", "B T F, F D -> B T D")
        yield Matmul(f"{at}.r_proj", "B T D, D Do -> B T Do")
        yield Pointwise(f"{at}.gate", "B T D", kind="gate")
        yield State(f"{at}.shift_state", "B D")


class Rwkv(DecoderBase):
    """RWKV-4: no attention; weighted means of all tokens so far, and MLPs that also read the previous token."""

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
        **submodules("time_mix", "attention", k_proj="key", v_proj="value", r_proj="receptance", o_proj="output"),
        "channel_mix_norm": "ln2",
        **submodules("channel_mix", "feed_forward", up_proj="key", down_proj="value", r_proj="receptance"),
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
        "in a decode step, it mixes each token with the previous tokens of all sequences, so it runs every matmul once"
        " per pair of sequences"
    )
    context = property(attrgetter("context_length"))
    norm_kind, eps_field, embedding_norm = "layer", "layer_norm_epsilon", True

    def block(self, layer: Layer) -> Block:
        time_mix = TimeMix(hidden=self.hidden_size, inner=self.attention_hidden_size)
        channel_mix = ChannelMix(hidden=self.hidden_size, width=self.intermediate_size)
        return Block.of(time_mix, channel_mix, norm=self.norm())

    def embeddings_and_head(self) -> dict[str, Any]:
        """The epsilon of the last norm is not that of the config."""
        return {**super().embeddings_and_head(), "final_norm": replace(self.norm(), eps=1e-5)}

    def hf_unsupported(self) -> str | None:
        """The reason why the class cannot run: its states have hidden_size channels, and its construction divides by
        layers − 1 and channels − 1."""
        if self.attention_hidden_size != self.hidden_size:
            return "it needs attention_hidden_size equal to hidden_size"
        if 1 in (self.num_hidden_layers, self.attention_hidden_size):
            return "it needs at least two layers and two channels"
        return None

    def hf_extra_flops(self, work: Workload) -> Mapping[str, int]:
        """In a decode step, the class runs every matmul once per pair of sequences."""
        if work.tokens > 1 or work.batch == 1:
            return {}
        counted = self.transformer().ledger().flops(replace(work, logits="all").axes(), unfolded=True)
        return {starred(path): flops * (work.batch - 1) for path, flops in counted.items()}
