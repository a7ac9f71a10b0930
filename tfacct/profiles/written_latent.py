"""Latent attention written out, as DeepseekV3Attention runs it: latents expanded to keys and values of all heads."""

from __future__ import annotations

from tfacct.architecture.parts import LatentAttention
from tfacct.profiles import written_heads as heads
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_scores as scores
from tfacct.profiles import written_sinks as sinks
from tfacct.profiles import written_views as views
from tfacct.profiles.written import Node, Trace, Value
from tfacct.profiles.written_parts import ATTN, How, product, products
from tfacct.profiles.written_storage import Axes, Joint, Storage

QUERIES: Axes = ("B", "N", "T", "Hq")
PLAIN: Axes = ("B", "N", "T", "Hp")
TURNED: Axes = ("B", "N", "T", "Hr")
VALUES: Axes = ("B", "N", "T", "Hv")
LATENT: Axes = ("B", "T", "R")
SHARED: Axes = ("B", "T", "Hr")
"""What is turned of the keys of all heads."""
NAMES = ("queries", "keys", "v_b_proj")


def known(part: LatentAttention) -> bool:
    """True if it is written out."""
    plain = part.index_top is None and part.temperature is None and not (part.gated or part.stretched)
    turns = part.rotary is not None and part.rotary.pairs == "neighbours"
    return plain and turns and part.form in ("auto", "expanded")


def attention(t: Trace, how: How, x: Value, part: LatentAttention) -> tuple[Value, Value | None]:
    """Attention, and what values were weighted by."""
    plain, turns = _queries(t, how, x, part)
    latent, shared, _whole = _latent(t, how, x, part)
    turns, shared = _turned(t, how, turns, shared)
    queries = views.joined(t, turns, plain, QUERIES, f"{ATTN}.queries")
    keys, values = _expanded(t, how, latent, shared)
    rows, weights = _attended(t, how, queries, keys, values, part)
    rows = heads.contiguous(t, rows, ("B", "T", "N", "Hv"), f"{ATTN}.values_copy")
    return product(t, how, rows, f"{ATTN}.o_proj", ("D",), bias=part.bias), weights


def _norm(t: Trace, how: How, x: Value, name: str, axis: str) -> Value:
    return ops.rms_norm(t, x, f"{ATTN}.{name}", (axis,), trained=how.weights.trained)


def _queries(t: Trace, how: How, x: Value, part: LatentAttention) -> tuple[Value, Value]:
    """Of one product or two, in two parts."""
    if part.q_rank is None:
        made = product(t, how, x, f"{ATTN}.q_proj", ("N", "Hq"))
    else:
        low = product(t, how, x, f"{ATTN}.q_a_proj", ("Rq",), bias=part.bias)
        low = _norm(t, how, low, "q_a_norm", "Rq")
        made = product(t, how, low, f"{ATTN}.q_b_proj", ("N", "Hq"))
        del low
    plain, turns = _pieces(t, made, QUERIES, ("B", "T", "N", "Hp", "Hr"), (PLAIN, TURNED))
    return plain, turns


def _pieces(t: Trace, made: Value, shape: Axes, laid: Axes, each: tuple[Axes, Axes]) -> list[Value]:
    return views.chunks(t, Joint(made.storage.parts, made.storage.laid), made.node, shape, laid, each)


def _latent(t: Trace, how: How, x: Value, part: LatentAttention) -> tuple[Value, Value, Value]:
    """The latent, normed; what all heads share; and the product that made both, which stays."""
    whole = product(t, how, x, f"{ATTN}.kv_a_proj", ("Rs",), bias=part.bias)
    latent, shared = _pieces(t, whole, ("B", "T", "Rs"), ("B", "T", "R", "Hr"), (LATENT, SHARED))
    return _norm(t, how, latent, "kv_a_norm", "R"), shared, whole


def _turned(t: Trace, how: How, q: Value, k: Value) -> tuple[Value, Value]:
    """What turns of queries and keys, neighbours together: slices of it. Where a config has halves turn, other instants
    are fuller."""
    t.named(how.turn)
    slices = [(_slice(t, one), _slice(t, one)) for one in (q, k)]
    made = [
        sinks.crossed(t, pieces, one.role, one.axes, last=number == 0)
        for number, (one, pieces) in enumerate(zip((q, k), slices, strict=True))
    ]
    return made[0], made[1]


def _slice(t: Trace, x: Value) -> Node | None:
    """Every other number: its gradient is among zeros for the rest. Then the angles are gone."""
    axes, role = x.axes, x.role

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        b.after = True
        return [b.new(axes, role)]

    node = t.node((x.node,), back)
    if node is not None:
        node.after = True
    return node


def _expanded(t: Trace, how: How, latent: Value, shared: Value) -> tuple[Value, Value]:
    """Keys, written part by part into one tensor, and values, a view of the product that makes keys' numbers too."""
    parts = [(f"{ATTN}.k_b_proj", ("N", "Hp")), (f"{ATTN}.v_b_proj", ("N", "Hv"))]
    whole, node = products(t, how, latent, parts, ("N", views.APART))
    laid = ("B", "T", "N", "Hp", "Hv")
    plain, values = views.chunks(t, whole, node, ("B", "N", "T", views.APART), laid, (PLAIN, VALUES))
    made = t.new(QUERIES, "work", f"{ATTN}.keys")
    t.named(f"{ATTN}.k_plain")
    every = t.node((shared.node,), lambda b, _g: (b.new(SHARED, "full"),))
    node = t.node((plain.node,), _written_first)
    t.named(f"{ATTN}.k_turned")
    return Value(made, QUERIES, t.node((node, every), _written_second)), values


def _written_first(b: Trace, _g: Storage) -> list[Storage | None]:
    """What is written into a tensor has a copy of its gradient, beside one of the whole."""
    whole = b.new(QUERIES)
    made = b.new(PLAIN)
    del whole
    return [made]


def _written_second(b: Trace, _g: Storage) -> list[Storage | None]:
    """The same, in fp32; and the gradient of the whole, zeros in its place."""
    whole = b.new(QUERIES)
    tensors = [b.new(TURNED), b.new(TURNED)]
    made = b.new(TURNED, "full")
    del tensors
    return [whole, made]


def _attended(t: Trace, how: How, q: Value, k: Value, v: Value, part: LatentAttention) -> tuple[Value, Value | None]:
    if how.attention == "eager":
        return scores.weighed(t, how, (q, k, v), NAMES)
    if part.query == part.value_dim:
        return heads.flash(t, q, k, v, ATTN), None
    made = heads.efficient(t, q, k, v, ATTN, aligned=True, masked=False)
    return heads.contiguous(t, made, ("B", "T", "N", "Hv"), f"{ATTN}.values"), None
