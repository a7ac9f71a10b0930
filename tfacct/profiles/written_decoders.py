"""Blocks of decoders written out, as the transformers classes run them under autocast: Llama's, and those like it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tfacct.architecture.parts import Attention, FeedForward, Norm, QKNorm
from tfacct.base.errors import ConfigError
from tfacct.ledger import paths
from tfacct.profiles import written_heads as heads
from tfacct.profiles import written_operations as ops
from tfacct.profiles.adapters_parts import RANK
from tfacct.profiles.base import Habits
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_operations import Weights
from tfacct.profiles.written_storage import Axes

LETTERS = {"q": "N", "k": "K", "v": "K"}
"""What heads of queries, keys and values are counted by."""
ATTN, NETWORK = (paths.in_every(paths.BLOCKS, name) for name in ("attn", "mlp"))


class How(NamedTuple):
    """How a class runs. `turn`: the operation that turns queries and keys; `masks`: torch's attention is handed one,
    whose rows need no padding if `aligned`. `again`: attention runs again. `seen`: every
    token sees all others, so eager attention has no mask."""

    attention: Literal["sdpa", "eager"]
    habits: Habits
    weights: Weights
    turn: str = ""
    masks: bool = False
    aligned: bool = True
    again: bool = False
    seen: bool = False


def norm(t: Trace, how: How, x: Value, name: str, part: Norm) -> Value:
    """A norm of the stream."""
    if part.kind == "rms":
        return _rms(t, how, x, name, ("D",), part)
    return ops.layer_norm(t, x, name, trained=how.weights.trained)


def _rms(t: Trace, how: How, x: Value, name: str, each: Axes, part: Norm | QKNorm) -> Value:
    wide = part.less_one or how.habits.wide_norms
    return ops.rms_norm(t, x, name, each, trained=how.weights.trained, late_cast=wide, less_one=part.less_one)


def product(t: Trace, how: How, x: Value, name: str, makes: Axes, *, bias: bool = False) -> Value:
    """A product with a weight, and with its adapter, if it has one."""
    weights = how.weights
    if name not in weights.on:
        return ops.linear(t, x, name, makes, trained=weights.trained, bias=bias)
    result = ops.linear(t, x, name, makes, trained=False, bias=bias)
    wide = ops.cast(t, x, "full", f"{name}.lora_in")
    read = ops.dropout(t, wide, f"{name}.lora_drop") if weights.drops else wide
    down = ops.linear(t, read, f"{name}.lora_A", (RANK,))
    del read
    up = ops.linear(t, down, f"{name}.lora_B", makes)
    del down
    more = ops.scaled(t, up)
    del up
    return ops.total(t, result, more, name)


def attention(t: Trace, how: How, x: Value, part: Attention) -> tuple[Value, Value | None]:
    """Attention of Llama's kind, and what values were weighted by."""
    rows, weights, _there = attention_values(t, how, x, part)
    return product(t, how, rows, f"{ATTN}.o_proj", ("D",), bias=part.out_bias), weights


def attention_values(
    t: Trace, how: How, x: Value, part: Attention
) -> tuple[Value, Value | None, tuple[Value, Value, Value]]:
    """Values as they are summed, token by token, and what they were weighted by; what the module has beside them."""
    at, bias = ATTN, part.qkv_bias
    made: dict[str, Value] = {}
    for which, letter in LETTERS.items():
        one = product(t, how, x, f"{at}.{which}_proj", (letter, "H"), bias=bias)
        if not how.habits.norms_last:
            one = _qk_norm(t, how, one, which, letter, part)
        made[which] = one.viewed(("B", letter, "T", "H"))
        del one
    if how.habits.norms_last:
        for which in ("q", "k"):
            made[which] = _qk_norm(t, how, made[which], which, LETTERS[which], part)
    q, k, v = made.pop("q"), made.pop("k"), made.pop("v")
    if how.turn:
        q, k = _turned(t, how, q, k)
    values, weights = attend(t, how, q, k, v, part)
    return values, weights, (q, k, v)


def attend(t: Trace, how: How, q: Value, k: Value, v: Value, part: Attention) -> tuple[Value, Value | None]:
    """Values as they are summed, and what they were weighted by."""
    values, weights = (_eager if how.attention == "eager" else _sdpa)(t, how, q, k, v, part)
    return heads.contiguous(t, values, ("B", "T", "N", "H"), f"{ATTN}.values_copy"), weights


def attended(t: Trace, how: How, x: Value, part: Attention) -> tuple[Value, Value | None]:
    """The same, which may run again."""
    if not how.again:
        return attention(t, how, x, part)
    return t.rerun(x, lambda t, x: attention(t, how, x, part))


def _qk_norm(t: Trace, how: How, x: Value, which: str, letter: str, part: Attention) -> Value:
    """Queries or keys normed, where they are."""
    if which == "v" or part.qk_norm is None:
        return x
    each = (letter, "H") if part.qk_norm.together else ("H",)
    return _rms(t, how, x, f"{ATTN}.{which}_norm", each, part.qk_norm)


def _turned(t: Trace, how: How, q: Value, k: Value) -> tuple[Value, Value]:
    made, other = heads.turned(t, q, how.turn, last=True), heads.turned(t, k, how.turn)
    if not how.habits.wide_angles:
        return made, other
    return ops.cast(t, made, "work", f"{ATTN}.q_rotary"), ops.cast(t, other, "work", f"{ATTN}.k_rotary")


def _sdpa(t: Trace, how: How, q: Value, k: Value, v: Value, part: Attention) -> tuple[Value, None]:
    if not how.masks:
        return heads.flash(t, q, k, v, ATTN), None
    if part.group != 1:
        k = heads.repeated(t, k, f"{ATTN}.k_copies")
        v = heads.repeated(t, v, f"{ATTN}.v_copies")
    result = heads.efficient(t, q, k, v, ATTN, aligned=how.aligned)
    return heads.contiguous(t, result, ("B", "T", "N", "H"), f"{ATTN}.values"), None


def _eager(t: Trace, how: How, q: Value, k: Value, v: Value, part: Attention) -> tuple[Value, Value]:
    at, pairs, wide = ATTN, ("B", "N", "T", "S"), q.role
    keys, values = k, v
    if part.group != 1:
        keys, values = heads.repeated(t, k, f"{at}.k_copies"), heads.repeated(t, v, f"{at}.v_copies")
    names = f"{at}.q_rotary", f"{at}.k_copies" if part.group != 1 else f"{at}.k_rotary"
    weights = heads.multiplied(t, q, keys, f"{at}.scores", pairs, names)
    weights = ops.scaled(t, weights)
    if part.softcap is not None:
        weights = ops.scaled(t, weights)
        weights = ops.activation(t, weights, f"{at}.softcap", result=True)
        weights = ops.scaled(t, weights)
    if not how.seen:
        weights = ops.masked(t, weights)
    weights = heads.softmax(t, weights, f"{at}.softmax")
    if not how.habits.narrow_softmax:  # which asks for no dtype, and gets fp32
        weights = ops.cast(t, weights, wide, f"{at}.softmax.cast")
    if how.habits.attention:
        weights = ops.dropout(t, weights, f"{at}.softmax.drop")
    names = f"{at}.softmax.cast", f"{at}.v_copies" if part.group != 1 else f"{at}.v_proj"
    result = heads.multiplied(t, weights, values, f"{at}.values", ("B", "N", "T", "H"), names)
    return heads.contiguous(t, result, ("B", "T", "N", "H"), f"{at}.values"), weights


def network(t: Trace, how: How, x: Value, part: FeedForward) -> Value:
    """A network, gated or not."""
    at = NETWORK
    if not part.gated:
        raise ConfigError("no rule for a network without a gate")
    act = ops.activation(t, product(t, how, x, f"{at}.gate_proj", ("F",), bias=part.bias), f"{at}.act")
    up = product(t, how, x, f"{at}.up_proj", ("F",), bias=part.bias)
    both = ops.times(t, act, up, f"{at}.product")
    del act, up
    return product(t, how, both, f"{at}.down_proj", ("D",), bias=part.bias)


Two = tuple[Norm | None, Norm | None]
"""Norms behind attention and behind the network."""


def sequential(
    t: Trace, how: How, fronts: tuple[Norm, Norm], attn: Attention, mlp: FeedForward, behind: Two = (None, None)
) -> Value:
    """A block of Llama's kind, or of Gemma 2's, whose parts have norms behind them too."""
    x = t.start
    h = norm(t, how, x, f"{ATTN}_norm", fronts[0])
    h, _weights = attended(t, how, h, attn)
    h = h if behind[0] is None else norm(t, how, h, f"{ATTN}_post_norm", behind[0])
    mid = ops.total(t, x, scaled(t, how, h), "blocks.*.mid")
    del h
    h = norm(t, how, mid, f"{NETWORK}_norm", fronts[1])
    h = network(t, how, h, mlp)
    h = h if behind[1] is None else norm(t, how, h, f"{NETWORK}_post_norm", behind[1])
    return ops.total(t, mid, scaled(t, how, h))


def scaled(t: Trace, how: How, h: Value) -> Value:
    """A part's result, multiplied by a constant where it is."""
    return ops.scaled(t, h) if how.habits.scales_results else h


def normed_behind(t: Trace, how: How, attn: Attention, attn_norm: Norm, mlp: FeedForward, mlp_norm: Norm) -> Value:
    """A block of OLMo 2's kind: parts read the stream itself, and their results are normed."""
    x = t.start
    h, _weights = attended(t, how, x, attn)
    h = norm(t, how, h, f"{ATTN}_post_norm", attn_norm)
    mid = ops.total(t, x, h, "blocks.*.mid")
    del h
    h = network(t, how, mid, mlp)
    h = norm(t, how, h, f"{NETWORK}_post_norm", mlp_norm)
    return ops.total(t, mid, h)
