"""Attention with an output gate, as the transformers classes run it, written out in the pass's dtype."""

from __future__ import annotations

from tfacct.architecture.parts import Attention
from tfacct.base.errors import ConfigError
from tfacct.ledger.kept import Run
from tfacct.profiles import plain
from tfacct.profiles import plain_operations as own
from tfacct.profiles import written_decoders as decoders
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_views as views
from tfacct.profiles.transformers_attention import Attending
from tfacct.profiles.transformers_masks import ALIGNED
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_operations import ROWS, Weights
from tfacct.profiles.written_parts import LETTERS, How
from tfacct.profiles.written_storage import Axes

FLAT: Axes = (*ROWS, "N", "H")


def gated(at: str, reads: str, part: Attention, profile: Attending, turn: str, *, waits: bool) -> Run:
    """The run of attention whose result a gate of each element multiplies. Raises ConfigError for others."""
    norm = part.qk_norm
    others = part.clip, part.temperature, part.softcap, part.value_dim, part.adapter
    if (
        waits
        or any(each is not None for each in others)
        or part.gates != "elements"
        or part.sinks
        or norm is None
        or norm.kind != "rms"
        or norm.together
        or norm.late
        or (part.rotary is not None and part.rotary.pairs != "halves")
    ):
        raise ConfigError(f"{profile.name}: no rule for attention with a gate of this kind")
    how = How(
        profile.attention, profile.habits, Weights(), turn, profile.reaches(part.window), not profile.tokens % ALIGNED
    )
    sizes = {"B": profile.batch, "N": part.heads, "K": part.kv_heads}
    ones = frozenset(axis for axis, size in sizes.items() if size == 1)

    def write(t: Trace, x: Value) -> Value:
        return _attention(t, how, x, at, part)

    key = at, repr(part), how
    return plain.part(reads, write, ones, key, full=profile.full, apart=profile.habits.apart)


def _attention(t: Trace, how: How, x: Value, at: str, part: Attention) -> Value:
    if how.habits.fused_queries:
        q, gate = _together(t, x, at)
        q = _normed(t, how, q, "q", at, part)
        k = _normed(t, how, plain.linear(t, x, f"{at}.k_proj", ("K", "H")), "k", at, part)
        v = _by_head(plain.linear(t, x, f"{at}.v_proj", ("K", "H")), "v")
    else:
        q, k, v = (plain.linear(t, x, f"{at}.{which}_proj", (letter, "H")) for which, letter in LETTERS.items())
        gate = plain.linear(t, x, f"{at}.gate_proj", ("N", "H"))
        q = _normed(t, how, q, "q", at, part)
        k = _normed(t, how, k, "k", at, part)
        v = _by_head(v, "v")
    if part.rotary is not None:
        q, k = _turned(t, how, q, k, at, part)
    values, _weights = decoders.attend(t, how, q, k, v, part)
    shares = ops.activation(t, gate, f"{at}.gate_sigmoid", result=True)
    values = own.times(t, values, shares, f"{at}.gate", f"{at}.gated")
    del shares
    return plain.linear(t, values, f"{at}.o_proj", ("D",))


def _together(t: Trace, x: Value, at: str) -> tuple[Value, Value]:
    """Queries and gates, of one product for each head: views, of which the gates are copied in a row."""
    each = [f"{at}.q_proj", f"{at}.gate_proj"]
    whole, node = plain.products(t, x, each, [(name, ("N", "H")) for name in each], ("N", views.APART, "H"))
    laid = (*ROWS, "N", views.APART, "H")
    q, gate = views.chunks(t, whole, node, laid, laid, [FLAT] * 2)
    if "N" in t.ones:
        return q, gate
    return q, Value(t.new(FLAT), FLAT, t.node((gate.node,), lambda _b, g: (g,)))


def _by_head(x: Value, which: str) -> Value:
    return x.viewed(("B", LETTERS[which], "T", "H"))


def _normed(t: Trace, how: How, x: Value, which: str, at: str, part: Attention) -> Value:
    """Queries or keys, normed, head by head."""
    assert part.qk_norm is not None
    wide = part.qk_norm.less_one or how.habits.wide_norms
    made = ops.rms_norm(t, x, f"{at}.{which}_norm", ("H",), late_cast=wide, less_one=part.qk_norm.less_one)
    return _by_head(made, which)


def _turned(t: Trace, how: How, q: Value, k: Value, at: str, part: Attention) -> tuple[Value, Value]:
    """Queries and keys that turn, whole or in part: then what turns and the rest are put together again."""
    if not how.habits.rejoins:
        made = [
            own.turned(t, one, how.turn, f"{at}.{which}_rotary", last=which == "q")
            for one, which in ((q, "q"), (k, "k"))
        ]
        return made[0], made[1]
    whole = bool(part.rope_dim is None or part.rope_dim == part.head_dim)
    old = [(views.part(t, one, (*one.axes[:-1], "Hr"), whole=whole), views.rest(t, one)) for one in (q, k)]
    turned = [
        own.turned(t, turns, how.turn, "", last=which == "q") for (turns, _), which in zip(old, "qk", strict=True)
    ]
    made = [
        views.joined(t, turns, rest, one.axes, f"{at}.{which}_rotary")
        for turns, (_, rest), one, which in zip(turned, old, (q, k), "qk", strict=True)
    ]
    return made[0], made[1]
