"""Low-rank adapters on products that `tp` divides, as peft divides them: of a product by columns the second matrix, by
rows the first one; the other, narrow one is whole on every rank (`add_lora_tp_hooks_dtensor` in peft)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.sharding.replicas import axis, filled
from tfacct.accounts.sharding.sends import Collective, When, collective
from tfacct.accounts.sharding.steps import SUMMED
from tfacct.accounts.training import Step
from tfacct.ledger.einsum import Axes, whole_bytes
from tfacct.ledger.groups import Ledger
from tfacct.ledger.kept import Held, Moment, Role
from tfacct.ledger.lines import Matmul

NARROW = "B T Rl"
UP = ".lora_B.weight"
FORWARD: When = "forward"
BACKWARD: When = "backward"


def summed(step: Step, role: Role) -> Step:
    """A step with adapters, where the first matrix of a product by rows leaves a part of a sum on each rank: its own
    result is there beside the sum, before the second one runs. `role`: of what adapters compute."""

    def beside(one: Moment) -> Moment:
        rows = one.at.endswith(UP) and not one.after and f"{one.at.removesuffix(UP)}.weight".endswith(SUMMED)
        return one._replace(held=(*one.held, Held(NARROW, role))) if rows else one

    blocks = (
        section._replace(run=section.run._replace(ahead=tuple(map(beside, section.run.ahead))))
        for section in step.run.blocks
    )
    return step._replace(run=step.run._replace(blocks=tuple(blocks)))


def of_frozen(found: Iterable[Collective], step: Step) -> Iterator[Collective]:
    """Collectives of a step whose own weights are frozen: no gradients of theirs, and of what products read only where
    something in front of them is trained."""
    every = sum(int(section.count) for section in step.run.blocks)
    for one in found:
        if one.when == "forward":
            yield one
        elif one.of == "stream":
            needed = f"{one.what}.weight"
            there = sum(int(section.count) for section in step.run.blocks if needed in section.run.order)
            there, whole = (there, every) if "*" in one.what else (int(needed in step.run.back.run.order), 1)
            calls = one.calls * there // whole
            if calls:
                yield one._replace(
                    calls=calls, bytes=one.bytes // one.calls * calls, sent=one.sent // one.calls * calls
                )


def of_adapters(ledger: Ledger, mesh: Mesh, on: frozenset[str], rank: int, at: Axes, bits: int) -> Iterator[Collective]:
    """What adapters of a rank, on products `on`, send in numbers of so many bits: of a product by rows the first
    matrix's result is a part of a sum, by columns the gradient of what the second one reads."""
    result = whole_bytes(at["B"] * at["T"] * rank, bits)
    for group in ledger.groups:
        for line in group.lines:
            if not isinstance(line, Matmul) or line.path not in on:
                continue
            letter = mesh.divided(line.einsum.every)
            if letter is not None:
                rows = letter not in line.einsum.out
                what, when = f"{line.path}.lora_{'A' if rows else 'B'}", FORWARD if rows else BACKWARD
                yield collective(what, "all-reduce", "tp", when, "stream", group.count, result, mesh.tp, letter)


def of_copies(step: Step, mesh: Mesh) -> Iterator[Collective]:
    """What copies reduce, each with a batch: gradients of the adapters alone, in DistributedDataParallel's buckets."""
    blocks = sorted({number for one in step.adapters for number in one.numbers}, reverse=True)
    ready = (int(one.bytes) for number in blocks for one in reversed(step.adapters) if number in one.numbers)
    for size in filled(ready) if mesh.replicas > 1 else ():
        yield collective("adapters", "all-reduce", axis(mesh), "backward", "weights", 1, size, mesh.replicas, "B")
