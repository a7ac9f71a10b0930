"""A count as a reader could do it again by hand: the letters, each line's product in letters and numbers, the sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal, get_args

from tfacct.base.errors import UsageError, nearest
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD
from tfacct.ledger.storage import Storage, width
from tfacct.ledger.workload import Request
from tfacct.loading.model import LoadedModel
from tfacct.output.derivation import Component, Derivation
from tfacct.output.report import Report
from tfacct.reports import cells, compose, counting, sentences, sight, takeaway
from tfacct.reports import latent_attention as latent
from tfacct.reports.derived import Entry, SpelledModel, spelled_model
from tfacct.reports.flops import flops
from tfacct.reports.kv import kv
from tfacct.reports.memory import memory
from tfacct.reports.params import params

Of = Literal["flops", "params", "kv", "memory"]


def explain(
    subject: LoadedModel,
    request: Request,
    of: Of = "flops",
    *,
    train: bool = False,
    masked: bool = False,
    dtype: str | None = None,
    kv_dtype: str | None = None,
) -> Report:
    """Return the report of this name about a model with the derivation of its total. Raises UsageError.

    FLOPs go with `train` and `masked`, memory with `dtype` and `kv_dtype`, the KV cache with `dtype`.
    """
    if of not in get_args(Of):
        raise UsageError(f"{option('of')} is flops, params, kv or memory, not {of!r}", nearest(of, get_args(Of)))
    step = {"tokens": request.tokens, "decode": request.decode, "logits": request.logits == "last"}
    whole = {"ctx": request.ctx, "source": request.source, "batch": request.batch != 1}
    takes: dict[str, tuple[str, ...]] = {
        "flops": (*step, *whole, "train", "masked"),
        "params": (),
        "kv": (*whole, "dtype"),
        "memory": (*whole, "dtype", "kv_dtype"),
    }
    given = {**step, **whole, "train": train, "masked": masked, "dtype": dtype, "kv_dtype": kv_dtype}
    for name, value in given.items():
        if value and name not in takes[of]:
            raise UsageError(f"{of} does not depend on {option(name)}", "leave it out")
    if of == "flops":
        report = flops([subject], request, train=train, masked=masked)
    elif of == "params":
        report = params([subject])
    elif of == "kv":
        report = kv([subject], request, dtype=dtype)
    else:
        report = memory([subject], request, dtype=dtype, kv_dtype=kv_dtype)
    return explained(report, [subject], request, train=train, masked=masked, dtype=dtype, kv_dtype=kv_dtype)


def explained(
    report: Report,
    subjects: Sequence[LoadedModel],
    request: Request,
    *,
    train: bool = False,
    masked: bool = False,
    dtype: str | None = None,
    kv_dtype: str | None = None,
) -> Report:
    """Return a report of `flops`, `params`, `kv` or `memory` about one model with the derivation of its total.

    The options are those that the report was asked with. Raises UsageError.
    """
    if len(subjects) != 1:
        raise UsageError(f"{option('explain')} derives the numbers of one MODEL, not of {len(subjects)}")
    (subject,) = subjects
    if report.command == "flops":
        derivation = _flops(subject, request, train, masked)
    elif report.command == "params":
        derivation = _params(subject)
    elif report.command == "kv":
        derivation = _kv(subject, request, counting.dtypes(None, dtype)[1])
        kept = f"{sentences.kept(subjects)} in {counting.dtypes(None, dtype)[1]}"
        report = replace(
            report,
            title=f"{compose.name_of(subject)}: {kept}, {compose.workload_words(subjects, request)}",
            notes=tuple(_kept_notes(subject, counting.dtypes(None, dtype)[1])),
        )
    else:
        derivation = _memory(subject, request, subject.storage(dtype), counting.dtypes(dtype, kv_dtype)[1])
    (facts,) = report.models
    models = ({**facts, "derivation": derivation.facts()},)
    said = derivation.takeaway or report.answer
    answer = f"{report.answer} {said}" if facts.get("fit") and said != report.answer else said
    return replace(report, answer=answer, models=models, derivation=derivation)


def _kept_notes(subject: LoadedModel, cached: str) -> list[str]:
    """The notes of `kv` about what is kept as built."""
    own = [*sentences.state_notes([subject], cached), *sight.window_notes([subject], kept=True)]
    return [*own, *latent.kept_notes([subject])]


def _flops(subject: LoadedModel, request: Request, train: bool, masked: bool) -> Derivation:
    work = counting.workload(subject, request)
    model = spelled_model(subject.settled(work, masked=masked), work)
    entries = list(model.products(masked=masked, train=train))

    def component(entry: Entry) -> str:
        assert entry.line is not None
        name = paths.component_of(entry.line)
        return cells.COMPONENTS.get(name, name)

    rule = f"{FLOPS_PER_MULTIPLY_ADD} FLOPs per multiply-add · multiply-adds of a block · blocks = FLOPs"
    rule = f"3 products (one forward, two gradients) · {rule}" if train else rule
    said = takeaway.of_flops(subject, work, entries, train=train)
    return _derivation(model, entries, "FLOPs", rule, component, said)


def _params(subject: LoadedModel) -> Derivation:
    model = spelled_model(subject, None)
    entries = list(model.tensors())
    rule = "parameters of a block · blocks = parameters"
    return _derivation(model, entries, "parameters", rule, _part, takeaway.of_params(subject, entries))


def _kv(subject: LoadedModel, request: Request, cached: str) -> Derivation:
    work = counting.workload(subject, request)
    model = spelled_model(subject, work)
    entries = list(model.states(width(cached)))
    said = takeaway.of_kept(work, entries)
    return _derivation(model, entries, "bytes", _BYTES, _part, said)


_BYTES = "bytes per element · elements of a block · blocks = bytes"


def _memory(subject: LoadedModel, request: Request, how: Storage, cached: str) -> Derivation:
    work = counting.workload(subject, request)
    model = spelled_model(subject, work)
    if how.by_block:
        why = f"{subject.name}: in {how.name} a matrix takes other bytes in other blocks"
        raise UsageError(f"{why}, so {option('explain')} has no one formula for it", f"another {option('dtype')}")
    rule = f"{_BYTES}; {how.name}: {how.about}" if how.narrow else _BYTES
    weights, states = list(model.tensors(how)), list(model.states(width(cached)))
    kept = {entry.path for entry in states}

    def component(entry: Entry) -> str:
        return subject.kept if entry.path in kept else f"weights of {_part(entry)}"

    said = takeaway.of_memory(work, weights, states)
    return _derivation(model, [*weights, *states], "bytes", rule, component, said)


def _part(entry: Entry) -> str:
    return paths.heading_of(entry.path)


def _derivation(
    model: SpelledModel,
    entries: Iterable[Entry],
    unit: str,
    rule: str,
    component: Callable[[Entry], str],
    said: tuple[str, str],
) -> Derivation:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(component(entry), []).append(entry)
    components = tuple(Component(name, tuple(model.steps(own, unit))) for name, own in found.items())
    steps = [step for one in components for step in one.steps]
    if any("⌈" in step.letters for step in steps):
        rule = f"{rule}; ⌈ ⌉ is rounded up to a whole number"
    if any("⌊" in step.letters for step in steps):
        rule = f"{rule}; ⌊ ⌋ is rounded down"
    used = model.letters(steps)
    return Derivation(unit, rule, used, components, *said)
