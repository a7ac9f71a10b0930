"""T5's class and its kin under autocast, written out: scores of distances, in fp32, are added to those of heads.

Networks cast what their last product reads to fp32, the dtype that its weight is stored in; autocast casts it back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, CrossAttention, FeedForward, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Collected, Held, Role, Run, joined
from tfacct.profiles import written_heads as heads
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_scores as scores
from tfacct.profiles.autocast_parts import as_full, full
from tfacct.profiles.transformers_distances import (
    ADDED,
    ReadingDistances,
    WritingDistances,
    dropped_end,
)
from tfacct.profiles.transformers_masks import ALIGNED
from tfacct.profiles.transformers_pairs import CROSS
from tfacct.profiles.transformers_parts import STREAM
from tfacct.profiles.transformers_tables import ReadingTables, WritingTables, on_their_way
from tfacct.profiles.written import GATHERS, LEAF, Trace, Value
from tfacct.profiles.written_networks import SMOOTH, activated
from tfacct.profiles.written_operations import Weights
from tfacct.profiles.written_pairs import (
    AT_LAST,
    MEMORY,
    CastPairs,
    Parts,
    block_run,
    ended,
    given,
    under,
    unread,
)
from tfacct.profiles.written_parts import ATTN, NETWORK, How, dropped, norm, product
from tfacct.profiles.written_storage import Axes, Storage

PAIRS: Axes = ("B", "N", "T", "S")
LEARNED: Axes = ("N", "T", "S")
LAID: Axes = ("T", "S", "N")
"""Learned scores, and how they lie: rows of a table, one for each pair."""
SCORES = Held("N T S", "full")
ZEROS: Axes = ("N", "T", "J")


def block_of_t5(t: Trace, how: How, parts: Parts, *, tables: bool, beside: bool) -> Value:
    """T5Block, or UMT5Block, each with a table of its own (`tables`). `beside`: rows of scores of the source need no
    padding."""
    x, norms = t.start, parts.norms
    x, _weights = _attended(t, how, x, norms[0], ATTN, "blocks.*.mid", partial(attention, part=parts.attn, own=tables))
    if parts.cross is not None:
        read = partial(crossed, part=parts.cross, own=tables, aligned=beside)
        x, _weights = _attended(t, how, x, norms[1], CROSS, "blocks.*.mid1", read)
    return _network(t, how, x, norms[-1], parts.mlp)


def _attended(
    t: Trace,
    how: How,
    x: Value,
    front: Norm,
    at: str,
    path: str,
    attend: Callable[[Trace, How, Value], tuple[Value, Value | None]],
) -> tuple[Value, Value | None]:
    """A layer of attention: what its norm gave is there to its end."""
    h = norm(t, how, x, f"{at}_norm", front)
    out, weights = attend(t, how, h)
    more = dropped(t, how, out, at)
    return ops.total(t, x, more, path), weights


def _network(t: Trace, how: How, x: Value, front: Norm, part: FeedForward) -> Value:
    h = norm(t, how, x, f"{NETWORK}_norm", front)
    h = (_gated if part.gated else _plain)(t, how, h, part)
    more = dropped(t, how, h, NETWORK)
    return ops.total(t, x, more)


def _plain(t: Trace, how: How, h: Value, part: FeedForward) -> Value:
    h = product(t, how, h, f"{NETWORK}.up_proj", ("F",))
    h = activated(t, h, f"{NETWORK}.act", part.activation)
    return _down(t, how, h, f"{NETWORK}.act")


def _gated(t: Trace, how: How, h: Value, part: FeedForward) -> Value:
    """Both halves of the network stay to its end."""
    act = activated(t, product(t, how, h, f"{NETWORK}.gate_proj", ("F",)), f"{NETWORK}.act", part.activation)
    up = product(t, how, h, f"{NETWORK}.up_proj", ("F",))
    return _down(t, how, ops.times(t, act, up, f"{NETWORK}.product"), f"{NETWORK}.product")


def _down(t: Trace, how: How, h: Value, at: str) -> Value:
    if how.habits.drops_product:
        h = ops.dropout(t, h, f"{at}.drop")
    h = ops.cast(t, h, "full")
    return product(t, how, h, f"{NETWORK}.down_proj", ("D",))


def attention(t: Trace, how: How, x: Value, *, part: Attention, own: bool) -> tuple[Value, Value | None]:
    """Attention among a side's tokens, and what values were weighted by. `own`: the scores of distances are its own."""
    q, k, v = (
        product(t, how, x, f"{ATTN}.{which}_proj", (letter, "H")).viewed(("B", letter, "T", "H"))
        for which, letter in (("q", "N"), ("k", "K"), ("v", "K"))
    )
    learned = _table(t, part) if own else Value(Storage(t.elsewhere, LAID, "full"), LEARNED, GATHERS)
    weights = None
    if how.attention == "eager":
        names = "q_rotary", "k_rotary", "v_proj"
        rows, weights = scores.weighed(t, how, (q, k, v), names, add=partial(_added, learned=learned))
    else:
        rows = _sdpa(t, how, (q, k, v), learned, part)
    rows = heads.contiguous(t, rows, ("B", "T", "N", "H"), f"{ATTN}.values_copy")
    return product(t, how, rows, f"{ATTN}.o_proj", ("D",)), weights


def _table(t: Trace, part: Attention) -> Value:
    """Scores of distances read off a table."""
    name = f"{ATTN}.rel_bias.weight"
    t.named(name)
    meanwhile = [t.new(tuple(one.spec.split()), one.role) for one in on_their_way(part) for _ in range(one.times)]
    del meanwhile

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        b.gradient()
        return [None]

    node = t.node((LEAF,), back)
    t.save(node, t.new(("T", "S"), "index", f"{ATTN}.distances"))
    t.after = True
    return Value(t.new(LAID, "full"), LEARNED, node)


def _added(t: Trace, x: Value, *, learned: Value) -> Value:
    """Scores in 16 bits and those of distances: the gradient of the former is cast, that of the latter summed over
    sequences."""
    t.named(ADDED)
    one = "B" in t.ones

    def back(b: Trace, g: Storage) -> list[Storage | None]:
        return [b.new(g.laid), g if one else b.new(LEARNED, "full")]

    return Value(t.new(x.storage.laid, "full"), x.axes, t.node((x.node, learned.node), back))


def _sdpa(t: Trace, how: How, three: scores.Three, learned: Value, part: Attention) -> Value:
    """torch's efficient kernel, of which scores of distances are the mask: laid out anew in fp32, cast, and padded."""
    t.named(ADDED)
    mask = learned
    if part.causal and "T" not in t.ones:
        seen = t.new(("T", "S"), "flag", f"{ATTN}.seen")
        node = t.node((learned.node,), lambda b, _g: (b.new(LEARNED, "full"),))
        t.save(node, seen)
        mask = Value(t.new(LAID, "full"), LEARNED, node)
        del seen, node
    if "N" not in t.ones:
        mask = Value(t.new(LEARNED, "full"), LEARNED, t.node((mask.node,), lambda _b, g: (g,)))
    elif how.aligned and not part.causal:
        raise ConfigError("transformers under autocast: no rule for one head whose scores of distances are rows of 8")
    narrow = ops.cast(t, mask, "work", f"{ATTN}.mask" if how.aligned else "")
    return efficient(t, three, narrow if how.aligned else _padded(t, narrow, f"{ATTN}.mask"), ATTN)


def _padded(t: Trace, mask: Value, path: str) -> Value:
    """A mask whose rows the kernel can read. Backwards zeros for all of these, and the part that is none of them."""
    own = mask.axes
    wide = (*own[:2], f"{own[2]}8")

    def unsliced(b: Trace, _g: Storage) -> list[Storage | None]:
        return [b.new(wide)]

    def unpadded(b: Trace, _g: Storage) -> list[Storage | None]:
        return [b.new(own)]

    pads = t.node((mask.node,), unpadded)
    return Value(t.new(wide, "work", path), own, t.node((pads,), unsliced))


def efficient(t: Trace, three: scores.Three, mask: Value, at: str) -> Value:
    """torch's efficient attention with a mask of numbers for all sequences, which may have a gradient."""
    q, k, v = three
    laid = tuple((axes[0], axes[2], axes[1], axes[3]) for axes in (each.axes for each in three))
    alone = "B" in t.ones

    def expanded(b: Trace, g: Storage) -> list[Storage | None]:
        return [g if alone else b.new(LEARNED)]

    whole = t.node((mask.node,), expanded)
    t.named(f"{at}.sdpa")

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        made: list[Storage | None] = [b.new(each) for each in laid]
        return [*made, None if whole is None else b.new(("B", "N", "T", "S16"))]

    node = t.node((q.node, k.node, v.node, whole), back)
    t.save(node, q.storage, k.storage, v.storage, mask.storage)
    made = t.new(("B", "T", "N", "H"), "work", f"{at}.values")
    sums = t.new(("B", "N", "T32"), "full", f"{at}.softmax.logsum")
    seeds = [t.new((), "index", f"{at}.{which}") for which in ("seed", "offset")]
    t.save(node, made, sums, *seeds)
    t.after = True
    return Value(made, ("B", "N", "T", "H"), node)


def crossed(
    t: Trace, how: How, x: Value, *, part: CrossAttention, own: bool, aligned: bool
) -> tuple[Value, Value | None]:
    """Attention to the source, to whose scores zeros are added: all blocks' together, or its `own`."""
    if part.qkv_bias:
        raise ConfigError("transformers under autocast: no rule for biases of this attention")
    q = product(t, how, x, f"{CROSS}.q_proj", ("N", "H")).viewed(("B", "N", "T", "H"))
    k, v = (
        product(t, how, given(t), f"{CROSS}.{which}_proj", ("K", "H")).viewed(("B", "K", "J", "H")) for which in "kv"
    )
    there = Trace.new if own else Trace.elsewhere_new
    zeros = Value(there(t, ZEROS, "work", f"{CROSS}.mask" if own and aligned else ""), ZEROS, None)
    weights = None
    if how.attention == "eager":
        plain = how._replace(seen=True)
        names = "q_rotary", "k_rotary", "v_proj"
        rows, weights = scores.weighed(t, plain, (q, k, v), names, at=CROSS, read="J", add=ops.shifted)
    else:
        rows = efficient(t, (q, k, v), zeros if aligned else _padded(t, zeros, f"{CROSS}.mask"), CROSS)
    rows = heads.contiguous(t, rows, ("B", "T", "N", "H"), f"{CROSS}.values_copy")
    return product(t, how, rows, f"{CROSS}.o_proj", ("D",)), weights


def _checked(part: FeedForward, name: str) -> None:
    if part.bias or (part.gated and part.activation not in (*SMOOTH, "gelu_new")):
        raise ConfigError(f"{name}: no rule for this network")


@record
class WrittenReadingDistances(ReadingDistances):
    """The encoder's side. `apart`: each block has a table of its own."""

    apart: bool = False

    @property
    def name(self) -> str:
        """Name of the profile."""
        return under(self.attention)

    @property
    def _as_made(self) -> ReadingDistances:
        """The same in fp32."""
        kind = ReadingTables if self.apart else ReadingDistances
        return kind(self.attention, self.habits, True, self.batch, self.tokens)

    def block(self, block: Block) -> Run:
        """The run of a block."""
        how = How(self.attention, self.habits, Weights(), aligned=not self.tokens % ALIGNED, seen=True)
        return _block(self, block, how, tables=self.apart)

    def front(self, shape: Transformer) -> Run:
        """As in fp32."""
        return as_full(self._as_made.front(shape))

    def back(self, shape: Transformer) -> Run:
        """As in fp32."""
        return as_full(self._as_made.back(shape))

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """As in fp32."""
        return full(self._as_made.waiting(shape))

    def collected(self, _: Transformer) -> tuple[Collected, ...]:
        """The gradient of the scores."""
        return () if self.apart else (Collected(SCORES, ADDED),)


@record
class WrittenWritingDistances(WritingDistances):
    """The decoder's side. `apart`: each block has a table of its own."""

    apart: bool = False

    @property
    def name(self) -> str:
        """Name of the profile."""
        return under(self.attention)

    @property
    def loss(self) -> Role:
        """Role of the loss."""
        return "full"

    @property
    def _as_made(self) -> WritingDistances:
        """The same in fp32."""
        kind = WritingTables if self.apart else WritingDistances
        return kind(self.attention, self.habits, True, self.batch, self.tokens, self.source)

    def block(self, block: Block) -> Run:
        """The run of a block."""
        how = How(self.attention, self.habits, Weights(), aligned=not self.tokens % ALIGNED)
        return _block(self, block, how, tables=self.apart, source=self.source)

    def front(self, shape: Transformer) -> Run:
        """As in fp32, but for zeros in 16 bits, and for what the encoder gave, which no gradient needs."""
        run = unread(self._as_made.front(shape))
        wide = as_full(run)
        kept = (own if own.path == "zeros" else line for own, line in zip(run.kept, wide.kept, strict=True))
        return wide._replace(kept=tuple(kept))

    def back(self, shape: Transformer) -> Run:
        """The final norm, its dropout, a scale where the head has one, the head in 16 bits, and the loss."""
        if shape.head is None or shape.final_norm is None or not shape.head.tied:
            raise ConfigError(
                f"{self.name}: no rule for a head with a weight of its own, which the class does not have"
            )
        final = joined(self._as_made.part("final_norm", STREAM, shape.final_norm), dropped_end(self, "final_norm"))
        reads = "final_norm.dropped" if self.habits.embedding else "final_norm"
        return joined(as_full(final), ended(reads, biased=False, scaled=shape.head.scale is not None))

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """As in fp32, but for zeros in 16 bits, and what the encoder gave."""
        every = self._as_made.waiting(shape)
        return (*(one if "J" in one.spec else full((one,))[0] for one in every), MEMORY)

    def collected(self, _: Transformer) -> tuple[Collected, ...]:
        """Gradients of what the encoder gave, and of the scores."""
        return (Collected(MEMORY, AT_LAST), *(() if self.apart else (Collected(SCORES, ADDED),)))


def _block(side: ReadingDistances | WritingDistances, block: Block, how: How, *, tables: bool, source: Size = 0) -> Run:
    for _, part in block.parts():
        if isinstance(part, FeedForward):
            _checked(part, side.name)
    beside = not source % ALIGNED
    written = BLOCKS[tables, beside]
    return block_run(side, block, written, how, again=False, source=source)


BLOCKS = {
    (tables, beside): partial(block_of_t5, tables=tables, beside=beside)
    for tables in (False, True)
    for beside in (False, True)
}
"""How blocks run: with tables of their own or not, beside a source whose rows of scores need no padding, or not."""


@record
class WrittenDistancePairs(CastPairs):
    """A model of two sides that adds scores of distances. `apart`: each block has a table of its own."""

    apart: bool = False

    def reading(self) -> WrittenReadingDistances:
        """The encoder's profile."""
        return WrittenReadingDistances(self.attention, self.habits, True, self.batch, self.source, apart=self.apart)

    def writing(self) -> WrittenWritingDistances:
        """The decoder's profile."""
        given = self.attention, self.habits, True, self.batch, self.tokens, self.source
        return WrittenWritingDistances(*given, apart=self.apart)
