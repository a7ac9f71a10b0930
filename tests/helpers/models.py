"""Tiny models with every size its own, the kinds among them, and the workloads that each can be asked for."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.families import ASKED, FACTS, SHAPES, TINY, family_of, presets_asked
from tests.helpers.lazy import lazy
from tfacct.architecture.parts import Part
from tfacct.ledger.einsum import Axes, rounded_up
from tfacct.ledger.lines import Matmul
from tfacct.ledger.workload import Workload
from tfacct.loading import presets
from tfacct.loading.model import LoadedModel, load_model
from tfacct.loading.selection import takes_context

counting = lazy("tfacct.reference.counting")


def tiny(name: str, **sets: object) -> LoadedModel:
    """The tiny model of a family, or a variant of it. It is read once: nothing writes to a model."""
    return load_model(f"tiny-{name}", SHAPES[name], sets) if sets else _read(name)


def in_whole_rows(config: dict[str, Any]) -> dict[str, Any]:
    """The same, with widths of whole 16 bytes: grouped products of experts run on no others."""
    return {name: rounded_up(value, 8) * 8 if name in WIDTHS and value else value for name, value in config.items()}


WIDTHS = ("hidden_size", "intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size")


@cache
def _read(name: str) -> LoadedModel:
    return load_model(f"tiny-{name}", SHAPES[name], {})


@cache
def kind(name: str) -> frozenset[object]:
    """The traits of a shape."""
    return kind_of(tiny(name))


def kind_of(ours: LoadedModel) -> frozenset[object]:
    """The traits of a model: its kinds of layers (order, parts, windows, MLA mode), its inputs and outputs, its sides,
    and whether the head is tied. Sizes, biases and kinds of norm are no traits."""
    blocks = {
        (stack.block.order, *(_sort(sublayer.part) for sublayer in stack.block.sublayers))
        for stack in ours.architecture.every_stack
    }
    head = ours.architecture.head
    ends = {("end", type(end).__name__) for end in (ours.architecture.embed, ours.architecture.pooler)}
    sides = ("sides", ours.architecture.encoder is not None, ours.has_cache)
    return frozenset({*blocks, *ends, sides, ("head", head is not None and head.tied)})


@cache
def kind_of_preset(name: str) -> frozenset[object]:
    """The traits of a preset. What tells it from others that have them, tests/families draws."""
    return kind_of(presets.load(name))


def _sort(part: Part) -> tuple[object, ...]:
    return type(part).__name__, getattr(part, "mla_mode", None), getattr(part, "window", None) is not None


def by_kind(names: Iterable[str], of: Callable[[str], frozenset[object]] = kind) -> list[Any]:
    """Shapes or presets for a test in which only the kind matters: as few as together have every trait; the others are
    slow. Shapes that take any number of tokens are preferred."""
    if ASKED:
        return [pytest.param(name, id=name) for name in names if family_of(name) in ASKED or name in presets_asked()]
    names, asked = [*names], set[str]()
    order = sorted(names, key=lambda name: tiny(name).ledger.together > 1) if of is kind else names
    left = frozenset[object]().union(*map(of, order))
    while left:
        most = max(order, key=lambda name: len(of(name) & left))
        asked.add(most)
        left -= of(most)
    return [pytest.param(name, marks=() if name in asked else (pytest.mark.slow,), id=name) for name in names]


def every_other(shapes: Iterable[Any], questions: Sequence[object]) -> list[Any]:
    """Each shape with one of the questions in turn; the other pairs are slow."""
    params = []
    for number, shape in enumerate(shapes):
        for turn, question in enumerate(questions):
            marks = shape.marks if number % len(questions) == turn else (pytest.mark.slow,)
            params.append(pytest.param(*shape.values, question, marks=marks, id=f"{shape.id}-{question}"))
    return params


def every_step(works: Iterable[str], alone: str, reading: str) -> list[Any]:
    """All steps of the shapes that `by_kind` selects; of the others the step `alone` or, with a source, `reading`. The
    rest is slow."""
    first = {param.id for param in by_kind(sorted(SHAPES)) if not param.marks}
    params = []
    for name in sorted(SHAPES):
        needed = {*works} if name in first else {alone if tiny(name).source is None else reading}
        for work in works:
            marks = () if work in needed else (pytest.mark.slow,)
            params.append(pytest.param(name, work, marks=marks, id=f"{name}-{work}"))
    return params


def headed() -> list[str]:
    """Families whose tiny model gives logits: a metric may ask about their head."""
    return [name for name in TINY if tiny(name).architecture.head is not None]


def of_family(question: str, family: str) -> str:
    """A metric or an equation about attention, or for a family without it, about what it has instead."""
    for attention, instead in FACTS[family].INSTEAD.items():
        question = question.replace(attention, instead)
    return question


SOURCE = 17
"""Tokens of a source, where an encoder reads one."""


def alone(family: str) -> bool:
    """True for a family of encoders, which have no cache."""
    return not tiny(family).has_cache


def rounded(ours: LoadedModel, tokens: int) -> int:
    """At least as many tokens, as a multiple of the patches that are merged."""
    learned = ours.ledger.learned_tokens
    return rounded_up(tokens - learned, ours.ledger.together) * ours.ledger.together + learned


def context(ours: LoadedModel, tokens: int) -> int:
    """The smallest possible context of at least so many tokens; for an image encoder, that of its images."""
    return rounded(ours, tokens) if takes_context(ours, rounded(ours, tokens)) else ours.context


def asked(ours: LoadedModel, work: Workload, source: int = SOURCE) -> Workload:
    """The workload as the model takes it: an encoder takes all tokens at once, at least one patch of an image, and a
    source is read in the first step, whole if the class requires it."""
    if not ours.has_cache:
        tokens = max(work.tokens, 1 + (getattr(ours.architecture.embed, "front", None) or 0))
        tokens = rounded(ours, tokens)
        return replace(work, context=tokens, tokens=tokens)
    if ours.source is None:
        return work
    if ours.config.hf_fixed_source:
        source = ours.source
    return replace(work, source=source, new_source=source if work.tokens == work.context else 0)


def ran(line: Matmul, axes: Axes) -> Any:
    """A matmul line as the modules of the reference model record it."""
    dims = line.dims(axes)
    left, right, out = line.operands(axes)
    return counting.Ran(dims.m, dims.k, dims.n, dims.times, left, right, out)
