"""What the reference model keeps of attention whose heads are subtracted from one another in pairs."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import DifferentialAttention
from tfacct.ledger.kept import Kept
from tfacct.profiles.reference_lines import Lines, is_


def twice(own: Lines, at: str, part: DifferentialAttention, query: str, key: str) -> Iterator[Kept]:
    """Scores, softmax and values of either half of the values, and the difference of both. A product copies heads that
    do not lie one after the other, and those of keys that several queries read: each time anew."""
    in_order = is_(own.batch, 1) or is_(own.tokens, 1)
    for which in ("", "second_"):
        scores, softmax, summed = (f"{at}.{which}{name}" for name in ("scores", "softmax", "values"))
        asked = query if in_order else f"{scores}.queries"
        read = key if in_order and is_(part.group, 1) else f"{scores}.keys"
        yield Kept(asked, "B T N H", by=(scores,))
        yield Kept(read, "B S N H", by=(scores,))
        yield Kept(softmax, "B K G T S", by=(softmax, summed))
        yield Kept(f"{summed}.read", "B S N H", by=(summed,))
    yield Kept(f"{at}.exponentials", "", by=(at,), times=2)
    yield Kept(f"{at}.share", "", by=(f"{at}.difference",))
    # The second half of the heads, of what lies side by side with the first.
    yield Kept(f"{at}.both", "B T N H", by=(f"{at}.difference",), times=2)
    yield from own.rms(f"{at}.pair_norm", f"{at}.difference", "B T N H", "B T N", "", less_one=False, scaled=False)
    yield Kept(f"{at}.read", "B T N H", by=(f"{at}.o_proj.weight",))
