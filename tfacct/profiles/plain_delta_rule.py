"""The gated delta rule as transformers runs it in torch: tokens of a chunk among each other, then chunk after chunk.

Read off torch_chunk_gated_delta_rule of transformers 5 line by line: which names hold a tensor says how long it is
there. All of it runs in fp32.
"""

from __future__ import annotations

from tfacct.architecture.parts import DeltaNet
from tfacct.ledger.einsum import Size, rounded_up
from tfacct.profiles import plain_operations as own
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_views as views
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_operations import ROWS
from tfacct.profiles.written_storage import Axes, Joint, Storage

HEADS: Axes = ("B", "Nd")
CHUNKS: Axes = (*HEADS, "Nc", "Pc")
PAIRS: Axes = (*CHUNKS, "Qc")
STATE: Axes = (*HEADS, "Hk", "Hv")
NEW: Axes = (*HEADS, "Pc", "Hv")
SEVERAL = 3
"""Chunks that are run one by one: of more, the first and the last two, and one that stands for the others."""
OTHERS = "Nr"
"""Letter of how many these are."""


def lengths(part: DeltaNet, tokens: Size) -> dict[str, Size]:
    """Sizes of the letters that tokens are counted by."""
    chunks = rounded_up(tokens, part.chunk)
    return {"Nc": chunks, OTHERS: chunks - SEVERAL}


def chunked(part: DeltaNet, tokens: Size) -> tuple[int | None, bool]:
    """How many chunks there are, None for many, and whether the last is whole."""
    count = rounded_up(tokens, part.chunk) if isinstance(tokens, int) else SEVERAL + 1
    return int(count) if count <= SEVERAL else None, isinstance(tokens, int) and not tokens % part.chunk


class DeltaRule:
    """The rule of one part. `chunks`: how many there are, None for many; `even`: the last is whole."""

    def __init__(self, at: str, part: DeltaNet, tokens: Size) -> None:
        self.at, self.part = at, part
        self.chunks, self.even = chunked(part, tokens)
        self.shares = part.group != 1

    def name(self, leaf: str) -> str:
        return f"{self.at}.{leaf}"

    def rule(self, t: Trace, q: Value, k: Value, v: Value, decay: Value, rate: Value) -> Value:
        """torch_chunk_gated_delta_rule."""
        if self.shares:
            q, k = self._repeated(t, q, "q"), self._repeated(t, k, "k")
        wide = [
            self._wide(t, each.viewed((*HEADS, "T", *each.axes[3:])), which)
            for each, which in ((q, "q"), (k, "k"), (v, "v"), (rate, "rate"), (decay, "decay"))
        ]
        q, k, v, rate, decay = wide
        del wide
        q = self._unit(t, q, "q")
        k = self._unit(t, k, "k")
        q = ops.scaled(t, q)
        three = [self._padded(t, each, which) for each, which in ((q, "q"), (k, "k"), (v, "v"))]
        q, k, v = three
        del three
        two = [self._padded(t, rate, "rate"), self._padded(t, decay, "decay")]
        rate, decay = two
        del two
        vb = own.times(t, v, rate, self.name("v_rate"), self.name("v_rated"))
        kb = own.times(t, k, rate, self.name("k_rate"), self.name("k_rated"))
        upper = t.new(("Pc", "Qc"), "flag")
        upper = t.new(("Pc", "Qc"), "flag", self.name("upper"))
        so_far = own.running(t, decay)
        pair = own.less(t, so_far, Value(so_far.storage, (*CHUNKS[:-1], "Qc"), so_far.node), PAIRS)
        pair = _masked(t, pair, upper, self.name("pair_mask"))
        pair = own.exponent(t, pair, self.name("pair_decay"), self.name("pair_decays"))
        system = self._paired(t, kb, k, pair, "key_pairs")
        inside = self._paired(t, q, k, pair, "chunk_scores")
        decayed = own.times(
            t,
            kb,
            own.exponent(t, so_far, self.name("key_decay"), self.name("key_decays")),
            self.name("new_keys_in"),
            self.name("decayed_keys"),
        )
        new = _solved(t, system, vb, self.name("new_values"))
        keys = _solved(t, system, decayed, self.name("new_keys"))
        state = Value(t.new(STATE, "full", self.name("states"), (*STATE, "Nc")), STATE, None)
        out = Value(t.new(new.storage.laid, "full", self.name("out")), new.axes, None)
        q = own.times(
            t,
            q,
            own.exponent(t, so_far, self.name("query_decay"), self.name("query_decays")),
            self.name("query_in"),
            self.name("decayed_queries"),
        )
        k, whole = self._written(t, k, so_far)
        out = self._chunks(t, out, new, keys, q, k, inside, whole, state)
        del state
        if self.chunks != 1:  # which do not lie one behind the other
            out = Value(t.new((*CHUNKS, "Hv"), "full", self.name("out_copy")), out.axes, t.node((out.node,), same))
        out = self._cut(t, out)
        return self._narrow(t, out)

    def _written(self, t: Trace, k: Value, so_far: Value) -> tuple[Value, Value]:
        """Keys as they are written to the state, and what of it stays behind each chunk: needed by no gradient, if no
        chunk follows."""
        if self.chunks == 1:
            k, so_far = Value(k.storage, k.axes, None), Value(so_far.storage, so_far.axes, None)
        left = own.exponent(
            t, own.less(t, _end(t, so_far), so_far, CHUNKS), self.name("end_decay"), self.name("end_decays")
        )
        k = own.times(t, k, left, self.name("key_in"), self.name("written_keys"))
        del left
        whole = own.exponent(t, own.one_of(t, so_far, "Pc"), self.name("chunk_decay"), self.name("chunk_decays"))
        return k, whole

    def _chunks(
        self,
        t: Trace,
        out: Value,
        new: Value,
        keys: Value,
        q: Value,
        k: Value,
        inside: Value,
        whole: Value,
        state: Value,
    ) -> Value:
        """Chunk after chunk: what the state holds at the keys, what it gives at the queries, what is written to it."""
        rounds = [1] * self.chunks if self.chunks is not None else [1, 0, 1, 1]
        between: Value | None = None
        for number, several in enumerate(rounds):
            t.rounds = "" if several else OTHERS
            held = own.product(t, own.one_of(t, keys, "Nc"), state, NEW, self.name("held"))
            fresh = self._fresh(t, own.one_of(t, new, "Nc"), held)
            del held
            between = own.product(t, own.one_of(t, q, "Nc"), state, NEW, self.name("state_read"))
            added = own.product(t, own.one_of(t, inside, "Nc"), fresh, NEW, self.name("chunk_values"))
            total = ops.total(t, between, added)
            del added
            out = _put(t, out, total)
            del total
            if number == len(rounds) - 1:
                break
            kept = own.times(t, state, own.one_of(t, whole, "Nc"), self.name("state_decay"))
            written = own.product(
                t,
                own.one_of(t, k, "Nc").viewed((*HEADS, "Hk", "Pc")),
                Value(fresh.storage, fresh.axes, fresh.node),
                STATE,
                self.name("state_write"),
            )
            made = t.new(STATE, "full", self.name("states"), (*STATE, "Nc"))
            state = Value(made, STATE, t.node((kept.node, written.node), lambda _b, g: (g, g)))
            del kept, written, made
        t.rounds = ""
        del between
        return out

    def _fresh(self, t: Trace, one: Value, held: Value) -> Value:
        """New values less what the state holds of them."""

        def back(b: Trace, g: Storage) -> list[Storage | None]:
            return [g, b.new(g.laid, "full") if needs else None]

        needs = held.node is not None
        made = t.new((*HEADS, "Hv", "Pc"), "full", self.name("fresh"), (*NEW, "Nc"))
        return Value(made, NEW, t.node((one.node, held.node), back))

    def _repeated(self, t: Trace, x: Value, which: str) -> Value:
        """Each key head for the value heads that share it."""
        read, role = x.axes, x.role
        axes = tuple("Nd" if axis == "Kd" else axis for axis in read)
        made = t.new(axes, role, self.name(f"{which}_repeated"))
        return Value(made, axes, t.node((x.node,), lambda b, _g: (b.new(read, role),)))

    def _wide(self, t: Trace, x: Value, which: str) -> Value:
        """In fp32, in a row: a copy, but of what is in it."""
        if x.role == "full" or t.full:
            return x
        path = "" if which == "decay" else self.name(f"{which}_wide")
        return Value(t.new(x.axes, "full", path), x.axes, t.node((x.node,), lambda b, g: (b.new(g.laid, "work"),)))

    def _unit(self, t: Trace, x: Value, which: str) -> Value:
        """A vector of length 1."""
        one = x.axes[:-1]
        summed = own.sums(t, own.squares(t, x, self.name(f"{which}_square")), one)
        more = Value(t.new(one, "full"), one, summed.node)
        del summed
        root = own.root(t, more, self.name(f"{which}_root"), self.name(f"{which}_length"))
        del more
        return own.times(t, x, root, self.name(f"{which}_norm"))

    def _padded(self, t: Trace, x: Value, which: str) -> Value:
        """Whole chunks: a copy, where there are such too."""
        old, even = x.axes, self.even
        axes = (*CHUNKS, *x.axes[3:])
        laid = axes
        if even:
            laid = tuple(a for axis in ops.dense(x) for a in (("Nc", "Pc") if axis == "T" else (axis,)))

        def back(b: Trace, g: Storage) -> list[Storage | None]:
            return [b.new(_unchunked(g.laid) if even else old, "full")]

        return Value(t.new(laid, "full", self.name(f"{which}_chunks")), axes, t.node((x.node,), back))

    def _paired(self, t: Trace, left: Value, right: Value, pair: Value, name: str) -> Value:
        """Keys at keys or queries, decayed."""
        turned = right.viewed((*CHUNKS[:-1], "Hk", "Pc"))
        made = own.product(t, left, turned, PAIRS, self.name(name), front=3, path=self.name(f"{name}.product"))
        return own.times(t, made, pair, self.name(f"{name}_decay"), self.name(f"{name}_decayed"))

    def _cut(self, t: Trace, x: Value) -> Value:
        """The tokens that there are: a view."""
        whole, axes = x.axes, (*HEADS, "T", "Hv")
        laid = _unchunked(x.storage.laid)
        if self.even:
            return Value(Joint(x.storage.parts, laid), axes, x.node)
        laid = (*laid[:2], views.APART, *laid[2:])
        node = t.node((x.node,), lambda b, _g: (b.new(whole, "full"),))
        return Value(Joint(x.storage.parts, laid), axes, node)

    def _narrow(self, t: Trace, x: Value) -> Value:
        """Token by token, in the pass's dtype."""
        x = x.viewed((*ROWS, "Nd", "Hv"))
        if t.full:
            return x
        return Value(t.new(x.axes, "work"), x.axes, t.node((x.node,), lambda b, g: (b.new(g.laid, "full"),)))


def same(_b: Trace, g: Storage) -> list[Storage | None]:
    return [g]


def alike(b: Trace, g: Storage) -> list[Storage | None]:
    return [b.new(g.laid, g.role)]


def _unchunked(laid: Axes) -> Axes:
    """Chunks of tokens as tokens in a row."""
    return tuple("T" if axis == "Nc" else axis for axis in laid if axis != "Pc" or "Nc" not in laid)


def _masked(t: Trace, x: Value, mask: Storage, name: str) -> Value:
    """Decays between tokens of the wrong order are none."""
    t.named(name)
    node = t.node((x.node,), alike)
    t.save(node, mask)
    return Value(t.new(x.storage.laid, x.role), x.axes, node)


def _solved(t: Trace, system: Value, right: Value, name: str) -> Value:
    """A triangular system: its columns lie in a row."""
    t.named(name)
    laid = (*CHUNKS[:-1], right.axes[-1], "Pc")

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        made = b.new(laid, "full")
        product = b.new(PAIRS, "full")
        negative = b.new(PAIRS, "full")
        del product
        lower = b.new(PAIRS, "full")
        del negative
        return [lower, made]

    node = t.node((system.node, right.node), back)
    found = t.new(laid, "full", f"{name}.solved")
    t.save(node, system.storage, found)
    t.after = True
    return Value(found, right.axes, node)


def _end(t: Trace, x: Value) -> Value:
    """The sum of a whole chunk: a view, whose gradient is among zeros."""
    whole = x.axes
    node = t.node((x.node,), lambda b, _g: (b.new(whole, "full"),))
    return Value(Joint(x.storage.parts, ("B", "Nd", "Nc")), CHUNKS[:-1], node)


def _put(t: Trace, out: Value, one: Value) -> Value:
    """A chunk's result in its place among all: backwards all are copied each time, and its own is cut out."""
    laid, needed = out.storage.laid, out.node is not None

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        whole = b.new(laid, "full")
        own_ = b.new(NEW, "full")
        zeros = b.new(NEW, "full")
        del zeros
        return [whole if needed else None, own_]

    return Value(out.storage, out.axes, t.node((out.node, one.node), back))
