"""Masks of the transformers classes: those that a pass makes, and torch's attention with one, as windows need it.

A class hands torch a mask where a sequence is as long as a window. Then keys and values are repeated for every query
head, and the efficient kernel runs, whatever the dtype, with the mask in numbers: each block keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tfacct.architecture.parts import Attention, LatentAttention
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Handed, Held, Kept, Moment, Run

NONE: Mapping[bool, bool] = {}
ALIGNED = 8
"""Numbers that the rows of a mask are aligned to for the efficient kernel."""


def reaches(window: Size | None, tokens: Size) -> bool:
    """True if a sequence is as long as a window, from where on the classes make a mask for it."""
    return window is not None and bool(tokens >= window)


def masks(
    shape: Transformer,
    attention: Literal["sdpa", "eager"],
    tokens: Size,
    unused: Mapping[bool, bool] = NONE,
    *,
    always: bool = False,
) -> tuple[Handed, ...]:
    """Masks that a pass makes, one for windows and one for full attention: under eager both, under sdpa those of
    windows that a sequence reaches across. `unused`: the class makes that of full attention (False), or of windows
    (True), whatever the blocks. `always`: sdpa is handed one in any case."""
    first: dict[bool, int] = {}  # block of each kind
    window: Size | None = None
    for stack, numbers in zip(shape.stacks, shape.numbers(), strict=True):
        if not any(isinstance(part, (Attention, LatentAttention)) for _, part in stack.block.parts()):
            continue  # what stands in its place is handed none
        own = stack.block.window
        window = window if own is None else own
        first[own is not None] = min(numbers[0], first.get(own is not None, numbers[0]))
    if attention == "sdpa":
        if window is None and unused.get(True):
            raise ConfigError("transformers with sdpa: no rule for windows that no block has")
        if always:
            return (Handed(Held("T S", "flag")),)
        return (Handed(Held("T S", "flag"), first[True]),) if reaches(window, tokens) else ()
    for kind in (kind for kind, made in unused.items() if made):
        first.setdefault(kind, 0)
    return tuple(Handed(Held("B T S"), number) for number in first.values())


def masked_sdpa(
    at: str, names: Mapping[str, str], part: Attention, whole: tuple[Kept, ...], *, aligned: bool, own: str = "K"
) -> Run:
    """torch's efficient attention with a mask. `aligned`: the mask's rows need no padding. `whole`: the rest of what
    values are a view of, if they are not copied. `own`: the letter of keys' heads."""
    by = (f"{at}.sdpa",)
    copied = part.group != 1 and part.kv_heads != 1  # copies of one head for all are views
    heads = "N" if copied else own
    keys, values = (f"{at}.k_copies", f"{at}.v_copies") if copied else (names["k"], f"{at}.v_proj")
    return Run(
        by,
        (
            Kept(names["q"], "B T N H", by=by),
            Kept(keys, f"B S {heads} H", by=by),
            Kept(values, f"B S {heads} H", by=by),
            *(() if copied else whole),
            Kept(f"{at}.mask", "B T S" if aligned else "B T S8", by=by),
            Kept(f"{at}.softmax.logsum", "B N T32", by=by, role="full"),
            Kept(f"{at}.seed", "", by=by, role="index", times=2),
            Kept(f"{at}.values", "B T N H", by=(*by, f"{at}.o_proj.weight")),
        ),
        (Moment(by[0], (Held("B T N H", times=2), Held("B S N H", times=2))),),
        (Moment(f"{at}.o_proj.weight", (Held("B T D"), *((Held("B S K H", times=2),) if copied else ()))),),
    )
