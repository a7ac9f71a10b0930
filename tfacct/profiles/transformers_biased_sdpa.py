"""torch's attention with learned scores of distances, as T5 runs it with sdpa: the efficient kernel, a mask of numbers.

Each block lays these scores out anew, the least number where no token looks; their gradient comes from the kernel.
"""

from __future__ import annotations

from tfacct.architecture.parts import Attention
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Held, Kept, Moment, Run
from tfacct.profiles.transformers_masks import ALIGNED, masked_sdpa

SCORES, PADDED, GIVEN = Held("N T S"), Held("N T S8"), Held("B N T S16")
"""Scores of distances; rows of them that the kernel can read; their gradient as the kernel makes it."""
LEAST = Held("")


def biased_sdpa(at: str, part: Attention, batch: Size, *, aligned: bool) -> Run:
    """Attention to whose scores those of distances are added. `aligned`: rows of them need no padding."""
    names = {which: f"{at}.{which}_proj" for which in "qk"}
    sdpa, added = f"{at}.sdpa", f"{at}.biased"
    run = masked_sdpa(at, names, part, (), aligned=aligned)
    kept = tuple(_learned(line, f"{at}.mask") for line in run.kept)
    padding: tuple[Held, ...] = ()
    if aligned and part.heads == 1 and not part.causal:  # laid out as the table's rows are, and padded all the same
        kept = (*kept, Kept(f"{at}.padding", "N T", by=(sdpa,), times=ALIGNED))
        aligned, padding = False, (Held("N T", times=ALIGNED),)
    if part.causal:
        kept = (*kept, Kept(f"{at}.seen", "T S", by=(added,), role="flag"))
    (first,) = run.moments
    there = (Held("B T N H"), Held("B S N H", times=2))
    sums = (GIVEN, SCORES) if batch > 1 else (GIVEN,)
    moments = [first._replace(held=(*first.held, GIVEN)), Moment(added, (*there, *sums))]
    if not aligned:
        moments.append(Moment(added, (*there, SCORES, PADDED, *padding)))
    if part.causal:
        moments.append(Moment(added, (*there, SCORES, SCORES)))
    own = () if aligned else (SCORES,)
    ahead = (Moment(f"{at}.o_proj.weight", (Held("B T D"), *own)),)
    return Run((added, sdpa), kept, tuple(moments), ahead)


def unbiased_sdpa(at: str, part: Attention, *, shared: bool) -> Run:
    """Attention to a source, to whose scores zeros are added. `shared`: they are no block's own."""
    names = {which: f"{at}.{which}_proj" for which in "qk"}
    run = masked_sdpa(at, names, part, (), aligned=True)
    kept = (_learned(line, f"{at}.mask") for line in run.kept)
    return run._replace(kept=tuple(line for line in kept if not (shared and line.path == f"{at}.mask")))


def _learned(line: Kept, mask: str) -> Kept:
    """A line of the kernel, the mask among them one for each head and for all sequences."""
    return Kept(mask, "N T S8", line.by) if line.path == mask else line
