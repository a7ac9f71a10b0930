"""Products, networks and what runs in fp32 beside them, as the transformers classes run them under autocast."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tfacct.architecture.parts import FeedForward
from tfacct.ledger.kept import Held, Kept, Moment, Role, Run, joined
from tfacct.profiles.transformers_parts import ACTIVATIONS, activated

WIDE: dict[Role, Role | None] = {"work": "full", "upcast": "full", "cast": None, "copy": None}
"""Roles of a pass in fp32, as they are where another part of it is in 16 bits; None: no such tensor is made."""
STREAM_WIDE = Held("B T D", "full")


class Product(NamedTuple):
    """A product with a weight: axes of what it reads, of what it makes, and of its weight.

    `casts`: what it reads is in fp32. `bias`: axes of its bias, if it has one. `others`: further weights by their
    paths, which are rows of the same; then all axes but those of what is read stand in a row, between commas.
    `bias_first`: the gradient of its bias is made first.
    """

    path: str
    reads: str
    makes: str
    weight: str
    casts: bool = True
    bias: str = ""
    others: tuple[str, ...] = ()
    bias_first: bool = False


def _each(specs: str, role: Role = "work") -> tuple[Held, ...]:
    return tuple(Held(spec, role) for spec in specs.split(", ")) if specs else ()


def as_full(run: Run) -> Run:
    """The run of a pass in fp32, beside parts in 16 bits."""
    kept = tuple(
        Kept(line.path, line.spec, line.by, role, line.times)
        for line in run.kept
        if (role := WIDE.get(line.role, line.role)) is not None
    )
    moments = tuple(moment._replace(held=full(moment.held)) for moment in run.moments)
    ahead = tuple(moment._replace(held=full(moment.held)) for moment in run.ahead)
    return Run(run.order, kept, moments, ahead, full(run.early))


def full(tensors: Iterable[Held]) -> tuple[Held, ...]:
    return tuple(held._replace(role=role) for held in tensors if (role := WIDE.get(held.role, held.role)) is not None)


def product(one: Product, reads: str, beside: tuple[Held, ...] = (), summed: int = 0) -> Run:
    """A product: casts of its bias, its weight and its input, then the product itself; backwards the other way round.

    `beside`: gradients that wait meanwhile. `summed`: how many gradients of what it reads are there from products
    behind: the first two become one, and a third is added in place.
    """
    cast, matmul = f"{one.path}.cast", f"{one.path}.matmul"
    weights = tuple(f"{path}.weight" for path in (one.path, *one.others))
    own, read, made_of = _each(one.weight), Held(one.reads), _each(one.makes)
    bias = _each(one.bias)
    last = () if one.bias_first else bias
    own_bias = tuple(name.removesuffix("weight") + "bias" for name in weights) if one.bias and one.bias_first else ()
    there = (Held(one.reads, "full"),) if summed else ()
    kept = [Kept(f"{name}_cast", held.spec, by=(matmul,)) for name, held in zip(weights, own, strict=True)]
    kept.append(Kept(f"{one.path}.in" if one.casts else reads, one.reads, by=(matmul,)))
    made = (Held(one.reads, "full", 3 if summed == 1 else 2 if summed else 1),) if one.casts else (read,)
    after = (Held(one.reads, "full"),) if one.casts else (read,)
    moments = [Moment(matmul, (*made_of, read, *own, *there, *beside))]
    if bias:  # whose gradient is summed last: what was made again for the product is gone by then
        moments.append(Moment(matmul, (*made_of, read, *own, *bias, *there, *beside), after=True))
    if one.casts:
        moments.append(Moment(cast, (*((read,) if summed != 1 else ()), *own, *last, *made, *beside)))
    moments.append(Moment(weights[-1], (*after, *own, *_each(one.weight, "full"), *last, *beside), done=False))
    order = (*weights, *((cast,) if one.casts else ()), *own_bias, matmul)
    return Run(order, tuple(kept), tuple(moments))


def plain(
    at: str, part: FeedForward, left: tuple[Held, ...], there: tuple[Held, ...], *, bias_first: bool = False
) -> Run:
    """A network without a gate. `there`: what the forward pass holds beside what it keeps; `left`: where a block keeps
    its input alone."""
    up, down, act = f"{at}.up_proj", f"{at}.down_proj", f"{at}.act"
    into = product(Product(up, "B T D", "B T F", "F D", bias="F" if part.bias else "", bias_first=bias_first), "")
    written = part.activation == "gelu_new"
    own = _cubed(act) if written else _activated(act, up, part.activation)
    narrow = "D" if part.bias else ""
    last = Product(down, "B T F", "B T D", "D F", casts=written, bias=narrow, bias_first=bias_first)
    out = product(last, "" if written else f"{act}.result")
    read = () if "in" in ACTIVATIONS[part.activation].keeps else (Held("B T F"),)
    result = (Held("B T F", "full"),) if written else ()
    ended = (
        Moment(own.order[-1], (*read, *there)),
        Moment(f"{down}.matmul", (*result, *there)),
        Moment(f"{down}.matmul", (Held("B T D"), *result, *there), after=True),
    )
    made = Held("B T F", "full" if written else "work")
    cast = (Held("B T F"),) if written else ()
    alone = (
        Moment(own.order[-1], (*left, made, Held("B T F"))),
        Moment(f"{down}.matmul", (*left, made, *cast, Held("B T D"))),
    )
    return joined(into, own, out._replace(ahead=ended, early=(Held("B T D"),), bare=alone))


def _activated(act: str, reads: str, name: str) -> Run:
    """An activation in 16 bits."""
    return Run(
        (act,),
        tuple(activated(act, reads, name, "B T F", ())),
        (Moment(act, (Held("B T F", times=ACTIVATIONS[name].holds),)),),
    )


def _cubed(act: str) -> Run:
    """NewGELUActivation: a power runs in fp32, and so does all that is made of it."""
    wide, cube, tanh, result = Held("B T F", "full"), f"{act}.cube", f"{act}.tanh", act
    return Run(
        (cube, tanh, result),
        (
            Kept(f"{act}.upcast", "B T F", by=(cube,), role="full"),
            Kept(tanh, "B T F", by=(tanh,), role="full"),
            Kept(f"{act}.half", "B T F", by=(result,)),
            Kept(f"{act}.sum", "B T F", by=(result,), role="full"),
        ),
        (
            Moment(result, (wide._replace(times=3),)),
            Moment(result, (wide._replace(times=3), Held("B T F")), after=True),
            Moment(tanh, (wide._replace(times=2), Held("B T F"))),
            Moment(cube, (wide._replace(times=4), Held("B T F", times=2))),
        ),
    )
