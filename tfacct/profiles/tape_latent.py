"""The reference model's latent attention on a tape, and what its own function has at hand while it runs."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import LatentAttention
from tfacct.ledger import paths
from tfacct.ledger.kept import Held, Moment
from tfacct.profiles import tape_operations as ops
from tfacct.profiles.tape import NARROWED, Grad, Tape, Value

ROWS = ("B", "T")
PAIRS = "B N T S"


def latent(tape: Tape, at: str, part: LatentAttention, x: Value, turn: str, *, full: bool) -> Value:
    """Products down to latents, norms, products up to heads, scores, softmax, values."""
    read = x
    if part.q_rank is not None:
        down = ops.product(tape, x, (*ROWS, "Rq"), f"{at}.q_a_proj.weight")
        read = ops.rms_norm(tape, down, f"{at}.q_a_norm", ROWS, ("Rq",), full=full)
    up = f"{at}.q_proj.weight" if part.q_rank is None else f"{at}.q_b_proj.weight"
    q = _by_head(tape, ops.product(tape, read, (*ROWS, "N", "Hq"), up), "T", "Hq")
    if part.temperature is not None:
        q = ops.one_more(tape, q, f"{at}.q_scale")
    plain, turned = _parted(tape, q, "Hp", "Hr")
    both = ops.product(tape, x, (*ROWS, "Rs"), f"{at}.kv_a_proj.weight")
    short, shared = _parted(tape, both, "R", "Hr")
    short = ops.rms_norm(tape, short, f"{at}.kv_a_norm", ROWS, ("R",), full=full)
    if part.rotary is not None:
        near = part.rotary.pairs == "neighbours"
        turned = ops.turned(tape, turned, "Hr", neighbours=near, name=turn)
        shared = ops.turned(tape, shared, "Hr", neighbours=near)
    else:
        shared = ops.alias(tape, shared, shared.axes)  # a copy, whose gradient is that of the copy
    own = ops.product(tape, short, (*ROWS, "N", "Hp"), f"{at}.k_b_proj.weight")
    own = _by_head(tape, own, "S", "Hp")
    v = _by_head(tape, ops.product(tape, short, (*ROWS, "N", "Hv"), f"{at}.v_b_proj.weight"), "S", "Hv")
    k = _joined(tape, own, _of_all(tape, shared), "Hq")
    q = _joined(tape, plain, turned, "Hq")
    scores = ops.one_more(tape, ops.multiplied(tape, q, k, ("B", "N", "T", "S"), "N", f"{at}.scores"))
    weights = ops.one_more(tape, scores, f"{at}.softmax")
    mixed = ops.multiplied(tape, weights, v, ("B", "N", "T", "Hv"), "N", f"{at}.values")
    rows = ops.alias(tape, mixed, (*ROWS, "N", "Hv"))
    return ops.product(tape, rows, (*ROWS, "D"), f"{at}.o_proj.weight")


def _by_head(tape: Tape, rows: Value, tokens: str, size: str) -> Value:
    return ops.split(tape, rows, (("B",), (tokens,), ("N", size)), ("B", "N", tokens, size))


def _parted(tape: Tape, whole: Value, first: str, second: str) -> tuple[Value, Value]:
    """Two parts of every vector: their gradients are joined into one."""
    one = tape.made((*whole.axes[:-1], first), lambda t, g: t.give(whole, g))
    node = one.node
    assert node is not None

    def back(t: Tape, _g: Grad) -> None:
        t.waiting[node] = t.new(whole.axes)

    return one, tape.made((*whole.axes[:-1], second), back)


def _joined(tape: Tape, one: Value, other: Value, makes: str) -> Value:
    """Two parts side by side: their gradients are views of one, whose vectors lie apart."""
    axes = one.axes

    def narrowed(g: Grad, to: str) -> Grad:
        place = g.laid.index(makes)
        return Grad(g.storage, (*g.laid[:place], NARROWED, to, *g.laid[place + 1 :]))

    def back(t: Tape, g: Grad) -> None:
        t.give(one, narrowed(g, axes[-1]))
        t.give(other, narrowed(g, other.axes[-1]))

    return tape.made((*axes[:-1], makes), back)


def _of_all(tape: Tape, shared: Value) -> Value:
    """One vector of each token as that of every head: a view, whose gradient is summed."""
    axes = shared.axes

    def back(t: Tape, g: Grad) -> None:
        t.give(shared, g if "N" in t.ones else t.new(axes))

    return tape.made(("B", "N", "S", axes[-1]), back)


RETURNED = (Held("B S Hr"),)
"""What a block's caller has of it beside the latent, which is kept: what all keys share."""


def forwards(part: LatentAttention, *, apart: bool, long: bool) -> Iterator[Moment]:
    """What attention's own function has at hand: queries as they were made, the part of them that turned, the one that
    keys share. `apart`: heads do not lie one after the other; `long`: tokens."""
    at, rotary = _own(part), part.rotary is not None
    there = [Held("B T D", path=paths.in_every(paths.BLOCKS, "in")), Held("B S Hr")]
    there += [Held("B T N Hq", times=1 if part.temperature is None else 2)]
    there += [Held("B T N Hr")] if rotary else []
    values = Held("B S N Hv", path="" if apart else f"{at}.v")
    yield Moment(f"{at}.softmax", (*there, values, Held(PAIRS, times=3)))
    there += [Held("B T N Hv")] if long and part.heads != 1 else []  # head by head, beside the same token by token
    yield Moment(f"{at}.o_proj.weight", (*there, Held("B T D")))


def _own(part: LatentAttention) -> str:
    return paths.in_every(paths.BLOCKS, part.name)
