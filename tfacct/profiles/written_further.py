"""Decoders' blocks written out whose parts are put together in other ways than Llama's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TypeAlias

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, FeedForward, Norm
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger.kept import SHARES, Held, Run
from tfacct.profiles import written_decoders as decoders
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_views as views
from tfacct.profiles.base import Habits
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_autocast import Written
from tfacct.profiles.written_biased import block_of_bloom
from tfacct.profiles.written_indexed import block_of_falcon
from tfacct.profiles.written_networks import SMOOTH, network
from tfacct.profiles.written_parts import ATTN, LETTERS, NETWORK, How, Parts, again, dropped, norm, product, products
from tfacct.profiles.written_storage import Axes


def attention(t: Trace, how: How, x: Value, part: Attention) -> tuple[Value, Value | None]:
    """Attention whose heads turn in part and are put together again, and what values were weighted by."""
    (q, k, v), _parts = (fused if how.habits.fused else apart)(t, how, x, part)
    values, weights = decoders.attend(t, how, q, k, v, part)
    return product(t, how, values, f"{ATTN}.o_proj", ("D",), bias=part.out_bias), weights


def attended(t: Trace, how: How, x: Value, part: Attention) -> tuple[Value, Value | None]:
    """The same, which may run again."""
    return again(t, how, x, lambda t, x: attention(t, how, x, part))


KNOWN = frozenset(
    """
    attention biases_apart copies_first drops_inside embedding fused fused_gate indexed masked narrow_softmax rejoins
    residual sliced starts_biased sums_first undropped_stay written_gelu
    """.split()
)
"""Habits of classes that are written out here."""
Three: TypeAlias = tuple[Value, Value, Value]


def apart(t: Trace, how: How, x: Value, part: Attention) -> tuple[Three, list[Value]]:
    """Queries, keys and values of products of their own; their parts stay, as they were and as they turned."""
    made = []
    for which, letter in LETTERS.items():
        one = product(t, how, x, f"{ATTN}.{which}_proj", (letter, "H"), bias=part.qkv_bias)
        made.append(one.viewed(("B", letter, "T", "H")))
        del one
    q, k, v = made
    del made
    (q, k), parts = _turned(t, how, q, k, part)
    return (q, k, v), parts


def fused(t: Trace, how: How, x: Value, part: Attention) -> tuple[Three, list[Value]]:
    """The same of one product."""
    each = [(f"{ATTN}.{which}_proj", (letter, "H")) for which, letter in LETTERS.items()]
    if how.habits.sliced:
        q, k, v = _sliced(t, how, x, each, bias=part.qkv_bias)
    else:
        whole, node = products(t, how, x, each, ("N", views.APART, "H"), bias=part.qkv_bias)
        shape, laid = ("B", "N", "T", views.APART, "H"), ("B", "T", "N", views.APART, "H")
        axes = [("B", letter, "T", "H") for letter in LETTERS.values()]
        q, k, v = views.chunks(t, whole, node, shape, laid, axes)
        del whole
    (q, k), _parts = _turned(t, how, q, k, part)
    return (q, k, v), []


def _sliced(t: Trace, how: How, x: Value, each: Sequence[tuple[str, Axes]], *, bias: bool) -> list[Value]:
    """Pieces of one product, each by an operation of its own."""
    whole, node = products(t, how, x, each, (views.APART,), bias=bias)
    found = []
    for _, (letter, dim) in each:
        one = views.sliced(t, whole, node, ("B", "T", views.APART, letter, dim), ("B", "T", letter, dim))
        found.append(views.rows_apart(t, one, (letter, dim)).viewed(("B", letter, "T", dim)))
        del one
    return found


def _turned(t: Trace, how: How, q: Value, k: Value, part: Attention) -> tuple[tuple[Value, Value], list[Value]]:
    """Queries and keys that turn in part, put together again, and those parts."""
    whole = bool(part.rope_dim is None or part.rope_dim == part.head_dim)
    last = "H" if part.rope_dim is None else "Hr"
    old = [(views.part(t, one, (*one.axes[:-1], last), whole=whole), views.rest(t, one)) for one in (q, k)]
    turned: list[Value] = []
    made: list[Value] = []
    for one, (turns, rest), which in zip((q, k), old, "qk", strict=True):
        turned.append(views.turned(t, turns, how.turn, last=which == "q"))
        if how.habits.sliced:
            made.append(views.joined(t, turned.pop(), rest, one.axes, f"{ATTN}.{which}_rotary"))
    if how.habits.sliced:
        return (made[0], made[1]), []
    for one, (_, rest), which in zip((q, k), old, "qk", strict=True):
        made.append(views.joined(t, turned["qk".index(which)], rest, one.axes, f"{ATTN}.{which}_rotary"))
        if how.habits.fused:  # in a function's variable, which is another's then
            turned["qk".index(which)] = made[-1]
    return (made[0], made[1]), [*turned, *(rest for _, rest in old)]


def side_by_side(t: Trace, how: How, parts: Parts) -> Value:
    """Attention and network that read the same, each behind its norm or both behind one."""
    x = t.start
    h = norm(t, how, x, f"{ATTN}_norm", parts.attn_norm)
    a, _weights = attended(t, how, h, parts.attn)
    a = dropped(t, how, a, ATTN)
    if parts.mlp_norm is not None:
        del h
        h = norm(t, how, x, f"{NETWORK}_norm", parts.mlp_norm)
    m = network(t, how, h, parts.mlp)
    if parts.mlp_norm is not None:
        del h
    m = dropped(t, how, m, NETWORK)
    both = ops.total(t, a, m)
    return ops.total(t, both, x)


def one_behind_other(t: Trace, how: How, parts: Parts) -> Value:
    """Attention, then network."""
    x = t.start
    assert parts.mlp_norm is not None
    h = norm(t, how, x, f"{ATTN}_norm", parts.attn_norm)
    a, _weights = attended(t, how, h, parts.attn)
    del h
    mid = _summed(t, how, x, a, ATTN)
    del a
    h = norm(t, how, mid, f"{NETWORK}_norm", parts.mlp_norm)
    m = network(t, how, h, parts.mlp)
    del h
    return _summed(t, how, mid, m, NETWORK)


def _summed(t: Trace, how: How, x: Value, result: Value, at: str) -> Value:
    return ops.total(t, x, dropped(t, how, result, at), f"{at}.sum")


@record
class Further(Written):
    """A class whose blocks are no Llama's."""

    def _run(self, block: Block, flows: bool, leaf: bool) -> Run:
        run = Written._run(self, block, flows, leaf)
        narrow = self.habits.starts_biased or self.habits.wide_scores
        apart = narrow or self.habits.biases_apart
        if not apart or self.attention != "eager" or not (self.again or self.selective):
            return run
        # The caller has what values were weighted by in the block in front.
        front = Held("B N T S", "work" if narrow else "full", path=SHARES)
        if self.again:
            return run._replace(bare=tuple(m._replace(held=(*m.held, front)) for m in run.bare))
        return run._replace(ahead=tuple(m._replace(held=(*m.held, front)) for m in run.ahead))

    def _block(self, t: Trace, block: Block) -> Value:
        if self.habits.starts_biased:
            return block_of_bloom(t, self._how(block), self._parts(block))
        if self.habits.biases_apart:
            return block_of_falcon(t, self._how(block)._replace(masks=True), self._parts(block))
        if not self.habits.rejoins:
            return Written._block(self, t, block)
        order = side_by_side if block.order == "parallel" else one_behind_other
        return order(t, self._how(block), self._parts(block))

    def _parts(self, block: Block) -> Parts:
        """The parts of a block. Raises ConfigError for what is not written out."""
        first, second = block.sublayers
        attn, mlp = first.part, second.part
        if not isinstance(attn, Attention) or type(mlp) is not FeedForward:
            raise ConfigError(f"{self.name}: no rule for these blocks")
        self._check_attention(attn)
        habits = {field.name for field in fields(Habits) if getattr(self.habits, field.name)}
        others = (attn.clip, attn.temperature, attn.softcap, attn.value_dim, attn.adapter, attn.qk_norm, mlp.norm)
        norms = [part for _, part in block.parts() if isinstance(part, Norm)]
        if (
            not habits <= KNOWN
            or block.order not in ("pre", "parallel")
            or (block.order == "pre" and self.habits.biases_apart)
            or first.norm is None
            or (second.norm is None and block.order == "pre")
            or any(each is not None for each in others)
            or (attn.rotary is None) != self.habits.starts_biased
            or (attn.rotary is not None and attn.rotary.pairs != "halves")
            or any(part.less_one or part.learned == "none" for part in norms)
            or any(each.post_norm is not None for each in block.sublayers)
            or (mlp.gated and mlp.activation not in SMOOTH)
        ):
            raise ConfigError(f"{self.name}: no rule for all that this class does, whose blocks are written out")
        return Parts(first.norm, attn, second.norm, mlp)
