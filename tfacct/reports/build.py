"""How a report is built: keys that several reports share, titles, defaults and hints, shares; and the conventions of a
count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NotRequired, TypeAlias, TypedDict

from tfacct.accounts.metrics import MEMORY_TRAFFIC, Metric, Point
from tfacct.architecture.parts import CrossAttention, MlaMode
from tfacct.base import units
from tfacct.base.errors import ConfigError, TfacctError, UsageError, listed
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.families import CUSTOM, config_class
from tfacct.ledger import paths
from tfacct.ledger.storage import BF16, DEFAULT_DTYPE, Storage, dtypes, width
from tfacct.ledger.workload import Request, Workload, new_tokens, whole_sequences
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.loading.skipped import Skipped
from tfacct.output.answer import Answer
from tfacct.output.report import Cell, Column, Note, Report, Row, Table

if TYPE_CHECKING:
    from tfacct.loading.index import Listed
    from tfacct.parallel.mesh import Mesh
    from tfacct.training.memory import TrainingMemory
    from tfacct.training.recipe import Recipe

DtypeFrom: TypeAlias = Literal["given", "published", "assumed"]
"""Where the format of weights is from: the user, a config or the files next to it, or nobody."""


class WorkloadFacts(TypedDict):
    """Sequences, new tokens and keys of a step."""

    batch: int
    tokens: int
    keys: int
    source: int | None
    logits: Literal["all", "last"] | None
    masked: bool
    dtype: str | None


class LinkUsed(TypedDict):
    """The link between these devices; bytes per second of one device, one way."""

    devices: int
    reach: Literal["domain", "node", "network"]
    kind: str
    bytes_per_second: int


class Otherwise(TypedDict):
    """The other form of latent attention, and its FLOPs."""

    latent_attention: MlaMode
    total_flops: int


class ExactFit(TypedDict):
    """Whether a step fits a budget of memory."""

    budget_bytes: int
    memory_bytes: int
    memory_from: str | None
    use: float
    reserve_bytes: int
    device: str | None
    devices: int
    fits: bool


class Budgeted(ExactFit):
    """A memory limit, whether the question fits in it, and the largest context and batch that do."""

    past_positions: str | None
    context_limit: int | None
    largest_context: int | None
    largest_batch: int | None


class Axis(TypedDict):
    """Meaning of an axis, and its value in a model."""

    meaning: str
    value: NotRequired[int]


class Step(TypedDict):
    """A line of a derivation: `symbols` = `numbers` = `result`."""

    path: str
    step: str
    spec: str
    gradients: NotRequired[list[str]]
    symbols: str
    numbers: str
    result: int


class Component(TypedDict):
    """Steps added up under one name."""

    component: str
    steps: list[Step]
    total: int


class Derivation(TypedDict):
    """The total, step by step."""

    unit: str
    takeaway: str | None
    check: str | None
    legend: dict[str, Axis]
    parts: list[Component]
    total: int


class NotIncluded(TypedDict):
    """Layers in the config that are not counted, with their size if known."""

    kind: Literal["MTP", "DSpark"]
    field: str
    layers: int
    params: int | None
    bytes: NotRequired[int | None]


class MeshFacts(TypedDict):
    """The ranks of a mesh."""

    tp: int
    sp: bool
    fsdp: int
    tp_plan: Literal["torch", "megatron"]
    ranks: int
    ep: int
    imbalance: float
    dp: int
    zero: int
    pp: int
    schedule: Literal["gpipe", "1f1b", "interleaved", "zero-bubble"] | None
    microbatches: int | None
    pp_chunks: int
    cp: int
    cp_method: Literal["ring", "gather"] | None
    ulysses: int


class ModelReport(Answer):
    """Keys of every model. (`defaulted` and `notes` are the sentences of every Report.)"""

    _reserved: ClassVar[dict[str, Any]] = {"defaulted": dict[str, Any], "notes": list[str], "note_keys": list[str]}

    set: dict[str, Any]
    unknown: list[str]
    left_out: list[str]


class ExplainedReport(ModelReport):
    """Keys of a report that `explain` derives. (`derivation` is a value of every Report.)"""

    _reserved: ClassVar[dict[str, Any]] = {"derivation": Derivation | None}


class RankReport(ModelReport):
    """Keys of a report that may be about one rank."""

    tp: int | None
    pp: int | None
    stage: int | None
    mesh: MeshFacts | None


class MetricsReport(ModelReport):
    """Metrics, with the recipe where one is of a training step."""

    optimizer: str | None
    recompute: str | None
    attention: Literal["sdpa", "eager"] | None
    loss: Literal["whole", "chunked"] | None
    lora: str | None
    weights_dtype: str | None
    workload: WorkloadFacts
    dtype_from: DtypeFrom
    published_dtype: str | None
    kv_dtype: str
    train: bool


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
    models: Sequence[Subject],
    table: Table,
    facts: Sequence[Mapping[str, Any]],
    *,
    title: str,
    convention: str,
    notes: Callable[[slice], Iterable[str]],
    answer: str = "",
    counted: str = "",
    details: Callable[[slice], Iterable[str]] = lambda _: (),
    requests: Sequence[Request] = (),
    settings: Sequence[Sequence[LoadedModel]] | None = None,
    defaults: Sequence[Subject] | None = None,
    hints: Iterable[str] = (),
    skipped: Sequence[Skipped] = (),
    headline: str = "",
    agrees: bool = True,
) -> Report:
    """The report of a command: its table and `facts`, with the notes and warnings that every report has.

    `facts`: of the last of the `models`, one each. `notes` and `details` return the notes for a slice of them: of all
    models under the table, of one model in its JSON; `details` are printed with `-v` only. `counted`: what was counted,
    in one line. `requests`: one for all models, or one for each. `settings`: the variants of each model in a sweep.
    `defaults`: the models whose defaulted fields are reported (all without it). `skipped`: models not in the table.
    """
    about = models[len(models) - len(facts) :]
    missing = [name for one in skipped for name in one.models] if headline != CACHE and _whole_of(about) else []
    groups = settings or [[model] for model in models if isinstance(model, LoadedModel)]
    asked = list(requests) * len(groups) if len(requests) == 1 else list(requests)
    past = context_hints(groups, requests[0]) if len(requests) == 1 else _past_each(groups, asked)
    every = [model for group in settings for model in group] if settings else models

    def notes_of(at: slice, own: Sequence[Subject]) -> list[str]:
        background = [("counted", f"Counted: {counted}.")] if counted else []
        background += [("details", text) for text in details(at)]
        background += [("defaulted", text) for text in defaulted_notes(own)]
        return [*notes(at), *(Note(key, 3, text) for key, text in background)]

    everyone, named = slice(None), models if defaults is None else defaults
    entries = []
    for number, (model, fact) in enumerate(zip(about, facts, strict=True)):
        at = slice(number, number + 1)
        own = notes_of(at, named if len(facts) == 1 else [model] if defaults is None else [])
        beside = past if len(facts) == 1 else context_hints(groups[at], asked[number]) if asked else []
        beside = [*answering_hints([model]), *beside]
        told = [*own, *(Note("hint", 1, hint.removeprefix("hint: ")) for hint in beside)]
        facts_first = facts_of(model)
        facts_first["left_out"] += missing
        entries.append({**facts_first, "notes": told, **fact})
    columns, sections, totals = table
    return Report(
        command=command,
        title=title,
        columns=columns,
        sections=_with_uncounted(sections, about) if len(about) > 1 else sections,
        totals=totals,
        answer=answer if command == "verify" else _answer(about, facts, headline, missing, answer),
        notes=tuple(notes(everyone)),
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
                    *(one.hint for one in skipped),
                ]
            )
        ),
        models=tuple(entries),
        convention=convention,
        headline=headline,
        agrees=agrees,
        aside=UNCOUNTED if len(about) > 1 else (),
        models_left_out=tuple({"model": name, "why": one.why} for one in skipped for name in one.models),
    )


def facts_of(model: Subject) -> dict[str, Any]:
    """Who was counted, and what of it was not: the same first keys in every JSON."""
    return {
        "model": model.name,
        "family": model.family,
        "set": dict(model.changed),
        "defaulted": dict(model.defaulted),
        "unknown": list(model.unknown),
        "left_out": list(model.left_out),
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


def workload_words(models: Sequence[LoadedModel], request: Request) -> str:
    """`context 16,384, batch 1`, or what stands for it when every model has its own."""
    batch = f"batch {request.batch:,}"
    sources = {request.source or model.source for model in models if model.source is not None}
    one_source = f", source {max(sources):,}" if len(sources) == 1 else ""
    some = "" if all(model.source is not None for model in models) else " if any"
    one_source = one_source and f"{one_source}{some}"
    new = _new_tokens(models, request)
    step = "" if new is None else f"{new_tokens(new)} at "
    if _own_contexts(models, request):
        read = f" and source{some}" if len(sources) > 1 else one_source
        return f"{step}each model's own longest context{read}, {batch}"
    work = selection.workload(models[0], request)
    read = f", own sources{some}" if len(sources) > 1 else one_source
    return f"{step}context {work.context:,}{read}, {batch}"


def of_workload(models: Sequence[LoadedModel], request: Request, *, of: str = "of ", at: str = "at ") -> str:
    """`at context 16,384, batch 1`, or `of 1 new token at context 16,384, batch 1`: what follows `FLOPs`."""
    return f"{at if _new_tokens(models, request) is None else of}{workload_words(models, request)}"


def _own_contexts(models: Sequence[LoadedModel], request: Request) -> bool:
    """True if each model is asked for its own context, and they differ."""
    return request.ctx is None and len({model.context for model in models}) > 1


def _new_tokens(models: Sequence[LoadedModel], request: Request) -> int | None:
    """The new tokens of a step that is no whole pass."""
    if _own_contexts(models, request):
        return 1 if request.decode else request.tokens
    work = selection.workload(models[0], request)
    return None if work.tokens == work.context else work.tokens


def titled(models: Sequence[Subject], what: str) -> str:
    """A title without its workload: `gpt2: forward FLOPs`, or `Forward FLOPs` of several models."""
    return f"{label(models[0])}: {what}" if len(models) == 1 else what[0].upper() + what[1:]


def label(model: Subject) -> str:
    """The model's name with what was set over it: `gpt2-xl (n_layer=2)`."""
    if not model.changed:
        return model.name
    return f"{model.name} ({', '.join(f'{name}={format_value(value)}' for name, value in model.changed.items())})"


def format_value(value: object) -> str:
    """A field's value as a config spells it, with digits grouped."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        import json

        return json.dumps(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _defaulted(models: Sequence[Subject]) -> str:
    """One line that names the fields left to a class's defaults, or says who names them."""
    silent = [model for model in models if model.defaulted and model.family != CUSTOM]
    if not silent:
        return ""
    if len(models) == 1 and len(silent[0].defaulted) <= SHORT:
        return defaulted_notes(silent)[0]
    if len(silent) > SHORT:
        return "defaulted: fields of some models; tfacct models MODEL lists them"
    names = listed([label(model) for model in silent])
    fields = sum(len(model.defaulted) for model in silent)
    return f"defaulted: {fields} field{'' if fields == 1 else 's'} of {names}; tfacct models MODEL lists them"


def defaulted_notes(models: Sequence[Subject]) -> list[str]:
    """Names every field that the config left to its class; for many models, says where to look."""
    silent = [model for model in models if model.defaulted]
    if not silent:
        return []
    if len(models) > 4:
        return ["Some config fields have class defaults: `tfacct models MODEL` lists them."]
    notes = []
    for model in silent:
        fields = ", ".join(f"{name} = {format_value(value)}" for name, value in model.defaulted.items())
        notes.append(f"defaulted{'' if len(models) == 1 else f' in {label(model)}'}: {fields}")
    return notes


def answering_hints(models: Sequence[Subject]) -> list[str]:
    """Says which presets answer for other names."""
    return list(dict.fromkeys(f"hint: {model.answers}" for model in models if model.answers))


def shared_defaults(settings: Sequence[LoadedModel]) -> dict[str, Any]:
    """The defaults that a model has in every one of its settings."""
    first = settings[0].defaulted.items()
    return {field: value for field, value in first if all(s.defaulted.get(field) == value for s in settings)}


TIED = "tie_word_embeddings"
NO_FORMAT = (
    "warning: {}: the config does not set tie_word_embeddings, so the head counts as tied, the class default. "
    "If the checkpoint has a separate head, count it with --set tie_word_embeddings=false"
)


def unknown_hints(models: Sequence[Subject]) -> list[str]:
    """Names the fields that nobody here knows, and the models beside the language model."""
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
    """True if a whole's class ties a head by default that its language model's class has not tied: files are published
    of either kind, and nothing in their configs tells which."""
    if not isinstance(model, LoadedModel) or model.defaulted.get(TIED) is not True:
        return False
    return config_class(model.family).model_fields[TIED].default is False


def _left_out(model: Subject, count: int) -> str:
    """Says which of several models is counted, of `count` that are asked, and what is not."""
    part = getattr(model, "part", "")
    if part == BOTH and count > 1:
        many = "two" if count == 2 else "three"
        return f"warning: {_whole(model)}: {many} models are counted, without {listed(model.left_out)}"
    encodes = isinstance(model, LoadedModel) and model.architecture.head is None and not model.has_cache
    reads = "text encoder" if encodes else "language model"
    part = model.encodes if isinstance(model, LoadedModel) else None
    which = f"{part} model" if part else reads
    return f"warning: {model.name}: only the {which} is counted, without {listed(model.left_out)}"


def _whole(model: Subject) -> str:
    return model.name.rpartition(":")[0]


def _whole_of(models: Sequence[Subject]) -> str:
    """Name of the model whose parts these are, where they are counted together; else nothing."""
    names = {_whole(model) for model in models if getattr(model, "part", "") == BOTH}
    return names.pop() if len(names) == 1 else ""


def _answer(
    models: Sequence[Subject],
    facts: Sequence[Mapping[str, Any]],
    headline: str,
    missing: Sequence[str],
    answer: str,
) -> str:
    """The answer: the sum of the parts of one model that are counted together, and the names of what it does not
    include. `missing`: parts that cannot be counted."""
    if len(facts) == 1 and missing:
        return f"Not included: {listed(missing)}. {answer}"
    if len(facts) != len(models) or len(facts) == 1 or headline not in SUMMED or not _whole_of(models):
        return answer
    total, without = sum(fact[headline] for fact in facts), [*missing, *models[-1].left_out]
    return f"{SUMMED[headline](total)} together{f', without {listed(without)}' if without else ''}."


def context_hints(groups: Sequence[Sequence[LoadedModel]], request: Request) -> list[str]:
    """Says which models, each in all its settings, are asked past the context or the source that they were trained
    for, and what a longer table would add."""
    context = request.ctx or 0
    past = [
        group for group in groups if any(context > model.context for model in group) and not group[0].counted_with_text
    ]
    hints = [_past_context(group, context) for group in past]
    if len(past) > 4:
        names = ", ".join(group[0].name for group in past)
        hints = [f"hint: context {context:,} is longer than these models were trained for: {names}"]
    return [*hints, *_past_source(groups, request), *_without_logits(groups, request)]


def _without_logits(groups: Sequence[Sequence[LoadedModel]], request: Request) -> list[str]:
    """Says for which models it means nothing whose logits are asked for."""
    names = [group[0].name for group in groups if not any(model.logits for model in group)]
    if request.logits == "all" or not names:
        return []
    return [f"hint: --logits changes nothing for {', '.join(names)}: no logits are computed"]


def _bounded(model: LoadedModel) -> bool:
    """Whether its source is bounded: one of images may be of any number of them."""
    encoder = model.architecture.encoder
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
    return [f"hint: a source of {asked:,} is longer than the model supports: {named}. Counted anyway."]


def _past_context(group: Sequence[LoadedModel], context: int) -> str:
    """Of one model, in those of its settings that are asked for more than their context."""
    # Settings that have the same position tables differ in nothing that is said here.
    past = {_tables(model): model for model in group if context > model.context}
    first = next(iter(past.values()))
    some = "" if all(context > model.context for model in group) else " in some settings"
    hint = (
        f"hint: {first.name} has a context of {units.between(model.context for model in past.values())}{some}."
        f" Counted at {context:,} anyway"
    )
    added = {longer_table(model, context) for model in past.values()}
    if not any(added):
        return f"{hint}."
    return f"{hint}; the {units.between(added)} parameters of a longer position embedding are not included."


def _tables(model: LoadedModel) -> tuple[object, ...]:
    shape = model.architecture
    return model.context, shape.positions, None if shape.encoder is None else shape.encoder.positions


def longer_table(model: LoadedModel, context: int) -> int:
    """Parameters that its position tables would have more for a longer context; none of a table that is resampled."""
    positions = model.architecture.positions
    if positions is not None and positions.tiles is not None:
        return 0
    longer = model.architecture.with_positions(context).ledger()
    return int(sum(longer.parameters().values()) - model.parameters)


COMPONENTS = {
    paths.PROJECTIONS: "attn proj",
    paths.SCORES: "scores + values",
    CrossAttention.name: "cross attn",
}
"""Components whose name in a table is not their key in the JSON."""


COMMON, RARE = 1, 4
"""The `drop` of columns that most of the shown models have something in, and the least of those that few have."""


def drop_of(key: str, rows: Sequence[Row]) -> int:
    """When a column leaves a narrow table: what fewer than half of the rows have goes early, what fewest have first."""
    without = sum(key not in row for row in rows)
    return COMMON if 2 * without <= len(rows) else RARE + without


def ratio_label(train: bool) -> str:
    """What stands above FLOPs over the rule of thumb."""
    return f"÷ {6 if train else 2}·P·tok"


SHARES = (Column("share", "share", "share", drop=3), Column("bar", "", "bar", drop=4))
"""Columns of `with_share`."""


def with_share(row: Mapping[str, Cell], part: int, whole: int) -> Row:
    """The row with its share of the whole, as a number and as a bar."""
    share = Fraction(part, whole)
    return {**row, "share": share, "bar": share}


def sections(rows: Sequence[Row], key: str = "part") -> tuple[tuple[Row, ...], ...]:
    """The rows in a section for each part, or whatever a key names."""
    return tuple(tuple(section) for _, section in groupby(rows, key=lambda row: row[key]))


def from_to(named: Sequence[tuple[int, str]], words: Callable[[int], str]) -> str:
    """The answer about several models: the least and the most, each with its model."""
    (least, small), (most, large) = min(named), max(named)
    return f"From {words(least)} ({small}) to {words(most)} ({large})."


def of_attention(model: LoadedModel, size: str) -> int | list[int] | None:
    """A size of the model's attention, `heads` or `kv_heads`: each that there is, where blocks differ; None without."""
    sizes = list(dict.fromkeys(getattr(part, size) for part in model.architecture.attentions))
    return sizes if len(sizes) > 1 else sizes[0] if sizes else None


def by_block(key: str, found: int | list[int] | None) -> dict[str, int | list[int] | None]:
    """Such a size as it stands in the JSON: one number, or a list under a key of its own, and null for the other."""
    several = isinstance(found, list)
    return {key: None if several else found, f"{key}_by_block": found if several else None}


def each_of(facts: Mapping[str, Any], size: str) -> Any:
    """A size of attention in one cell: numbers that differ between blocks from the least to the largest."""
    several = facts[f"{size}_by_block"]
    return units.between(several) if several else facts[size]


WEIGHED = ("weights_bytes", "total_bytes")
"""Metrics of what weights take."""


@record
class Counting:
    """In which dtypes, with which query–key pairs, and of which pass a metric is taken. `trained`: the fields of a
    training step's recipe that were named, for its bytes. `mesh`: ranks that divide the model; all is of one then."""

    dtype: str | None = None
    kv_dtype: str | None = None
    masked: bool = False
    train: bool = False
    trained: tuple[tuple[str, Any], ...] = ()
    mesh: Mesh | None = None

    @property
    def recipe(self) -> Recipe:
        """How a model is trained. Raises TfacctError for a name that is not known."""
        from tfacct.training.recipe import Recipe

        return Recipe(self.dtype or DEFAULT_DTYPE, **dict(self.trained), mesh=self.mesh).checked()

    def stored(self, dtype: str | None, kv_dtype: str | None) -> Counting:
        """The same with another dtype of the weights, the cache or both; None leaves it."""
        return replace(self, dtype=dtype or self.dtype, kv_dtype=kv_dtype or self.kv_dtype)

    def untrained(self, model: LoadedModel, work: Workload) -> tuple[str, str | None] | None:
        """Reason why the bytes of a training step are not counted, and advice; None if they are."""
        from tfacct.accounts.metrics import STEP_METRICS, memory_of

        try:
            memory_of(self.point(model, work, list(STEP_METRICS.values())))
        except (ConfigError, UsageError) as error:
            return error.message.removeprefix(f"{model.name}: "), error.hint
        return None

    def check_recipe(self, metrics: Sequence[Metric], needs: str) -> None:
        """Refuse a recipe where nothing that is asked for needs one; `needs` says what would."""
        for name, _ in self.trained if not any(metric.of_step for metric in metrics) else ():
            raise UsageError(f"{option(name)} applies to training memory: it needs {needs}")

    def point(self, model: LoadedModel, work: Workload, metrics: Sequence[Metric] = ()) -> Point:
        """The model at a workload, of stages the one that has most of the metric. Raises UsageError where one of the
        metrics would be a guess."""
        points = self.points(model, work, metrics)
        own = [metric for metric in metrics if not metric.of_step]
        if len(points) == 1 or not own:
            return points[0]
        if len(metrics) > 1:
            raise UsageError(f"{option('pp')} works with one metric, not with {len(metrics):,}")
        return max(points, key=lambda one: int(own[0].of(one)))

    def points(self, model: LoadedModel, work: Workload, metrics: Sequence[Metric] = ()) -> list[Point]:
        """The model at a workload, or each stage of it. Raises UsageError where one of the metrics would be a guess."""
        if self.train and work.tokens != work.context:
            raise whole_sequences("train")
        if (self.masked or self.train) and any(metric.name in MEMORY_TRAFFIC for metric in metrics):
            others = f"{option('masked')} and {option('train')}"
            raise UsageError(f"bytes moved are counted for a plain forward pass: leave {others} out")
        _, cached = dtypes(self.dtype, self.kv_dtype)
        weighed = any(metric.name in (*WEIGHED, *MEMORY_TRAFFIC) for metric in metrics)
        weights = self._weights(model, weighed=weighed)
        step = self._step(model, work, metrics)
        point = Point(model.ledger, work, weights, width(cached), self.masked, self.train, step=step)
        apart = [metric for metric in metrics if not metric.of_step]
        if self.mesh is None or not apart:
            return [point]
        from tfacct.parallel.rank_flops import points_of

        return points_of(model, point, apart, self.mesh, self.dtype)

    def _weights(self, model: LoadedModel, *, weighed: bool) -> Storage:
        """Storage of the weights; bf16 where it is not known and no metric is of it."""
        try:
            return model.storage(self.dtype)
        except TfacctError:
            if weighed:
                raise
            return BF16

    def _step(
        self, model: LoadedModel, work: Workload, metrics: Sequence[Metric]
    ) -> Callable[[Workload], TrainingMemory] | None:
        """The training step at any workload, where a metric is of one. Raises UsageError for a model or a workload
        whose step is not counted."""
        asked = next((metric.name for metric in metrics if metric.of_step), None)
        if asked is None:
            return None
        if work.tokens != work.context:
            parts = f"{option('decode')} and {option('tokens')}"
            raise UsageError(f"{asked} is a training metric, for whole sequences: leave {parts} out")
        if work.logits == "last":
            raise UsageError(f"{asked} is a training metric, with all logits: leave {option('logits')} out")
        from tfacct.training.memory import memory_at

        return memory_at(model, self.recipe)

    def recipe_facts(self, metrics: Sequence[Metric], model: LoadedModel | None = None) -> dict[str, Any]:
        """The recipe as it is in the JSON, where a metric is of a training step; that of one model with its class's
        attention where none is named."""
        if not any(metric.of_step for metric in metrics):
            return {}
        recipe = self.recipe if model is None else self.recipe.for_model(model)
        named = {name: getattr(recipe, name) for name in ("optimizer", "recompute", "attention", "loss", "lora")}
        return {**named, "weights_dtype": recipe.weights_dtype or recipe.dtype}

    def facts(self, model: LoadedModel, work: Workload, weights: str | None) -> dict[str, Any]:
        """The workload as it stands in the JSON. `weights`: what they are stored in, where that was said."""
        _, cached = dtypes(self.dtype, self.kv_dtype)
        facts = selection.workload_facts(work, masked=self.masked, dtype=weights)
        return {
            "workload": facts,
            **selection.format_facts(model, self.dtype),
            "kv_dtype": cached,
            "train": self.train,
        }


def named_of(recipe: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Fields of a recipe that were named, None where one was not."""
    named = ((name, value) for name, value in recipe.items() if value is not None)
    return tuple((name, value if isinstance(value, float) else str(value)) for name, value in named)
