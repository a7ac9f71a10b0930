"""The timeline of a pipeline's stage, beside what torch's PipelineStage holds of all its microbatches.

A stage has a tensor for each microbatch to receive into, and one for its gradient where another stage is behind, from
the first step on. What it gave on stays until that microbatch's backward pass is done, the last stage's logits too; in
schedules of one stage on a rank, what it last gave back stays as well (`torch.distributed.pipelining`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from tfacct.accounts.inside import Insides
from tfacct.accounts.step_sums import Beside
from tfacct.accounts.timeline import Fullest, Instant, Timeline, peak
from tfacct.accounts.training import ENDS, InFlight, Step
from tfacct.ledger import paths
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Section
from tfacct.ledger.places import Places

NORM, GATHER = "final_norm", "all-gather"
SCATTERED, GATHERED = "gradients scattered", "weights gathered"


class StageTimeline(Timeline):
    """The sums of a timeline, beside what its stage receives, and has given on."""

    def __init__(self, step: Step, fullest: Fullest = peak, known: Insides | None = None) -> None:
        super().__init__(step, fullest, known)
        self.end: int | None = None
        self.received: frozenset[str] = frozenset()
        if self._stage.received and self.run.blocks:
            behind = max(self.run.blocks, key=lambda section: section.numbers[-1])
            self.end, self.received = behind.numbers[-1], _last_sublayer(behind.run.order)

    @property
    def _stage(self) -> InFlight:
        assert self.step.stage is not None
        return self.step.stage

    def instant(self, name: str, operation: str, gradients: Size, kept: Size, held: Size) -> Instant:
        """An instant with what is always there, and what other stages of the rank have summed."""
        one, stage = super().instant(name, operation, gradients, kept, held), self._stage
        return one._replace(gradients=one.gradients + stage.gradients, held=one.held + stage.stays + stage.returned)

    def update(self) -> Instant:
        """The optimizer's step, once all microbatches are through and every stage has its gradients."""
        one, stage = super().update(), self._stage
        gradients = one.gradients + stage.weights - stage.gradients
        return one._replace(gradients=gradients, kept=0, held=one.held - stage.returned - self.logits)

    def _called(self, number: int) -> str:
        return super()._called(number + self._stage.first)

    def adds_to(self, number: int) -> bool:
        """Of the last block too: the gradient of the stage's result is what it received, up to the first sum."""
        return super().adds_to(number) or number == self.end

    def added_to(self, number: int) -> Size:
        """Less the gradient that is among what the stage receives."""
        return super().added_to(number) - (self.stream if number == self.end else 0)

    def added_inside(self, number: int, places: Places) -> Beside:
        """Less that up to the end of the last block's last sublayer."""
        found = super().added_inside(number, places)
        if number != self.end:
            return found
        behind = [one.at not in self.received for one in places.moments]
        return found.and_where(behind, self.stream)

    def ahead_of(self, _: int) -> Size:
        return self._stage.forwards

    def _forward(self) -> Iterator[tuple[int, Instant]]:
        yield from ((number, self._on_the_way(one)) for number, one in super()._forward())

    def _bare(self) -> Iterator[tuple[int, Instant]]:
        yield from ((number, self._on_the_way(one)) for number, one in super()._bare())

    def _on_the_way(self, one: Instant) -> Instant:
        return one._replace(held=one.held + self._stage.forwards)


class GatheredStageTimeline(StageTimeline):
    """The sums of a stage whose ranks of `fsdp` share its weights: gathered once, in the first microbatch, and let go
    of behind the last, whose backward pass is followed by the scatter of all gradients, unit by unit. Up to there they
    are whole (`torch.distributed.pipelining` on modules of fully_shard that are not resharded)."""

    def __init__(self, step: Step, fullest: Fullest = peak, known: Insides | None = None) -> None:
        super().__init__(step, fullest, known)
        assert step.units is not None
        self.units = step.units
        # Adapters alone are trained, where there are any.
        adapters = step.adapter_bytes if step.units.lent is not None else 0
        self.shards = adapters or step.units.stored.bytes(step.units.whole)
        apart = [step.units.experts(kind) for kind in self._kinds(step).values()]
        others = sum(one.ranks * one.elements for one in apart if one.ranks > 1)  # what one rank has is not gathered
        own = step.units.whole - sum(one.elements for one in apart)
        self.gathered = step.pass_.bytes(step.units.ranks * own + others) + step.units.ranks * adapters
        self.kind = self._kinds(step)

    @staticmethod
    def _kinds(step: Step) -> dict[int, int]:
        """The kind of each block, as the units of weights are called."""
        assert step.units is not None
        kinds = zip(step.run.blocks, step.units.blocks, strict=True)
        return {number: kind for section, kind in kinds for number in section.numbers}

    def instant(self, name: str, operation: str, gradients: Size, kept: Size, held: Size) -> Instant:
        """An instant beside the whole weights, and the shares of gradients of earlier batches."""
        one, earlier = super().instant(name, operation, gradients, kept, held), self.units.accumulates
        return one._replace(gathered=self.gathered, gradients=one.gradients + (self.shards if earlier else 0))

    def _unit(self, number: int) -> Size:
        """Bytes of the weights of a block, or of what is in none, on all ranks."""
        kind = self.kind.get(number, ENDS)
        elements = self.units.root if kind == ENDS else self.units.blocks[kind]
        lent = 0 if self.units.lent is None or kind == ENDS else self.units.lent[kind]
        return self.step.pass_.bytes(self.units.ranks * elements) + self.units.ranks * lent

    def _gathered_at(self, number: int) -> Size:
        """Bytes of gathered weights while a block runs forwards, or all is through: in the first microbatch those up
        to it, and the buffer that its own were copied out of."""
        if not self._stage.gathers:
            return self.gathered
        last = max(self.kind) if number == ENDS else number
        return self._unit(ENDS) + sum(self._unit(each) for each in self.kind if each <= last) + self._unit(last)

    def ahead_of(self, number: int) -> Size:
        return super().ahead_of(number) + self._gathered_at(number) - self.gathered

    def _forward(self) -> Iterator[tuple[int, Instant]]:
        for number, one in super()._forward():
            lets_go = number == ENDS and not one.operation.startswith(NORM)  # the loss is no part of the stage
            yield number, one if lets_go else one._replace(gathered=self._gathered_at(number))

    def _bare(self) -> Iterator[tuple[int, Instant]]:
        yield from ((number, one._replace(gathered=self._gathered_at(number))) for number, one in super()._bare())

    def _copied(self) -> Iterator[tuple[int, Instant]]:
        """The first block and the last while they are gathered into a buffer, and copied out of it, beside that of the
        unit in front."""
        waiting = self.again if self.step.checkpoint else self.waiting
        for number in {0, max(self.kind)}:
            reads = self.stream if number or not self._stage.first else 0  # what a stage receives is there already
            there = self._on_the_way(self.instant(GATHERED, GATHER, 0, self.in_front[number], reads + waiting))
            more = self._unit(number - 1 if number else ENDS)
            yield number, there._replace(gathered=self._gathered_at(number) + more)

    def inside_blocks(self, ends: Sequence[tuple[int, Section]]) -> Iterator[tuple[int, Instant]]:
        """Besides, once all microbatches are through: the first unit lets go of its weights, and its gradients are
        copied to be scattered, which lets go of them."""
        yield from super().inside_blocks(ends)
        if self._stage.gathers:
            yield from self._copied()
        kind, first = (ENDS, self.units.root) if self.units.root else next(iter(self.units.blocks.items()))
        own = sums = self.step.pass_.bytes(self.units.ranks * first)
        if self.units.lent is not None:
            sums = 0 if kind == ENDS else self.units.ranks * self.units.lent[kind]
            own += sums
        gradients = 0 if self.step.accumulate else self.all_gradients
        one = self.instant(SCATTERED, "reduce-scatter", gradients, -self.flying, sums - self._stage.returned)
        yield ENDS, one._replace(gathered=self.gathered - own)
        if self.units.stored != self.step.pass_:
            yield from ((ENDS, each) for each in self._cast(one._replace(held=one.held - own)))

    def _cast(self, one: Instant) -> Iterator[Instant]:
        """Of each unit: its gradients are gone into the buffer, but for the last parameter's; beside it there are the
        rank's part and this as it is stored."""
        pass_, units = self.step.pass_, self.units
        blocks = [(kind, units.blocks[kind]) for _, kind in sorted(self.kind.items())]
        for kind, elements in [(ENDS, units.root)] * (units.root > 0) + blocks:
            own, cast = pass_.bytes(units.ranks * elements), units.stored.bytes(elements)
            one = one._replace(gathered=one.gathered - own, gradients=one.gradients - own)
            beside = own + pass_.bytes(elements + units.last[kind])
            yield one._replace(held=one.held + beside, gradients=one.gradients + cast)
            one = one._replace(gradients=one.gradients + (0 if units.accumulates else cast))

    def update(self) -> Instant:
        """The optimizer's step, of what the rank stores."""
        return super().update()._replace(gathered=0, gradients=self.shards)


@lru_cache(maxsize=64)
def _last_sublayer(order: tuple[str, ...]) -> frozenset[str]:
    """Operations of a block's last sublayer, that one's norms among them."""
    return frozenset(at for at in order if _sublayer(at) == _sublayer(order[-1]))


def _sublayer(at: str) -> str:
    name = at.removeprefix(f"{paths.in_every(paths.BLOCKS, '')}.").partition(".")[0]
    return name.removesuffix("_norm").removesuffix("_post")
