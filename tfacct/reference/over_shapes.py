"""The reference model's step over shapes alone: the bytes that are alive while its own code runs, without torch."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from tfacct.architecture.transformer import Transformer
from tfacct.shapes.dtypes import BF16, FP32
from tfacct.shapes.eager import Meter
from tfacct.shapes.standing import Loader
from tfacct.shapes.tensors import counted, meter, run_backward

DTYPES = {"bf16": BF16, "fp16": BF16, "fp32": FP32}
FRONT, BLOCKS, HEAD, LOSS, END, ENCODER = "table", "blocks", "head", "loss", "end", "encoder"
"""Parts of a step: what stands in front of the blocks and behind, the loss, the end of the forward pass, a source."""
BEHIND = ("hc_head", "merged", "final_norm", "lm_head", "pooler", "merger", "deepstack", "classifier", "mtp")
"""Modules behind the blocks."""


class Place(NamedTuple):
    """A part of a step, and of blocks the number of one."""

    backwards: bool
    part: str
    number: int | None = None


class Fullest(NamedTuple):
    """The most bytes while a part of the model runs: all, and of these those of gradients and of kept tensors."""

    bytes: int
    gradients: int
    kept: int


class _Step(Meter):
    """A meter that knows, place by place, when it was fullest."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[tuple[bool, Any], tuple[int, int, int, int]] = {}
        self.made = []

    def record(self) -> None:
        at = self.backwards, self.place
        if at not in self.found or self.now > self.found[at][0]:
            self.found[at] = self.now, self.finished, self.kept, len(self.made or ())

    def ends(self) -> dict[tuple[bool, Any], int]:
        """The forward pass ends: what is alive is kept from now on. What of that was there where each part was
        fullest."""
        there = [(born, one) for born, each in enumerate(self.made or ()) if (one := each()) is not None]
        for _, one in there:
            one.kept = True
        self.kept = sum(one.bytes for _, one in there)
        self.made = None
        return {at: sum(one.bytes for born, one in there if born < last) for at, (*_, last) in self.found.items()}


@cache
def _model() -> ModuleType:
    return Loader("tfacct.reference.", rounds=lambda count: meter().rounds(count)).load("tfacct.reference.model")


def run(shape: Transformer, dtype: str, batch: int, tokens: int, source: int = 0) -> dict[Place, Fullest]:
    """Where each part of a model is fullest, forwards and backwards."""
    made, step, of = _model(), _Step(), DTYPES[dtype]
    with counted(step):
        model: Any = made.build(shape, dtype=of)
        given = made.inputs(
            shape, batch=batch, tokens=tokens, context=tokens, dtype=of, source=source, new_source=source
        )
        _placed(model)
        step.found.clear()
        step.place = FRONT, None
        results = model.forward(*given.all)[0]
        step.place = LOSS, None
        loss = results.float().mean()
        del results
        forwards = step.ends()
        step.place = END, None
        step.record()
        step.found = {at: (most[0], most[1], forwards.get(at, most[2]), 0) for at, most in step.found.items()}
        run_backward(step, loss)
        step.place = END, None
        step.record()
    return {Place(way, *place): Fullest(*most[:3]) for (way, place), most in step.found.items()}


def _placed(model: Any) -> None:
    """Say of each module at the ends, and of each block, which part of a step it is."""
    for name, module in model.named_modules():
        first, _, rest = name.partition(".")
        side, _, number = rest.partition(".") if first == ENCODER else (first, "", rest)
        whose = ENCODER if first == ENCODER else BLOCKS
        if side == BLOCKS and number.isdigit():
            module.place = whose, int(number)
        elif side and side != BLOCKS and not number:
            module.place = (ENCODER if whose == ENCODER else HEAD if side in BEHIND else FRONT), None
