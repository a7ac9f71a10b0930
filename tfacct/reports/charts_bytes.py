"""What the pictures of memory and of the KV cache show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfacct.accounts.memory import cache_bytes
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.ledger.lines import WINDOW
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Request, Workload
from tfacct.loading.model import LoadedModel
from tfacct.output import look
from tfacct.output.chart import Chart
from tfacct.output.report import Report
from tfacct.reports import compose, counting, sentences
from tfacct.reports.budget import usable_words
from tfacct.reports.charts import TOLD_APART, Y_LABELS, asked_mark, counted, octaves
from tfacct.reports.kv import heads_words, is_latent, variants

POINTS = 128
"""Steps along a linear axis."""
PAST = 1.15
"""The axis goes so many times past the largest context that fits."""
BEFORE = 64
"""A logarithmic axis begins so many times before its end, and at 1,024 at the latest."""
CONTEXT = "context (tokens)"


def memory_chart(subjects: Sequence[LoadedModel], request: Request, report: Report) -> Chart:
    """Weights and what is kept: of one model against the context, of several in bars; with the budget, if one was
    asked."""
    models = report.models
    found = models[0].get("fit")
    budget = [(found["budget_bytes"], usable_words(found))] if found else []
    stored, cached = models[0]["workload"]["dtype"], models[0]["kv_dtype"]
    subjects = counted(subjects, report)
    kept = (
        sentences.kept([subject for subject in subjects if subject.keeps])
        if any(subject.keeps for subject in subjects)
        else ""
    )
    words = f"Weights in {stored}{f', {kept} in {cached}' if kept else ''};"
    caption = f"{words} no activations, engine buffers or fragmentation."
    if len(models) == 1:
        return _by_context(subjects[0], request, models[0], budget, caption)
    where = compose.workload_words(subjects, request)
    return Chart(
        kind="bars",
        title=f"Weights{f' and {kept}' if kept else ''} of {len(models)} models",
        caption=" ".join([f"{where[0].upper()}{where[1:]}.", caption, *sentences.state_notes(subjects, cached)]),
        x_label=Y_LABELS["bytes"],
        y_label="",
        x=[compose.name_of(subject) for subject in subjects],
        series={
            "weights": [facts["weights_bytes"] for facts in models],
            **({kept: [facts["kv_cache_bytes"] for facts in models]} if kept else {}),
        },
        unit="bytes",
        hues=[look.BLUE, look.ORANGE][: 1 + bool(kept)],
        levels=budget,
        ends=[(units.binary(facts["total_bytes"]),) for facts in models],
    )


def _by_context(
    subject: LoadedModel, request: Request, facts: dict[str, Any], budget: list[tuple[int, str]], caption: str
) -> Chart:
    work = counting.workload(subject, request)
    cached = width(facts["kv_dtype"], facts["kv_block"] or 1)
    fits = facts["fit"]["largest_context"] if budget else None
    last = max(work.context, subject.context, int(PAST * (fits or 0)))
    contexts = _with_windows([last * step // POINTS for step in range(POINTS + 1)], subject)
    series = {"weights": [facts["weights_bytes"]] * len(contexts)}
    if subject.keeps:
        series[subject.kept] = [cache_bytes(subject.ledger, replace(work, context=n).axes(), cached) for n in contexts]
    return Chart(
        kind="areas",
        title=_fit_title(subject, facts, work, budget[0][1]) if budget else _total_title(subject, facts, work),
        caption=f"Batch {work.batch:,}{f', source {work.source:,}' if work.source else ''}. {caption}",
        x_label=CONTEXT,
        y_label=Y_LABELS["bytes"],
        x=contexts,
        series=series,
        unit="bytes",
        hues=[look.BLUE, look.ORANGE][: len(series)],
        marks=[asked_mark(work.context), *([(fits, f"fits up to {fits:,}")] if fits else [])],
        levels=budget,
    )


def _total_title(subject: LoadedModel, facts: dict[str, Any], work: Workload) -> str:
    weights, cache = units.binary(facts["weights_bytes"]), units.binary(facts["kv_cache_bytes"])
    name = compose.name_of(subject)
    if not subject.keeps:
        return f"{name} takes {weights} of weights at every context: nothing is kept between steps"
    return f"{name} takes {weights} of weights, and {cache} of {subject.kept} {_at(work)}"


def _at(work: Workload) -> str:
    """The context, and the batch where it is more than one sequence."""
    return f"at {work.context:,} tokens" + ("" if work.batch == 1 else f" in each of {work.batch:,} sequences")


def _fit_title(subject: LoadedModel, facts: dict[str, Any], work: Workload, budget: str) -> str:
    found, name = facts["fit"], compose.name_of(subject)
    batch = "" if work.batch == 1 else f" at batch {work.batch:,}"
    if found["largest_context"]:
        return f"{name} fits in {budget} up to a context of {found['largest_context']:,} tokens{batch}"
    if found["context_slack_bytes"] is not None:
        return f"{name} fits in {budget} at any context{batch}"
    return f"{name} does not fit in {budget} at any context{batch}"


def kv_chart(subjects: Sequence[LoadedModel], request: Request, report: Report) -> Chart:
    """What is kept against the context: of one model as built, as MHA and as MQA; of several as they are built.

    Raises UsageError for more models than can be told apart.
    """
    subjects = counted(subjects, report)
    if len(subjects) > TOLD_APART:
        raise UsageError(f"{len(subjects)} lines cannot be told apart: at most {TOLD_APART}", "name fewer models")
    cached = width(report.models[0]["workload"]["dtype"])
    works = [counting.workload(subject, request) for subject in subjects]
    asked = [*(work.context for work in works), *(subject.context for subject in subjects)]
    last = max(2, *asked)
    contexts = octaves(max(1, min(1024, last // BEFORE, min(asked) // 4)), last)
    for subject in subjects:
        contexts = _with_windows(contexts, subject)
    lines: dict[str, list[int]] = {}
    reach: dict[str, int] = {}
    names = [compose.name_of(subject) for subject in subjects]
    hues = []
    for number, (subject, work) in enumerate(zip(subjects, works, strict=True)):
        own = names[number] if names.count(names[number]) == 1 else f"{names[number]} ({number + 1})"
        for name, hue, ledger in _named_variants(subject) if len(subjects) == 1 else [(own, number, subject.ledger)]:
            lines[name] = [cache_bytes(ledger, replace(work, context=n).axes(), cached) for n in contexts]
            reach[name] = subject.context
            hues.append(hue)
    kept = sentences.kept(subjects)
    sources = {work.source for work in works if work.source}
    source = f", source {max(sources):,}" if len(sources) == 1 else ""
    caption = f"{kept[0].upper()}{kept[1:]} in {cached.name}, batch {request.batch:,}{source}."
    if any(subject.context < last for subject in subjects):
        caption += f" Dotted: past the longest context of {'the' if len(subjects) == 1 else 'a'} model."
    return Chart(
        kind="lines",
        title=_kv_title(subjects[0], report.models[0], works[0])
        if len(subjects) == 1
        else f"{kept} of {len(subjects)} models as the context grows",
        caption=" ".join([caption, *sentences.state_notes(subjects, cached.name)]),
        x_label=CONTEXT,
        y_label=f"{kept} ({Y_LABELS['bytes']})",
        x=contexts,
        series=lines,
        unit="bytes",
        hues=hues,
        marks=[asked_mark(works[0].context)] if len({work.context for work in works}) == 1 else [],
        reach=reach,
    )


def _named_variants(subject: LoadedModel) -> list[tuple[str, int, Any]]:
    """As MHA, as built, as MQA, by the key/value heads of each; one name for two that are the same."""
    sides = variants(subject)
    if sides["mha"] is None:  # no attention, or keys of one head that are values too
        return [(subject.kept, look.BLUE, subject.ledger)]
    parts = subject.architecture.attentions
    queries = {part.heads for part in parts}
    built = "as built"
    named = [(f"MHA ({heads_words(sorted(queries))})", look.ORANGE, sides["mha"])]
    if is_latent(subject):
        return [*named, (f"{built} (latent)", look.BLUE, sides["as_built"])]
    heads = {part.kv_heads for part in parts}
    own = heads_words(sorted(heads))
    if heads == {1}:
        return [*named, (f"{built}, MQA ({own})", look.BLUE, sides["as_built"])]
    mqa = (f"MQA ({heads_words(1)})", look.GREEN, sides["mqa"])
    if all(part.kv_heads == part.heads for part in parts):
        return [(f"{built}, MHA ({own})", look.BLUE, sides["as_built"]), mqa]
    return [*named, (f"{built} ({own})", look.BLUE, sides["as_built"]), mqa]


def _kv_title(subject: LoadedModel, facts: dict[str, Any], work: Workload) -> str:
    sizes = {name: size for name, size in facts["lines"][-1].items() if name != "keys" and size is not None}
    own, name = sizes.pop("as_built"), compose.name_of(subject)
    said = f"{name} keeps {units.binary(own)} of {subject.kept}"
    if not sentences.attends([subject]):
        return f"{said} at every context" + ("" if work.batch == 1 else f", for {work.batch:,} sequences")
    other = next((variant for variant, size in sizes.items() if size != own), None)
    if other is None:
        return f"{said} {_at(work)}"
    return f"{said} {_at(work)}; as {other.upper()} it would keep {units.binary(sizes[other])}"


def _with_windows(contexts: list[int], subject: LoadedModel) -> list[int]:
    """The contexts, and those at which a window is full: lines bend there."""
    windows = {group.axes[WINDOW] for group in subject.ledger.groups if WINDOW in group.axes}
    return sorted({*contexts, *(n for n in windows if contexts[0] < n < contexts[-1])})
