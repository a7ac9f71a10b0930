"""Blocks of decoders written out, as the transformers classes run them under autocast: Llama's, and those like it."""

from __future__ import annotations

from tfacct.architecture.parts import Attention, Experts, FeedForward, LatentAttention, Norm
from tfacct.profiles import written_heads as heads
from tfacct.profiles import written_latent as latent
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_scored as scored
from tfacct.profiles import written_scores as scores
from tfacct.profiles import written_sinks as sinks
from tfacct.profiles import written_views as views
from tfacct.profiles import written_wide_scores as wide_scores
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_experts import routed
from tfacct.profiles.written_networks import acted, network
from tfacct.profiles.written_parts import ATTN, LETTERS, NETWORK, How, again, dropped, norm, product, products, rms


def attention(t: Trace, how: How, x: Value, part: Attention) -> tuple[Value, Value | None]:
    """Attention of Llama's kind, and what values were weighted by."""
    rows, weights, _there = attention_values(t, how, x, part)
    rows = product(t, how, rows, f"{ATTN}.o_proj", ("D",), bias=part.out_bias)
    if how.habits.drops_inside:
        rows = dropped(t, how, rows, ATTN)
    return rows, weights


def attention_values(t: Trace, how: How, x: Value, part: Attention) -> tuple[Value, Value | None, scores.Three]:
    """Values as they are summed, token by token, and what they were weighted by; what the module has beside them."""
    q, k, v = (_split if how.habits.fused else apart)(t, how, x, part)
    if part.clip is not None:
        q, k, v = (heads.bounded(t, one, f"{ATTN}.{which}") for one, which in zip((q, k, v), "qkv", strict=True))
    if how.turn:
        q, k = _turned(t, how, q, k)
    if part.qk_norm is not None and part.qk_norm.late:
        q = _qk_norm(t, how, q, "q", part)
        k = _qk_norm(t, how, k, "k", part)
    if part.temperature is not None:
        q = heads.tempered(t, q, f"{ATTN}.q_scale", f"{ATTN}.temperature")
    values, weights = attend(t, how, q, k, v, part)
    return values, weights, (q, k, v)


def apart(t: Trace, how: How, x: Value, part: Attention) -> scores.Three:
    """Queries, keys and values of products of their own."""
    at, early = ATTN, part.qk_norm is not None and not part.qk_norm.late
    made: dict[str, Value] = {}
    for which, letter in LETTERS.items():
        one = product(t, how, x, f"{at}.{which}_proj", (letter, "H"), bias=part.qkv_bias)
        if how.habits.inline_network and which == "q":  # OPT's, scaled in front of its scores
            one = ops.scaled(t, one, f"{at}.q_scaled")
        if early and not how.habits.norms_last:
            one = _qk_norm(t, how, one, which, part)
        made[which] = one.viewed(("B", letter, "T", "H"))
        del one
    if early and how.habits.norms_last:
        for which in ("q", "k"):
            made[which] = _qk_norm(t, how, made[which], which, part)
    return made["q"], made["k"], made["v"]


def _split(t: Trace, how: How, x: Value, part: Attention) -> scores.Three:
    """The same, pieces of one product by one operation."""
    each = [(f"{ATTN}.{which}_proj", (letter, "H")) for which, letter in LETTERS.items()]
    whole, node = products(t, how, x, each, (views.APART, "N", "H"), bias=part.qkv_bias)
    shape, laid = ("B", "T", views.APART), ("B", "T", views.APART, "N", "H")
    pieces = views.chunks(t, whole, node, shape, laid, [("B", "T", *makes) for _, makes in each])
    del whole, node
    q, k, v = (
        views.rows_apart(t, one, makes).viewed(("B", makes[0], "T", "H"))
        for one, (_, makes) in zip(pieces, each, strict=True)
    )
    return q, k, v


def attend(t: Trace, how: How, q: Value, k: Value, v: Value, part: Attention) -> tuple[Value, Value | None]:
    """Values as they are summed, and what they were weighted by."""
    values, weights = (_eager if how.attention == "eager" else _sdpa)(t, how, q, k, v, part)
    return heads.contiguous(t, values, ("B", "T", "N", "H"), f"{ATTN}.values_copy"), weights


def attended(t: Trace, how: How, x: Value, part: Attention | LatentAttention) -> tuple[Value, Value | None]:
    """The same, which may run again; or latent attention."""

    def run(t: Trace, x: Value) -> tuple[Value, Value | None]:
        if isinstance(part, LatentAttention):
            return latent.attention(t, how, x, part)
        return attention(t, how, x, part)

    return again(t, how, x, run)


def _qk_norm(t: Trace, how: How, x: Value, which: str, part: Attention) -> Value:
    """Queries or keys normed, where they are."""
    if which == "v" or part.qk_norm is None:
        return x
    each = (LETTERS[which], "H") if part.qk_norm.together else ("H",)
    return rms(t, how, x, f"{ATTN}.{which}_norm", each, part.qk_norm)


def _turned(t: Trace, how: How, q: Value, k: Value) -> tuple[Value, Value]:
    if how.habits.repeats_angles:
        made, other = heads.turned_neighbours(t, (q, k), how.turn, ATTN, wide=how.habits.wide_angles)
    elif how.habits.half_angles:
        made = sinks.turned(t, q, how.turn, last=True)
        other = sinks.turned(t, k, how.turn)
    else:
        made = heads.turned(t, q, how.turn, f"{ATTN}.q_turned", last=True)
        other = heads.turned(t, k, how.turn, f"{ATTN}.k_turned")
    if not how.habits.wide_angles:
        return made, other
    return ops.cast(t, made, "work", f"{ATTN}.q_rotary"), ops.cast(t, other, "work", f"{ATTN}.k_rotary")


def _sdpa(t: Trace, how: How, q: Value, k: Value, v: Value, part: Attention) -> tuple[Value, None]:
    if not how.masks and t.full:
        return heads.efficient(t, q, k, v, ATTN, aligned=True, masked=False), None
    if not how.masks:
        return heads.flash(t, q, k, v, ATTN), None
    if part.group != 1:
        k = heads.repeated(t, k, f"{ATTN}.k_copies")
        v = heads.repeated(t, v, f"{ATTN}.v_copies")
    result = heads.efficient(t, q, k, v, ATTN, aligned=how.aligned)
    return heads.contiguous(t, result, ("B", "T", "N", "H"), f"{ATTN}.values"), None


def _eager(t: Trace, how: How, q: Value, k: Value, v: Value, part: Attention) -> tuple[Value, Value]:
    if part.sinks:
        return sinks.eager(t, how, q, k, v, part)
    if how.habits.wide_scores:
        return wide_scores.weighed(t, how, q, k, v)
    at, keys, values = ATTN, k, v
    if part.group != 1:
        keys, values = heads.repeated(t, k, f"{at}.k_copies"), heads.repeated(t, v, f"{at}.v_copies")
    own = ("k_copies", "v_copies") if part.group != 1 else ("k_rotary", "v_proj")
    return scores.weighed(t, how, (q, keys, values), ("q_rotary", *own), part.softcap)


Two = tuple[Norm | None, Norm | None]
"""Norms behind attention and behind the network."""


def sequential(
    t: Trace,
    how: How,
    fronts: tuple[Norm, Norm],
    attn: Attention | LatentAttention,
    mlp: FeedForward | Experts,
    behind: Two = (None, None),
) -> Value:
    """A block of Llama's kind, or of Gemma 2's, whose parts have norms behind them too."""
    x = t.start
    h = norm(t, how, x, f"{ATTN}_norm", fronts[0])
    h, _weights = attended(t, how, h, attn)
    h = h if how.habits.drops_inside else dropped(t, how, h, ATTN)
    h = h if behind[0] is None else norm(t, how, h, f"{ATTN}_post_norm", behind[0])
    mid = ops.total(t, x, scaled(t, how, h), "blocks.*.mid")
    del h
    h = norm(t, how, mid, f"{NETWORK}_norm", fronts[1])
    if isinstance(mlp, Experts) and how.habits.clamped:
        h, _weights = sinks.routed(t, how, h)
    elif isinstance(mlp, Experts):
        h = (scored.routed if how.habits.scored else routed)(t, how, h, mlp)
    elif how.habits.inline_network:
        h = product(t, how, h, f"{NETWORK}.up_proj", ("F",), bias=mlp.bias)
        h = acted(t, h, mlp)
        h = product(t, how, h, f"{NETWORK}.down_proj", ("D",), bias=mlp.bias)
        h = dropped(t, how, h, NETWORK)
    else:
        h = dropped(t, how, network(t, how, h, mlp), NETWORK)
    h = h if behind[1] is None else norm(t, how, h, f"{NETWORK}_post_norm", behind[1])
    return ops.total(t, mid, scaled(t, how, h))


def lingering(t: Trace, how: How, fronts: tuple[Norm, Norm], attn: Attention, mlp: FeedForward) -> Value:
    """A block of GPT-2's kind, whose variables are there to its end: what parts gave, and the norm in front of one."""
    x = t.start
    h = norm(t, how, x, f"{ATTN}_norm", fronts[0])
    attended_to, _weights = attended(t, how, h, attn)
    h = ops.total(t, attended_to, x, "blocks.*.mid")
    mid = h
    h = norm(t, how, mid, f"{NETWORK}_norm", fronts[1])
    made = dropped(t, how, network(t, how, h, mlp), NETWORK)
    return ops.total(t, mid, made)


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
