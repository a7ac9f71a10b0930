"""What the reference model keeps of attention whose queries are made by experts."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import SentAttention
from tfacct.ledger.kept import Kept
from tfacct.profiles.reference_lines import Lines, is_


def sent(own: Lines, at: str, reads: str, part: SentAttention) -> Iterator[Kept]:
    """The router, products of experts on either side, scores, softmax and values. Rows are copied for experts, heads
    of keys for queries."""
    one = is_(own.batch, 1)
    alone = is_(part.group, 1) or (one and is_(own.tokens, 1))
    viewed = one and is_(part.kv_heads, 1) and not is_(part.group, 1)
    routing, gather, softmax, summed = (f"{at}.{name}" for name in ("routing", "gather", "softmax", "values"))
    asking, telling, weighting = f"{at}.experts.q_proj", f"{at}.experts.o_proj", f"{at}.weighting"
    yield Kept(reads, "B T D", by=tuple(f"{at}.{name}.weight" for name in ("router", "k_proj", "v_proj")))
    yield Kept(routing, "B T E", by=(routing, gather))
    yield Kept(f"{at}.chosen", "B T A", by=(gather,), role="index")
    rows = (reads, "B T D") if alone else (f"{asking}.rows", "B T A D")
    yield Kept(*rows, by=(f"{asking}.weight",))
    heads = "K" if viewed else "N"
    yield Kept(f"{at}.q_rotary", "B T N H", by=(f"{at}.scores",))
    yield Kept(f"{at}.k_rotary" if viewed else f"{at}.k_copies", f"B S {heads} H", by=(f"{at}.scores",))
    yield Kept(softmax, "B K A T S", by=(softmax, summed))
    yield Kept(f"{at}.v_proj" if viewed else f"{at}.v_copies", f"B S {heads} H", by=(summed,))
    yield Kept(f"{telling}.rows", "B T N H", by=(f"{telling}.weight",))
    yield Kept(f"{at}.shares", "B T A", by=(weighting,))
    yield Kept(f"{telling}.result", "B T A D", by=(weighting,))
