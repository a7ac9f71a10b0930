"""Gated DeltaNet as Qwen's classes run it in torch, read off Qwen3NextGatedDeltaNet and Qwen3_5GatedDeltaNet of
transformers 5 line by line: which names hold a tensor says how long it is there."""

from __future__ import annotations

from tfacct.architecture.parts import DeltaNet
from tfacct.base.errors import ConfigError
from tfacct.ledger.einsum import Size
from tfacct.profiles import plain
from tfacct.profiles import plain_operations as own
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_views as views
from tfacct.profiles.plain_convolutions import convolved
from tfacct.profiles.plain_delta_rule import DeltaRule, alike, same
from tfacct.profiles.written import LEAF, Trace, Value
from tfacct.profiles.written_operations import ROWS
from tfacct.profiles.written_storage import Axes, Joint, Storage


class GatedDeltaNet(DeltaRule):
    """DeltaNet of one part. `grouped`: its products are those of key heads, in one."""

    def __init__(self, at: str, part: DeltaNet, tokens: Size, *, grouped: bool = False) -> None:
        super().__init__(at, part, tokens)
        self.grouped = grouped
        if part.rank is not None or part.by_channel or part.doubled or part.gate != "silu" or part.activation != "silu":
            raise ConfigError("transformers: no rule for this kind of DeltaNet")

    def block(self, t: Trace, x: Value) -> Value:
        """Qwen3_5GatedDeltaNet."""
        made, z, b, a, _others = (self._grouped if self.grouped else self._products)(t, x)
        made = convolved(t, made, self.name("conv"), ("B", "Dc", "T"))
        made = ops.activation(t, made, self.name("conv_act"))
        q, k, v = self._heads(t, made)
        rate = ops.activation(t, b, self.name("rate"), result=True)
        decay = self._decay(t, a)
        out = self.rule(t, q, k, v, decay, rate)
        out = self._normed(t, out, z)
        return plain.linear(t, out, self.name("out_proj"), ("D",))

    def _products(self, t: Trace, x: Value) -> tuple[Value, Value, Value, Value, list[Value]]:
        """What the convolution reads, gates, rates and decays: of four products."""
        made = plain.linear(t, x, [self.name(f"{which}_proj") for which in "qkv"], ("Dc",), self.name("in_proj"))
        z = plain.linear(t, x, self.name("gate_proj"), ("Nd", "Hv"))
        b = plain.linear(t, x, self.name("rate_proj"), ("Nd",))
        return made.viewed(("B", "Dc", "T")), z, b, plain.linear(t, x, self.name("decay_proj"), ("Nd",)), []

    def _grouped(self, t: Trace, x: Value) -> tuple[Value, Value, Value, Value, list[Value]]:
        """The same of two products, key head by key head, as Qwen3-Next has them; what its variables hold beside."""
        names = [self.name(f"{which}_proj") for which in ("q", "k", "v", "gate")]
        parts: list[tuple[str, Axes]] = [(self.name("in_proj"), ("Dc",)), (names[-1], ("Nd", "Hv"))]
        whole, node = plain.products(t, x, names, parts, (views.APART,))
        both = [self.name("rate_proj"), self.name("decay_proj")]
        second, of_second = plain.products(t, x, both, [(name, ("Nd",)) for name in both], (views.APART,))
        keys = "Kd" if self.shares else "Nd"
        several: Axes = ("Kd", "Gd") if self.shares else ("Nd",)
        gap: Axes = (*ROWS, keys, views.APART)
        each = [("Hk",), ("Hk",), (*several[1:], "Hv"), (*several[1:], "Hv")]
        q, k, v, z = plain.split(t, Value(whole, gap, node), [((*ROWS, keys, *axes), (*gap, *axes)) for axes in each])
        b, a = plain.split(t, Value(second, gap, of_second), [((*ROWS, *several), (*gap, *several[1:]))] * 2)
        v, z = (self._by_value(t, one, ("Nd", "Hv")) for one in (v, z))
        b, a = (self._by_value(t, one, ("Nd",)) for one in (b, a))
        three = [_in_a_row(t, one) for one in (q, k, v)]
        q, k, v = three
        del three

        def back(_b: Trace, g: Storage) -> list[Storage | None]:
            return [Joint(g.parts, (*ROWS, views.APART, *one[2:])) for one in axes_of]

        axes_of = [one.axes for one in (q, k, v)]
        made = Value(
            t.new((*ROWS, "Dc"), "work", self.name("joined")), (*ROWS, "Dc"), t.node([q.node, k.node, v.node], back)
        )
        held = [Value(whole, gap, None), Value(second, gap, None), q, k, v]
        return made.viewed(("B", "Dc", "T")), z, b, a, held

    def _by_value(self, t: Trace, x: Value, makes: Axes) -> Value:
        """Value heads of key heads: a copy, where there are several of both."""
        axes = (*ROWS, *makes)
        if not self.shares:
            return x
        if "Kd" in t.ones:
            return Value(Joint(x.storage.parts, (*ROWS, views.APART, *makes)), axes, x.node)
        return Value(t.new(axes, "work", self.name("gate_copy") if makes[1:] else ""), axes, t.node((x.node,), same))

    def _heads(self, t: Trace, made: Value) -> tuple[Value, Value, Value]:
        """Queries, keys and values: views of what the convolution gave."""
        heads = "Kd" if self.shares else "Nd"
        each = [(heads, "Hk"), (heads, "Hk"), ("Nd", "Hv")]
        whole = Value(made.storage, (*ROWS, "Dc"), made.node)
        pieces = plain.split(t, whole, [((*ROWS, *axes), ("B", views.APART, *axes, "T")) for axes in each])
        return pieces[0], pieces[1], pieces[2]

    def _decay(self, t: Trace, a: Value) -> Value:
        """The logarithm of each token's decay, in fp32."""
        name, full = self.name("decay"), t.full
        t.named(f"{name}.weight")
        weight = Value(t.new(("Nd",), "full"), ("Nd",), t.node((LEAF,), _finished)) if not full else None
        if not full:
            t.named(f"{name}.power")
        first = t.node((LEAF if weight is None else weight.node,), _finished if full else alike)
        power = t.new(("Nd",), "full", f"{name}.rates")
        t.save(first, power)
        del weight
        t.named(f"{name}.negated")
        negated = Value(t.new(("Nd",), "full", f"{name}.negative"), ("Nd",), t.node((first,), alike))
        wide = ops.cast(t, a, "full")

        def shifted(b: Trace, g: Storage) -> list[Storage | None]:
            whole = b.new(("Nd",), "full")
            if not full:
                b.new(("Nd",), "work")
            b.gradient()
            del whole
            return [g]

        t.named(f"{name}.bias")
        total = Value(t.new((*ROWS, "Nd"), "full", f"{name}.sum"), a.axes, t.node((wide.node,), shifted))
        del wide
        soft = ops.activation(t, total, f"{name}.softplus")
        del total
        t.named(name)

        def back(b: Trace, g: Storage) -> list[Storage | None]:
            made = b.new(g.laid, "full")
            whole = b.new(g.laid, "full")
            summed = b.new(("Nd",), "full")
            del whole
            return [summed, made]

        node = t.node((negated.node, soft.node), back)
        t.save(node, soft.storage, negated.storage)
        return Value(t.new((*ROWS, "Nd"), "full"), a.axes, node)

    def _normed(self, t: Trace, x: Value, gate: Value) -> Value:
        """RMSNorm of each head, in fp32 times an activated gate."""
        name = self.name("out_norm")
        if not t.beside(x.axes[:3], x.storage.laid):  # rows of heads are copied
            x = Value(t.new(x.axes, x.role, f"{name}.read"), x.axes, t.node((x.node,), same))
        if not t.beside(gate.axes[:3], gate.storage.laid):
            gate = Value(t.new(gate.axes, "work", self.name("gate_copy")), gate.axes, t.node((gate.node,), same))
        given = x.role
        normed = ops.rms_norm(t, x, name, ("Hv",))
        wide = ops.cast(t, gate, "full", f"{name}.gate_upcast")
        gated = ops.activation(t, wide, f"{name}.gate_act")
        del wide
        out = own.times(t, normed, gated, f"{name}.gate", self.name("gated"))
        return ops.cast(t, out, given, self.name("gated"))


def _in_a_row(t: Trace, x: Value) -> Value:
    """Heads of a row beside each other: a copy, where they are not."""
    if t.beside(x.axes[2:], x.storage.laid):
        return x
    return Value(t.new(x.axes), x.axes, t.node((x.node,), same))


def _finished(b: Trace, _g: Storage) -> list[Storage | None]:
    """What is made of a parameter itself."""
    b.gradient()
    return [None]
