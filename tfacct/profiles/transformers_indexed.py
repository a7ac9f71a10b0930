"""Queries, keys and values of one product in the transformers classes: views of it, or copies by an index.

FalconAttention reads its keys and values by an index where they have fewer heads than queries, and writes its scores
out itself. One head is expanded by the products; several are copied for each query head before they are turned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tfacct.architecture.parts import Attention
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Held, Kept, Moment, Run
from tfacct.profiles.base import Habits

MADE = (Held("B T N H"), Held("B T K H", times=2))
"""The product, or its gradient."""
PAIRS = Held("B K G T S")


def split(at: str, weights: Iterable[str], habits: Habits, *, biased: bool) -> Run:
    """The product, and what it is split into: each slice's gradient is as wide as all, and so is that of an index.

    Queries' own waits while the first two are added.
    """
    first, *others = weights
    own = f"{at}.split"
    index: tuple[Kept, ...] = ()
    divided: tuple[Held, ...] = (*MADE, *MADE)
    if habits.indexed or habits.copies_first:
        late = f"{at}.v_split"
        index = (
            Kept(f"{at}.k_index", "", by=(own,), role="index"),
            Kept(f"{at}.v_index", "", by=(late,), role="index"),
        )
        divided = (*MADE, *MADE, *MADE, Held("B T N H"), Held("B T K H"))
    elif habits.sliced:
        divided = (*MADE, *MADE, *MADE, Held("B T N H"))
    moments = [Moment(own, divided), Moment(first, (*MADE, Held("B T D")))]
    ahead: tuple[Moment, ...] = ()
    biases: tuple[str, ...] = ()
    if biased:
        biases = tuple(name.removesuffix(".weight") + ".bias" for name in (first, *others))
        moments.append(Moment(biases[0], ()))
        ahead = (Moment(biases[0], (*MADE, *MADE)),)
    return Run((first, *others, *biases, own, *(line.by[0] for line in index[1:])), index, tuple(moments), ahead)


def biased(run: Run, widths: Mapping[str, str]) -> Run:
    """A run of products to which biases are added behind them, by the axes of each one's result: both are there."""
    names = {weight: weight.removesuffix(".weight") + ".bias" for weight in widths}
    order = tuple(one for name in run.order for one in ((name, names[name]) if name in names else (name,)))
    ahead = tuple(Moment(names[weight], (Held(axes, times=2),)) for weight, axes in widths.items())
    done = tuple(Moment(bias, ()) for bias in names.values())
    return run._replace(order=order, moments=(*run.moments, *done), ahead=(*run.ahead, *ahead))


def each(habits: Habits) -> str:
    """Heads of keys and values once they are split."""
    return "N" if habits.copies_first else "K"


def written(
    at: str, queries: str, keys: str, part: Attention, habits: Habits, batch: Size, whole: tuple[Kept, ...]
) -> Run:
    """Scores, softmax in the pass's dtype, and values. `queries` and `keys` name them; `whole`: the rest of what values
    are a view of, if they are one."""
    scores, softmax, summed, out = (f"{at}.{name}" for name in ("scores", "softmax", "values", "o_proj.weight"))
    expanded = part.group != 1 and not habits.copies_first
    permuted = batch > 1 and part.heads != 1  # products copy what does not lie head by head
    copied = batch > 1 and (permuted or expanded)
    heads = "N" if expanded and copied else each(habits)
    value = Held(f"B S {each(habits)} H")
    wide = Held("B S N H") if expanded else value
    kept = (
        Kept(queries, "B T N H", by=(scores,)),
        Kept(f"{at}.k_copies" if expanded else keys, f"B S {heads} H", by=(scores,)),
        Kept(softmax, PAIRS.spec, by=(softmax, summed)),
        Kept(f"{at}.v_copies" if expanded else f"{at}.v_proj", f"B S {heads} H", by=(summed,)),
        *(() if copied else whole),
        Kept(summed, "B T N H", by=(out,)),
    )
    moments = (
        Moment(summed, (Held("B T N H"), PAIRS, wide)),
        Moment(softmax, (PAIRS, PAIRS, value)),
        Moment(scores, (PAIRS, Held("B T N H"), wide, value)),
    )
    there = (*MADE, *((Held("B T N H"),) if permuted else ()), *((value,) if copied else ()))
    own = () if whole else (value,)
    ahead = (
        Moment(softmax, (PAIRS, PAIRS, *there, *own)),
        Moment(summed, (Held("B T N H", times=2), *there, *(own if copied else ()))),
        Moment(
            out, (Held("B T D", times=1 + (part.out_bias and habits.biases_apart)), *there, *(own if copied else ()))
        ),
    )
    # Run again, a block has the shares of the one in front beside its own.
    turned = Held("B T N H"), value, value
    bare = (Moment(softmax, (PAIRS._replace(times=4), *MADE, *turned, Held("B T D"))),)
    return Run((scores, softmax, summed), kept, moments, ahead, (), bare)
