"""BART's class and those like it under autocast, written out: the blocks of both sides, the head and the loss.

Keys and values of the source are products that cast what the encoder gave, each for itself: no gradient needs that in
fp32, but the class has it until its forward pass ends. What it is given back is cast to fp32, and summed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Self

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, CrossAttention, FeedForward, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Collected, Held, Kept, Role, Run, joined
from tfacct.profiles import written_decoders as decoders
from tfacct.profiles import written_heads as heads
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_scores as scores
from tfacct.profiles.autocast_parts import as_full, full
from tfacct.profiles.transformers_pairs import CROSS, SOURCE, Pairs, Reading, Writing
from tfacct.profiles.transformers_parts import STREAM
from tfacct.profiles.written import GATHERS, Trace, Value
from tfacct.profiles.written_autocast import reading_once
from tfacct.profiles.written_networks import activated
from tfacct.profiles.written_operations import Weights
from tfacct.profiles.written_parts import ATTN, NETWORK, How, dropped, norm, product
from tfacct.profiles.written_runs import cached, let_go, run_of
from tfacct.profiles.written_storage import Axes, Storage

GIVEN: Axes = ("B", "J", "D")
MEMORY = Held("B J D", "full")
"""What the encoder gave."""
AT_LAST = f"{CROSS}.v_proj.cast"
"""The operation of a block that is the first to give it a gradient."""
SOFTMAX = "loss.softmax"


class Parts(NamedTuple):
    """Parts of a block and their norms, in front of each or behind its sum."""

    attn: Attention
    cross: CrossAttention | None
    mlp: FeedForward
    norms: tuple[Norm, ...]
    sums: bool


def parts_of(name: str, block: Block) -> Parts:
    """Parts of a block. `name`: of the profile. Raises ConfigError for others than are written out."""
    found = {each.name: each.part for each in block.sublayers}
    attn, cross, mlp = (found.get(which) for which in ("attn", "cross", "mlp"))
    norms = tuple(each.norm for each in block.sublayers if each.norm is not None and each.post_norm is None)
    if not isinstance(attn, Attention) or not isinstance(cross, CrossAttention | None) or type(mlp) is not FeedForward:
        raise ConfigError(f"{name}: no rule for these blocks")
    known = attn.group == 1 and attn.rotary is None and attn.qk_norm is None and (attn.key_bias or not attn.qkv_bias)
    known = known and (cross is None or cross.group == 1) and len(norms) == len(found)
    if not known or block.order not in ("pre", "post"):
        raise ConfigError(f"{name}: no rule for these blocks")
    return Parts(attn, cross, mlp, norms, block.order == "post")


def given(t: Trace) -> Value:
    """What the encoder gave. Its gradient is counted where all blocks' are added up."""
    return Value(Storage(t.elsewhere, GIVEN, "full", SOURCE), GIVEN, GATHERS)


def block_of_bart(t: Trace, how: How, parts: Parts) -> Value:
    """BartEncoderLayer or BartDecoderLayer, or those of mBART, whose norms stand in front."""
    x, norms = t.start, parts.norms
    h = x if parts.sums else norm(t, how, x, f"{ATTN}_norm", norms[0])
    h, _weights = decoders.attention(t, how, h, parts.attn)
    h = dropped(t, how, h, ATTN)
    h = ops.total(t, x, h, f"{ATTN}.sum" if parts.sums else "blocks.*.mid")
    h = norm(t, how, h, f"{ATTN}_norm", norms[0]) if parts.sums else h
    x = h
    if parts.cross is not None:
        h = h if parts.sums else norm(t, how, h, f"{CROSS}_norm", norms[1])
        h, _weights = crossed(t, how, h, parts.cross)
        h = dropped(t, how, h, CROSS)
        h = ops.total(t, x, h, f"{CROSS}.sum" if parts.sums else "blocks.*.mid1")
        h = norm(t, how, h, f"{CROSS}_norm", norms[1]) if parts.sums else h
        x = h
    h = h if parts.sums else norm(t, how, h, f"{NETWORK}_norm", norms[-1])
    h = product(t, how, h, f"{NETWORK}.up_proj", ("F",), bias=True)
    h = activated(t, h, f"{NETWORK}.act", parts.mlp.activation)
    if how.habits.drops_product:
        h = ops.dropout(t, h, f"{NETWORK}.act.drop")
    h = product(t, how, h, f"{NETWORK}.down_proj", ("D",), bias=True)
    h = dropped(t, how, h, NETWORK)
    h = ops.total(t, x, h, f"{NETWORK}.sum")
    return norm(t, how, h, f"{NETWORK}_norm", norms[-1]) if parts.sums else h


def crossed(t: Trace, how: How, x: Value, part: CrossAttention) -> tuple[Value, Value | None]:
    """Attention to the source, and what values were weighted by."""
    q = product(t, how, x, f"{CROSS}.q_proj", ("N", "H"), bias=part.qkv_bias).viewed(("B", "N", "T", "H"))
    k, v = (
        product(t, how, given(t), f"{CROSS}.{which}_proj", ("K", "H"), bias=part.qkv_bias).viewed(("B", "K", "J", "H"))
        for which in "kv"
    )
    weights = None
    if how.attention == "sdpa":
        rows = heads.flash(t, q, k, v, CROSS)
    else:
        names = "q_rotary", "k_rotary", "v_proj"
        rows, weights = scores.weighed(t, how._replace(seen=True), (q, k, v), names, at=CROSS, read="J")
    rows = heads.contiguous(t, rows, ("B", "T", "N", "H"), f"{CROSS}.values_copy")
    return product(t, how, rows, f"{CROSS}.o_proj", ("D",), bias=part.out_bias), weights


def block_run(
    side: Reading | Writing,
    block: Block,
    written: Callable[[Trace, How, Parts], Value],
    how: How,
    *,
    again: bool,
    source: Size = 0,
) -> Run:
    """The run of a block of one side. `source`: tokens that the decoder's reads."""
    parts = parts_of(side.name, block)
    heads_of, tokens = parts.attn.heads, side.tokens
    sizes = {"B": side.batch, "N": heads_of, "K": heads_of, "T": tokens, "S": tokens, "J": source}
    ones = frozenset(axis for axis, size in sizes.items() if size == 1)

    def make() -> Run:
        kept, bare = (Trace(ones, keeps=keeps) for keeps in (True, False))
        written(bare, how, parts)
        kept.backward(written(kept, how, parts).node)
        run = run_of(kept, bare)
        if not parts.sums:
            return run
        return let_go(run) if again else reading_once(run)

    return cached((written, repr(block), how, ones, again), make)


def under(attention: str) -> str:
    """The name of a profile."""
    return f"transformers with {attention} under autocast"


@record
class WrittenReading(Reading):
    """The encoder's side. `again`: blocks run again, and keep what they read."""

    again: bool = False

    @property
    def name(self) -> str:
        """Name of the profile."""
        return under(self.attention)

    def block(self, block: Block) -> Run:
        """The run of a block."""
        how = How(self.attention, self.habits, Weights(), seen=True)
        return block_run(self, block, block_of_bart, how, again=self.again)

    def front(self, shape: Transformer) -> Run:
        """As in fp32."""
        return as_full(Reading.front(self, shape))

    def back(self, shape: Transformer) -> Run:
        """As in fp32."""
        return as_full(Reading.back(self, shape))

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """As in fp32."""
        return full(Reading.waiting(self, shape))


@record
class WrittenWriting(Writing):
    """The decoder's side. `again`: blocks run again, and keep what they read; `source`: tokens that it reads."""

    again: bool = False
    source: Size = 0

    @property
    def name(self) -> str:
        """Name of the profile."""
        return under(self.attention)

    @property
    def loss(self) -> Role:
        """Role of the loss."""
        return "full"

    def logits(self, shape: Transformer) -> Held:
        """Logits of the vocabulary, in fp32 where a bias is added to them."""
        return Held("B T V", "full" if biased(shape) else "work")

    def block(self, block: Block) -> Run:
        """The run of a block."""
        how = How(self.attention, self.habits, Weights())
        return block_run(self, block, block_of_bart, how, again=self.again, source=self.source)

    def front(self, shape: Transformer) -> Run:
        """As in fp32. What the encoder gave is kept for blocks that run again alone."""
        run = as_full(Writing.front(self, shape))
        return run if self.again else unread(run)

    def back(self, shape: Transformer) -> Run:
        """The final norm, where it has one, the head, the sum with a bias that is a buffer, and the loss in fp32."""
        if shape.final_norm is None:
            return ended(STREAM, biased=biased(shape))
        return joined(as_full(self._final(shape)), ended("final_norm", biased=biased(shape)))

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """As in fp32, and what the encoder gave, unless that is kept."""
        return (*full(Writing.waiting(self, shape)), *(() if self.again else (MEMORY,)))

    def buffers(self, shape: Transformer) -> tuple[Kept, ...]:
        """As in fp32."""
        return as_full(Run(kept=Writing.buffers(self, shape))).kept

    def collected(self, _: Transformer) -> tuple[Collected, ...]:
        """The gradient of what the encoder gave."""
        return (Collected(MEMORY, AT_LAST),)


def biased(shape: Transformer) -> bool:
    """True if a bias that is a buffer is added to logits: not in the class whose positions are made."""
    return shape.positions is not None and shape.positions.stored


def unread(run: Run) -> Run:
    """A front, what the encoder gave not among what it keeps: no gradient needs it, only a block that runs again."""
    return run._replace(kept=tuple(line for line in run.kept if line.path != SOURCE))


def ended(reads: str, *, biased: bool, scaled: bool = False) -> Run:
    """The head in 16 bits and the loss, of logits in fp32 if a buffer is added to them (`biased`). `scaled`: a multiple
    of what it reads is the head's."""

    def make() -> Run:
        t = Trace(frozenset(), reads=reads)
        t.cache = []
        t.named("head.scale" if scaled else "lm_head.weight")
        read = ops.scaled(t, t.start) if scaled else t.start
        logits = ops.linear(t, read, "lm_head", ("V",))
        if biased:
            logits = ops.total(t, logits, Value(Storage(t.elsewhere, ("V",), "full"), ("V",), None))
        node = (ops.loss_wide if biased else ops.loss_narrow)(t, logits).node
        t.cache = None
        del logits, read
        t.backward_of_loss(node)
        run = run_of(t, Trace(frozenset()), reads)
        behind = [m for m in run.moments if not m.at.startswith("loss.")]
        # Of narrow logits the choice of targets is fuller than the logarithms behind it, which come next.
        fullest = SOFTMAX if biased else "loss.choose"
        return run._replace(moments=(*behind, next(m for m in run.moments if m.at == fullest)))

    return cached(("ends of two sides", reads, biased, scaled), make)


@record
class CastPairs(Pairs):
    """A model of two sides under autocast. `source`: tokens of the source."""

    source: Size = 1

    def reading_of(self, source: Size) -> Self:
        """The same beside a source of so many tokens."""
        return replace(self, source=source)

    @property
    def stream(self) -> Role:
        """Role of the stream."""
        return "full"


@record
class WrittenPairs(CastPairs):
    """One with a kind of attention. `again`: blocks run again."""

    again: bool = False

    def reading(self) -> WrittenReading:
        """The encoder's profile."""
        return WrittenReading(self.attention, self.habits, True, self.batch, self.source, again=self.again)

    def writing(self) -> WrittenWriting:
        """The decoder's profile."""
        given = self.attention, self.habits, True, self.batch, self.tokens
        return WrittenWriting(*given, again=self.again, source=self.source)
