"""A report as it is composed: its title, what was defaulted, and what the person at the terminal should know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tfacct.base import units
from tfacct.base.errors import listed
from tfacct.families import CUSTOM, config_class
from tfacct.ledger.workload import Request, new_tokens
from tfacct.loading.left_out import LeftOut
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Note, Report, Row, Table
from tfacct.reports import selection

if TYPE_CHECKING:
    from tfacct.loading.index import Listed

Subject: TypeAlias = "LoadedModel | Listed"
"""A model that is asked, or one that a list shows."""
SHORT = 3
"""Fields, or models, that one line names."""
BOTH = "both"
"""The part that is one of two which are counted together."""
SUMMED: Mapping[str, Callable[[int], str]] = {
    "total_params": lambda total: f"{total:,} parameters",
    "total_flops": lambda total: f"{units.si(total)} FLOPs",
    "total_bytes": units.binary,
}
"""Headlines that two parts of one whole add up to, and how such a sum is said."""
CACHE = "kv_cache_bytes"
"""The headline of an answer that includes an encoder without a word about it: it has no cache."""
UNCOUNTED = (Column("unknown", "unknown"), Column("left_out", "left out"))
"""Columns of a CSV of several models: what of each was not counted."""


def report(
    command: str,
    subjects: Sequence[Subject],
    table: Table,
    facts: Sequence[Mapping[str, Any]],
    *,
    title: str,
    convention: str,
    notes: Callable[[slice], Iterable[str]],
    answer: str = "",
    counted: str = "",
    details: Callable[[slice], Iterable[str]] = lambda _: (),
    of_table: Iterable[str] = (),
    requests: Sequence[Request] = (),
    settings: Sequence[Sequence[LoadedModel]] | None = None,
    defaults: Sequence[Subject] | None = None,
    hints: Iterable[str] = (),
    left_out: Sequence[LeftOut] = (),
    headline: str = "",
    agrees: bool = True,
    interrupted: bool = False,
) -> Report:
    """A command's answer about some models: its table and `facts`, with what every answer says beside them.

    `facts` are about the last of the `subjects`, one each. `notes` are the command's own sentences about a slice of
    them: about all under the table, about one in its JSON. `answer` is the sentence that was asked for; `counted` is
    one line, and `details` are the same at length, for whoever asks and for the JSON. `of_table` is said of the table
    alone, before the notes. `requests`: one of all, or one of
    each; `settings`: the same models with other fields, where there are several of each; `defaults`: those whose
    defaults are named.
    """
    about = subjects[len(subjects) - len(facts) :]
    missing = [name for one in left_out for name in one.models] if headline != CACHE and _whole_of(about) else []
    groups = settings or [[subject] for subject in subjects if isinstance(subject, LoadedModel)]
    asked = list(requests) * len(groups) if len(requests) == 1 else list(requests)
    past = context_hints(groups, requests[0]) if len(requests) == 1 else _past_each(groups, asked)
    every = [subject for group in settings for subject in group] if settings else subjects

    def said(at: slice, own: Sequence[Subject]) -> list[str]:
        background = [Note("counted", 3, text) for text in details(at)]
        return [*notes(at), *background, *(Note("defaulted", 3, text) for text in defaulted_notes(own))]

    everyone, named = slice(None), subjects if defaults is None else defaults
    models = []
    for number, (subject, fact) in enumerate(zip(about, facts, strict=True)):
        at = slice(number, number + 1)
        own = said(at, named if len(facts) == 1 else [subject] if defaults is None else [])
        beside = past if len(facts) == 1 else context_hints(groups[at], asked[number]) if asked else []
        beside = [*answering_hints([subject]), *beside]
        told = [*own, *(Note("hint", 1, hint.removeprefix("hint: ")) for hint in beside)]
        facts_first = facts_of(subject)
        facts_first["left_out"] += missing
        models.append({**facts_first, "notes": told, **fact})
    columns, sections, totals = table
    return Report(
        command=command,
        title=title,
        columns=columns,
        sections=_with_uncounted(sections, about) if len(about) > 1 else sections,
        totals=totals,
        answer=answer if command == "verify" else _answer(about, facts, headline, missing, answer),
        notes=(*of_table, *notes(everyone)),
        counted=counted,
        defaulted=_defaulted(named),
        details=tuple(details(everyone)),
        hints=tuple(
            dict.fromkeys(
                [
                    *answering_hints(every),
                    *past,
                    *hints,
                    *unknown_hints(every),
                    *(one.hint for one in left_out),
                ]
            )
        ),
        models=tuple(models),
        convention=convention,
        headline=headline,
        agrees=agrees,
        interrupted=interrupted,
        aside=UNCOUNTED if len(about) > 1 else (),
        models_left_out=tuple({"model": name, "why": one.why} for one in left_out for name in one.models),
    )


def facts_of(subject: Subject) -> dict[str, Any]:
    """Who was counted, and what of it was not: the same first keys in every JSON."""
    return {
        "model": subject.name,
        "family": subject.family,
        "set": dict(subject.changed),
        "defaulted": dict(subject.defaulted),
        "unknown": list(subject.unknown),
        "left_out": list(subject.left_out),
    }


def _past_each(groups: Sequence[Sequence[LoadedModel]], requests: Sequence[Request]) -> list[str]:
    """What is said of each model by the workload that it is asked for."""
    each = (context_hints([group], request) for group, request in zip(groups, requests, strict=False))
    return list(dict.fromkeys(hint for hints in each for hint in hints))


def _with_uncounted(sections: Sequence[Sequence[Row]], about: Sequence[Subject]) -> tuple[tuple[Row, ...], ...]:
    """The rows with what of each model was not counted: as many rows of each, or a section of each."""
    names = [{"unknown": ", ".join(s.unknown), "left_out": ", ".join(s.left_out)} for s in about]
    if len(sections) == len(about):
        each = zip(sections, names, strict=True)
        return tuple(tuple({**row, **cells} for row in section) for section, cells in each)
    rows = sum(map(len, sections)) // len(about)
    following = (cell for cell in names for _ in range(rows))
    return tuple(tuple({**row, **next(following)} for row in section) for section in sections)


def workload_words(subjects: Sequence[LoadedModel], request: Request) -> str:
    """`context 16,384, batch 1`, or what stands for it when every model has its own."""
    batch = f"batch {request.batch:,}"
    sources = {request.source or subject.source for subject in subjects if subject.source is not None}
    one_source = f", source {max(sources):,}" if len(sources) == 1 else ""
    some = "" if all(subject.source is not None for subject in subjects) else " if any"
    one_source = one_source and f"{one_source}{some}"
    new = _new_tokens(subjects, request)
    step = "" if new is None else f"{new_tokens(new)} at "
    if _own_contexts(subjects, request):
        read = f" and source{some}" if len(sources) > 1 else one_source
        return f"{step}each model's own longest context{read}, {batch}"
    work = selection.workload(subjects[0], request)
    read = f", own sources{some}" if len(sources) > 1 else one_source
    return f"{step}context {work.context:,}{read}, {batch}"


def of_workload(subjects: Sequence[LoadedModel], request: Request, *, of: str = "of ", at: str = "at ") -> str:
    """`at context 16,384, batch 1`, or `of 1 new token at context 16,384, batch 1`: what follows `FLOPs`."""
    return f"{at if _new_tokens(subjects, request) is None else of}{workload_words(subjects, request)}"


def _own_contexts(subjects: Sequence[LoadedModel], request: Request) -> bool:
    """True if each model is asked for its own context, and they differ."""
    return request.ctx is None and len({subject.context for subject in subjects}) > 1


def _new_tokens(subjects: Sequence[LoadedModel], request: Request) -> int | None:
    """The new tokens of a step that is no whole pass."""
    if _own_contexts(subjects, request):
        return 1 if request.decode else request.tokens
    work = selection.workload(subjects[0], request)
    return None if work.tokens == work.context else work.tokens


def name_of(subject: Subject) -> str:
    """The model's name with what was set over it: `gpt2-xl (n_layer=2)`."""
    if not subject.changed:
        return subject.name
    return f"{subject.name} ({', '.join(f'{name}={spoken(value)}' for name, value in subject.changed.items())})"


def spoken(value: object) -> str:
    """A field's value as a config spells it, with digits grouped."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        import json

        return json.dumps(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _defaulted(subjects: Sequence[Subject]) -> str:
    """One line that names the fields left to a class's defaults, or says who names them."""
    silent = [subject for subject in subjects if subject.defaulted and subject.family != CUSTOM]
    if not silent:
        return ""
    if len(subjects) == 1 and len(silent[0].defaulted) <= SHORT:
        return defaulted_notes(silent)[0]
    if len(silent) > SHORT:
        return "defaulted: fields of some models; tfacct show MODEL names them"
    names = listed([name_of(subject) for subject in silent])
    fields = sum(len(subject.defaulted) for subject in silent)
    return f"defaulted: {fields} field{'' if fields == 1 else 's'} of {names}; tfacct show MODEL names them"


def defaulted_notes(subjects: Sequence[Subject]) -> list[str]:
    """Names every field that the config left to its class; for many models, says where to look."""
    silent = [subject for subject in subjects if subject.defaulted]
    if not silent:
        return []
    if len(subjects) > 4:
        return ["Some configs leave fields to their class's defaults: `tfacct show MODEL` names them."]
    notes = []
    for subject in silent:
        fields = ", ".join(f"{name} = {spoken(value)}" for name, value in subject.defaulted.items())
        notes.append(f"defaulted{'' if len(subjects) == 1 else f' in {name_of(subject)}'}: {fields}")
    return notes


def answering_hints(subjects: Sequence[Subject]) -> list[str]:
    """Says which presets answer for other names."""
    return list(dict.fromkeys(f"hint: {subject.answers}" for subject in subjects if subject.answers))


def shared_defaults(settings: Sequence[LoadedModel]) -> dict[str, Any]:
    """The defaults that a model has in every one of its settings."""
    first = settings[0].defaulted.items()
    return {field: value for field, value in first if all(s.defaulted.get(field) == value for s in settings)}


TIED = "tie_word_embeddings"
UNSAID = (
    "warning: {}: its config does not say whether the head is tied; it is counted as tied, its class's default. "
    "A checkpoint may store a head of its own: --set tie_word_embeddings=false counts it"
)


def unknown_hints(subjects: Sequence[Subject]) -> list[str]:
    """Names the fields that nobody here knows, and the models beside the language model."""
    unknown = [
        f"warning: {subject.name}: unknown fields, not counted if they add anything: {listed(subject.unknown)}"
        for subject in subjects
        if subject.unknown
    ]
    return [
        *unknown,
        *dict.fromkeys(_left_out(subject, len(subjects)) for subject in subjects if subject.left_out),
        *dict.fromkeys(UNSAID.format(subject.name) for subject in subjects if _unsaid(subject)),
    ]


def _unsaid(subject: Subject) -> bool:
    """True if a whole's class ties a head by default that its language model's class has not tied: files are published
    of either kind, and nothing in their configs tells which."""
    if not isinstance(subject, LoadedModel) or subject.defaulted.get(TIED) is not True:
        return False
    return config_class(subject.family).model_fields[TIED].default is False


def _left_out(subject: Subject, count: int) -> str:
    """Says which of several models is counted, of `count` that are asked, and what is not."""
    part = getattr(subject, "part", "")
    if part == BOTH and count > 1:
        models = "two" if count == 2 else "three"
        return f"warning: {_whole(subject)}: {models} models are counted, not {listed(subject.left_out)}"
    encodes = isinstance(subject, LoadedModel) and subject.architecture.head is None and not subject.keeps
    reads = "text encoder" if encodes else "language model"
    part = subject.encodes if isinstance(subject, LoadedModel) else None
    which = f"{part} model" if part else reads
    return f"warning: {subject.name}: only the {which} is counted, not {listed(subject.left_out)}"


def _whole(subject: Subject) -> str:
    return subject.name.rpartition(":")[0]


def _whole_of(subjects: Sequence[Subject]) -> str:
    """Name of the model whose parts these are, where they are counted together; else nothing."""
    names = {_whole(subject) for subject in subjects if getattr(subject, "part", "") == BOTH}
    return names.pop() if len(names) == 1 else ""


def _answer(
    subjects: Sequence[Subject],
    facts: Sequence[Mapping[str, Any]],
    headline: str,
    missing: Sequence[str],
    answer: str,
) -> str:
    """The answer: the sum of the parts of one model that are counted together, and the names of what it does not
    include. `missing`: parts that cannot be counted."""
    if len(facts) == 1 and missing:
        return f"Not included: {listed(missing)}. {answer}"
    if len(facts) != len(subjects) or len(facts) == 1 or headline not in SUMMED or not _whole_of(subjects):
        return answer
    total, without = sum(fact[headline] for fact in facts), [*missing, *subjects[-1].left_out]
    return f"{SUMMED[headline](total)} together{f', without {listed(without)}' if without else ''}."


def context_hints(groups: Sequence[Sequence[LoadedModel]], request: Request) -> list[str]:
    """Says which models, each in all its settings, are asked past the context or the source that they were trained
    for, and what a longer table would add."""
    context = request.ctx or 0
    past = [
        group
        for group in groups
        if any(context > subject.context for subject in group) and not group[0].counted_with_text
    ]
    hints = [_past_context(group, context) for group in past]
    if len(past) > 4:
        names = ", ".join(group[0].name for group in past)
        hints = [f"hint: context {context:,} is longer than these were trained with: {names}"]
    return [*hints, *_past_source(groups, request), *_without_logits(groups, request)]


def _without_logits(groups: Sequence[Sequence[LoadedModel]], request: Request) -> list[str]:
    """Says for which models it means nothing whose logits are asked for."""
    names = [group[0].name for group in groups if not any(subject.logits for subject in group)]
    if request.logits == "all" or not names:
        return []
    return [f"hint: --logits changes nothing for {', '.join(names)}: no logits are computed"]


def _bounded(subject: LoadedModel) -> bool:
    """Whether its source is bounded: one of images may be of any number of them."""
    encoder = subject.architecture.encoder
    return encoder is not None and not encoder.given


def _past_source(groups: Sequence[Sequence[LoadedModel]], request: Request) -> list[str]:
    asked = request.source or 0
    read = {
        group[0].name: sources
        for group in groups
        if (sources := [s.source for s in group if _bounded(s) and s.source is not None and asked > s.source])
    }
    if not read:
        return []
    named = ", ".join(f"{name} of {units.between(sources)}" for name, sources in read.items())
    return [f"hint: a source of {asked:,} is longer than the model was made for: {named}. Counted anyway."]


def _past_context(group: Sequence[LoadedModel], context: int) -> str:
    """Of one model, in those of its settings that are asked for more than their context."""
    # Settings that have the same position tables differ in nothing that is said here.
    past = {_tables(subject): subject for subject in group if context > subject.context}
    first = next(iter(past.values()))
    some = "" if all(context > subject.context for subject in group) else " in some settings"
    hint = (
        f"hint: {first.name} has a context of {units.between(subject.context for subject in past.values())}{some}."
        f" Counted at {context:,} anyway"
    )
    added = {longer_table(subject, context) for subject in past.values()}
    if not any(added):
        return f"{hint}."
    return f"{hint}; the {units.between(added)} parameters of a longer position table are not included."


def _tables(subject: LoadedModel) -> tuple[object, ...]:
    shape = subject.architecture
    return subject.context, shape.positions, None if shape.encoder is None else shape.encoder.positions


def longer_table(subject: LoadedModel, context: int) -> int:
    """Parameters that its position tables would have more for a longer context; none of a table that is resampled."""
    positions = subject.architecture.positions
    if positions is not None and positions.tiles is not None:
        return 0
    longer = subject.architecture.with_positions(context).ledger()
    return int(sum(longer.parameters().values()) - subject.parameters)
