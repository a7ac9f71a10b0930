"""The ways in which devices can divide a model, and what a rank of each takes and sends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from tfacct.accounts.inside import Insides
from tfacct.accounts.links import Link
from tfacct.accounts.memory import cache_bytes
from tfacct.accounts.sharding import flights
from tfacct.accounts.sharding.mesh import Mesh, divisors, replicated
from tfacct.accounts.sharding.stages import Stage
from tfacct.accounts.timeline import Instant, peak, timeline
from tfacct.accounts.training import Step
from tfacct.base import units
from tfacct.base.errors import TfacctError
from tfacct.base.later import Later, Remembered
from tfacct.base.spelling import option
from tfacct.ledger.einsum import rounded_up
from tfacct.ledger.kept import bytes_each
from tfacct.ledger.storage import Width
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.reports import mesh as meshes
from tfacct.reports import pipes, train_ranks
from tfacct.reports import train_ranks_lora as adapters
from tfacct.reports.meshes_tried import served, trained
from tfacct.reports.one_rank import on_ranks
from tfacct.reports.ranks import as_one_has_them, stages_of
from tfacct.reports.training import refusal as alone_refused
from tfacct.training.recipe import Recipe


class Division(NamedTuple):
    """A mesh, the sequences that a rank takes at a time and how often in a step, the bytes that it needs and sends; its
    seconds where they were asked for and there is an estimate, the options of `tfacct time` that give them, the
    stack whose measured steps they rest on (seconds of two stacks are not compared), and the links that they assume."""

    mesh: Mesh
    batch: int
    times: int
    bytes: int
    sent: int
    seconds: float | None = None
    clock: str = ""
    stack: str = ""
    links: tuple[Link, ...] = ()


class Tried(NamedTuple):
    """Divisions that fit, those that do not with as few sequences as can be, the ones that need least first, with their
    meshes in any order, and why others are not counted."""

    fitting: list[Division]
    larger: Sequence[Division]
    too_large: list[Mesh]
    refused: list[str]

    @property
    def counted(self) -> int:
        """Number of divisions that are counted."""
        return len(self.fitting) + len(self.larger)

    @property
    def shown(self) -> list[Mesh]:
        """Meshes of those that fit; where none does, of all others."""
        return [one.mesh for one in self.fitting] or self.too_large


def in_training(subject: LoadedModel, recipe: Recipe, work: Workload, devices: int, budget: int) -> Tried:
    """Divisions of a training step whose batch is that of all devices."""
    return _Training(subject, recipe, work, budget).tried(devices)


def in_serving(subject: LoadedModel, work: Workload, devices: int, budget: int, dtype: str | None, kv: Width) -> Tried:
    """Divisions of a model that is served: copies of so many ranks, each with its part of the batch; what a rank sends
    for one new token of each sequence, or for what an encoder reads. `dtype`: of the weights, `kv`: of the cache."""
    stored = subject.storage(dtype)
    sends = units.dtype_bits(stored.name if stored.name in meshes.DTYPES else "bf16")
    fitting, larger, refused = list[Division](), list[Division](), list[str]()
    ranked: dict[tuple[int, int], LoadedModel] = {}
    for mesh in served(subject, devices):
        key = mesh.tp, mesh.ep
        try:
            if key not in ranked:
                ranked[key] = as_one_has_them([subject], mesh.tp, dtype, mesh.ep)[0]
            if mesh.pp > 1:
                pipes.check_axes(subject, mesh)
            own = replace(work, batch=rounded_up(work.batch, mesh.dp))
            step = (replace(own, tokens=1, new_source=0) if subject.keeps else own).axes()
            alone = replace(mesh, dp=max(1, mesh.ep // mesh.tp))
            sent = sum(each.sent for each in meshes.calls(subject, alone, step, sends)) if alone.ranks > 1 else 0
        except TfacctError as error:
            refused.append(_said(subject, error))
            continue
        whole, at = ranked[key], own.axes()
        held = [one for _, one in stages_of(whole, mesh.pp)]
        # As published, a stage's tensors are stored as they are in the whole; a format's mix may go by their number.
        needs = max(
            sum(one.ledger.weight_bytes((whole if dtype is None else one).storage(dtype)).values())
            + cache_bytes(one.ledger, at, kv)
            for one in held
        )
        (fitting if needs <= budget else larger).append(Division(mesh, own.batch, 1, needs, sent))
    larger.sort(key=lambda one: one.bytes)
    return Tried(_by_sent(fitting), larger, [one.mesh for one in larger], refused)


def _by_sent(found: Iterable[Division]) -> list[Division]:
    return sorted(found, key=lambda one: (one.sent, one.bytes))


def _by_bytes(least: Sequence[int], exact: Callable[[int], Division]) -> Iterator[Division]:
    """Divisions by the bytes that they need, of each of which no less than so many are known: only those that may come
    next are worked out. Of equal ones the first comes first."""
    found: dict[int, Division] = {}
    waiting = [(bytes_, False, nth) for nth, bytes_ in enumerate(least)]
    heapify(waiting)
    while waiting:
        _, known, nth = heappop(waiting)
        if known:
            yield found[nth]
        else:
            found[nth] = exact(nth)
            heappush(waiting, (found[nth].bytes, True, nth))


def _said(subject: LoadedModel, error: TfacctError) -> str:
    return error.message.removeprefix(f"{subject.name}: ")


class _Training:
    """The steps of all divisions; what a rank computes is the same in many of them."""

    def __init__(self, subject: LoadedModel, recipe: Recipe, work: Workload, budget: int) -> None:
        self.subject, self.recipe, self.work, self.budget = subject, recipe, work, budget
        head = subject.architecture.head
        self.tied = head is not None and head.tied
        self.heads = max((part.heads for part in subject.architecture.attentions), default=1)
        self.pads = meshes.TORCH in subject.config.divided
        self.unruled: dict[tuple[Alike, int, int, int, int], str | None] = {}
        self.ranks: dict[tuple[int, int], LoadedModel] = {}
        self.whys: dict[tuple[int, int], str | None] = {}
        self.steps: dict[tuple[Alike, int, bool], Step] = {}
        self.undivided: dict[tuple[Alike, bool], Step] = {}
        self.insides: dict[tuple[Alike, bool], Insides] = {}
        self.inside = defaultdict[tuple[Alike, int], Insides](Insides)
        self.kept: dict[Alike, int] = {}
        self.stages: dict[
            tuple[Alike, int], Remembered[tuple[list[Stage], Step, dict[tuple[int, int], list[Instant]], int]]
        ] = {}

    def tried(self, devices: int) -> Tried:
        """Of those that do not fit, how many bytes they need is worked out once somebody asks."""
        fitting, larger, least, refused = list[Division](), list[Mesh](), list[int](), list[str]()
        for mesh in trained(self.subject, devices, self.work.tokens):
            why = self._refused(mesh)
            if why is not None:
                refused.append(why)
            elif isinstance(one := self._within(mesh, self.budget), Division):
                fitting.append(one)
            else:
                larger.append(mesh)
                least.append(one)
        by_bytes = Later(len(larger), lambda: _by_bytes(least, lambda nth: self._fullest(larger[nth])))
        return Tried(_by_sent(fitting), by_bytes, larger, refused)

    def _refused(self, mesh: Mesh) -> str | None:
        groups = mesh.fsdp * mesh.dp
        if mesh.parts > 1 and self.work.tokens % mesh.pieces:
            return f"{mesh.pieces:,} pieces do not divide {self.work.tokens:,} tokens"
        if self.work.batch % groups:
            return f"{groups:,} groups of ranks do not divide a batch of {self.work.batch:,}"
        if mesh.sp and self.work.tokens % mesh.tp:
            return f"{mesh.tp:,} ranks do not divide {self.work.tokens:,} tokens"
        if mesh.tp > self.heads:
            return f"{option('tp')} divides no more ranks than heads"
        if replicated(self.subject.ledger, mesh):
            return f"{option('tp')} beyond the key/value heads copies them: a plan looks no further"
        # How many copies, and stages, is no matter to the rules; nor of ranks of fsdp, where all rows are padded.
        shares = min(mesh.fsdp, 2) if self.pads else mesh.fsdp
        ruled = _alike(mesh)._replace(pp=min(mesh.pp, 2)), mesh.cp, min(mesh.dp, 2), mesh.zero, shares
        if ruled not in self.unruled:
            self.unruled[ruled] = train_ranks.unruled(self.subject, replace(self.recipe, mesh=mesh))
        if (why := self.unruled[ruled]) is not None:
            return why
        key = mesh.tp, mesh.ep
        if key not in self.whys:
            self.ranks[key] = on_ranks([self.subject], *key)[0]
            recipe = train_ranks.computing(replace(self.recipe, mesh=mesh))
            self.whys[key] = alone_refused(self.ranks[key], recipe, self._work(mesh, 1))
        return self.whys[key]

    def _fullest(self, mesh: Mesh) -> Division:
        """A division with as many sequences at a time as fit, or with one."""
        found = self._within(mesh, inf)
        assert isinstance(found, Division)
        return found

    def _within(self, mesh: Mesh, budget: float) -> Division | int:
        """The same; in stages, each takes one at a time. For one that needs more than the budget, bytes that it needs
        at least, as soon as they are known to be more."""
        if mesh.pp > 1:
            own = batch = self.work.batch // mesh.dp
            times, needs = 1, self._staged(mesh, own, budget)
        else:
            own = self.work.batch // (mesh.fsdp * mesh.dp)
            sizes = divisors([own])
            place, least = self._most(mesh, sizes)
            if place < 0 and budget < inf:
                return least
            place = max(place, 0)
            needs = self._needs(mesh, sizes[place], own)
            while needs > self.budget and place:
                place -= 1
                needs = self._needs(mesh, sizes[place], own)
            batch, times = sizes[place], own // sizes[place]
        return needs if needs > budget else Division(mesh, batch, times, needs, self._sent(mesh, batch, times))

    def _most(self, mesh: Mesh, sizes: list[int]) -> tuple[int, int]:
        """The place of the largest size whose kept tensors fit beside weights and moments: no larger one does; -1 where
        none does. A sequence of a larger batch keeps no more than one of a smaller one. Also the bytes of all that with
        the smallest."""
        recipe, batch = replace(self.recipe, mesh=mesh, gradient_accumulation=2), self.work.batch
        step, key = self._step(mesh, batch, recipe), _alike(mesh)
        if key not in self.kept:
            self.kept[key] = int(step.kept())
        step = train_ranks.shared(self.subject, step, recipe)
        stays = int(step.parameters + step.states)
        place = sum(bool(self.kept[key] * size <= (self.budget - stays) * batch) for size in sizes) - 1
        return place, stays + -(-self.kept[key] * sizes[0] // batch)

    def _needs(self, mesh: Mesh, batch: int, own: int) -> int:
        """Bytes at the peak."""
        recipe = replace(self.recipe, mesh=mesh, gradient_accumulation=1 + (batch < own))
        step = self._step(mesh, batch, recipe)
        inside = self.inside[_alike(mesh), batch]
        return int(peak(timeline(train_ranks.shared(self.subject, step, recipe), inside)).total)

    def _step(self, mesh: Mesh, batch: int, recipe: Recipe) -> Step:
        """What a rank computes."""
        key = _alike(mesh), batch, recipe.accumulates
        if key not in self.steps:
            self.steps[key] = train_ranks.computed(self.ranks[mesh.tp, mesh.ep], self._work(mesh, batch), recipe)
        return self.steps[key]

    def _work(self, mesh: Mesh, batch: int) -> Workload:
        """So many sequences on a rank that has its part of each."""
        tokens = self.work.tokens // mesh.parts
        return replace(self.work, batch=batch, tokens=tokens, context=tokens)

    def _staged(self, mesh: Mesh, batch: int, budget: float) -> int:
        """Bytes at the peak of a pipeline's fullest rank, or of the first that needs more than the budget. Beside what
        copies share they are the same for all of them: moments and buckets are there at every instant, and so is what
        further microbatches are received into."""
        recipe = replace(self.recipe, mesh=mesh)
        key = _alike(mesh), min(batch, mesh.pp + 1)
        all_ = key[0]._replace(pp=1), key[-1] > 1
        if key not in self.stages:
            work = self._work(mesh, key[-1])
            few = replace(recipe, mesh=replace(mesh, dp=1, zero=0))
            one = self.ranks[mesh.tp, mesh.ep]
            if all_ not in self.undivided:
                self.insides[all_] = Insides()
                self.undivided[all_] = train_ranks.of_all_stages(one, work, few)
            found = train_ranks.of_stages(one, work, few, self.undivided[all_])
            self.stages[key] = Remembered((own, step, {}, _beside(step)) for own, step in found)
        most, rest, before = 0, batch - key[-1], list[tuple[Step, int]]()
        for own, bare, timelines, own_beside in self.stages[key]:
            beside = own_beside + int(flights.stays(bare, own[0], rest))
            if not (own[0].first or own[-1].last) and any(
                there >= beside and _covers(one, bare) for one, there in before
            ):
                continue  # no table and no head, no more blocks of any kind, and no more beside them
            before.append((bare, beside))
            step = train_ranks.on_stages(self.subject, own, bare, recipe)
            least = int(beside + bare.parameters + step.states + step.buckets)  # once all is through forwards
            if least > budget:
                return max(most, least)
            rows = step.rows if own[0].first or (own[-1].last and self.tied) else (0, 1)  # of the table
            if rows not in timelines:
                timelines[rows] = timeline(bare._replace(states=0, update=0, rows=rows), self.insides[all_])
            *others, update = timelines[rows]
            stays = int(flights.stays(bare, own[0], rest))
            losses = rest * bytes_each(bare.run.loss, bare.stored) if own[0].last and bare.accumulate else 0
            there = (update.total + step.update, peak(others).total + losses)
            most = max(most, *(int(step.states + step.buckets + stays + each) for each in there))
            if most > budget:
                break
        return most

    def _sent(self, mesh: Mesh, batch: int, times: int) -> int:
        """Bytes that a rank sends in a whole step: copies without shares of gradients reduce them once."""
        at, bits = replace(self.work, batch=batch).axes(), units.dtype_bits(self.recipe.dtype)
        once = mesh.fsdp == 1 and mesh.zero < 2
        found = meshes.calls(self.subject, mesh, at, bits, train=True) if mesh.ranks > 1 else []
        if self.recipe.lora is not None and mesh.pp > 1:
            from tfacct.reports.train_ranks_said import sent_in_stages

            every = sent_in_stages(self.subject, self._work(mesh, batch), replace(self.recipe, mesh=mesh))
            found = max(every, key=lambda lines: sum(one.sent for one in lines))
        elif self.recipe.lora is not None and found:
            recipe = replace(self.recipe, mesh=mesh, gradient_accumulation=times)
            step = self._step(mesh, batch, recipe)
            found = adapters.sent(self.subject, recipe, train_ranks.shared(self.subject, step, recipe), found)
        return sum(
            one.sent if one.when == "update" or (one.over == "dp" and once) else times * one.sent for one in found
        )


class Alike(NamedTuple):
    """What of a mesh decides what its ranks compute, however many copies share weights or moments."""

    tp: int
    sp: bool
    ep: int
    pp: int
    gathered: int
    parts: int


def _alike(mesh: Mesh) -> Alike:
    """A ring keeps what exchanged heads do, but of one head on a rank, which none exchange."""
    gathered = mesh.cp if mesh.ulysses == 1 and mesh.cp_method == "gather" else 1
    return Alike(mesh.tp, mesh.sp, mesh.ep, mesh.pp, gathered, mesh.parts)


def _covers(one: Step, other: Step) -> bool:
    """True if a stage has as many blocks of each kind as another of the same pass, or more, and its gradients too."""
    if other.accumulate and not one.accumulate:
        return False
    there = {id(section.run): section.count for section in one.run.blocks}
    return all(section.count <= there.get(id(section.run), 0) for section in other.run.blocks)


def _beside(step: Step) -> int:
    """Bytes of all that a stage has of its microbatches."""
    stage = step.stage
    assert stage is not None
    own = step.kept_of(step.run)
    return int(own + step.beside(own + step.closures()) + stage.stays + stage.returned)
