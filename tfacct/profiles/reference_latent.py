"""What the reference model's latent attention keeps, whose keys and values are products of one vector per token."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import LatentAttention
from tfacct.ledger.kept import Kept
from tfacct.profiles.reference_indexed import grown, indexer
from tfacct.profiles.reference_lines import Lines, is_, read_whole

TURNLESS = {"Rs": "R", "Hq": "Hp"}
"""Letters of what has turned numbers beside others, where nothing is turned."""


def latent(own: Lines, at: str, reads: str, part: LatentAttention) -> Iterator[Kept]:
    """Products down to latents and their norms, products up to heads, or queries in the latents' space, scores,
    softmax, values."""
    lines = _latent(own, at, reads, part)
    if part.rope_dim is not None:
        yield from lines
        return
    for line in lines:
        spec = " ".join(TURNLESS.get(letter, letter) for letter in line.spec.split())
        yield Kept(line.path, spec, line.by, line.role, line.times)


def _latent(own: Lines, at: str, reads: str, part: LatentAttention) -> Iterator[Kept]:
    first = ("q" if part.q_rank is None else "q_a", *(() if part.borrowed else ("kv_a",)))
    first = (*first, *(("gate",) if part.gated and not part.paired else ()))
    yield Kept(reads, "B T D", by=tuple(f"{at}.{which}_proj.weight" for which in first))
    made, queries = reads, f"{at}.q_proj"
    if part.q_rank is not None:
        made, queries = f"{at}.q_a_norm", f"{at}.q_b_proj"
        yield from own.rms(made, f"{at}.q_a_proj", "B T Rq", "B T", "Rq", less_one=False)
        if part.paired:
            gates = (f"{at}.gate_proj.weight",) if part.gated else ()
            yield Kept(f"{at}.q_pair", "B T Rj", by=(f"{queries}.weight", *gates))
        else:
            yield Kept(made, "B T Rq", by=(f"{queries}.weight",))
    scale = f"{at}.q_scale"
    if part.temperature is not None:
        yield Kept(f"{scale}.factor", "T", by=(scale,))
    elif part.learned:
        yield from grown(scale, queries, "N", "Hq")
    if part.temperature is not None or part.learned:
        queries = scale
    if part.indexes:
        yield from indexer(own, f"{at}.indexer", reads, made, part)
    if not part.borrowed:
        both = f"{at}.kv_a_proj"
        yield from read_whole(own.rms(f"{at}.kv_a_norm", both, "B T R", "B T", "R", less_one=False), both, "B T Rs")
        if part.turned_norm:
            turned = f"{at}.turned_norm"
            yield from read_whole(own.rms(turned, both, "B T Hr", "B T", "Hr", less_one=False), both, "B T Rs")
    yield from _absorbed(own, at, queries, part) if part.form == "absorbed" else _by_head(at, part)
    values = f"{at}.heads"
    if part.gated:
        gate = f"{at}.gate"
        yield Kept(f"{gate}.act", "B T N Hv" if part.gates == "channels" else "B T N", by=(gate,))
        yield Kept(values, "B T N Hv", by=(gate,))
        values = f"{gate}.product"
    yield Kept(values, "B T N Hv", by=(f"{at}.o_proj.weight",))


def _by_head(at: str, part: LatentAttention) -> Iterator[Kept]:
    """Keys and values of every head, made of the latents; those of another layer are kept there already."""
    if not part.borrowed:
        yield Kept(f"{at}.kv_a_norm", "B S R", by=(f"{at}.k_b_proj.weight", f"{at}.v_b_proj.weight"))
    yield Kept(f"{at}.q", "B T N Hq", by=(f"{at}.scores",))
    yield Kept(f"{at}.k", "B S N Hq", by=(f"{at}.scores",))
    yield from _softmax(at, part)
    yield Kept(f"{at}.v", "B S N Hv", by=(f"{at}.values",))


def _softmax(at: str, part: LatentAttention) -> Iterator[Kept]:
    softmax, by = f"{at}.softmax", (f"{at}.softmax", f"{at}.values")
    yield Kept(softmax, "B N T S", by=by)
    if part.sinks:
        yield Kept(f"{softmax}.sinks", "B N T", by=by)


def _absorbed(own: Lines, at: str, queries: str, part: LatentAttention) -> Iterator[Kept]:
    """Queries in the latents' space and what is read there, each a product with a matrix of its head. Products of
    several sequences copy what all of these or all heads share."""
    shared = is_(own.batch, 1) or is_(part.heads, 1)
    into, out, scores, summed = (f"{at}.{name}" for name in ("k_b_proj", "v_b_proj", "scores", "values"))
    if shared or is_(own.tokens, 1):  # a part of each head is a view of them all
        yield Kept(queries, "B T N Hq", by=(f"{into}.weight",))
    else:
        yield Kept(f"{at}.q_plain", "B T N Hp", by=(f"{into}.weight",))
    if not shared:
        yield Kept(f"{into}.matrices", "B N Hp R", by=(into,))
        yield Kept(f"{out}.matrices", "B N R Hv", by=(out,))
    each = "" if shared else " N"
    yield Kept(f"{at}.q", "B T N Rs", by=(scores,))
    yield Kept(f"{at}.k", f"B S{each} Rs", by=(scores,))
    yield from _softmax(at, part)
    if not shared:
        yield Kept(f"{at}.latents", "B S N R", by=(summed,))
    elif not part.borrowed:  # those of another layer are kept there already
        yield Kept(f"{at}.kv_a_norm", "B S R", by=(summed,))
    yield Kept(summed, "B T N R", by=(f"{out}.weight",))
