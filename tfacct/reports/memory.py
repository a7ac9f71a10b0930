"""Bytes to serve a model: weights and KV cache, at one batch or several, and what fits a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, TypedDict

from tfacct.accounts.memory import (
    cache_bytes,
    next_token_bytes,
    token_bytes,
    unwindowed_cache_bytes,
)
from tfacct.accounts.metrics import Point, cache_overtakes
from tfacct.architecture.parts import Attention, Mixer
from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError, listed
from tfacct.base.spelling import option
from tfacct.ledger.groups import Ledger
from tfacct.ledger.storage import Storage, Width, dtypes, storage, width
from tfacct.ledger.workload import LARGEST, Request, Workload
from tfacct.loading import devices, selection
from tfacct.loading.left_out import LeftOut
from tfacct.loading.model import LoadedModel
from tfacct.output.answer import answers
from tfacct.output.report import PLAIN, Column, NoteRow, Report, Row, Table, notes
from tfacct.parallel.rank_memory import (
    cache_formula,
    cached_tokens,
    fit_facts,
    fitting_all,
    fsdp_shards,
    is_compressed,
    is_latent,
    page_facts,
    sharded,
    stages,
    stored_lines,
    variants,
)
from tfacct.reports import build, model_notes, ranks

if TYPE_CHECKING:
    from tfacct.loading.where import MemoryLimit
    from tfacct.parallel.mesh import Mesh
    from tfacct.timing.placement import Needed, Placement, Share

CONVENTION = "weights and KV cache only; every tensor rounded up to whole bytes"
WIDE = ("fp32", "bf16", "fp16")
"""Formats of the cache next to which the number of requests in fp8 is reported."""
NARROWER = ("fp8", "int4")
"""Dtypes of weights that are suggested where a model does not fit."""
LARGEST_PAGE = 1 << 20
"""No page is larger, in tokens."""
END = "the end of its position embedding"


class Fit(build.Budgeted):
    """What of weights and cache fits a budget, and what it leaves free."""

    context_slack_bytes: int | None
    batch_slack_bytes: int | None
    context_stage: NotRequired[int]
    batch_stage: NotRequired[int]


class Pages(TypedDict):
    """Pages of the cache that a budget has room for, and how many requests of the context they hold at once."""

    page_bytes: int
    count: int
    tokens: int
    concurrency: float
    starts: bool
    largest_max_model_len: int


class BatchLine(TypedDict):
    """Bytes at one batch; with a budget, the largest context that fits at it."""

    batch: int
    weights_bytes: int
    kv_cache_bytes: int
    total_bytes: int
    largest_context: NotRequired[int | None]
    context_slack_bytes: NotRequired[int | None]
    fits: NotRequired[bool]


class MemoryLine(TypedDict):
    """A part of the weights, or a state that is kept."""

    what: str
    kind: Literal["weights", "cache"]
    elements: int
    dtype: str
    bytes: int


class Undivided(TypedDict):
    """The whole model, beside what one rank holds."""

    total_params: int
    weights_bytes: int
    kv_cache_bytes: int
    total_bytes: int


class MemoryReport(build.ExplainedReport):
    """Bytes of weights and of what is kept between steps."""

    _line = MemoryLine

    workload: build.WorkloadFacts
    dtype_from: build.DtypeFrom
    published_dtype: str | None
    kv_dtype: str
    kv_block: int | None
    kv_page_bytes: int | None
    pages: Pages | None
    total_params: int
    weights_bytes: int
    weights_low_bytes: int | None
    weights_high_bytes: int | None
    total_low_bytes: int | None
    total_high_bytes: int | None
    range_reason: str | None
    kv_cache_bytes: int
    kv_cache_bytes_without_windows: int
    kv_bytes_per_token: int
    kv_bytes_next_token: int
    total_bytes: int
    not_included: build.NotIncluded | None
    fit: Fit | None
    batches: list[BatchLine] | None
    tp: int | None
    ep: int | None
    pp: int | None
    stage: int | None
    mesh: build.MeshFacts | None
    whole: Undivided | None


@answers(MemoryReport)
@ranks.in_devices
def memory(
    subjects: Sequence[LoadedModel],
    request: Request,
    *,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    fit: MemoryLimit | None = None,
    kv_block: int | None = None,
    mesh: Mesh | None = None,
) -> Report:
    """Bytes of weights and KV cache. `fit`: the memory of a device, for the largest context and batch that fit.
    `kv_block`: tokens of a page of the cache. `mesh`: ranks that divide the model; the bytes are those of the fullest.
    Raises TfacctError."""
    cached = width(dtypes(dtype, kv_dtype)[1], _page_size(kv_block))
    if cached.block > 1 and kv_block is not None:
        raise UsageError(
            f"engines that keep the cache in pages store none in {cached.name}, a type of llama.cpp",
            f"leave {option('kv_block')} out",
        )
    subjects, unpaged = _paged(subjects, kv_block)
    subjects, left_out = selection.in_groups(*selection.with_known_bytes(subjects, dtype), request)
    left_out += unpaged
    stored = selection.formats(subjects, dtype)
    _check_mesh(mesh, kv_block, fit)
    if len(subjects) == 1 and fit is not None and fit.count > 1:
        from tfacct.parallel.mesh import mesh_on
        from tfacct.timing.placement import check_heads

        if mesh == mesh_on(fit, None):
            check_heads(subjects[0], fit.count)
    undivided, subjects, unfit = sharded(subjects, mesh, dtype)
    left_out += unfit
    pairs = zip(undivided, subjects, strict=True)
    fullest = [_fullest(whole, one, mesh, request, dtype, cached, fit) for whole, one in pairs]
    subjects, facts = [subject for subject, _ in fullest], tuple(fact for _, fact in fullest)
    if mesh is not None:
        every = [_facts(one, request, one.storage(dtype), cached, None) for one in undivided]
        both = zip(facts, every, strict=True)
        facts = tuple({**ranks.beside(fact, whole, mesh), "ep": mesh.ep} for fact, whole in both)
    facts = tuple(
        {"workload": fact["workload"], **selection.format_facts(whole, dtype), **fact}
        for fact, whole in zip(facts, undivided, strict=True)
    )
    instead, alone = "", len(subjects) == 1
    if fit is not None and alone and not facts[0]["fit"]["fits"] and not _past(facts[0]):
        instead = _instead(undivided[0], request, dtype, cached, fit, mesh)
    if alone:
        table = _one(facts[0], _row(subjects[0]))
        title = f"{build.name_of(subjects[0])}: memory{ranks.of_one(mesh)}"
    else:
        table = _several(subjects, facts, fit)
        title = f"Memory to serve{ranks.of_one(mesh, 'on')}"
    alike = model_notes.cache_dtypes(subjects, cached.name) == [selection.stored_name(subjects, dtype)]
    kv = "" if alike else f", {model_notes.cache_words(subjects, cached.name)}"
    report = build.report(
        "memory",
        subjects,
        table,
        facts,
        title=f"{title} in {stored}{kv}, {build.workload_words(subjects, request)}",
        convention=CONVENTION,
        answer=" ".join(filter(None, (_answer(subjects, facts, fit, mesh), instead))),
        notes=lambda at: notes(NOTES, About(subjects[at], undivided[at], facts[at], request, dtype, fit, mesh)),
        counted=f"weights{_and_kept(subjects)} only; no activations, engine buffers or fragmentation",
        requests=[request],
        left_out=left_out,
        headline="total_bytes",
    )
    if fit is None or not alone:
        return report
    columns, sections, totals = _fit_table(subjects[0], facts[0], stored, cached, fit, mesh)
    return replace(report, columns=columns, sections=sections, totals=totals, answer_first=True, data=report)


@answers(MemoryReport)
@ranks.in_devices
def by_batch(
    subjects: Sequence[LoadedModel],
    request: Request,
    batches: Sequence[int],
    *,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    fit: MemoryLimit | None = None,
    kv_block: int | None = None,
    mesh: Mesh | None = None,
) -> Report:
    """Bytes of weights and KV cache at each batch, in rising order; with `fit` also the largest context that fits.

    The facts beside the rows are those of the largest batch. Raises UsageError for several models.
    """
    if len(subjects) != 1:
        raise UsageError(f"several batches ({option('batch')}) are of one MODEL", "name one model, or give one batch")
    (subject,) = subjects
    batches = sorted(set(batches))
    stored: dict[str, Any] = {"dtype": dtype, "kv_dtype": kv_dtype, "kv_block": kv_block, "mesh": mesh}
    each = [memory(subjects, replace(request, batch=batch), **stored) for batch in batches]
    rows = [_batch_row(batch, report) for batch, report in zip(batches, each, strict=True)]
    facts = {key: value for key, value in each[-1].models[0].items() if key != "notes"}
    why = ""
    if fit is not None:
        fitted = [memory(subjects, replace(request, batch=batch), **stored, fit=fit).models[0] for batch in batches]
        for row, there in zip(rows, fitted, strict=True):
            row |= {key: there["fit"][key] for key in ("largest_context", "context_slack_bytes", "fits")}
        facts |= {"fit": fitted[-1]["fit"]}
        why = f": {too_large(fitted[0])}" if nothing_fits(fitted[0]) else ""
    return build.report(
        "memory",
        subjects,
        _batches_table(subject, rows, fit),
        [{**facts, "batches": rows}],
        title=each[-1].title.removesuffix(f", batch {batches[-1]:,}"),
        convention=each[-1].convention,
        answer=_batches_answer(rows, fit, mesh, why),
        notes=lambda _: [*each[-1].notes, *notes(BATCHES_NOTES, fit)],
        counted=each[-1].counted,
        requests=[replace(request, batch=batches[-1])],
        headline="total_bytes",
    )


def _check_mesh(mesh: Mesh | None, kv_block: int | None, fit: MemoryLimit | None) -> None:
    """Raises UsageError for what is not counted of a mesh."""
    for axis in ("pp", "cp"):
        if kv_block is not None and mesh is not None and getattr(mesh, axis) > 1:
            raise UsageError(f"{option('kv_block')} does not work with {option(axis)}", "leave one of the two out")
    if fit is not None and mesh is not None and mesh.fsdp > 1:
        said = "weights are gathered as they run, and take room that is not counted"
        raise UsageError(
            f"{option('on')} does not go with {option('fsdp')}: {said}", f"{option('tp')} gathers no weights"
        )


def _answer(
    subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], fit: MemoryLimit | None, mesh: Mesh | None
) -> str:
    """The total of one model, or the least and the most of several; of a budget, who fits it."""
    if fit is not None:
        where = ranks.fitting_words(fit, mesh)
        if len(facts) == 1:
            return _fitting(subjects[0], facts[0], where)
        fitting = sum(fact["fit"]["fits"] for fact in facts)
        return f"{fitting:,} of {len(facts):,} models fit {where} at the context shown."
    if len(facts) == 1:
        return _alone(subjects[0], facts[0])
    both = zip(subjects, facts, strict=True)
    return build.from_to([(fact["total_bytes"], subject.name) for subject, fact in both], units.binary)


def _batches_answer(rows: Sequence[dict[str, Any]], fit: MemoryLimit | None, mesh: Mesh | None, why: str) -> str:
    """From which size to which; of a budget, the largest batch that fits, or `why` nothing does."""
    if fit is not None:
        where, inside = ranks.fitting_words(fit, mesh), [row["batch"] for row in rows if row["fits"]]
        if len(inside) == len(rows):
            return f"{'Both' if len(rows) == 2 else f'All {len(rows):,}'} batches fit {where}."
        if not inside:
            return f"None of these batches fits {where}{why}."
        return f"Fits {where} up to batch {inside[-1]:,} of these."
    least, most = rows[0], rows[-1]
    if least["total_bytes"] == most["total_bytes"]:
        return f"{units.binary(least['total_bytes'])} at every batch."
    said = (f"{units.binary(row['total_bytes'])} at batch {row['batch']:,}" for row in (least, most))
    return f"From {' to '.join(said)}."


def _alone(subject: LoadedModel, fact: dict[str, Any]) -> str:
    total, weights, kept = (_between(fact, what) for what in ("total", "weights", "kv_cache"))
    return f"{total}: {weights} of weights" + (f" and {kept} of {subject.kept}." if subject.keeps else ".")


def _between(fact: Mapping[str, Any], what: str) -> str:
    """Bytes in words, with both ends where they have a range that three digits show."""
    most = units.binary(fact[f"{what}_bytes"])
    least = units.binary(fact.get(f"{what}_low_bytes", fact[f"{what}_bytes"]))
    return most if least == most else f"{least} to {most}"


def _fitting(subject: LoadedModel, fact: dict[str, Any], where: str) -> str:
    """What fits a budget; first, where the step that was asked about does not, that it does not."""
    found, work = fact["fit"], fact["workload"]
    tokens = f"{work['keys']:,}"
    if _past(fact):
        return f"Cannot run: {found['past_positions']}."
    if nothing_fits(fact):
        return f"Does not fit {where}: {too_large(fact)}."
    if not found["fits"]:
        takes = f"{_requests(work['batch'])} of {tokens} tokens take{'s' if work['batch'] == 1 else ''}"
        return f"Does not fit {where}: {takes} {_of_usable(fact['total_bytes'], fact)}."
    if not subject.keeps:
        return f"Fits {where}: the weights take {units.binary(fact['weights_bytes'])}, and nothing is kept."
    most, asked = found["largest_batch"], work["batch"]
    if most is None:
        return f"Fits {where}: any number of requests of {tokens} tokens."
    if asked > 1:
        return f"Fits {where}: {_requests(asked)} of {tokens} tokens at once, at most {most:,}."
    return f"Fits {where}: {_requests(most)} of {tokens} tokens{' at once' if most > 1 else ''}."


def _requests(count: int) -> str:
    return f"{count:,} request{'' if count == 1 else 's'}"


def _past(fact: Mapping[str, Any]) -> bool:
    """True if the step ends past a stored position embedding."""
    return fact["fit"]["past_positions"] is not None


def _page_size(kv_block: int | None) -> int:
    """Tokens of a page; 1 where none was named. Raises UsageError."""
    if kv_block is None:
        return 1
    if not isinstance(kv_block, int) or isinstance(kv_block, bool) or not 1 <= kv_block <= LARGEST_PAGE:
        raise UsageError(f"{option('kv_block')} must be a number of tokens, not {kv_block!r}", "for example 16")
    return kv_block


def _paged(subjects: Sequence[LoadedModel], kv_block: int | None) -> tuple[list[LoadedModel], list[LeftOut]]:
    """Models whose cache is counted in pages, and the others. Raises UsageError where there is none."""
    if kv_block is None:
        return list(subjects), []
    able = [subject for subject in subjects if subject.keeps and not subject.architecture.having(Mixer)]
    reasons = {
        "a model that keeps nothing between steps has no pages": [one for one in subjects if not one.keeps],
        "pages of a model that keeps a state are not supported yet": [
            one for one in subjects if one.architecture.having(Mixer)
        ],
    }
    if not able:
        why = "; ".join(f"{', '.join(one.name for one in some)}: {why}" for why, some in reasons.items() if some)
        raise UsageError(f"{option('kv_block')}: {why}", f"leave {option('kv_block')} out")
    return able, [each for why, some in reasons.items() for each in LeftOut.of(some, why)]


def _facts(
    subject: LoadedModel,
    request: Request,
    stored: Storage,
    cached: Width,
    fit: MemoryLimit | None,
    mesh: Mesh | None = None,
    shards: dict[str, int] | None = None,
    whole: LoadedModel | None = None,
) -> dict[str, Any]:
    """What one model holds, or what a rank of a mesh has of it. `shards`: of its weights, where ranks of `fsdp` divide
    them. `whole`: the model that the rank's stage is a part of."""
    work = selection.workload(subject, request)
    own = cached_tokens(subject, mesh, work)
    lines = stored_lines(subject, own, stored, cached, shards)
    weights, cache = (sum(line["bytes"] for line in lines if line["kind"] == kind) for kind in ("weights", "cache"))
    facts: dict[str, Any] = {
        "workload": selection.workload_facts(work, dtype=stored.name),
        "kv_dtype": cached.name,
        "total_params": sum(line["elements"] for line in lines if line["kind"] == "weights"),
        "weights_bytes": weights,
        "kv_cache_bytes": cache,
        "kv_cache_bytes_without_windows": int(unwindowed_cache_bytes(subject.ledger, own.axes(), cached)),
        "kv_bytes_per_token": token_bytes(subject.ledger, work.axes(), replace(cached, page=1)),
        "kv_bytes_next_token": next_token_bytes(subject.ledger, own.axes(), cached),
        "total_bytes": weights + cache,
        "not_included": model_notes.not_included(subject, stored),
        **selection.range_facts(subject, stored, weights, cache),
        "lines": lines,
    }
    if fit is not None:
        facts["fit"] = fit_facts(subject, work, cached, fit, weights, mesh, whole or subject)
    if cached.page > 1:
        facts |= page_facts(subject, work, cached, None if fit is None else fit.usable - weights)
    return facts


def _fullest(
    undivided: LoadedModel,
    subject: LoadedModel,
    mesh: Mesh | None,
    request: Request,
    dtype: str | None,
    cached: Width,
    fit: MemoryLimit | None,
) -> tuple[LoadedModel, dict[str, Any]]:
    """The stage of a model that holds most, as its ranks have it, and its facts; what fits is what fits every stage."""
    found = []
    whole = stages(undivided, mesh)
    for (number, own), (_, all_of_it) in zip(stages(subject, mesh), whole, strict=True):
        shards = None if mesh is None or mesh.fsdp == 1 else fsdp_shards(all_of_it, mesh, dtype)
        facts = _facts(own, request, own.storage(dtype), cached, fit, mesh, shards, undivided)
        found.append((own, facts | ranks.stage_facts(mesh, number)))
    own, facts = max(found, key=lambda one: one[1]["total_bytes"])
    if fit is not None and len(found) > 1:
        facts["fit"] = fitting_all([(each["stage"], each["fit"]) for _, each in found])
        facts["fit"]["fits"] = all(each["fit"]["fits"] for _, each in found)
    return own, facts


def _fits(fact: Mapping[str, Any], what: str) -> bool:
    """True if any context, or any batch, fits."""
    return fact["fit"][f"{what}_slack_bytes"] is not None


def nothing_fits(fact: Mapping[str, Any]) -> bool:
    """True if the weights leave no room for one token of the batch, nor for one sequence of the context."""
    return not (_fits(fact, "context") or _fits(fact, "batch") or _past(fact))


def _of_usable(size: int, fact: Mapping[str, Any]) -> str:
    """`70.7 GiB of 69.4 GiB usable`, exact where both round to the same."""
    usable = fact["fit"]["budget_bytes"]
    taken, room = map(units.binary, (size, usable))
    taken, room = (f"{size:,}", f"{usable:,} bytes") if taken == room else (taken, room)
    return f"{taken} of {room} usable"


def too_large(fact: Mapping[str, Any]) -> str:
    """Why nothing fits, as a clause: the weights alone, or what they leave."""
    weights, usable = fact["weights_bytes"], fact["fit"]["budget_bytes"]
    if weights > usable:
        return f"the weights alone are {_of_usable(weights, fact)}"
    batch = fact["workload"]["batch"]
    many = "one token" if batch == 1 else f"one token of each of {batch:,} sequences"
    if not fact["kv_bytes_per_token"]:
        many = f"{batch:,} sequence{'' if batch == 1 else 's'}"
    kept = "KV cache" if fact["kv_bytes_per_token"] else "state"
    free = units.binary(usable - weights)
    return f"the weights take {units.binary(weights)} and leave {free}, less than the {kept} of {many}"


def _instead(
    subject: LoadedModel, request: Request, dtype: str | None, cached: Width, fit: MemoryLimit, mesh: Mesh | None
) -> str:
    """What fits in its place, as a sentence: more of the same device, which divide the model by tensor parallelism, or
    a narrower dtype. Empty where neither does."""
    from tfacct.parallel.mesh import mesh_on
    from tfacct.timing.placement import head_divisors

    def fits(stored: str | None, budget: MemoryLimit, on: Mesh | None) -> bool:
        try:
            (whole,), (one,), _ = sharded([subject], on, stored)
            return bool(_fullest(whole, one, on, request, stored, cached, budget)[1]["fit"]["fits"])
        except TfacctError:
            return False

    ways = []
    if fit.device is not None and mesh == mesh_on(fit, None):
        counts = (n for n in head_divisors(subject) if n > fit.count and fit.device.links.known(n))
        more = (replace(fit, count=n) for n in counts)
        count = next((one.count for one in more if fits(dtype, one, mesh_on(one, None))), None)
        ways += [] if count is None else [f"on {count:,} × {fit.device.id} (tp={count})"]
    narrow = next((name for name in NARROWER if fits(name, fit, mesh)), None)
    ways += [] if narrow is None else [f"with {option('dtype', narrow)}"]
    return f"It fits {' or '.join(ways)}." if ways else ""


def _and_kept(subjects: Sequence[LoadedModel]) -> str:
    """What is counted beside weights, where anything is kept."""
    return f" and {model_notes.cache_name(subjects)}" if any(subject.keeps for subject in subjects) else ""


def _row(subject: LoadedModel) -> str | None:
    """Name of the row of what is kept; None where nothing is."""
    return subject.kept if subject.keeps else None


def _one(facts: dict[str, Any], row: str | None) -> Table:
    """Weights by part, and what is kept in a `row`, where anything is."""
    columns = (
        Column("what", "what"),
        Column("elements", "elements", "params"),
        Column("dtype", "dtype", drop=1),
        Column("bytes", "bytes", "bytes"),
        Column("gigabytes", "in GB", "gigabytes", drop=4),
        Column("share", "share", "share", drop=3),
        Column("bar", "", "bar", drop=4),
    )
    total = facts["total_bytes"]

    rows = [build.with_share({**line, "gigabytes": line["bytes"]}, line["bytes"], total) for line in facts["lines"]]
    cached = sum(line["elements"] for line in facts["lines"] if line["kind"] == "cache")
    totals: tuple[Row, ...] = (
        {"what": "weights", "elements": facts["total_params"], **_sized(facts["weights_bytes"], total)},
        *(({"what": row, "elements": cached, **_sized(facts["kv_cache_bytes"], total)},) if row else ()),
        {"what": "total", **_sized(total, total)},
    )
    if row is not None and row != "state" and cached:
        totals = (*totals, {"what": "next token", **_sized(facts["kv_bytes_next_token"], None), PLAIN: 1})
    return columns, build.sections(rows, "kind"), totals


def _sized(taken: int, whole: int | None) -> dict[str, Any]:
    return {"bytes": taken, "gigabytes": taken, "share": Fraction(taken, whole) if whole else None}


def _fit_table(
    model: LoadedModel, facts: dict[str, Any], stored: str, cached: Width, limit: MemoryLimit, mesh: Mesh | None
) -> Table:
    """What each device holds of its usable memory: weights, the cache of the requests that fit, and what is free; of a
    model that does not fit, the cache of the requests that were asked for, and what is missing."""
    fit, work, weights = facts["fit"], facts["workload"], facts["weights_bytes"]
    count = (fit["fits"] and work["batch"] == 1 and fit["largest_batch"]) or work["batch"]
    step = Workload(work["keys"], work["tokens"], count, source=work["source"] or 0)
    keeps = model.keeps and not _past(facts)
    cache = int(cache_bytes(model.ledger, cached_tokens(None, mesh, step).axes(), cached)) if keeps else 0
    free, unit = limit.usable - weights - cache, units.binary_unit(limit.usable)
    reserve = f", less {units.budget(limit.reserve)} for the engine" if limit.reserve else ""
    rule = f"{limit.use:g} of {units.in_binary_unit(limit.memory, unit)}{reserve}"
    taken = {f"weights, {stored}": weights, **({f"{model.kept}, {_requests(count)}": cache} if keeps else {})}
    taken |= {"free": free} if free >= 0 else {}
    rows: list[Row] = [{"what": name, "bytes": size, "bar": Fraction(size)} for name, size in taken.items()]
    rows += [{"what": "missing", "bytes": -free}] if free < 0 else []
    rows.append({"what": "usable", "bytes": limit.usable, "bar": "" if limit.usable == limit.memory else rule})
    columns = (
        Column("what", "on each GPU" if limit.count > 1 else "memory"),
        Column("bytes", unit, "bytes", unit=unit),
        Column("bar", "", "bar", drop=4),
    )
    return columns, (tuple(rows),), ()


def _largest(fit: Mapping[str, Any], what: str) -> int | str | None:
    """The largest context or batch that fits, `any` where none is too large."""
    found: int | None = fit.get(f"largest_{what}")
    return "any" if found is None and fit.get(f"{what}_slack_bytes") is not None else found


def _several(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], fit: MemoryLimit | None) -> Table:
    fitting = (
        Column("largest_context", "max ctx", "count", empty="–"),
        Column("largest_batch", "max batch", "count", empty="–"),
    )
    next_token = Column("kv_bytes_next_token", "next token", "bytes", drop=3)
    kept = Column("kv_cache_bytes", model_notes.cache_name(subjects), "bytes", drop=2 if fit is not None else 0)
    keeps = any(subject.keeps for subject in subjects)
    columns = (
        Column("model", "model"),
        Column("total_params", "params", "params", drop=3),
        Column("weights_bytes", "weights", "bytes", drop=2),
        Column("keys", "context", "count"),
        *((next_token,) if keeps and model_notes.attends(subjects) else ()),
        *((kept,) if keeps else ()),
        Column("total_bytes", "total", "bytes"),
        *((Column("whole_bytes", "whole model", "bytes"),) if "whole" in facts[0] else ()),
        *(fitting if fit is not None else ()),
    )
    rows: list[Row] = []
    for subject, fact in zip(subjects, facts, strict=True):
        row = {**fact, "model": build.name_of(subject), "keys": fact["workload"]["keys"]}
        if "whole" in fact:
            row["whole_bytes"] = fact["whole"]["total_bytes"]
        for what in ("context", "batch") if fit is not None else ():
            row |= {f"largest_{what}": _largest(fact["fit"], what)}
        rows.append(row)
    return columns, (tuple(rows),), ()


def _batch_row(batch: int, report: Report) -> dict[str, Any]:
    facts = report.models[0]
    return {"batch": batch, **{key: facts[key] for key in ("weights_bytes", "kv_cache_bytes", "total_bytes")}}


def _batches_table(subject: LoadedModel, rows: Sequence[dict[str, Any]], fit: MemoryLimit | None) -> Table:
    columns = (
        Column("batch", "batch", "count"),
        Column("weights_bytes", "weights", "bytes", drop=1),
        Column("kv_cache_bytes", model_notes.cache_name([subject]) or "cache", "bytes"),
        Column("total_bytes", "total", "bytes"),
        *((Column("largest_context", "max ctx", "count", empty="–"),) if fit is not None else ()),
    )
    return columns, (tuple({**row, "largest_context": _largest(row, "context")} for row in rows),), ()


class About(NamedTuple):
    """What notes are about: models, or stages of them, their whole models, and their facts."""

    models: Sequence[LoadedModel]
    undivided: Sequence[LoadedModel]
    facts: Sequence[dict[str, Any]]
    request: Request
    dtype: str | None
    fit: MemoryLimit | None
    mesh: Mesh | None

    @property
    def cached(self) -> str:
        return str(self.facts[0]["kv_dtype"])

    @property
    def alone(self) -> dict[str, Any]:
        """The facts of the only model; nothing where there are several."""
        return self.facts[0] if len(self.facts) == 1 else {}


def _per_request(about: About) -> dict[str, str] | None:
    """What one request takes of the whole model's cache, and how many fit with a cache in 8 bits."""
    model, whole, fit = about.models[0], about.undivided[0], about.fit
    if fit is None or not about.alone or not model.keeps or _past(about.alone):
        return None
    kept, work = width(about.cached), selection.workload(whole, about.request)
    size = int(cache_bytes(whole.ledger, replace(work, batch=1).axes(), kept))
    each = token_bytes(whole.ledger, work.axes(), kept)
    own, most = about.alone["fit"], ""
    if about.cached in WIDE and own["largest_batch"]:
        narrow = _fullest(whole, _sharded(whole, about), about.mesh, about.request, about.dtype, width("fp8"), fit)[1]
        found = narrow["fit"]["largest_batch"]
        most = f" In fp8: {_requests(found)}." if found and found > own["largest_batch"] else ""
    return {
        "size": units.binary(size),
        "kept": f"cache in {about.cached}" if model_notes.attends(about.models) else "state",
        "each": f", {units.binary(each)} per token" if each * work.context == size else "",
        "most": most,
    }


def _sharded(whole: LoadedModel, about: About) -> LoadedModel:
    """The model as one rank of all stages together has it."""
    return sharded([whole], about.mesh, about.dtype)[1][0]


def _longest_request(about: About) -> str:
    """How long one batch of requests may be, or why nothing limits it."""
    fit, model = about.alone.get("fit"), about.models[0]
    if not fit:
        return ""
    if nothing_fits(about.alone):
        return ""
    context, free, limit = fit["largest_context"], fit["context_slack_bytes"], fit["context_limit"]
    if not model.keeps:
        ends = "the context or the batch" if limit is None else f"the batch; {END} limits the context to {limit:,}"
        return "" if free is None else f"{units.binary(free)} stay free. No cache limits {ends}."
    if context is None:
        if free is None:
            return f"Not even one token fits at batch {about.alone['workload']['batch']:,}."
        windows = model_notes.attends(about.models)
        return "Every layer keeps only a window, so nothing limits the context." if windows else ""
    batch, stage = about.alone["workload"]["batch"], fit.get("context_stage")
    past = f", past the {model.context:,} it was trained with" if context > model.context else ""
    past = f", {END}" if context == limit else past
    who = "One request" if batch == 1 else f"{batch:,} requests"
    full = f"; stage {stage:,} is full first" if stage else ""
    return f"{who} may have {context:,} tokens{'' if batch == 1 else ' each'}{past}{full}."


def _pages(about: About) -> dict[str, int] | None:
    block = next((fact["kv_block"] for fact in about.facts if "kv_block" in fact), None)
    return None if block is None else {"block": block}


def _vllm(about: About) -> str:
    """What a start of vLLM would print."""
    if "pages" not in about.alone:
        return ""
    found, fit, context = about.alone["pages"], about.alone["fit"], about.alone["workload"]["keys"]
    beyond = " beyond the reserve" if fit["reserve_bytes"] else ""
    less = f"less what its trial run needs{beyond}, which is not counted here"
    if found["starts"]:
        return (
            f'vLLM would start with "GPU KV cache size: {found["tokens"]:,} tokens" and "Maximum concurrency for'
            f' {context:,} tokens per request: {found["concurrency"]:.2f}x" ({found["count"]:,} pages), {less}.'
        )
    longest = found["largest_max_model_len"]
    less = "" if longest == fit["context_limit"] else f", {less}"
    return (
        f"vLLM would raise a ValueError at --max-model-len {context}. The largest that starts is"
        f" --max-model-len {longest}{less}."
    )


def _padded(about: About) -> list[str]:
    if about.mesh is None or about.mesh.pp > 1:
        return []
    both = zip(about.undivided, about.models, strict=True)
    return list(dict.fromkeys(note for whole, one in both for note in ranks.padded_blocks(whole, one, about.dtype)))


LARGEST_MEANS = "the largest that {}, even past the trained context, but not past a learned position embedding."
NOTES = (
    NoteRow("vllm", 1, _vllm),
    NoteRow("request", 1, _per_request, "One request takes {size} of {kept}{each}.{most}"),
    NoteRow("longest_request", 1, _longest_request),
    NoteRow(
        "batch_stage",
        2,
        lambda about: about.alone.get("fit", {}).get("batch_stage"),
        "Stage {:,} limits the number of requests.",
    ),
    NoteRow("files", 1, lambda about: model_notes.files_notes(about.undivided, about.dtype)),
    NoteRow("projector", 2, lambda about: model_notes.projector_notes(about.models)),
    NoteRow("not_included", 1, lambda about: model_notes.not_included_notes(about.models, about.facts)),
    NoteRow(
        "engine",
        2,
        lambda about: about.fit is not None and bool(about.fit.reserve),
        "Activations and buffers beyond the reserve are not included.",
    ),
    NoteRow("storage", 2, lambda about: model_notes.storage_notes(about.models, about.dtype)),
    NoteRow("cache_format", 2, lambda about: model_notes.cache_notes(about.models, about.cached)),
    NoteRow(
        "state", 2, lambda about: model_notes.state_notes(about.models, about.cached, staged="pp" in about.facts[0])
    ),
    NoteRow("unwindowed", 2, lambda about: model_notes.unwindowed(about.facts)),
    NoteRow("shrinking", 3, lambda about: model_notes.shrinking(about.facts)),
    NoteRow("source", 2, lambda about: model_notes.source_notes(about.models)),
    NoteRow(
        "largest",
        2,
        lambda about: about.fit is not None and not about.alone and "fit",
        f"max ctx, max batch: {LARGEST_MEANS} –: not even 1 fits.",
    ),
    NoteRow(
        "pages",
        2,
        _pages,
        "The cache is in pages of {block:,} tokens: the last page of a sequence takes its whole space.",
    ),
    NoteRow("usable", 3, lambda about: about.fit is not None and about.fit.notes),
    NoteRow("ranks", 2, lambda about: about.mesh and ranks.notes(about.undivided, about.facts, about.mesh)),
    NoteRow("padded", 3, _padded),
)
BATCHES_NOTES = (
    NoteRow(
        "largest", 2, lambda fit: fit is not None and "fits at the batch", f"max ctx: {LARGEST_MEANS} –: not even 1."
    ),
    NoteRow("usable", 2, lambda fit: fit is not None and fit.notes),
)


CACHE_CONVENTION = "bytes an engine must keep for every token of the context; weights left out"
STATE = "bytes an engine must keep between steps, the same at every context; weights left out"


class KvLine(TypedDict):
    """Bytes of the cache at one context."""

    keys: int
    mha: int | None
    as_built: int
    mqa: int | None
    whole_bytes: NotRequired[int]


class UndividedCache(TypedDict):
    """The cache of the whole model, beside what one rank keeps of it."""

    kv_bytes_per_token: int
    kv_bytes_next_token: int
    kv_cache_bytes: int


class KvReport(build.ExplainedReport):
    """Bytes of the KV cache by context."""

    _line = KvLine

    workload: build.WorkloadFacts
    query_heads: int | None
    query_heads_by_block: list[int] | None
    kv_heads: int | None
    kv_heads_by_block: list[int] | None
    kv_bytes_per_token: int
    kv_bytes_next_token: int
    kv_cache_bytes: int
    kv_cache_bytes_without_windows: int
    self_kv_cache_bytes: int
    cross_kv_cache_bytes: int
    tp: int | None
    pp: int | None
    stage: int | None
    mesh: build.MeshFacts | None
    whole: UndividedCache | None


@answers(KvReport)
def kv(
    subjects: Sequence[LoadedModel],
    request: Request,
    *,
    dtype: str | None = None,
    contexts: Sequence[int] | None = None,
    mesh: Mesh | None = None,
) -> Report:
    """KV-cache bytes per token and by context, and what grouped queries save. Raises UsageError.

    `contexts` are those of the rows, and the last is that of the totals; without them some up to the request's. `mesh`:
    ranks that divide heads, blocks or tokens; the bytes are those of the fullest.
    """
    _, cached = dtypes(None, dtype)
    subjects, left_out = selection.keeping(subjects)
    if contexts is not None:
        contexts = sorted(set(contexts))
        request = replace(request, ctx=contexts[-1])
    undivided, subjects, unfit = sharded(subjects, mesh, weights=False)
    fullest = [_fullest_cache(subject, mesh, request, cached, contexts) for subject in subjects]
    subjects, facts = [subject for subject, _ in fullest], tuple(fact for _, fact in fullest)
    if mesh is not None:
        whole = (_cache_facts(subject, request, cached, contexts) for subject in undivided)
        facts = tuple(_beside(fact, of, mesh) for fact, of in zip(facts, whole, strict=True))
    alone, on = len(subjects) == 1, ranks.of_one(mesh, "on")
    table = (
        _one_cache(subjects[0], facts[0], request, cached, mesh)
        if alone
        else _several_caches(subjects, facts, contexts is not None)
    )
    who = f"{build.name_of(subjects[0])}: " if alone else ""
    where = f"batch {request.batch:,}" if alone or contexts else build.workload_words(subjects, request)
    return build.report(
        "kv",
        subjects,
        table,
        facts,
        title=f"{who}{model_notes.cache_words(subjects, cached)}{on}, {where}",
        convention=CACHE_CONVENTION if model_notes.attends(subjects) else STATE,
        answer=_cache_answer(subjects, facts, cached),
        notes=lambda at: notes(CACHE_NOTES, CacheAbout(subjects[at], undivided[at], facts[at], request, cached, mesh)),
        counted=f"the {model_notes.cache_name(subjects)} only; no weights, activations or engine buffers",
        requests=[request],
        left_out=[*left_out, *unfit],
        headline="kv_cache_bytes",
    )


def _cache_answer(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], cached: str) -> str:
    """The cache of one model at its context, and what more tokens add; or the least and the most of several."""
    sizes = [(fact["kv_cache_bytes"], subject.name) for subject, fact in zip(subjects, facts, strict=True)]
    if len(facts) > 1:
        keys = {fact["workload"]["keys"] for fact in facts}
        where = f" at context {min(keys):,}" if len(keys) == 1 else ""
        return f"{build.from_to(sizes, units.binary).removesuffix('.')}{where}."
    work, size = facts[0]["workload"], units.binary(sizes[0][0])
    if not model_notes.attends(subjects):
        where = f"context {work['keys']:,}" if "pp" in facts[0] else "every context"  # another stage may hold more
        return f"{size} at {where}{_batch(work)}."
    source = f", source {work['source']:,}" if facts[0]["cross_kv_cache_bytes"] else ""
    return f"{size} at context {work['keys']:,}{source}{_batch(work)}; {_more(subjects[0], facts[0], cached)}."


def _batch(work: Mapping[str, Any]) -> str:
    return f", batch {work['batch']:,}" if work["batch"] > 1 else ""


def _more(subject: LoadedModel, fact: dict[str, Any], cached: str) -> str:
    """What the next token adds, and whether each further one does."""
    work, kept = fact["workload"], width(cached)
    steps = (Workload(keys, 1, source=work["source"] or 0) for keys in (work["keys"] + 1, LARGEST))
    following = {next_token_bytes(subject.ledger, step.axes(), kept) for step in steps}
    adds, of = units.binary(fact["kv_bytes_next_token"]), " of a sequence" if work["batch"] > 1 else ""
    if following == {0} and not fact["kv_bytes_next_token"]:
        return "further tokens add nothing"
    if subject.ledger.period > 1:
        return _compressed_more(subject, work["keys"], kept, of)
    return f"{'each further' if following == {fact['kv_bytes_next_token']} else 'the next'} token{of} adds {adds}"


def _compressed_more(subject: LoadedModel, keys: int, kept: Width, of: str) -> str:
    """What further tokens add, as many as make the heaviest key: one alone may add more, or take less."""
    period = subject.ledger.period
    now, then = (cache_bytes(subject.ledger, Workload(context, 1).axes(), kept) for context in (keys, keys + period))
    return f"the next {period:,} tokens{of} add {units.binary(then - now)} together"


def _cache_facts(
    subject: LoadedModel,
    request: Request,
    cached: str,
    contexts: Sequence[int] | None = None,
    mesh: Mesh | None = None,
) -> dict[str, Any]:
    work = selection.workload(subject, request)
    sides, shown = variants(subject), contexts or _contexts(work.context)

    def here(context: int) -> dict[str, Any]:
        at = replace(work, context=context)
        return {**_at(sides, cached_tokens(subject, mesh, at), cached), "keys": context}

    by_context = [here(context) for context in shown]
    kept = width(cached)
    own = cache_bytes(subject.ledger, cached_tokens(None, mesh, replace(work, source=0)).axes(), kept)
    cross = by_context[-1]["as_built"] - own
    return {
        "workload": selection.workload_facts(work, dtype=cached),
        **build.by_block("query_heads", build.of_attention(subject, "heads")),
        **build.by_block("kv_heads", None if is_latent(subject) else build.of_attention(subject, "kv_heads")),
        "kv_bytes_per_token": token_bytes(subject.ledger, work.axes(), kept),
        "kv_bytes_next_token": next_token_bytes(subject.ledger, work.axes(), kept),
        "kv_cache_bytes": by_context[-1]["as_built"],
        "kv_cache_bytes_without_windows": unwindowed_cache_bytes(
            subject.ledger, cached_tokens(subject, mesh, replace(work, context=shown[-1])).axes(), kept
        ),
        "self_kv_cache_bytes": own,
        "cross_kv_cache_bytes": cross,
        "lines": by_context,
    }


def _fullest_cache(
    subject: LoadedModel, mesh: Mesh | None, request: Request, cached: str, contexts: Sequence[int] | None
) -> tuple[LoadedModel, dict[str, Any]]:
    """The stage of a model that keeps most at the last context, and its facts."""
    found = [
        (own, _cache_facts(own, request, cached, contexts, mesh) | ranks.stage_facts(mesh, number))
        for number, own in stages(subject, mesh)
    ]
    return max(found, key=lambda one: int(one[1]["kv_cache_bytes"]))


def _beside(fact: dict[str, Any], whole: dict[str, Any], mesh: Mesh) -> dict[str, Any]:
    """Facts of one rank; the bytes of the whole model stand beside each of its contexts."""
    both = zip(fact["lines"], whole["lines"], strict=True)
    lines = [{**line, "whole_bytes": of["as_built"]} for line, of in both]
    keys = ("kv_bytes_per_token", "kv_bytes_next_token", "kv_cache_bytes")
    return {**ranks.beside(fact, whole, mesh, keys), "lines": lines}


def _of_heads(undivided: Sequence[LoadedModel], tp: int) -> list[str]:
    """Which heads a rank has."""
    from tfacct.parallel.mesh import Mesh
    from tfacct.parallel.support import gathers_heads

    said = ranks.uneven(undivided, Mesh(tp))
    gathered = [one.name for one in undivided if gathers_heads(one)]
    if gathered and len(undivided) > 1:
        said.append(f"Those of {listed(gathered)} are whole on every rank: a norm reads all heads together.")
    latents = [one.name for one in undivided if is_latent(one)]
    if latents:
        said.append("A latent is whole on every rank: the heads that read it are divided.")
    return (
        said if len({*latents, *gathered}) == len(undivided) else ["A rank keeps keys and values of its heads.", *said]
    )


def _contexts(longest: int) -> list[int]:
    """1k, 4k, 16k, … below the longest, and the longest."""
    contexts, context = [], 1024
    while context < longest:
        contexts.append(context)
        context *= 4
    return [*contexts, longest]


def _at(variants: Mapping[str, Ledger | None], work: Workload, cached: str) -> dict[str, Any]:
    """Cache bytes of each variant at the end of a step."""
    at, kept = work.axes(), width(cached)
    sizes = {name: None if ledger is None else cache_bytes(ledger, at, kept) for name, ledger in variants.items()}
    return {"keys": work.context, **sizes}


def _one_cache(
    subject: LoadedModel, fact: dict[str, Any], request: Request, cached: str, mesh: Mesh | None = None
) -> Table:
    if not model_notes.attends([subject]):
        state = Column("keys", "context", "count"), Column("as_built", "state", "bytes")
        whole = (Column("whole_bytes", "whole model", "bytes"),) if "whole" in fact else ()
        return (*state, *whole), (tuple(fact["lines"]),), ()
    columns: tuple[Column, ...] = (
        Column("keys", "context", "count"),
        Column("mha", f"MHA ({heads_words(fact['query_heads_by_block'] or fact['query_heads'])})", "bytes"),
        Column("as_built", f"as built ({_built(subject, fact)})", "bytes"),
    )
    if is_compressed(subject):
        columns = columns[0], Column("as_built", "as built", "bytes")
    elif not is_latent(subject):
        columns = (*columns, Column("mqa", f"MQA ({heads_words(1)})", "bytes", drop=1 if "whole" in fact else 0))
    if "whole" in fact:
        columns = (*columns, Column("whole_bytes", "whole model", "bytes"))
    at, kept = cached_tokens(None, mesh, selection.workload(subject, request)).axes(), width(cached)
    sides = variants(subject).items()
    following: dict[str, Any]
    following = {name: ledger and next_token_bytes(ledger, at, kept) for name, ledger in sides}
    if "whole" in fact:
        following["whole_bytes"] = fact["whole"]["kv_bytes_next_token"]
    return columns, (tuple(fact["lines"]),), ({**following, "keys": "next token"},)


def _built(subject: LoadedModel, fact: dict[str, Any]) -> str:
    """Key/value heads, or a latent, or, where blocks differ, both."""
    if not is_latent(subject):
        return heads_words(fact["kv_heads_by_block"] or fact["kv_heads"])
    shared = dict.fromkeys(part.kv_heads for _, part in subject.architecture.having(Attention))
    return f"{heads_words(list(shared))} or latent" if shared else "latent"


def heads_words(count: int | list[int]) -> str:
    counts = count if isinstance(count, list) else [count]
    return f"{' or '.join(map(str, counts))} KV head{'' if counts == [1] else 's'}"


def _several_caches(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], by_context: bool) -> Table:
    """A row for each model, or, `by_context`, a section with a row for each context."""
    next_token = Column("kv_bytes_next_token", "next token", "bytes")
    columns = (
        Column("model", "model", names_rows=True),
        Column("heads", "heads", "count", drop=1, empty="–"),
        Column("kv_heads", "KV heads", "count", drop=1, empty="–"),
        *(() if by_context else (next_token,)),
        Column("keys", "context", "count", names_rows=by_context),
        Column("mha", "MHA", "bytes", empty="–"),
        Column("as_built", "as built", "bytes"),
        Column("mqa", "MQA", "bytes", drop=1, empty="–"),
        *((Column("whole_bytes", "whole model", "bytes"),) if "whole" in facts[0] else ()),
    )
    sections = tuple(
        tuple(
            {**line, "model": build.name_of(subject), "heads": build.each_of(fact, "query_heads")}
            | {"kv_heads": "latent" if is_latent(subject) else build.each_of(fact, "kv_heads")}
            | {"kv_bytes_next_token": fact["kv_bytes_next_token"]}
            for line in fact["lines"][0 if by_context else -1 :]
        )
        for subject, fact in zip(subjects, facts, strict=True)
    )
    return columns, sections if by_context else (tuple(row for rows in sections for row in rows),), ()


class CacheAbout(NamedTuple):
    """What notes are about: models, or stages of them, their whole models, and their facts."""

    models: Sequence[LoadedModel]
    undivided: Sequence[LoadedModel]
    facts: Sequence[dict[str, Any]]
    request: Request
    cached: str
    mesh: Mesh | None

    @property
    def alone(self) -> bool:
        return len(self.models) == 1


def _overtakes(about: CacheAbout) -> dict[str, Any] | None:
    """From which context on the cache outgrows the weights, both in its dtype; nothing where it shrinks again and
    again, or where ranks divide tokens or weights."""
    model, mesh, work = about.models[0], about.mesh, about.facts[0]["workload"]
    if not about.alone or (mesh is not None and (mesh.cp > 1 or mesh.fsdp > 1)):
        return None
    narrow = model.quantized or about.cached in units.CACHES
    if model.ledger.period > 1 or narrow or not model_notes.attends([model]):
        return None
    step = Workload(1, 1, work["batch"], source=work["source"] or 0)
    context = cache_overtakes(Point(model.ledger, step, storage(about.cached), width(about.cached)))
    if context is None or context > (model.position_limit or context):
        return None
    whose = " of a rank" if mesh else ""
    return {"context": context, "batch": work["batch"], "whose": whose, "cached": about.cached}


def _variants(about: CacheAbout) -> str:
    if not model_notes.attends(about.models) or all(map(is_compressed, about.models)):
        return ""
    if about.alone and is_latent(about.models[0]):
        return "MHA: the keys and values of each query head are cached, not the latent that they come from."
    return "MHA: one KV head for each query head. MQA: one for all. Query heads unchanged."


def _cross(about: CacheAbout) -> dict[str, Any] | None:
    """What of one model's cache is of the source."""
    cross = about.facts[0]["cross_kv_cache_bytes"] if about.alone else 0
    source = about.facts[0]["workload"]["source"]
    return {"cross": cross, "size": units.binary(cross), "source": source} if cross else None


def _of_ranks(about: CacheAbout) -> list[str]:
    """Which heads, blocks and tokens a rank has."""
    if (mesh := about.mesh) is None:
        return []
    heads = _of_heads(about.undivided, mesh.tp) if mesh.tp > 1 else []
    idle = ranks.idle(mesh, "sp", "fsdp", "ep")
    return [*heads, *ranks.of_stage(about.undivided, about.facts, mesh), *ranks.of_tokens(mesh), *idle]


CACHE_NOTES = (
    NoteRow(
        "formula",
        2,
        lambda about: about.alone and [cache_formula(about.models[0], about.request, about.cached, about.mesh)],
    ),
    NoteRow(
        "cache_overtakes",
        1,
        _overtakes,
        "From {context:,} tokens on at batch {batch:,}, the cache takes more than the weights{whose} in {cached}.",
    ),
    NoteRow("variants", 3, _variants),
    NoteRow("cache_format", 2, lambda about: model_notes.cache_notes(about.models, about.cached, "dtype")),
    NoteRow(
        "state", 2, lambda about: model_notes.state_notes(about.models, about.cached, staged="pp" in about.facts[0])
    ),
    NoteRow(
        "cross",
        2,
        _cross,
        "At every context, {cross:,} bytes ({size}) of it are the cross keys and values of a source of {source:,}"
        " tokens. The rest belongs to the tokens themselves.",
    ),
    NoteRow("windows", 2, lambda about: about.alone and model_notes.window_notes(about.undivided, kept=True)),
    NoteRow("unwindowed", 2, lambda about: model_notes.unwindowed(about.facts)),
    NoteRow("shrinking", 3, lambda about: model_notes.shrinking(about.facts)),
    NoteRow("latent", 2, lambda about: model_notes.latent_cache_notes(about.models)),
    NoteRow("ranks", 1, _of_ranks),
)


class FittingDevice(TypedDict):
    """The fewest of a device that hold a model, and bytes on each; null where none do. `count_without_link`: the fewest
    that would, where no link of so many is known."""

    device: str
    memory_bytes: int
    memory_from: str
    usable_bytes: int
    count: int | None
    count_without_link: int | None
    weights_bytes_each: int | None
    kv_cache_bytes_each: int | None


class FitReport(build.ModelReport):
    """How many of each device hold the weights and the cache: a count."""

    _line = FittingDevice

    workload: build.WorkloadFacts
    dtype_from: build.DtypeFrom
    published_dtype: str | None
    kv_dtype: str
    use: float
    reserve_bytes: int
    weights_low_bytes: int | None
    weights_high_bytes: int | None
    total_low_bytes: int | None
    total_high_bytes: int | None
    range_reason: str | None
    weights_bytes: int
    kv_cache_bytes: int
    total_bytes: int


class Fitting(NamedTuple):
    """A model, and what of each device holds it. `placed`: it on one device; `whole`: its bytes there; `stored`: the
    format of its weights; `alone`: weights that are not divided among devices."""

    model: LoadedModel
    placed: Placement
    whole: Share
    devices: Sequence[Needed]
    stored: str
    alone: bool


@answers(FitReport)
def fit(
    model: LoadedModel,
    request: Request,
    found: Sequence[devices.Device],
    *,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    ep: int = 1,
    use: float | None = None,
    reserve: int | str | None = None,
) -> Report:
    """How many of each device hold the weights and the cache at the end of a step. Raises TfacctError."""
    if request.tokens is not None or request.decode:
        raise UsageError(f"{option('tokens')} and {option('decode')} change nothing that is kept", "leave them out")
    from tfacct.timing.placement import device_counts, on_one_device, place

    work = selection.runnable(model, request)
    whole, needed = device_counts(model, work, found, dtype=dtype, kv_dtype=kv_dtype, ep=ep, use=use, reserve=reserve)
    one, stored = place(model, 1, found[0], dtype=dtype, kv_dtype=kv_dtype), selection.format_name(model, dtype)
    about = Fitting(model, one, whole, needed, stored, on_one_device(model, dtype))
    weights, cache = units.binary(whole.weights), units.binary(whole.cache)
    return build.report(
        "fit",
        [model],
        _table(about),
        [_fit_facts(about, work)],
        title=f"{build.name_of(model)}: {weights} of weights and {cache} of cache, {stored},"
        f" {build.workload_words([model], request)}",
        convention="weights and cache as stored; each device holds its share, and what is not divided",
        answer=_fit_answer(about),
        notes=lambda _: notes(FIT_NOTES, about),
        requests=[request],
    )


def _table(about: Fitting) -> Table:
    needed, whole = about.devices, about.whole
    rows: list[Row] = [
        {
            "device": one.device.id,
            "usable_bytes": one.usable,
            "needs": None if not one.usable else Fraction(whole.total, one.usable),
            "count": None if one.share is None else one.share.devices,
            "each_bytes": None if one.share is None else one.share.total,
            "left_bytes": None if one.share is None else one.usable - one.share.total,
            "reason": one.reason or "",
        }
        for one in needed
    ]
    columns = (
        Column("device", "device"),
        Column("usable_bytes", "usable each", "bytes"),
        Column("needs", "needed", "ratio", drop=2, empty="–"),
        Column("count", "in use", "count", empty="none"),
        Column("each_bytes", "on each", "bytes", drop=1, empty="–"),
        Column("left_bytes", "left on each", "bytes", drop=1, empty="–"),
        *((Column("reason", "why none"),) if any(one.reason for one in needed) else ()),
    )
    return columns, (tuple(rows),), ()


def _fit_answer(about: Fitting) -> str:
    needed = about.devices
    counts = {one.device.id: one.share.devices for one in needed if one.share is not None}
    if len(needed) == 1:
        (one,) = needed
        most = one.device.links.largest
        if counts:
            return f"It takes {counts[one.device.id]:,} × {one.device.id}."
        if one.unlinked is not None:
            known = f"no link of more than {most} is known" if most != 1 else "no link between them is known"
            return f"It would take {one.unlinked:,} × {one.device.id}, but {known}."
        if one.cut:
            return f"More than {one.most:,} × {one.device.id} would hold it, but cut blocks of its weights."
        return "One of this device does not hold it." if about.alone else "No number of this device holds it."
    if not counts:
        return "None of these devices hold it."
    fewest, left = min(counts.values()), len(needed) - len(counts)
    names = [name for name, count in counts.items() if count == fewest]
    more = f" and {len(names) - 3} others" if len(names) > 3 else ""
    none = f"; the table says why none of the other {left} does" if left else ""
    hold = "One device holds it:" if fewest == 1 else f"The fewest that hold it are {fewest:,}, of"
    return f"{hold} {', '.join(names[:3])}{more}{none}."


def _unlinked(about: Fitting) -> dict[str, str] | None:
    """Devices without a known link for the number that would hold the model."""
    found = [f"{one.device.id}: {one.unlinked:,}" for one in about.devices if one.unlinked is not None]
    more = f" and {len(found) - 3:,} more" if len(found) > 3 else ""
    return {"devices": ", ".join(found[:3]), "more": more} if found else None


def _cuts(about: Fitting) -> dict[str, Any] | None:
    """Numbers of devices that would cut blocks of the weights' format."""
    if not any(one.reason == "cuts blocks" for one in about.devices):
        return None
    whole = f"; {option('ep')} leaves experts whole" if about.model.ledger.experts else ""
    return {"most": about.devices[0].most, "stored": about.stored, "whole": whole}


FIT_NOTES = (
    NoteRow("files", 1, lambda about: model_notes.files_notes([about.model], about.placed.asked)),
    NoteRow("unlinked", 1, _unlinked, "No link: none is known for the number that would hold it ({devices}{more})."),
    NoteRow("cuts", 1, _cuts, "Cuts blocks: more than {most:,} devices cut blocks of {stored}{whole}."),
    NoteRow(
        "whole",
        1,
        lambda about: about.alone and about.placed.dtype,
        "Weights in {} are not divided here: one of each device is asked about.",
    ),
    NoteRow(
        "rule",
        2,
        lambda about: about.devices[0].memory.rule,
        "Usable: {}. In use: the fewest devices that divide the query heads and hold weights and cache.",
    ),
    NoteRow("cache_format", 2, lambda about: model_notes.cache_notes([about.model], about.placed.cache)),
    NoteRow(
        "gathered",
        2,
        lambda about: ranks.gathered(about.model, max(one.share.devices if one.share else 1 for one in about.devices)),
    ),
    NoteRow("range", 2, lambda about: model_notes.range_notes([about.model], about.placed.asked)),
    NoteRow("memory", 3, lambda about: devices.memory_said([one.device for one in about.devices])),
)


def _fit_facts(about: Fitting, work: Workload) -> dict[str, Any]:
    placed, whole, rule = about.placed, about.whole, about.devices[0].memory
    return {
        "workload": selection.workload_facts(work, dtype=placed.dtype),
        **selection.format_facts(about.model, placed.asked),
        "kv_dtype": placed.cache,
        "use": rule.use,
        "reserve_bytes": rule.reserve,
        "weights_bytes": whole.weights,
        "kv_cache_bytes": whole.cache,
        "total_bytes": whole.total,
        **selection.range_facts(about.model, placed.host.weights, whole.weights, whole.cache),
        "lines": [
            {
                "device": one.device.id,
                **one.device.memory_facts(),
                "usable_bytes": one.usable,
                "count": None if one.share is None else one.share.devices,
                "count_without_link": one.unlinked,
                "weights_bytes_each": None if one.share is None else one.share.weights,
                "kv_cache_bytes_each": None if one.share is None else one.share.cache,
            }
            for one in about.devices
        ],
    }
