"""What reports share: keys, titles, notes on defaults and warnings, shares, and how metrics are counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NotRequired, TypeAlias, TypedDict

from tfacct.architecture.parts import CrossAttention
from tfacct.base import units
from tfacct.base.errors import listed
from tfacct.families import CUSTOM, config_class
from tfacct.ledger import paths
from tfacct.ledger.workload import Request
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.loading.selection import WorkloadFacts as WorkloadFacts
from tfacct.loading.skipped import Skipped
from tfacct.output.answer import Answer, AnswerT
from tfacct.output.keys import Keys, Object, values_of
from tfacct.output.report import Cell, Column, Note, Row, Table

if TYPE_CHECKING:
    from tfacct.loading.index import Listed
    from tfacct.output import derivation
    from tfacct.parallel.mesh import Mesh

DtypeFrom: TypeAlias = Literal["given", "published", "assumed"]
"""Source of the weights' format: the user, the config or its files, or an assumption."""


class Axis(TypedDict):
    """Meaning of an axis, and its value in a model."""

    meaning: str
    value: NotRequired[int]


of_step: Keys[[derivation.Step]] = Keys()
of_component: Keys[[derivation.Component]] = Keys()
of_derivation: Keys[[derivation.Derivation]] = Keys()


class Step(Object):
    """A line of a derivation: `symbols` = `numbers` = `result`."""

    path: str = of_step(lambda step: step.path)
    step: str = of_step(lambda step: step.name)
    spec: str = of_step(lambda step: step.spec)
    gradients: list[str] = of_step(lambda step: list(step.more), when=lambda step: step.more)
    symbols: str = of_step(lambda step: step.symbols)
    numbers: str = of_step(lambda step: step.numbers)
    result: int = of_step(lambda step: step.result)


class Component(Object):
    """Steps added up under one name."""

    component: str = of_component(lambda one: one.name)
    steps: list[Step] = of_component(lambda one: [values_of(Step, step) for step in one.steps])
    total: int = of_component(lambda one: one.total)


class Derivation(Object):
    """The total, step by step."""

    unit: str = of_derivation(lambda found: found.unit)
    takeaway: str | None = of_derivation(lambda found: found.takeaway or None)
    check: str | None = of_derivation(lambda found: found.check or None)
    legend: dict[str, Axis] = of_derivation(
        lambda found: {axis.name: {"meaning": axis.meaning, "value": axis.value} for axis in found.legend}
    )
    parts: list[Component] = of_derivation(lambda found: [values_of(Component, one) for one in found.components])
    total: int = of_derivation(lambda found: found.total)


class NotIncluded(TypedDict):
    """Layers in the config that are not counted, with their size if known."""

    kind: Literal["MTP", "DSpark"]
    field: str
    layers: int
    params: int | None
    bytes: NotRequired[int | None]


of_mesh: Keys[[Mesh]] = Keys()


class MeshFacts(Object):
    """The ranks of a mesh."""

    tp: int = of_mesh(lambda mesh: mesh.tp)
    sp: bool = of_mesh(lambda mesh: mesh.sp)
    fsdp: int = of_mesh(lambda mesh: mesh.fsdp)
    tp_plan: Literal["torch", "megatron"] = of_mesh(lambda mesh: mesh.plan)
    ranks: int = of_mesh(lambda mesh: mesh.ranks)
    ep: int = of_mesh(lambda mesh: mesh.ep)
    imbalance: float = of_mesh(lambda mesh: float(mesh.imbalance))
    dp: int = of_mesh(lambda mesh: mesh.dp)
    zero: int = of_mesh(lambda mesh: mesh.zero)
    pp: int = of_mesh(lambda mesh: mesh.pp)
    schedule: Literal["gpipe", "1f1b", "interleaved", "zero-bubble"] | None = of_mesh(
        lambda mesh: mesh.schedule if mesh.pp > 1 else None
    )
    microbatches: int | None = of_mesh(lambda mesh: mesh.microbatches or None)
    pp_chunks: int = of_mesh(lambda mesh: mesh.chunks)
    cp: int = of_mesh(lambda mesh: mesh.cp)
    cp_method: Literal["ring", "gather"] | None = of_mesh(lambda mesh: mesh.cp_method if mesh.cp > 1 else None)
    ulysses: int = of_mesh(lambda mesh: mesh.ulysses)


class ModelReport(Answer):
    """Keys of every model."""

    _reserved: ClassVar[dict[str, Any]] = {"defaulted": dict[str, Any], "notes": list[str], "note_keys": list[str]}

    set: dict[str, Any]
    unknown: list[str]
    left_out: list[str]


class ExplainedReport(ModelReport):
    """Keys of a report that `--explain` derives."""

    _reserved: ClassVar[dict[str, Any]] = {"derivation": Derivation | None}


class RankReport(ModelReport):
    """Keys of a report that may be about one rank."""

    tp: int | None
    pp: int | None
    stage: int | None
    mesh: MeshFacts | None


class StoredReport(ModelReport):
    """Keys of a report on stored bytes: formats, weights, cache, and the range of weights that vary by file."""

    workload: WorkloadFacts
    dtype_from: DtypeFrom
    published_dtype: str | None
    kv_dtype: str
    weights_bytes: int
    weights_low_bytes: int | None
    weights_high_bytes: int | None
    total_low_bytes: int | None
    total_high_bytes: int | None
    range_reason: str | None
    kv_cache_bytes: int
    total_bytes: int


Subject: TypeAlias = "LoadedModel | Listed"
"""A loaded model, or one of a list of presets."""
SHORT = 3
"""Most fields, or models, named in one line."""
BOTH = "both"
"""The part of a model whose text model and encoder are counted together."""
SUMMED: Mapping[str, Callable[[int], str]] = {
    "total_params": lambda total: f"{total:,} parameters",
    "total_flops": lambda total: f"{units.si(total)} FLOPs",
    "total_bytes": units.binary,
}
"""Headlines that add up over the parts of one model, and the text of the sum."""
CACHE = "kv_cache_bytes"
"""A headline that is complete without the encoder, which has no cache."""
UNCOUNTED = (Column("unknown", "unknown"), Column("left_out", "left out"))
"""Columns that only the CSV of several models has."""


def report(
    kind: type[AnswerT],
    models: Sequence[Subject],
    table: Table,
    facts: Sequence[Mapping[str, Any]],
    *,
    title: str,
    convention: str = "",
    notes: Callable[[slice], Iterable[str]],
    answer: str = "",
    details: Callable[[slice], Iterable[str]] = lambda _: (),
    requests: Sequence[Request] = (),
    settings: Sequence[Sequence[LoadedModel]] | None = None,
    defaults: Sequence[Subject] | None = None,
    hints: Iterable[str] = (),
    skipped: Sequence[Skipped] = (),
    headline: str = "",
    agrees: bool = True,
) -> AnswerT:
    """The report of this kind: its table and `facts`, with the notes and warnings that every report has.

    `facts`: of the last of the `models`, one each. `notes` and `details` return the notes for a slice of them: of all
    models under the table, of one model in its JSON; `details` are printed with `-v` only. `convention`: what was
    counted, in one line. `requests`: one for all models, or one for each. `settings`: the variants of each model in a
    sweep. `defaults`: the models whose defaulted fields are reported (all without it). `skipped`: models not in the
    table.
    """
    reported = models[len(models) - len(facts) :]
    missing = [name for one in skipped for name in one.models] if headline != CACHE and _common_name(reported) else []
    groups = settings or [[model] for model in models if isinstance(model, LoadedModel)]
    each_request = list(requests) * len(groups) if len(requests) == 1 else list(requests)
    if len(requests) == 1:
        too_long = context_hints(groups, requests[0])
    else:
        too_long = [hint for at in zip(groups, each_request, strict=False) for hint in context_hints([at[0]], at[1])]
    named = models if defaults is None else defaults

    def entry(at: int, model: Subject, fact: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON of one model."""
        place, of_defaults, hints = slice(at, at + 1), [model] if defaults is None else [], too_long
        if len(facts) == 1:
            of_defaults = list(named)
        else:
            hints = context_hints(groups[place], each_request[at]) if each_request else []
        background = {"counted": [f"Counted: {convention}."] if convention else [], "details": details(place)}
        background["defaulted"] = defaulted_notes(of_defaults)
        sentences = [
            *(about_all if len(models) == 1 else notes(place)),
            *(Note(key, 3, text) for key, texts in background.items() for text in texts),
            *(Note("hint", 1, hint.removeprefix("hint: ")) for hint in [*_model_hints([model]), *hints]),
        ]
        first = facts_of(model)
        return {**first, "left_out": [*first["left_out"], *missing], "notes": sentences, **fact}

    every = [model for group in settings for model in group] if settings else models
    warnings = [*_model_hints(every), *too_long, *hints, *unknown_hints(every), *(one.hint for one in skipped)]
    columns, sections, totals = table
    about_all = tuple(notes(slice(None)))
    return kind(
        command=kind._name,
        title=title,
        columns=columns,
        sections=_with_uncounted(sections, reported) if len(reported) > 1 else sections,
        total_rows=totals,
        answer=answer if kind._name.startswith("verify") else _answer(reported, facts, headline, missing, answer),
        notes=about_all,
        defaulted=_defaulted(named),
        details=tuple(details(slice(None))),
        hints=tuple(dict.fromkeys(warnings)),
        models=tuple(entry(at, *both) for at, both in enumerate(zip(reported, facts, strict=True))),
        convention=convention,
        headline=headline,
        agrees=agrees,
        aside=UNCOUNTED if len(reported) > 1 else (),
        models_skipped=tuple({"model": name, "why": one.why} for one in skipped for name in one.models),
    )


def facts_of(model: Subject) -> dict[str, Any]:
    """The first keys of every JSON: the model, its changed fields, and what is not counted."""
    return {
        "model": model.name,
        "family": model.family,
        "set": dict(model.changed),
        "defaulted": dict(model.defaulted),
        "unknown": list(model.unknown),
        "left_out": list(model.left_out),
    }


def _with_uncounted(sections: Sequence[Sequence[Row]], models: Sequence[Subject]) -> tuple[tuple[Row, ...], ...]:
    """The rows with the cells of `UNCOUNTED`: a section for each model, or equally many rows for each."""
    cells = [{"unknown": ", ".join(model.unknown), "left_out": ", ".join(model.left_out)} for model in models]
    if len(sections) == len(models):
        each = zip(sections, cells, strict=True)
        return tuple(tuple({**row, **uncounted} for row in section) for section, uncounted in each)
    rows = sum(map(len, sections)) // len(models)
    following = (uncounted for uncounted in cells for _ in range(rows))
    return tuple(tuple({**row, **next(following)} for row in section) for section in sections)


def workload_words(models: Sequence[LoadedModel], request: Request, batch: str = "") -> str:
    """`context 16,384, batch 1`, or `each model's longest context, batch 1`. `batch`: other words for the batch."""
    differ = _contexts_differ(models, request)
    sources = {request.source or model.source for model in models if model.source is not None}
    source = " and each encoder's longest source" if sources else ""
    if len(sources) == 1:
        some = any(model.source is None for model in models)
        source = f", source {max(sources):,}{' in encoders' if some else ''}"
    new = _new_tokens(models, request)
    step = "" if new is None else f"{units.number_of(new, 'new token')} at "
    where = "each model's longest context" if differ else f"context {selection.workload(models[0], request).context:,}"
    return f"{step}{where}{source}, {batch or f'batch {request.batch:,}'}"


def fewest_words(request: Request, what: str) -> str:
    """A default batch in words: `batch 8 (the smallest for this layout)`."""
    return f"batch {request.batch:,}" + (f" (the smallest {what})" if request.batch > 1 else "")


def of_workload(models: Sequence[LoadedModel], request: Request, *, of: str = "of ", at: str = "at ") -> str:
    """The workload after `FLOPs`: `at context 16,384, batch 1`, or `of 1 new token at context 16,384, batch 1`."""
    return f"{at if _new_tokens(models, request) is None else of}{workload_words(models, request)}"


def _contexts_differ(models: Sequence[LoadedModel], request: Request) -> bool:
    """True if the models have different contexts and none is given."""
    return request.ctx is None and len({model.context for model in models}) > 1


def _new_tokens(models: Sequence[LoadedModel], request: Request) -> int | None:
    """The new tokens of a step, or None if all tokens are new."""
    if _contexts_differ(models, request):
        return request.new
    work = selection.workload(models[0], request)
    return None if work.tokens == work.context else work.tokens


def titled(models: Sequence[Subject], what: str) -> str:
    """A title without its workload: `gpt2: forward FLOPs`, or `Forward FLOPs` of several models."""
    return f"{label(models[0])}: {what}" if len(models) == 1 else what[0].upper() + what[1:]


def label(model: Subject) -> str:
    """The model's name and its changed fields: `gpt2-xl (n_layer=2)`."""
    if not model.changed:
        return model.name
    return f"{model.name} ({', '.join(f'{name}={format_value(value)}' for name, value in model.changed.items())})"


def typed_model(model: LoadedModel) -> str:
    """The model and its changed fields as they are typed."""
    values = {field: value if isinstance(value, str) else json.dumps(value) for field, value in model.changed.items()}
    sets = [f" --set {quote(f'{field}={value}')}" for field, value in values.items()]
    return quote(model.path or model.name) + "".join(sets)


def format_value(value: object) -> str:
    """A field's value as in a config, with digits grouped."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return json.dumps(value)
    if isinstance(value, float) and value.is_integer():  # as the page prints it
        return f"{int(value):,}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _defaulted(models: Sequence[Subject], most: int | None = SHORT) -> str:
    """One line on the fields with class defaults: of one model the first few, or all if `most` is None, sizes before
    switches; of several the command that lists them."""
    silent = [model for model in models if model.defaulted and (most is None or model.family != CUSTOM)]
    if not silent:
        return ""
    if len(models) > 1:
        return "Defaults (not in the config): `tfacct models MODEL` lists them"
    fields = sorted(silent[0].defaulted.items(), key=lambda field: field[1] is None or isinstance(field[1], bool))
    words = ", ".join(f"{name} = {format_value(value)}" for name, value in fields[:most])
    if most is not None and len(fields) > most:
        words += f", {len(fields) - most:,} more (`tfacct models {typed_name(silent[0])}` lists them)"
    return f"Defaults (not in the config): {words}"


def typed_name(model: Subject) -> str:
    """What to type for this model: the path of a config, or the name of a preset; MODEL if it is not known."""
    if not isinstance(model, LoadedModel):
        return model.name
    if model.path:
        return quote(model.path)
    is_preset = model.provenance is not None and model.provenance.kind not in ("fetched", "cached")
    return model.name if is_preset else "MODEL"


def defaulted_notes(models: Sequence[Subject]) -> list[str]:
    """The note on all fields with class defaults, if any."""
    note = _defaulted(models, None)
    return [note] if note else []


def _model_hints(models: Sequence[Subject]) -> list[str]:
    """Hints on names that another preset stands for, and on fields that were set."""
    changed = [model for model in models if isinstance(model, LoadedModel) and model.changed]
    if not changed:
        return answering_hints(models)
    from tfacct.loading.changed_fields import change_hints

    return [*answering_hints(models), *change_hints(changed)]


def answering_hints(models: Sequence[Subject]) -> list[str]:
    """Hints on names that another preset stands for."""
    return list(dict.fromkeys(f"hint: {model.answers}" for model in models if model.answers))


def shared_defaults(settings: Sequence[LoadedModel]) -> dict[str, Any]:
    """The defaults that all settings of a model share."""
    first = settings[0].defaulted.items()
    return {field: value for field, value in first if all(s.defaulted.get(field) == value for s in settings)}


TIED = "tie_word_embeddings"
NO_FORMAT = (
    "warning: {}: the config does not set tie_word_embeddings, so the head counts as tied, the class default. "
    "If the checkpoint has a separate head, count it with --set tie_word_embeddings=false"
)


def unknown_hints(models: Sequence[Subject]) -> list[str]:
    """Warnings about unknown fields, parts that are not counted, and undecided tying of the head."""
    unknown = [
        f"warning: {model.name}: unknown fields (weights that they add are not counted): {listed(model.unknown)}"
        for model in models
        if model.unknown
    ]
    return [
        *unknown,
        *dict.fromkeys(_left_out(model, len(models)) for model in models if model.left_out),
        *dict.fromkeys(NO_FORMAT.format(model.name) for model in models if _has_no_format(model)),
    ]


def _has_no_format(model: Subject) -> bool:
    """True if a multimodal class ties the head by default and its text model's class does not: there are checkpoints of
    both kinds, and the config does not tell them apart."""
    if not isinstance(model, LoadedModel) or model.defaulted.get(TIED) is not True:
        return False
    return config_class(model.family).model_fields[TIED].default is False


def _left_out(model: Subject, count: int) -> str:
    """The warning about parts of a model that are not counted."""
    part = getattr(model, "part", "")
    if part == BOTH and count > 1:
        many = "two" if count == 2 else "three"
        return f"warning: {_name_without_part(model)}: {many} models are counted, without {listed(model.left_out)}"
    encodes = isinstance(model, LoadedModel) and model.architecture.head is None and not model.has_cache
    reads = "text encoder" if encodes else "language model"
    part = model.encodes if isinstance(model, LoadedModel) else None
    which = f"{part} model" if part else reads
    return f"warning: {model.name}: only the {which} is counted, without {listed(model.left_out)}"


def _name_without_part(model: Subject) -> str:
    return model.name.rpartition(":")[0]


def _common_name(models: Sequence[Subject]) -> str:
    """Name of the model whose parts these are, if they are counted together; else empty."""
    names = {_name_without_part(model) for model in models if getattr(model, "part", "") == BOTH}
    return names.pop() if len(names) == 1 else ""


def _answer(
    models: Sequence[Subject],
    facts: Sequence[Mapping[str, Any]],
    headline: str,
    missing: Sequence[str],
    answer: str,
) -> str:
    """The answer, or the sum of the parts of one model, with the parts that are `missing`."""
    if len(facts) == 1 and missing:
        return f"Not included: {listed(missing)}. {answer}"
    if len(facts) != len(models) or len(facts) == 1 or headline not in SUMMED or not _common_name(models):
        return answer
    total, without = sum(fact[headline] for fact in facts), [*missing, *models[-1].left_out]
    return f"{SUMMED[headline](total)} together{f', without {listed(without)}' if without else ''}."


def context_hints(groups: Sequence[Sequence[LoadedModel]], request: Request) -> list[str]:
    """Hints on contexts and sources longer than a model was trained for, and on `--logits` without an effect."""
    context = request.ctx or 0
    past = [
        group for group in groups if any(context > model.context for model in group) and not group[0].counted_with_text
    ]
    hints = [_past_context(group, context) for group in past]
    if len(past) > 4:
        names = listed([group[0].name for group in past], 6)
        hints = [f"hint: context {context:,} is longer than these models were trained for: {names}"]
    without = [group[0].name for group in groups if not any(model.logits for model in group)]
    if request.logits == "last" and without:
        hints.append(f"hint: --logits changes nothing for {', '.join(without)}: no logits are computed")
    return [*hints, *_past_source(groups, request)]


def _past_source(groups: Sequence[Sequence[LoadedModel]], request: Request) -> list[str]:
    """Models with a shorter source than the request; a number of images has no longest."""
    source = request.source or 0
    shorter: dict[str, list[int]] = {}
    for model in (model for group in groups for model in group):
        encoder = model.architecture.encoder
        if encoder is not None and not encoder.given and model.source is not None and source > model.source:
            shorter.setdefault(model.name, []).append(model.source)
    named = ", ".join(f"{name} of {units.between(sources)}" for name, sources in shorter.items())
    hint = f"hint: a source of {source:,} is longer than the model supports: {named}. Counted anyway."
    return [hint] if named else []


def _past_context(group: Sequence[LoadedModel], context: int) -> str:
    # Settings with the same position embeddings have the same hint.
    shapes = ((model, model.architecture) for model in group if context > model.context)
    past = {(model.context, one.positions, one.encoder and one.encoder.positions): model for model, one in shapes}
    first = next(iter(past.values()))
    some = "" if all(context > model.context for model in group) else " in some settings"
    hint = (
        f"hint: {first.name} has a context of {units.between(model.context for model in past.values())}{some}."
        f" Counted at {context:,} anyway"
    )
    added = {model.longer_positions(context) for model in past.values()}
    if not any(added):
        return f"{hint}."
    return f"{hint}; the {units.between(added)} parameters of a longer position embedding are not included."


COMPONENTS = {
    paths.PROJECTIONS: "attn proj",
    paths.SCORES: "scores + values",
    CrossAttention.name: "cross attn",
}
"""JSON keys of components → their names in tables, if they differ."""


COMMON, RARE = 1, 4
"""`drop` of a column that most rows fill, and the least of one that few rows fill."""


def drop_of(key: str, rows: Sequence[Row]) -> int:
    """`drop` of a column: columns that fewer rows fill leave a narrow table first."""
    without = sum(key not in row for row in rows)
    return COMMON if 2 * without <= len(rows) else RARE + without


def ratio_label(train: bool) -> str:
    """Label of the ratio of FLOPs to the rule of thumb."""
    return f"÷ {6 if train else 2}·params·tok"


SHARES = (Column("share", "share", "share", drop=3), Column("bar", "", "bar", drop=4))
"""Columns of `with_share`."""


def with_share(row: Mapping[str, Cell], part: int, total: int) -> Row:
    """The row with its share of the total, as a number and as a bar."""
    share = Fraction(part, total)
    return {**row, "share": share, "bar": share}


def sections(rows: Sequence[Row], key: str = "part") -> tuple[tuple[Row, ...], ...]:
    """The rows, with a section for each value of `key`."""
    return tuple(tuple(section) for _, section in groupby(rows, key=lambda row: row[key]))


def from_to(models: Sequence[LoadedModel], sizes: Iterable[int], words: Callable[[int], str]) -> str:
    """The answer about several models: the smallest and the largest size, with their models."""
    named = [(size, model.name) for model, size in zip(models, sizes, strict=True)]
    (least, small), (most, large) = min(named), max(named)
    if least == most:
        return f"{words(least)} each."
    return f"From {words(least)} ({small}) to {words(most)} ({large})."


def of_attention(model: LoadedModel, size: str) -> int | list[int] | None:
    """`heads` or `kv_heads` of a model: a list if layers differ, None without attention."""
    sizes = list(dict.fromkeys(getattr(part, size) for part in model.architecture.attentions))
    return sizes if len(sizes) > 1 else sizes[0] if sizes else None


def by_layer(key: str, found: int | list[int] | None) -> dict[str, int | list[int] | None]:
    """Such a size in the JSON: a number, or a list under a second key; the other key is null."""
    several = isinstance(found, list)
    return {key: None if several else found, f"{key}_by_layer": found if several else None}


def each_of(facts: Mapping[str, Any], size: str) -> Any:
    """Such a size in one cell of a table: `4 to 16` if layers differ."""
    several = facts[f"{size}_by_layer"]
    return units.between(several) if several else facts[size]
