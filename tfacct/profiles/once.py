"""Blocks that run with the weights of one: each makes gradients, which are added to those that the last block left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tfacct.architecture.blocks import Block
from tfacct.base.errors import ConfigError
from tfacct.ledger import paths
from tfacct.ledger.kept import Held, Moment, Run

ATTENTION, MLP = (paths.in_every(paths.BLOCKS, name) for name in ("attn", "mlp"))
ROW, QUERIES, KEYS, WIDE = Held("B T D"), Held("B T N H"), Held("B T K H"), Held("B T F")
BESIDE: Mapping[str, tuple[Held, ...]] = {
    f"{MLP}.down_proj.weight": (WIDE,),
    f"{MLP}.up_proj.weight": (ROW,),
    f"{ATTENTION}.o_proj.weight": (QUERIES,),
    f"{ATTENTION}.v_proj.weight": (QUERIES, KEYS, ROW),
    f"{ATTENTION}.k_proj.weight": (QUERIES, ROW),
    f"{ATTENTION}.q_proj.weight": (ROW,),
    f"{ATTENTION}_norm.weight": (),
    f"{MLP}_norm.weight": (),
}
"""Gradients that wait while that of a weight is added to those of later blocks."""


def added(run: Run, block: Block) -> Run:
    """A block's run where gradients of its weights are there: each of its own is held until it is added to them, a sum
    of both made for it once what the product read is gone."""
    made: dict[str, list[Held]] = {}
    lines = (line for name, part in block.parts() for line in part.lines(paths.in_every(paths.BLOCKS, name)))
    for parameter in (parameter for line in lines for parameter in line.parameters()):
        owner, _, _ = parameter.path.rpartition(".")
        made.setdefault(f"{owner}.weight", []).append(Held(" ".join(parameter.axes)))
    if not made.keys() <= BESIDE.keys():
        raise ConfigError("no rule for a block of these parts that shares its weights")

    def beside(moment: Moment) -> Moment:
        return moment._replace(held=(*moment.held, *(made.get(moment.at, ()) if moment.done else ())))

    sums = tuple(
        Moment(_sum_of(at), (*BESIDE[at], *own[:1], *(own if at.endswith("_norm.weight") else own[:1])))
        for at, own in made.items()
    )
    return run._replace(order=tuple(_with_sums(run, made)), moments=(*map(beside, run.moments), *sums))


def _with_sums(run: Run, made: Mapping[str, list[Held]]) -> Iterator[str]:
    """The operations, each of a weight behind the sum that its gradient is added in."""
    for name in run.order:
        if name in made:
            yield _sum_of(name)
        yield name


def _sum_of(weight: str) -> str:
    return f"{weight.removesuffix('.weight')}.added"
