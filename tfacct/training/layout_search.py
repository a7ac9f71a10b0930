"""Search for parallel layouts of a training step: which layouts fit on the devices, and what one rank of each stores
and sends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from tfacct.accounts.memory import cache_bytes
from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.lazy import LazySequence
from tfacct.base.spelling import option
from tfacct.ledger.einsum import divisors, rounded_up
from tfacct.ledger.storage import Width
from tfacct.ledger.workload import Workload
from tfacct.loading.links import Link
from tfacct.loading.model import LoadedModel
from tfacct.parallel.collectives import Collective
from tfacct.parallel.mesh import Mesh, replicated_heads
from tfacct.parallel.model_collectives import model_collectives
from tfacct.parallel.pipeline import microbatches
from tfacct.parallel.shard_model import as_served, check_stage_formats, shard_weights, stages_of
from tfacct.parallel.support import DTYPES, check_axes
from tfacct.parallel.verified import verified
from tfacct.training import layouts
from tfacct.training.memory import TrainingMemory
from tfacct.training.model_step import graph_of, training_step
from tfacct.training.recipe import Recipe
from tfacct.training.step import StepGraph, TrainingStep
from tfacct.training.unsupported import model_of_rank, recipe_of_rank, refusal, unsupported_layout

RECOMPUTE = ("none", "attention", "full")
"""Recomputation modes that a search tries, the cheapest first."""


class Estimate(NamedTuple):
    """Estimated seconds of a layout. `options`: the options of `tfacct time` for the same estimate. `stack`: the
    software stack of the underlying measurements; estimates of two stacks are not comparable. `links`: the assumed
    links."""

    seconds: float
    options: str
    stack: str = ""
    links: tuple[Link, ...] = ()


class Candidate(NamedTuple):
    """A layout and its step: micro-batches of `batch` sequences per rank, the number of micro-batches (`times`),
    recomputation, and the bytes that a rank needs and sends."""

    mesh: Mesh
    batch: int
    times: int
    bytes: int
    sent: int
    recompute: str = RECOMPUTE[0]
    estimate: Estimate | None = None

    @property
    def links(self) -> tuple[Link, ...]:
        """The links of its estimate."""
        return () if self.estimate is None else self.estimate.links


class SearchResult(NamedTuple):
    """`fitting`: layouts that fit, each with the variants that fit, less recomputation first. `larger`: layouts that do
    not fit, with the least memory possible, the smallest first. `skipped`: a reason for each other layout."""

    fitting: list[list[Candidate]]
    larger: Sequence[Candidate]
    skipped: list[str]

    @property
    def counted(self) -> int:
        """Number of counted layouts."""
        return len(self.fitting) + len(self.larger)

    @property
    def main_reason(self) -> str | None:
        """The most frequent reason to skip a layout; None if none was skipped."""
        counts = Counter(self.skipped)
        return max(counts, key=counts.__getitem__, default=None)


def search_serving(
    model: LoadedModel, work: Workload, meshes: Iterable[Mesh], budget: int, dtype: str | None, kv: Width
) -> SearchResult:
    """Layouts for serving a model: replicas, each with its part of the batch, and the bytes that a rank sends per new
    token of each sequence, or per encoder pass. `dtype`: that of the weights, `kv`: that of the cache."""
    fitting, larger, skipped = list[list[Candidate]](), list[Candidate](), list[str]()
    ranked: dict[tuple[int, int], LoadedModel] = {}
    for mesh in meshes:
        key = mesh.tp, mesh.ep
        try:
            if mesh.dp > work.batch:
                raise UsageError(f"the batch ({work.batch:,}) is smaller than the number of replicas")
            if key not in ranked:
                ranked[key] = shard_weights(as_served(model), mesh.tp, dtype, mesh.ep)
            check_stage_formats(model, mesh.pp, dtype)
            if mesh.pp > 1:
                check_axes(model, mesh)
            share = replace(work, batch=rounded_up(work.batch, mesh.dp))
            sent = sum(one.sent for one in serving_collectives(model, mesh, share, dtype))
        except TfacctError as error:
            skipped.append(error.message.removeprefix(f"{model.name}: "))
            continue
        unstaged, at = ranked[key], share.axes()
        storage = unstaged.storage(dtype)
        needs = max(
            sum(one.ledger.weight_bytes(storage).values()) + cache_bytes(one.ledger, at, kv)
            for _, one in stages_of(unstaged, mesh.pp)
        )
        found = Candidate(mesh, share.batch, 1, needs, sent)
        if needs <= budget:
            fitting.append([found])
        else:
            larger.append(found)
    larger.sort(key=lambda one: one.bytes)
    return SearchResult(fitting, larger, skipped)


def serving_collectives(model: LoadedModel, mesh: Mesh, share: Workload, dtype: str | None) -> list[Collective]:
    """Collectives of a rank for one new token of each of its replica's sequences, or for an encoder pass. Raises
    TfacctError."""
    step = replace(share, tokens=1, new_source=0) if model.has_cache else share
    storage = model.storage(dtype)
    bits = units.dtype_bits(storage.name if storage.name in DTYPES else "bf16")
    return model_collectives(model, mesh, step.axes(), bits)


class TrainingSearch:
    """The training steps of all layouts, with the global batch.

    Each of `recompute` is tried, the cheapest first; with `least`, a step uses the least memory. If a recipe has
    several micro-batches, so has each layout.
    """

    def __init__(
        self,
        model: LoadedModel,
        recipe: Recipe,
        work: Workload,
        budget: int,
        *,
        recompute: Sequence[str] = (),
        least: bool = False,
    ) -> None:
        self.model, self.recipe, self.work, self.budget = model, recipe.for_model(model), work, budget
        self.recipes = {how: replace(self.recipe, recompute=how) for how in recompute or (recipe.recompute,)}
        self.least, self.times = least, recipe.gradient_accumulation
        self.heads = max((part.heads for part in model.architecture.attentions), default=1)
        self.pads = verified(model.family, "torch_plan")
        # by what each depends on
        self.unsupported: dict[tuple[object, ...], str | None] = {}
        self.models: dict[tuple[object, ...], LoadedModel] = {}
        self.graphs: dict[tuple[object, ...], StepGraph] = {}
        self.steps: dict[tuple[object, ...], TrainingStep] = {}

    def result(self, meshes: Iterable[Mesh], *, given: bool = False) -> SearchResult:
        """The result of the search. Bytes of layouts that do not fit, and what they send, are computed lazily. `given`:
        a layout to include for any number of ranks with the same key/value heads."""
        fitting, larger, skipped = list[list[Candidate]](), list[Mesh](), list[str]()
        for mesh in meshes:
            if mesh.pp > 1 and self.times > 1:
                mesh = replace(mesh, microbatches=self.times)
            reason = self._reason(mesh) or (None if given else self._too_many_ranks(mesh))
            if reason is not None:
                skipped.append(reason)
            elif ways := self._ways(mesh):
                fitting.append(ways)
            else:
                larger.append(mesh)
        return SearchResult(fitting, LazySequence(len(larger), lambda: self._larger(larger)), skipped)

    def _larger(self, found: list[Mesh]) -> Iterator[Candidate]:
        for size, batch, how, mesh in sorted(map(self._smallest, found), key=itemgetter(0)):
            yield self._candidate(mesh, batch, how, size)

    def _reason(self, mesh: Mesh) -> str | None:
        """The reason why a layout is not counted; None if it is."""
        groups, tokens = mesh.batch_shards, self.work.tokens
        if mesh.sequence_shards > 1 and tokens % mesh.sequence_chunks:
            return f"{mesh.sequence_chunks:,} chunks of a sequence do not divide {tokens:,} tokens"
        if self.work.batch % groups:
            return f"{groups:,} data-parallel ranks do not divide a batch of {self.work.batch:,}"
        if self._sequences(mesh) % self.times:
            return f"{self.times:,} micro-batches do not divide a batch of {self._sequences(mesh):,}"
        if mesh.sp and tokens % mesh.tp:
            return f"{mesh.tp:,} ranks do not divide {tokens:,} tokens"
        reasons = [self._unsupported(mesh, how) for how in self.recipes]
        return None if None in reasons else reasons[0]

    def _too_many_ranks(self, mesh: Mesh) -> str | None:
        """The reason why a search excludes this size of `tp`; None if it does not."""
        if mesh.tp > self.heads:
            return f"{option('tp')} exceeds the {self.heads:,} attention heads"
        if heads := replicated_heads(self.model.ledger, mesh):
            return f"{option('tp')} exceeds the {max(heads):,} key/value heads"
        return None

    def _unsupported(self, mesh: Mesh, how: str) -> str | None:
        """The reason why a layout does not work with the recipe and this recomputation; None if it does."""
        # The rules depend on neither replicas nor stages, nor on the number of fsdp ranks if all rows are padded.
        shares = min(mesh.fsdp, 2) if self.pads else mesh.fsdp
        key = _rank_shape(mesh), min(mesh.pp, 2), mesh.cp, min(mesh.dp, 2), mesh.zero, shares, how
        if key not in self.unsupported:
            recipe = replace(self.recipes[how], mesh=mesh)
            found = unsupported_layout(self.model, recipe) if mesh.ranks > 1 else None
            reason = found.reason if found is not None else refusal(self._model_of_rank(mesh), recipe_of_rank(recipe))
            self.unsupported[key] = reason
        return self.unsupported[key]

    def _model_of_rank(self, mesh: Mesh) -> LoadedModel:
        key = mesh.tp, mesh.ep
        if key not in self.models:
            self.models[key] = model_of_rank(self.model, mesh)
        return self.models[key]

    def _supported(self, mesh: Mesh) -> list[str]:
        return [how for how in self.recipes if self._unsupported(mesh, how) is None]

    # The steps that fit.

    def _ways(self, mesh: Mesh) -> list[Candidate]:
        """Variants of a layout that fit, each with the largest micro-batch that fits: more recomputation only if it
        allows a larger micro-batch."""
        if self.least:
            size, batch, how, _ = self._smallest(mesh)
            return [self._candidate(mesh, batch, how, size)] if size <= self.budget else []
        found, most = list[Candidate](), self._sizes(mesh)[-1]
        for how in self._supported(mesh):
            batch, size = self._largest(mesh, how)
            if batch > (found[-1].batch if found else 0):
                found.append(self._candidate(mesh, batch, how, size))
            if batch == most:
                break
        return found

    def _sequences(self, mesh: Mesh) -> int:
        """Sequences per rank in a step."""
        batch: int = self.work.batch
        return batch // mesh.batch_shards

    def _sizes(self, mesh: Mesh) -> list[int]:
        """Possible micro-batch sizes of a rank. A pipeline takes all sequences, split by its schedule."""
        sequences = self._sequences(mesh)
        if mesh.pp > 1:
            return [sequences]
        return divisors([sequences]) if self.times == 1 else [sequences // self.times]

    def _smallest(self, mesh: Mesh) -> tuple[int, int, str, Mesh]:
        """The fewest bytes of a step, its micro-batch, and the recomputation. The micro-batch is the smallest, or all
        sequences, which accumulate no gradients."""
        sizes = self._sizes(mesh)
        ways = [
            (max(map(self._peak, self._steps(mesh, batch, how))), batch, how, mesh)
            for how in self._supported(mesh)
            for batch in dict.fromkeys((sizes[0], sizes[-1]))
        ]
        return min(ways, key=itemgetter(0))

    def _largest(self, mesh: Mesh, how: str) -> tuple[int, int]:
        """The largest micro-batch that fits, and its peak bytes; 0 if none fits.

        All sequences at once accumulate no gradients and may fit where one does not. Of fewer, the peak is nearly
        linear in the size, so the first two sizes predict where to search."""
        sizes, known = self._sizes(mesh), dict[int, int]()
        last = len(sizes) - 1

        def fits(at: int) -> bool:
            if at not in known:
                known[at] = self._fitting(mesh, sizes[at], how)
            return known[at] > 0

        if fits(last):
            return sizes[last], known[last]
        if not fits(0):
            return 0, 0
        low, high = 0, last  # the last size that fits, the first one that does not
        while high - low > 1:
            at = low + 1
            if low > 0:
                each = (known[low] - known[0]) / (sizes[low] - sizes[0])
                most = bisect_right(sizes, sizes[low] + (self.budget - known[low]) / max(each, 1))
                at = min(max(most - 1, low + 1), high - 1)
            low, high = (at, high) if fits(at) else (low, at)
        return sizes[low], known[low]

    def _fitting(self, mesh: Mesh, batch: int, how: str) -> int:
        """Peak bytes if they fit, else 0; in a pipeline, those of the rank with the highest peak."""
        most = 0
        for step in self._steps(mesh, batch, how):
            others = 0 if step.stage is None else step.stage.saved + step.stage.gradients
            least = step.weights + step.optimizer.state + step.saved_bytes() + others  # when the forward pass ends
            if self.recipe.offload is None and least > self.budget:
                return 0
            if (peak := self._peak(step)) > self.budget:
                return 0
            most = max(most, peak)
        return most

    def _peak(self, step: TrainingStep) -> int:
        # The phases depend on neither model nor workload.
        return int(TrainingMemory(self.model, self.work, self.recipe, step).peak.total)

    def _candidate(self, mesh: Mesh, batch: int, how: str, size: int) -> Candidate:
        sent = sum(one.sent for one in self.collectives(mesh, batch, how))
        return Candidate(mesh, batch, self._sequences(mesh) // batch, size, sent, how)

    # The step of one layout.

    def _recipe(self, mesh: Mesh, batch: int, how: str) -> Recipe:
        """The recipe on a mesh, with micro-batches of `batch` sequences."""
        layout = None if mesh.ranks == 1 else mesh
        return replace(self.recipes[how], mesh=layout, gradient_accumulation=self._sequences(mesh) // batch)

    def _work(self, mesh: Mesh, batch: int) -> Workload:
        """The workload of this number of sequences on a rank with its part of each."""
        tokens = self.work.tokens // mesh.sequence_shards
        return replace(self.work, batch=batch, tokens=tokens, context=tokens)

    def _steps(self, mesh: Mesh, batch: int, how: str) -> Iterator[TrainingStep]:
        """The step of a rank; in a pipeline, steps of ranks that include the one with the highest peak."""
        recipe = self._recipe(mesh, batch, how)
        if recipe.mesh is None:
            return iter((training_step(self.model, recipe.runs(self._work(mesh, batch)), recipe),))
        times = microbatches(mesh, self._work(mesh, batch).axes(), train=True) if mesh.pp > 1 else 1
        step = self._step(mesh, batch // times, recipe)
        return layouts.sharded_steps(self.model, self._model_of_rank(mesh), step, recipe, times)

    def _step(self, mesh: Mesh, batch: int, recipe: Recipe) -> TrainingStep:
        """The step of a rank before sharding; many layouts share it."""
        key = _rank_shape(mesh), batch, recipe.accumulates, recipe.recompute
        if key not in self.steps:
            one, work = self._model_of_rank(mesh), self._work(mesh, batch)
            self.steps[key] = layouts.rank_step(one, work, recipe, partial(self._graph, mesh))
        return self.steps[key]

    def _graph(self, mesh: Mesh, one: LoadedModel, work: Workload, recipe: Recipe) -> StepGraph:
        """The graph of a rank's model. It is the same for any batch of several sequences, unless the loss is
        chunked."""
        batch = work.batch if recipe.loss == "chunked" else min(work.batch, 2)
        key = mesh.tp, mesh.ep, int(work.tokens), batch, recipe.recompute, recipe.autocast
        if key not in self.graphs:
            self.graphs[key] = graph_of(one, work, recipe)
        return self.graphs[key]

    def collectives(self, mesh: Mesh, batch: int, how: str) -> list[Collective]:
        """Collectives of a rank in an optimizer step."""
        if mesh.ranks == 1:
            return []
        return layouts.collectives(self.model, replace(self.work, batch=batch), self._recipe(mesh, batch, how))


def _rank_shape(mesh: Mesh) -> tuple[int, ...]:
    """What determines the computation of a mesh's ranks, for any number of replicas. A ring saves the same as exchanged
    heads, except with one head per rank, where none are exchanged."""
    gathered = mesh.cp if mesh.ulysses == 1 and mesh.cp_method == "gather" else 1
    return mesh.tp, mesh.sp, mesh.ep, mesh.fsdp > 1, gathered, mesh.sequence_shards
