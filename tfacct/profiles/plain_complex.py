"""Llama 4 as its class runs it: queries and keys turn as complex numbers in fp32, and every token goes through all
experts, which read it times the router's score."""

from __future__ import annotations

from tfacct.architecture.parts import Attention, Experts
from tfacct.base.errors import ConfigError
from tfacct.ledger.kept import Run
from tfacct.profiles import plain
from tfacct.profiles import plain_operations as own
from tfacct.profiles import written_decoders as decoders
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_views as views
from tfacct.profiles.transformers_attention import Attending
from tfacct.profiles.transformers_masks import ALIGNED
from tfacct.profiles.written import LEAF, Node, Trace, Value
from tfacct.profiles.written_networks import SMOOTH
from tfacct.profiles.written_operations import ROWS, Weights
from tfacct.profiles.written_parts import LETTERS, How
from tfacct.profiles.written_storage import Axes, Joint, Storage

ALL: Axes = ("E", *ROWS)
EVERY: Axes = (*ROWS, "E")
CHOSEN: Axes = (*ROWS, "A")


def attention(at: str, reads: str, part: Attention, profile: Attending, turn: str) -> Run:
    """Llama4TextAttention. Raises ConfigError for what it does not do."""
    others = part.clip, part.softcap, part.value_dim, part.adapter, part.rope_dim
    norm = part.qk_norm
    if any(each is not None for each in others) or (norm is not None and (not norm.late or norm.learned)):
        raise ConfigError(f"{profile.name}: no rule for heads that turn as complex numbers in this way")
    masks, aligned = profile.reaches(part.window), not profile.tokens % ALIGNED
    how = How(profile.attention, profile.habits, Weights(), turn, masks, aligned)
    sizes = {"B": profile.batch, "N": part.heads, "K": part.kv_heads}
    ones = frozenset(axis for axis, size in sizes.items() if size == 1)

    def write(t: Trace, x: Value) -> Value:
        q, k, v = (plain.linear(t, x, f"{at}.{which}_proj", (letter, "H")) for which, letter in LETTERS.items())
        if part.rotary is not None:
            q, k = _turned(t, how, q, k, at)
        if norm is not None:
            q = ops.rms_norm(t, q, f"{at}.q_norm", ("H",), weighed=False)
            k = ops.rms_norm(t, k, f"{at}.k_norm", ("H",), weighed=False)
        if part.temperature is not None:
            q = _tempered(t, q, at)
        q, k, v = (one.viewed(("B", LETTERS[which], "T", "H")) for one, which in zip((q, k, v), "qkv", strict=True))
        values, _weights = decoders.attend(t, how, q, k, v, part)
        return plain.linear(t, values, f"{at}.o_proj", ("D",))

    key = at, repr(part), how
    return plain.part(reads, write, ones, key, full=profile.full, apart=profile.habits.apart)


def _turned(t: Trace, how: How, q: Value, k: Value, at: str) -> tuple[Value, Value]:
    """Pairs of neighbours as complex numbers, times those of the positions."""
    wide = [ops.cast(t, one, "full") for one in (q, k)]
    t.named(how.turn)
    made = []
    for one, which in zip(wide, "qk", strict=True):

        def back(b: Trace, g: Storage, *, last: bool = which == "q") -> list[Storage | None]:
            b.after = last
            turned = b.new(("T", "H"), "full")
            given = b.new(g.laid, "full")
            del turned
            return [given]

        node = t.node((one.node,), back)
        t.save(node, None)
        made.append(Value(t.new(one.storage.laid, "full", f"{at}.{which}_turned"), one.axes, node))
    narrow = [ops.cast(t, one, q.role, f"{at}.{which}_turned") for one, which in zip(made, "qk", strict=True)]
    return narrow[0], narrow[1]


def _tempered(t: Trace, x: Value, at: str) -> Value:
    """Queries times a number of their position, in fp32."""
    _positions, numbers = t.new(("T",), "index"), Value(t.new(("T",), "full", f"{at}.temperature"), ("T",), None)
    made = own.times(t, x, numbers, f"{at}.q_scale", f"{at}.q_scaled")
    return ops.cast(t, made, x.role, f"{at}.q_scaled")


def experts(at: str, reads: str, part: Experts, profile: Attending) -> Run:
    """Llama4TextMoe. Raises ConfigError for others."""
    if part.bias or not part.shared_alike or part.shared_gate or part.activation not in SMOOTH:
        raise ConfigError(f"{profile.name}: no rule for all experts of this kind")
    sizes = {"B": profile.batch, "E": part.experts}
    ones = frozenset(axis for axis, size in sizes.items() if size == 1)

    def write(t: Trace, x: Value) -> Value:
        scores, _logits = _scores(t, x, f"{at}.router")
        sent = _sent(t, x, scores, f"{at}.sent")
        routed = _banks(t, sent, f"{at}.experts")
        out = _network(t, x, f"{at}.shared", part.shared_axis)
        total = Value(t.new((*ROWS, "D")), (*ROWS, "D"), t.node((routed.node,), _to_all))
        node = t.node((out.node, total.node), lambda _b, g: (g, g))
        return Value(out.storage, out.axes, node)

    key = at, repr(part)
    return plain.part(reads, write, ones, key, full=profile.full, apart=profile.habits.apart)


def _to_all(b: Trace, g: Storage) -> list[Storage | None]:
    return [g if "E" in b.ones else b.new((*ALL, "D"), g.role)]


def _scores(t: Trace, x: Value, at: str) -> tuple[Value, Value]:
    """Sigmoids, in fp32, of the scores of the chosen experts, 0 for all others."""
    logits = plain.linear(t, x, at, ("E",))
    role, every = logits.role, EVERY
    t.named(f"{at}.softmax")
    index = t.new(CHOSEN, "index", f"{at}.chosen")
    values = Value(t.new(CHOSEN, role), CHOSEN, t.node((logits.node,), lambda b, _g: (b.new(every, role),)))
    t.save(values.node, index)
    there = t.new(every, role)
    node = t.node((values.node,), lambda b, _g: (b.new(CHOSEN, role),))
    t.save(node, index)
    made = ops.cast(t, Value(there, every, node), "full")
    made = ops.activation(t, made, f"{at}.sigmoid", result=True)
    return ops.cast(t, made, role, f"{at}.scores"), logits


def _sent(t: Trace, x: Value, scores: Value, at: str) -> Value:
    """All tokens for each expert, times its score of each."""
    t.named(f"{at}.tokens")
    axes, read = (*ALL, "D"), x.axes
    repeated = Value(t.new(axes, x.role, f"{at}.tokens"), axes, t.node((x.node,), lambda b, _g: (b.new(read),)))
    if "E" not in t.ones:
        made = t.new(ALL, scores.role, f"{at}.scores")
        scores = Value(made, ALL, t.node((scores.node,), lambda _b, g: (g,)))
    else:
        scores = scores.viewed(ALL)
    return own.times(t, repeated, scores, f"{at}.weighting", at)


def _banks(t: Trace, x: Value, at: str) -> Value:
    """Products of each expert with all that it is sent."""
    wide: Axes = (*ALL, "Fe")
    whole, node = _bank(t, x, [f"{at}.gate_proj", f"{at}.up_proj"], wide)
    laid = (*ALL, views.APART, "Fe")
    gate, up = views.chunks(t, whole, node, laid, laid, [wide] * 2)
    del whole, node
    act = ops.activation(t, gate, f"{at}.act")
    both = own.times(t, up, act, f"{at}.product", f"{at}.product.result")
    del act
    made, node = _bank(t, both, [f"{at}.down_proj"], (*ALL, "D"))
    return Value(made.parts[0], (*ALL, "D"), node)


def _bank(t: Trace, x: Value, names: list[str], makes: Axes) -> tuple[Joint, Node | None]:
    """Products of each expert with banks that lie in one."""
    for name in names:
        t.named(f"{name}.weight")
        t.node((LEAF,), views.finish)
    t.at = f"{names[0]}.weight"
    read = x.axes

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        b.gradient()
        return [b.new(read)]

    node = t.node((x.node,), back)
    t.save(node, x.storage)
    t.after = True
    apart = (views.APART,) if len(names) > 1 else ()
    made = t.joint([(makes, name) for name in names], (*makes[:-1], *apart, makes[-1]))
    t.named(f"{names[0]}.rows")
    return made, node


def _network(t: Trace, x: Value, at: str, wide: str) -> Value:
    """A gated network."""
    gate = ops.activation(t, plain.linear(t, x, f"{at}.gate_proj", (wide,)), f"{at}.act")
    up = plain.linear(t, x, f"{at}.up_proj", (wide,))
    both = own.times(t, gate, up, f"{at}.product", f"{at}.product.result")
    del gate, up
    return plain.linear(t, both, f"{at}.down_proj", ("D",))
