"""Low-rank adapters on products that `tp` divides, as peft divides them: of a product by columns the second matrix, by
rows the first one; the other, narrow one is whole on every rank (`add_lora_tp_hooks_dtensor` in peft).

Ranks of `fsdp` divide the rows of both, as fully_shard does: they are gathered with the frozen weights of their block,
and their gradients alone are scattered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.sharding.replicas import axis, filled
from tfacct.accounts.sharding.sends import Collective, When, collective
from tfacct.accounts.sharding.steps import SUMMED
from tfacct.accounts.training import Step, Units
from tfacct.ledger.einsum import Axes, rounded_up, whole_bytes
from tfacct.ledger.groups import Ledger
from tfacct.ledger.kept import Held, Moment, Role
from tfacct.ledger.lines import Matmul
from tfacct.ledger.torch_parameters import TorchParameter

NARROW = "B T Rl"
DOWN, UP = ".lora_A.weight", ".lora_B.weight"
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
        if one.of in ("weights", "shared weights"):  # frozen ones have no gradients, and are gathered with adapters
            continue
        if one.when == "forward" or one.over == "pp":
            yield one
        elif one.of == "stream":
            needed = f"{one.what}.weight"
            runs = [(int(section.count), section.run) for section in (*step.run.blocks, step.run.back)]
            *layers, end = [count * any(moment.at == needed for moment in run.moments) for count, run in runs]
            there, whole = (sum(layers), every) if "*" in one.what else (min(end, 1), 1)
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


def shares(step: Step, mesh: Mesh, rank: int) -> list[TorchParameter]:
    """Adapters as the fullest rank of `fsdp` stores them, padding included."""
    found = []
    for one in step.adapters:
        rows = rank if one.path.endswith(DOWN) else int(one.elements) // rank
        own = rounded_up(rows, mesh.sharers) * (int(one.elements) // rows)
        found.append(TorchParameter((own,), one.copies, one.numbers[0]))
    return found


def with_units(step: Step, units: Units, own: Iterable[TorchParameter], ledger: Ledger) -> Step:
    """A step whose frozen weights are gathered in these units, each block's with its adapters. A stage counts its
    blocks from 0."""
    blocks, lent = dict[int, int](), dict[int, int]()
    found = list(zip(step.adapters, own, strict=True))
    start = 0 if step.stage is None else step.stage.first
    for section in step.run.blocks:
        first = section.numbers[0]
        kind = next(group.numbers[0] for group in ledger.groups if first + start in group.numbers)
        blocks[first] = units.blocks[kind]
        each = (int(one.bytes // one.elements) * part.elements for one, part in found if first in one.numbers)
        lent[first] = sum(each)
    return step._replace(units=units._replace(blocks=blocks, lent=lent))


def of_units(step: Step, mesh: Mesh) -> Iterator[Collective]:
    """What ranks of `fsdp` gather of frozen weights and adapters, and scatter of the gradients of these. In a stage
    weights stay gathered for all microbatches."""
    units = step.units
    assert units is not None and units.lent is not None
    ranks = units.ranks
    for section in step.run.blocks:
        part, count = units.lent[section.numbers[0]], int(section.count)
        whole = ranks * (units.stored.bytes(units.blocks[section.numbers[0]]) + part)
        for when in (FORWARD, BACKWARD) if step.stage is None else (FORWARD,):
            yield collective("blocks.*", "all-gather", "fsdp", when, "weights", count, whole, ranks, "B")
        yield collective("blocks.*", "reduce-scatter", "fsdp", BACKWARD, "weights", count, part, ranks, "B")
        if mesh.replicas > 1:
            yield collective("blocks.*", "all-reduce", "dp", BACKWARD, "weights", count, part, mesh.replicas, "B")
    root = ranks * units.stored.bytes(units.root)
    if root:
        yield collective("", "all-gather", "fsdp", FORWARD, "weights", 1, root, ranks, "B")


def of_copies(step: Step, mesh: Mesh) -> Iterator[Collective]:
    """What copies reduce, each with a batch: gradients of the adapters alone, in DistributedDataParallel's buckets."""
    blocks = sorted({number for one in step.adapters for number in one.numbers}, reverse=True)
    ready = (int(one.bytes) for number in blocks for one in reversed(step.adapters) if number in one.numbers)
    for size in filled(ready) if mesh.replicas > 1 else ():
        yield collective("adapters", "all-reduce", axis(mesh), "backward", "weights", 1, size, mesh.replicas, "B")
