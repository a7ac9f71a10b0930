"""The pass of a model's training step, as its class runs it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfacct.architecture.transformer import Transformer
from tfacct.ledger import paths
from tfacct.ledger.kept import AGAIN, Cast, Collected, Held, Kept, Moment, Pass, Run, Section, known
from tfacct.ledger.kept import Role as LineRole
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.reports.stored import RUNS
from tfacct.training.graph import LAYER_INPUT, LayerGraph, LayerGroup, SavedTensor, StepGraph, Transient
from tfacct.training.saved_tensors import CHOOSE
from tfacct.training.step import changed, plain_graph
from tfacct.training.traits import mode_of, traits_of

if TYPE_CHECKING:
    from tfacct.training.recipe import Recipe

ONE = Workload(context=1, tokens=1, batch=1)
CHUNKED = "chunked"
"""A loss in chunks, whose number the batch decides."""
MANY = 2
"""Sequences of a batch: one alone is laid out in another way, more are alike."""
PASSES = 16
"""Passes of one model that are known at a time."""


def pass_of(
    subject: LoadedModel,
    recipe: Recipe,
    work: Workload = ONE,
    shape: Transformer | None = None,
) -> Pass:
    """The pass of a model that was measured. Raises ConfigError for parts that its profile has no rule for.

    `shape`: the model with symbols for sizes, laid out as this workload is.
    """
    if shape is not None or recipe.loss == CHUNKED:
        return _pass_of(subject, recipe, work, shape)
    alike = replace(recipe, gradient_accumulation=1, keep_logits=False)  # neither changes what is kept
    key = alike, _sequences(work), work.tokens, work.new_source
    found: dict[object, Pass] = subject.ledger.known.setdefault(RUNS, {})
    if key not in found:
        if len(found) == PASSES:
            found.clear()
        found[key] = known(_pass_of(subject, recipe, work))
    return found[key]


def _pass_of(
    subject: LoadedModel,
    recipe: Recipe,
    work: Workload,
    shape: Transformer | None = None,
) -> Pass:
    mode, traits = mode_of(subject, recipe), traits_of(subject)
    model = subject if shape is None else replace(subject, architecture=shape, ledger=shape.ledger())
    return as_pass(changed(plain_graph(model, work, mode, traits), subject, work, recipe, traits))


ROLES: dict[str, LineRole] = {
    "compute": "work", "fp32": "full", "mask": "flag", "index": "index", "int32": "short", "seed": "seed"
}  # fmt: skip


def as_pass(graph: StepGraph) -> Pass:
    """The graph in the classes that the timeline reads."""

    def kept(each: SavedTensor) -> Kept:
        return Kept(each.path, each.axes, each.saved_for, ROLES[each.role], each.times)

    def held(each: Transient) -> Held:
        return Held(each.axes, ROLES[each.role], int(each.times))

    def run(own: LayerGraph, ahead: tuple[Transient, ...] = ()) -> Run:
        again = frozenset(name for part in own.recomputed_parts for name in part)
        moments = (
            Moment(each.at, tuple(map(held, each.temporary)), again=each.at if each.at in again else "")
            for each in own.backward
        )
        there = {each.path for each in own.saved}
        casts = tuple(Cast(each.at, held(each.copy), each.saved if each.saved in there else "") for each in own.casts)
        loss = (Moment(CHOOSE, tuple(map(held, ahead))),) if ahead else ()
        remade, own_casts = tuple(map(kept, own.recomputed)), casts if autocast else None
        return Run(own.order, tuple(map(kept, own.saved)), tuple(moments), loss, remade=remade, casts=own_casts)

    def section(own: LayerGroup, ahead: tuple[Transient, ...] = ()) -> Section:
        adds = None if own.shared is None else run(own.shared)
        return Section(run(own.graph, ahead), own.axes, own.count, own.numbers, adds=adds)

    autocast = any(group.graph.casts for group in graph.groups)
    role: LineRole = "full" if autocast else "work"
    again = Kept(paths.in_encoder(LAYER_INPUT), "B I D", (AGAIN,), role)
    return Pass(
        section(graph.before),
        tuple(map(section, graph.layers)),
        section(graph.after, graph.loss_forward),
        buffers=tuple(map(kept, graph.buffers)),
        again=frozenset(name for each in graph.layers for part in each.graph.recomputed_parts for name in part),
        waiting=tuple(map(held, graph.live_in_forward)),
        loss=ROLES[graph.loss],
        logits=held(graph.logits),
        collected=tuple(Collected(held(each.gradient), each.at) for each in graph.accumulated),
        encoder=None if graph.encoder is None else as_pass(graph.encoder),
        source=tuple(section(each)._replace(input=again) for each in graph.encoder_layers),
    )


def _sequences(work: Workload) -> int:
    return min(work.batch, MANY) if isinstance(work.batch, int) else MANY  # a symbol stands for more than one sequence


def as_graph(whole: Pass) -> StepGraph:
    """A pass of the old classes as a graph."""
    roles = {old: new for new, old in ROLES.items()} | {"upcast": "fp32", "copy": "fp32", "cast": "compute"}

    def group(section: Section) -> LayerGroup:
        saved = (SavedTensor(k.path, k.spec, k.by, roles[k.role], k.times) for k in section.run.kept)
        return LayerGroup(LayerGraph(section.run.order, tuple(saved)), section.axes, section.count, section.numbers)

    buffers = tuple(SavedTensor(k.path, k.spec, k.by, roles[k.role], k.times) for k in whole.buffers)
    layers, source = tuple(map(group, whole.blocks)), tuple(map(group, whole.source))
    return StepGraph(group(whole.front), layers, group(whole.back), buffers, encoder_layers=source)
