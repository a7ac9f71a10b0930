"""What the reference model's latent attention keeps, whose keys and values are products of one vector per token."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import LatentAttention
from tfacct.ledger.kept import Kept
from tfacct.profiles.reference_lines import Lines, read_whole

FORMS = ("auto", "expanded", "unpacked")
"""Forms in which a step over whole sequences makes the keys and values of every head."""


def latent(own: Lines, at: str, reads: str, part: LatentAttention) -> Iterator[Kept]:
    """Products down to latents and their norms, products up to heads, scores, softmax, values."""
    if part.form not in FORMS:
        raise own.refuse(f"latent attention in its {part.form} form")
    if part.index_top is not None:
        raise own.refuse("an indexer")
    if part.sinks:
        raise own.refuse("sinks of latent attention")
    first = ("q" if part.q_rank is None else "q_a", "kv_a", *(("gate",) if part.gated else ()))
    yield Kept(reads, "B T D", by=tuple(f"{at}.{which}_proj.weight" for which in first))
    if part.q_rank is not None:
        yield from own.rms(f"{at}.q_a_norm", f"{at}.q_a_proj", "B T Rq", "B T", "Rq", less_one=False)
        yield Kept(f"{at}.q_a_norm", "B T Rq", by=(f"{at}.q_b_proj.weight",))
    if part.temperature is not None:
        yield Kept(f"{at}.q_scale.factor", "T", by=(f"{at}.q_scale",))
    both = f"{at}.kv_a_proj"
    yield from read_whole(own.rms(f"{at}.kv_a_norm", both, "B T R", "B T", "R", less_one=False), both, "B T Rs")
    yield Kept(f"{at}.kv_a_norm", "B S R", by=(f"{at}.k_b_proj.weight", f"{at}.v_b_proj.weight"))
    scores, softmax, values = f"{at}.scores", f"{at}.softmax", f"{at}.values"
    yield Kept(f"{at}.q", "B T N Hq", by=(scores,))
    yield Kept(f"{at}.k", "B S N Hq", by=(scores,))
    yield Kept(softmax, "B N T S", by=(softmax, values))
    yield Kept(f"{at}.v", "B S N Hv", by=(values,))
    if part.gated:
        gate = f"{at}.gate"
        yield Kept(f"{gate}.act", "B T N Hv" if part.gates == "channels" else "B T N", by=(gate,))
        yield Kept(values, "B T N Hv", by=(gate,))
        values = f"{gate}.product"
    yield Kept(values, "B T N Hv", by=(f"{at}.o_proj.weight",))
