"""The ways in which devices can divide a model, and what a rank of each takes and sends."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from tfacct.accounts.memory import cache_bytes
from tfacct.base import units
from tfacct.base.errors import TfacctError
from tfacct.base.later import Later
from tfacct.base.spelling import option
from tfacct.ledger.einsum import rounded_up
from tfacct.ledger.storage import Width
from tfacct.ledger.workload import Workload
from tfacct.loading.links import Link
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh, divisors, replicated_heads
from tfacct.parallel.model_collectives import model_collectives
from tfacct.parallel.pipeline import microbatches
from tfacct.parallel.search import served, trained
from tfacct.parallel.shard_model import shard_weights, stages_of
from tfacct.parallel.support import DTYPES, check_axes
from tfacct.parallel.verified import verified
from tfacct.training import layouts
from tfacct.training.memory import TrainingMemory
from tfacct.training.recipe import Recipe
from tfacct.training.step import TrainingStep
from tfacct.training.unsupported import alone, model_of_rank, refusal, unsupported_layout


class Candidate(NamedTuple):
    """A mesh, the sequences that a rank takes at a time and how often in a step, the bytes that it needs and sends; its
    seconds where they were asked for and there is an estimate, the options of `tfacct time` that give them, the
    stack whose measured steps they rest on (seconds of two stacks are not compared), and the links that they assume."""

    mesh: Mesh
    batch: int
    times: int
    bytes: int
    sent: int
    seconds: float | None = None
    time_options: str = ""
    stack: str = ""
    links: tuple[Link, ...] = ()


class SearchResult(NamedTuple):
    """Divisions that fit, those that do not with as few sequences as can be, the ones that need least first, with their
    meshes in any order, and why others are not counted."""

    fitting: list[Candidate]
    larger: Sequence[Candidate]
    too_large: list[Mesh]
    skipped: list[str]

    @property
    def counted(self) -> int:
        """Number of divisions that are counted."""
        return len(self.fitting) + len(self.larger)

    @property
    def shown(self) -> list[Mesh]:
        """Meshes of those that fit; where none does, of all others."""
        return [one.mesh for one in self.fitting] or self.too_large


def search_training(model: LoadedModel, recipe: Recipe, work: Workload, devices: int, budget: int) -> SearchResult:
    """Divisions of a training step whose batch is that of all devices."""
    return TrainingSearch(model, recipe, work, budget).tried(devices)


def search_serving(
    model: LoadedModel, work: Workload, devices: int, budget: int, dtype: str | None, kv: Width
) -> SearchResult:
    """Divisions of a model that is served: copies of so many ranks, each with its part of the batch; what a rank sends
    for one new token of each sequence, or for what an encoder reads. `dtype`: of the weights, `kv`: of the cache."""
    stored = model.storage(dtype)
    sends = units.dtype_bits(stored.name if stored.name in DTYPES else "bf16")
    fitting, larger, skipped = list[Candidate](), list[Candidate](), list[str]()
    ranked: dict[tuple[int, int], LoadedModel] = {}
    for mesh in served(model, devices):
        key = mesh.tp, mesh.ep
        try:
            if key not in ranked:
                ranked[key] = shard_weights([model], mesh.tp, dtype, mesh.ep)[0]
            if mesh.pp > 1:
                check_axes(model, mesh)
            own = replace(work, batch=rounded_up(work.batch, mesh.dp))
            step = (replace(own, tokens=1, new_source=0) if model.keeps else own).axes()
            alone = replace(mesh, dp=max(1, mesh.ep // mesh.tp))
            sent = sum(each.sent for each in model_collectives(model, alone, step, sends)) if alone.ranks > 1 else 0
        except TfacctError as error:
            skipped.append(_said(model, error))
            continue
        whole, at = ranked[key], own.axes()
        held = [one for _, one in stages_of(whole, mesh.pp)]
        # As published, a stage's tensors are stored as they are in the whole; a format's mix may go by their number.
        needs = max(
            sum(one.ledger.weight_bytes((whole if dtype is None else one).storage(dtype)).values())
            + cache_bytes(one.ledger, at, kv)
            for one in held
        )
        (fitting if needs <= budget else larger).append(Candidate(mesh, own.batch, 1, needs, sent))
    larger.sort(key=lambda one: one.bytes)
    return SearchResult(_by_sent(fitting), larger, [one.mesh for one in larger], skipped)


def _by_sent(found: Iterable[Candidate]) -> list[Candidate]:
    return sorted(found, key=lambda one: (one.sent, one.bytes))


def _said(model: LoadedModel, error: TfacctError) -> str:
    return error.message.removeprefix(f"{model.name}: ")


class TrainingSearch:
    """The steps of all divisions; what a rank computes is the same in many of them."""

    def __init__(self, model: LoadedModel, recipe: Recipe, work: Workload, budget: int) -> None:
        self.model, self.recipe, self.work, self.budget = model, recipe.for_model(model), work, budget
        self.heads = max((part.heads for part in model.architecture.attentions), default=1)
        self.pads = verified(model.family, "torch_plan")
        self.unsupported: dict[tuple[RankShape, int, int, int, int, int], str | None] = {}
        self.ranks: dict[tuple[int, int], LoadedModel] = {}
        self.whys: dict[tuple[int, int], str | None] = {}
        self.steps: dict[tuple[RankShape, int, bool], TrainingStep] = {}

    def tried(self, devices: int) -> SearchResult:
        """Of those that do not fit, what they send is worked out once somebody asks."""
        fitting, larger, skipped = list[Candidate](), list[tuple[int, Mesh, int, int]](), list[str]()
        for mesh in trained(self.model, devices, self.work.tokens):
            why = self._skipped(mesh)
            if why is not None:
                skipped.append(why)
                continue
            batch, times, needs = self._largest(mesh)
            if needs <= self.budget:
                fitting.append(Candidate(mesh, batch, times, needs, self._sent(mesh, batch, times)))
            else:
                larger.append((needs, mesh, batch, times))
        later = (
            Candidate(mesh, batch, times, needs, self._sent(mesh, batch, times))
            for needs, mesh, batch, times in sorted(larger, key=itemgetter(0))
        )
        by_bytes = Later(len(larger), lambda: later)
        return SearchResult(_by_sent(fitting), by_bytes, [mesh for _, mesh, *_ in larger], skipped)

    def _skipped(self, mesh: Mesh) -> str | None:
        groups = mesh.fsdp * mesh.dp
        if mesh.sequence_shards > 1 and self.work.tokens % mesh.sequence_chunks:
            return f"{mesh.sequence_chunks:,} pieces do not divide {self.work.tokens:,} tokens"
        if self.work.batch % groups:
            return f"{groups:,} groups of ranks do not divide a batch of {self.work.batch:,}"
        if mesh.sp and self.work.tokens % mesh.tp:
            return f"{mesh.tp:,} ranks do not divide {self.work.tokens:,} tokens"
        if mesh.tp > self.heads:
            return f"{option('tp')} divides no more ranks than heads"
        if replicated_heads(self.model.ledger, mesh):
            return f"{option('tp')} beyond the key/value heads copies them: a plan looks no further"
        # How many copies, and stages, is no matter to the rules; nor of ranks of fsdp, where all rows are padded.
        shares = min(mesh.fsdp, 2) if self.pads else mesh.fsdp
        key = _rank_shape(mesh), min(mesh.pp, 2), mesh.cp, min(mesh.dp, 2), mesh.zero, shares
        if key not in self.unsupported:
            found = unsupported_layout(self.model, replace(self.recipe, mesh=mesh))
            self.unsupported[key] = None if found is None else found.reason
        if (why := self.unsupported[key]) is not None:
            return why
        own = mesh.tp, mesh.ep
        if own not in self.whys:
            self.ranks[own] = model_of_rank(self.model, mesh)
            recipe = alone(replace(self.recipe, mesh=mesh))
            self.whys[own] = refusal(self.ranks[own], recipe)
        return self.whys[own]

    def _largest(self, mesh: Mesh) -> tuple[int, int, int]:
        """As many sequences at a time as fit, or one, how often a step takes so many, and the bytes at the peak. Stages
        take one at a time."""
        if mesh.pp > 1:
            batch = self.work.batch // mesh.dp
            return batch, 1, self._needs(mesh, batch, batch)
        own = self.work.batch // (mesh.fsdp * mesh.dp)
        sizes, found = divisors([own]), dict[int, int]()

        def too_large(size: int) -> bool:
            if size not in found:
                found[size] = self._needs(mesh, size, own)
            return found[size] > self.budget

        size = own
        if too_large(own):
            size = sizes[max(0, bisect_left(sizes, True, hi=len(sizes) - 1, key=too_large) - 1)]
            too_large(size)
        return size, own // size, found[size]

    def _needs(self, mesh: Mesh, batch: int, own: int) -> int:
        """Bytes at the peak; of a pipeline, on the rank where most are there."""
        recipe, one = self._accumulating(mesh, batch < own), self.ranks[mesh.tp, mesh.ep]
        times = microbatches(mesh, self._work(mesh, batch).axes(), train=True) if mesh.pp > 1 else 1
        step = self._step(mesh, batch // times, recipe)
        steps = layouts.sharded_steps(self.model, one, step, recipe, times)
        work = self._work(mesh, batch)
        return max(int(TrainingMemory(self.model, work, recipe, step).peak.total) for step in steps)

    def _accumulating(self, mesh: Mesh, accumulates: bool) -> Recipe:
        """The recipe on a mesh, where a step takes one batch, or several."""
        return replace(self.recipe, mesh=mesh, gradient_accumulation=1 + accumulates)

    def _step(self, mesh: Mesh, batch: int, recipe: Recipe) -> TrainingStep:
        """What a rank computes."""
        key = _rank_shape(mesh), batch, recipe.accumulates
        if key not in self.steps:
            self.steps[key] = layouts.rank_step(self.ranks[mesh.tp, mesh.ep], self._work(mesh, batch), recipe)
        return self.steps[key]

    def _work(self, mesh: Mesh, batch: int) -> Workload:
        """So many sequences on a rank that has its part of each."""
        tokens = self.work.tokens // mesh.sequence_shards
        return replace(self.work, batch=batch, tokens=tokens, context=tokens)

    def _sent(self, mesh: Mesh, batch: int, times: int) -> int:
        """Bytes that a rank sends in a whole step: copies without shares of gradients reduce them once."""
        once, recipe = mesh.fsdp == 1 and mesh.zero < 2, self._accumulating(mesh, times > 1)
        found = layouts.collectives(self.model, replace(self.work, batch=batch), recipe) if mesh.ranks > 1 else []
        return sum(
            one.sent if one.when == "update" or (one.over == "dp" and once) else times * one.sent for one in found
        )


class RankShape(NamedTuple):
    """What of a mesh decides what its ranks compute, however many copies share weights or optimizer state."""

    tp: int
    sp: bool
    ep: int
    fsdp: bool
    gathered: int
    parts: int


def _rank_shape(mesh: Mesh) -> RankShape:
    """A ring saves what exchanged heads do, but of one head on a rank, which none exchange."""
    gathered = mesh.cp if mesh.ulysses == 1 and mesh.cp_method == "gather" else 1
    return RankShape(mesh.tp, mesh.sp, mesh.ep, mesh.fsdp > 1, gathered, mesh.sequence_shards)
