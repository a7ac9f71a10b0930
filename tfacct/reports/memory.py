"""Memory to serve a model: weights and KV cache, also by context; and the devices that they fit on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from tfacct.accounts.memory import cache_bytes, next_token_bytes
from tfacct.architecture.parts import Attention, Mixer
from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError, exclusive, joined, listed
from tfacct.base.spelling import option
from tfacct.ledger.storage import Width, dtypes, width
from tfacct.ledger.workload import LARGEST, Request, Workload, check_size
from tfacct.loading import devices, selection
from tfacct.loading.model import LoadedModel
from tfacct.loading.skipped import Skipped
from tfacct.output.keys import Keys, Object, values_of
from tfacct.output.report import PLAIN, Column, NoteRow, Row, Table, notes
from tfacct.parallel.rank_memory import (
    Fit,
    MemoryLine,
    ModelMemory,
    Pages,
    fitting_every_stage,
    is_latent,
    memory_of_stages,
    sharded,
)
from tfacct.reports import build, model_notes, ranks

if TYPE_CHECKING:
    from tfacct.loading.memory_limit import MemoryLimit
    from tfacct.parallel.mesh import Mesh
    from tfacct.timing.placement import Deployment, Needed, Placement

WIDE = ("fp32", "bf16", "fp16")
"""Cache formats that are wider than fp8."""
MOST_STAGES = 16
"""Pipeline stages that are tried for a model that no number of devices fits with tp alone."""
LARGEST_PAGE = 1 << 20
"""Tokens of the largest page."""

of_memory: Keys[[ModelMemory]] = Keys()


class WholeMemory(Object):
    """The whole model, next to one rank."""

    total_params: int = of_memory(lambda one: sum(one.elements.values()))
    weights_bytes: int = of_memory(lambda one: one.weights)
    kv_cache_bytes: int = of_memory(lambda one: one.cache)
    total_bytes: int = of_memory(lambda one: one.weights + one.cache)


class MemoryReport(build.ExplainedReport, build.StoredReport, build.RankReport):
    """Bytes of weights and of the KV cache and states."""

    _line = MemoryLine

    workload: build.WorkloadFacts = of_memory(lambda one: selection.workload_facts(one.work, dtype=one.storage.name))
    kv_dtype: str = of_memory(lambda one: one.cached.name)
    weights_bytes: int = WholeMemory.weights_bytes
    kv_cache_bytes: int = WholeMemory.kv_cache_bytes
    total_bytes: int = WholeMemory.total_bytes
    kv_block: int | None
    kv_page_bytes: int | None
    pages: Pages | None
    total_params: int = WholeMemory.total_params
    kv_cache_bytes_without_windows: int = of_memory(lambda one: one.without_windows())
    kv_bytes_per_token: int = of_memory(lambda one: one.first_token)
    kv_bytes_next_token: int = of_memory(lambda one: one.next_token)
    not_included: build.NotIncluded | None = of_memory(lambda one: model_notes.not_included(one.model, one.storage))
    lines: list[dict[str, Any]] = of_memory(lambda one: one.lines)
    fit: Fit | None
    ep: int | None
    whole: WholeMemory | None


class MemoryOptions(NamedTuple):
    """The step, the formats of weights and cache, the memory limit and the layout that memory is counted for."""

    request: Request
    dtype: str | None
    cached: Width
    limit: MemoryLimit | None = None
    mesh: Mesh | None = None


@ranks.in_devices
def memory(
    models: Sequence[LoadedModel],
    request: Request,
    *,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    fit: MemoryLimit | None = None,
    kv_block: int | None = None,
    mesh: Mesh | None = None,
) -> MemoryReport:
    """Bytes of weights and KV cache. `fit`: the memory limit, for the largest context and batch that fit. `kv_block`:
    tokens of a page of the cache. `mesh`: the bytes are those of the fullest rank. Raises TfacctError."""
    options = MemoryOptions(request, dtype, _cache_format(dtype, kv_dtype, kv_block), fit, mesh)
    models, unpaged = _paged(models, options.cached)
    models, skipped = selection.in_groups(*selection.with_known_bytes(models, dtype), request)
    stored = selection.formats(models, dtype)
    _check_mesh(models, options)
    whole_models, models, unfit = sharded(models, mesh, dtype)
    found = [_fullest(*both, options) for both in zip(models, whole_models, strict=True)]
    about = About([one for one, _ in found], [facts for _, facts in found], options)
    models, facts, alone = about.models, about.facts, len(found) == 1
    what = f"memory{ranks.one_of_ranks(mesh)}" if alone else f"Memory to serve{ranks.one_of_ranks(mesh, 'on')}"
    alike = model_notes.cache_dtypes(models, about.caches) == [selection.stored_name(models, dtype)]
    kv = "" if alike else f", {model_notes.cache_words(models, about.caches)}"
    cache = f" and {model_notes.cache_name(models)}" if any(model.has_cache for model in models) else ""
    title = f"{build.titled(models, what)} in {stored}{kv}, {build.workload_words(models, request)}"
    report = build.report(
        MemoryReport,
        models,
        _one(models[0], facts[0]) if alone else _several(models, facts, fit),
        facts,
        title=title,
        answer=_answer(about),
        notes=lambda at: notes(NOTES, about.of(at)),
        convention=f"weights{cache} only; no activations, engine buffers or fragmentation",
        requests=[] if about.fit.get("past_positions") else [request],
        skipped=[*skipped, *unpaged, *unfit],
        headline="total_bytes",
    )
    if fit is None or not alone:
        return report
    columns, sections, totals = _fit_table(about.counted[0], facts[0]["fit"], stored, fit)
    return replace(report, columns=columns, sections=sections, total_rows=totals, untitled=True, data=report)


# Checks


def _check_mesh(models: Sequence[LoadedModel], options: MemoryOptions) -> None:
    """Raises UsageError for an unsupported layout, and for heads that the devices of the limit do not divide."""
    limit, mesh = options.limit, options.mesh
    for axis in ("pp", "cp"):
        if options.cached.page > 1 and mesh is not None and getattr(mesh, axis) > 1:
            raise exclusive(option("kv_block"), option(axis))
    if limit is not None and mesh is not None and mesh.fsdp > 1:
        problem = "gathered parameters need memory that is not counted"
        raise UsageError(
            f"{option('on')} does not work with {option('fsdp')}: {problem}", f"{option('tp')} gathers no weights"
        )
    if len(models) == 1 and limit is not None and limit.count > 1:
        from tfacct.parallel.mesh import mesh_on
        from tfacct.timing.placement import check_heads

        if mesh == mesh_on(limit, None):
            check_heads(models[0], limit.count)


def _cache_format(dtype: str | None, kv_dtype: str | None, kv_block: int | None) -> Width:
    """The format of the cache, in pages of so many tokens. Raises UsageError."""
    page = 1 if kv_block is None else kv_block
    check_size(option("kv_block"), page, LARGEST_PAGE)
    return width(dtypes(dtype, kv_dtype)[1], page)


def _paged(models: Sequence[LoadedModel], cached: Width) -> tuple[Sequence[LoadedModel], list[Skipped]]:
    """Models whose cache is counted in pages, and the others. Raises UsageError if there are none."""
    if cached.page == 1:
        return models, []
    if cached.block > 1:
        raise UsageError(
            f"paged engines do not store the cache in {cached.name}, a llama.cpp format",
            f"leave {option('kv_block')} out",
        )
    able = [one for one in models if one.has_cache and one.architecture.attentions]
    why = "a model without a cache of keys and values has no pages"
    if not able:
        names = ", ".join(one.name for one in models)
        raise UsageError(f"{option('kv_block')}: {names}: {why}", f"leave {option('kv_block')} out")
    return able, Skipped.of([one for one in models if one not in able], why)


# Facts


def _stages(model: LoadedModel, whole_model: LoadedModel, options: MemoryOptions) -> list[ModelMemory]:
    """Memory of a model, or of one rank of each pipeline stage. Raises TfacctError."""
    cached, limit = options.cached, options.limit
    if cached.page > 1 or (limit is not None and limit.paged is not None):
        from tfacct.engines.pages import aligned

        cached = aligned(model, cached)
    return memory_of_stages(model, whole_model, options.request, cached, options.dtype, options.mesh)


def _fullest(
    model: LoadedModel, whole_model: LoadedModel, options: MemoryOptions
) -> tuple[ModelMemory, dict[str, Any]]:
    """Memory of a model, or of the rank that stores most, and its facts. What fits, fits every stage."""
    stages, limit = _stages(model, whole_model, options), options.limit
    one = max(stages, key=lambda one: one.weights + one.cache)
    facts = values_of(
        MemoryReport,
        one,
        **selection.format_facts(whole_model, options.dtype),
        **selection.range_facts(one.model, one.storage, one.weights, one.cache),
        **({} if limit is None else {"fit": _fit(stages, limit)}),
        **_pages(one, None if limit is None else limit.usable - one.weights),
        **_rank_facts(one, WholeMemory, options),
        **({} if options.mesh is None else {"ep": options.mesh.ep}),
    )
    return one, facts


def _whole_memory(one: ModelMemory, options: MemoryOptions) -> ModelMemory:
    """Memory of the whole model on one device."""
    return _stages(one.whole_model, one.whole_model, options._replace(mesh=None))[0]


def _rank_facts(one: ModelMemory, kind: type[Object], options: MemoryOptions) -> dict[str, Any]:
    """The layout and the stage of a rank, and the memory of the whole model; nothing without a layout."""
    if one.mesh is None:
        return {}
    return ranks.rank_facts(one.mesh, one.stage, values_of(kind, _whole_memory(one, options)))


def _fit(stages: Sequence[ModelMemory], limit: MemoryLimit) -> Fit:
    """The largest context and batch that fit a rank of every stage."""
    found = []
    for one in stages:
        limit_of_stage = limit
        if one.cached.state_page is not None and limit.paged is None:
            from tfacct.engines.pages import hybrid_pages

            pages = hybrid_pages(one.model, one.cached, limit.usable - one.weights)
            limit_of_stage = replace(limit, paged=pages.requests)
        found.append(one.fit(limit_of_stage))
    return fitting_every_stage(found)


def _fit_of(whole_model: LoadedModel, options: MemoryOptions) -> Fit:
    """The largest context and batch of a model that fit the limit. Raises TfacctError."""
    assert options.limit is not None
    _, (one,), _ = sharded([whole_model], options.mesh, options.dtype)
    return _fit(_stages(one, whole_model, options), options.limit)


def _pages(one: ModelMemory, free_bytes: int | None) -> dict[str, Any]:
    """Facts of a paged cache; with `free_bytes`, which the weights leave, also how many pages fit."""
    if one.cached.page == 1:
        return {}
    if one.model.architecture.having(Mixer):
        from tfacct.engines.pages import hybrid_page_facts

        return hybrid_page_facts(one.model, one.work, one.cached, free_bytes)
    return one.pages(free_bytes)


# Tables


def _one(model: LoadedModel, facts: dict[str, Any]) -> Table:
    """Weights by part, cache and states."""
    columns = (
        Column("what", "what"),
        Column("elements", "elements", "params"),
        Column("dtype", "dtype", drop=1),
        Column("bytes", "bytes", "bytes"),
        *build.SHARES,
    )
    total, lines = facts["total_bytes"], facts["lines"]
    rows = [build.with_share(line, line["bytes"], total) for line in lines]
    cached = sum(line["elements"] for line in lines if line["kind"] == "cache")

    def sum_of(what: str, key: str, **more: Any) -> Row:
        size = facts[key]
        return {"what": what, "bytes": size, "share": Fraction(size, total), **more}

    totals = [sum_of("weights", "weights_bytes", elements=facts["total_params"])]
    totals += [sum_of(model.cache_name, "kv_cache_bytes", elements=cached)] if model.has_cache else []
    totals += [sum_of("total", "total_bytes")]
    if model.cache_name != "state" and cached:
        of_one = "" if facts["workload"]["batch"] == 1 else ", one request"
        totals += [sum_of(f"next token{of_one}", "kv_bytes_next_token", share=None, **{PLAIN: 1})]
    return columns, build.sections(rows, "kind"), tuple(totals)


def _several(models: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], limit: MemoryLimit | None) -> Table:
    cached = [model for model in models if model.has_cache]
    next_token = Column("kv_bytes_next_token", "next token", "bytes", drop=3)
    cache = Column("kv_cache_bytes", model_notes.cache_name(models), "bytes", drop=2 if limit is not None else 0)
    fitting = (
        Column("largest_context", "max ctx", "count", empty="any"),
        Column("largest_batch", "max batch", "count", empty="any"),
    )
    columns = (
        Column("model", "model"),
        Column("total_params", "params", "params", drop=3),
        Column("weights_bytes", "weights", "bytes", drop=1),
        Column("keys", "context", "count", drop=2),
        *((next_token,) if cached and model_notes.attends(models) else ()),
        *((cache,) if cached else ()),
        Column("total_bytes", "total", "bytes"),
        *(fitting if limit is not None else ()),
    )
    rows = [
        {**fact, **fact.get("fit", {}), "model": build.label(model), "keys": fact["workload"]["keys"]}
        for model, fact in zip(models, facts, strict=True)
    ]
    return columns, (tuple(rows),), ()


def _fit_table(one: ModelMemory, fit: Mapping[str, Any], stored: str, limit: MemoryLimit) -> Table:
    """Weights, cache and free memory of each device. The cache is that of the requests that fit; if none does, that of
    the requests given, with the missing memory."""
    model, batch = one.model, one.work.batch
    count = (fit["fits"] and batch == 1 and fit["largest_batch"]) or batch
    taken = {f"weights, {stored}": one.weights}
    if model.has_cache and not fit["past_positions"]:
        taken[f"{model.cache_name}, {units.requests(count)}"] = one.cache_at(batch=count)
    free, unit = limit.usable - sum(taken.values()), units.binary_unit(limit.usable)
    padded = limit.paged is not None or one.cached.state_page is not None
    taken |= {"free and page padding" if padded else "free": free} if free >= 0 else {}
    rows: list[Row] = [{"what": name, "bytes": size, "bar": Fraction(size)} for name, size in taken.items()]
    rows += [{"what": "missing", "bytes": -free}] if free < 0 else []
    rule = limit.rule_of(units.in_binary_unit(limit.memory, unit))
    rows.append({"what": "usable", "bytes": limit.usable, "bar": "" if limit.usable == limit.memory else rule})
    columns = (
        Column("what", "on each GPU" if one.mesh else "memory"),
        Column("bytes", unit, "bytes", unit=unit),
        Column("bar", "", "bar", drop=4),
    )
    return columns, (tuple(rows),), ()


# Answers


def _answer(about: About) -> str:
    """The total of one model, or the range of several; with a memory limit, what fits."""
    fact, limit = about.alone, about.limit
    if fact and limit is not None:
        return _fitting(about, limit)
    if limit is not None:
        return ranks.fitting_models(limit, about.mesh, [one["fit"]["fits"] for one in about.facts])
    if not fact:
        return build.from_to(about.models, (one["total_bytes"] for one in about.facts), units.binary)
    total, weights, cache = (_between(fact, what) for what in ("total", "weights", "kv_cache"))
    (model,) = about.models
    return f"{total}: {weights} of weights{f' and {cache} of {model.cache_name}' if model.has_cache else ''}."


def _between(fact: Mapping[str, Any], what: str) -> str:
    """Bytes with a unit; both ends of a range if they differ in three digits."""
    most = units.binary(fact[f"{what}_bytes"])
    least = units.binary(fact.get(f"{what}_low_bytes", fact[f"{what}_bytes"]))
    return most if least == most else f"{least} to {most}"


def _fitting(about: About, limit: MemoryLimit) -> str:
    """Whether the only model fits, and how many requests."""
    one, found, where = about.counted[0], about.fit, ranks.fitting_words(limit, about.mesh)
    batch, tokens, most = one.work.batch, units.number_of(one.work.context, "token"), found["largest_batch"]
    if found["past_positions"]:
        return f"Cannot run: {found['past_positions']}."
    if not found["fits"]:
        fewer = ""
        if batch > 1 and most:
            fewer = " 1 request fits." if most == 1 else f" {most:,} requests fit."
        instead = _instead(one.whole_model, about.options, limit, found["largest_context"] if batch == 1 else None)
        return f"Does not fit {where}: {_missing(about, limit)}.{fewer}{instead}"
    if not one.model.has_cache:
        return f"Fits {where}: the weights need {units.binary(one.weights)}; there is no cache."
    if most is None:
        return f"Fits {where}: any number of requests of {tokens}."
    group = ranks.own_batch(about.mesh)
    if batch > 1:
        return f"Fits {where}: {units.requests(batch)} of {tokens} at once{group}; up to {most:,} fit."
    return f"Fits {where}: {units.requests(most)} of {tokens}{' at once' if most > 1 else ''}{group}."


def _nothing_fits(fit: Mapping[str, Any]) -> bool:
    """True if the weights leave no memory for one token of the batch or one sequence of the context."""
    return all(fit[key] is None for key in ("context_slack_bytes", "batch_slack_bytes", "past_positions"))


def _missing(about: About, limit: MemoryLimit) -> str:
    """Why the only model does not fit, as a clause."""
    one, free = about.counted[0], limit.usable - about.counted[0].weights
    tokens, per_gpu = units.number_of(one.work.context, "token"), " per GPU" if about.mesh else ""
    if free < 0:
        return f"the weights alone need {units.needed_and_usable(one.weights, limit.usable, per_gpu)}"
    if one.cache <= free:
        most = units.requests(about.fit["largest_batch"])
        return f"the pages of {limit.engine or 'vLLM'} hold {most} of {tokens}"
    needed = units.needed_and_usable(one.weights + one.cache, limit.usable, per_gpu)
    return f"weights and {units.requests(one.work.batch)} of {tokens} need {needed}"


def _instead(model: LoadedModel, options: MemoryOptions, limit: MemoryLimit, context: int | None) -> str:
    """A shorter context, more devices of the same kind, and a narrower cache or else narrower weights, that fit. Empty
    if none does, and for the pool of an engine, which is another on other devices."""
    from tfacct.parallel.mesh import Mesh, mesh_on
    from tfacct.parallel.search import label
    from tfacct.parallel.shard_model import as_served
    from tfacct.timing.placement import head_divisors

    def fits(other: MemoryOptions) -> bool:
        try:
            return bool(_fit_of(as_served(model), other)["fits"])
        except TfacctError:
            return False

    if limit.engine:
        return ""
    ways = [f"with {option('ctx', context)}"] if context else []
    if limit.device is not None and options.mesh == mesh_on(limit, None):
        counts = [n for n in head_divisors(model) if limit.device.links.known(n)]
        inside = max((n for n in counts if n <= limit.device.links.node), default=1)
        layouts = [Mesh(tp=n) for n in counts if n > limit.count]
        layouts += [Mesh(tp=inside, pp=n) for n in range(2, MOST_STAGES + 1)]
        more = ((one, options._replace(limit=replace(limit, count=one.ranks), mesh=one)) for one in layouts)
        mesh = next((one for one, other in more if fits(other)), None)
        ways += [] if mesh is None else [f"on {mesh.ranks:,} × {limit.device.id} ({label(mesh)})"]
    narrower = {option("kv_dtype", "fp8"): options._replace(cached=width("fp8", options.cached.page))}
    narrower |= {option("dtype", name): options._replace(dtype=name) for name in ("fp8", "int4")}
    ways += [f"with {name}" for name, other in narrower.items() if fits(other)][:1]
    return f" It fits {joined(ways, 'or')}." if ways else ""


# Notes


class About(NamedTuple):
    """Models, or ranks of stages, that notes describe, and their facts."""

    counted: Sequence[ModelMemory]
    facts: Sequence[dict[str, Any]]
    options: MemoryOptions

    def of(self, at: slice) -> About:
        """The same for some of the models."""
        return self._replace(counted=self.counted[at], facts=self.facts[at])

    @property
    def fit(self) -> dict[str, Any]:
        """What fits of the only model; empty without a limit."""
        return self.alone.get("fit", {}) if self.limit else {}

    @property
    def models(self) -> list[LoadedModel]:
        return [one.model for one in self.counted]

    @property
    def whole_models(self) -> list[LoadedModel]:
        return [one.whole_model for one in self.counted]

    @property
    def caches(self) -> list[Width]:
        """Format of the cache of each model."""
        return [one.cached for one in self.counted]

    @property
    def limit(self) -> MemoryLimit | None:
        return self.options.limit

    @property
    def mesh(self) -> Mesh | None:
        return self.options.mesh

    @property
    def alone(self) -> dict[str, Any]:
        """The facts of the only model; empty for several."""
        return self.facts[0] if len(self.facts) == 1 else {}


def _fits(about: About) -> bool:
    """True if the only model fits the memory limit, or if several are listed with one."""
    return about.limit is not None and (not about.alone or about.fit["fits"])


def _per_request(about: About) -> str:
    """Cache of one request, in all and on each rank that shares it, and how many requests fit with an fp8 cache."""
    one, fit, mesh = about.counted[0], about.fit, about.mesh
    if not fit or not one.model.has_cache or fit["past_positions"]:
        return ""
    whole_model = _whole_memory(one, about.options)
    size, each = whole_model.cache_at(batch=1), whole_model.first_token
    what = f"cache in {about.options.cached.name}" if model_notes.attends(about.models) else "state"
    if each * one.work.context == size:
        what += f" ({units.binary(each)} per token)"
    if mesh is not None and mesh.ep <= mesh.tp:
        most = "at most " if mesh.pp > 1 else ""
        what += f", {most}{units.binary(one.cache_at(batch=1))} on each GPU"
    return f"One request needs {units.binary(size)} of {what}.{_with_fp8_cache(about)}"


def _with_fp8_cache(about: About) -> str:
    """How many requests fit with an fp8 cache, if they are more."""
    options, most = about.options, about.fit["largest_batch"]
    if options.cached.name not in WIDE or not most:
        return ""
    cached = width("fp8", options.cached.page)
    found = _fit_of(about.whole_models[0], options._replace(cached=cached))["largest_batch"]
    return f" With {option('kv_dtype', 'fp8')}: {units.requests(found)}." if found and found > most else ""


def _engine(about: About) -> str:
    """That an engine has buffers of its own, if the weights fit, and not into the pool of an engine; and what vLLM's
    leave room for, if it is less."""
    limit, fit, options, mesh = about.limit, about.fit, about.options, about.mesh
    if limit is None or limit.engine or not limit.reserve or not about.counted[0].model.has_cache:
        return ""
    if fit and (fit["past_positions"] or _nothing_fits(fit)):
        return ""
    if not fit or (mesh is not None and (mesh.tp, mesh.ranks) != (limit.count, limit.count)):
        return model_notes.ENGINE_BUFFERS
    from tfacct.engines.limit import usual_pool

    (model,) = about.whole_models
    pool = usual_pool(limit, model, options.dtype, options.cached.name)
    if pool is None and not limit.options(training=False):  # vLLM does not run the model there
        return f"{model_notes.BUFFERS}."
    less = model_notes.less_in_vllm(pool, lambda pool: _fit_of(model, options._replace(limit=pool)), fit)
    return less or model_notes.ENGINE_BUFFERS


def _longest_request(about: About) -> str:
    """The longest context that fits; empty if nothing limits it."""
    one, context = about.counted[0], about.fit.get("largest_context")
    if not context or not one.model.has_cache:
        return ""
    who = "A single request" if one.work.batch == 1 else f"Each of {one.work.batch:,} requests"
    past = f"; the model was trained for {one.model.context:,}" if context > one.model.context else ""
    return f"{who} can have {context:,} tokens{past}."


def _vllm(about: About) -> str:
    """Whether vLLM would start with these pages."""
    found, limit, context = about.alone.get("pages"), about.limit, about.counted[0].work.context
    if not found or limit is None:
        return ""
    less = "" if limit.engine else " Not included: vLLM's profiling run."
    if not found["starts"]:
        longest = f"{found['largest_max_model_len']:,} tokens"
        return f"vLLM would not start with requests of {context:,} tokens; the longest that starts has {longest}.{less}"
    pages = f"{found['count']:,} pages, which hold {found['tokens']:,} tokens"
    return f"vLLM would start with {pages}: {found['concurrency']:.2f} requests of {context:,}.{less}"


def _ranks(about: About) -> list[str]:
    """The size of the only model, and what a rank has."""
    if about.mesh is None:
        return []
    sentences = ranks.notes(about.whole_models, about.counted[0].stage, about.mesh, "memory")
    if not about.alone:
        return sentences
    size, batch = units.binary(about.alone["whole"]["total_bytes"]), about.counted[0].work.batch
    return [f"The whole model at batch {batch:,}: {size}.", *sentences]


PAGES = NoteRow(
    "pages",
    2,
    lambda about: units.between(fact["kv_block"] for fact in about.facts if "kv_block" in fact),
    "Cache pages have {} tokens; the last page of a sequence counts in full.",
)
STATE_NOTE = NoteRow("state", 2, lambda about: model_notes.state_notes(about.models, about.caches))
SHRINKING = NoteRow(
    "shrinking",
    3,
    lambda about: about.alone.get("kv_bytes_next_token", 0) < 0,
    "The next token completes a compressed key, which is smaller than the tokens it replaces, so the cache shrinks.",
)
NOTES = (
    NoteRow("vllm", 1, _vllm),
    NoteRow("engine", 1, _engine),
    NoteRow("request", 1, _per_request),
    NoteRow("files", 1, lambda about: model_notes.files_notes(about.whole_models, about.options.dtype)),
    NoteRow("unreserved", 1, lambda about: _fits(about) and about.limit is not None and about.limit.unreserved),
    NoteRow(
        "scales",
        1,
        lambda about: bool(about.fit) and about.counted[0].storage.name == "int4" and option("dtype", "awq"),
        "int4 has no scales; {} has them.",
    ),
    NoteRow("not_included", 1, lambda about: model_notes.not_included_notes(about.models, about.facts)),
    NoteRow("longest_request", 1, _longest_request),
    NoteRow("projector", 2, lambda about: model_notes.projector_notes(about.models)),
    NoteRow("pool", 2, lambda about: about.limit is not None and about.limit.pool_words),
    NoteRow("storage", 2, lambda about: model_notes.storage_notes(about.models, about.options.dtype)),
    NoteRow("cache_format", 2, lambda about: model_notes.cache_notes(about.models, about.options.cached.name)),
    STATE_NOTE,
    SHRINKING,
    NoteRow("source", 2, lambda about: model_notes.source_notes(about.models)),
    NoteRow(
        "largest",
        2,
        lambda about: about.limit is not None and not about.alone,
        "max ctx, max batch: the largest that fit, also beyond the trained context, but not beyond a learned position"
        " embedding.",
    ),
    PAGES,
    NoteRow("usable", 3, lambda about: about.limit is not None and about.limit.notes),
    NoteRow("ranks", 2, _ranks),
)


# The KV cache by context


class KvLine(TypedDict):
    """Bytes of the cache at one context."""

    keys: int
    mha: int | None
    as_built: int
    mqa: int | None


class WholeCache(Object):
    """The cache of the whole model, next to that of one rank."""

    kv_bytes_per_token: int = MemoryReport.kv_bytes_per_token
    kv_bytes_next_token: int = MemoryReport.kv_bytes_next_token
    kv_cache_bytes: int = MemoryReport.kv_cache_bytes


class KvReport(build.ExplainedReport, build.RankReport):
    """Bytes of the KV cache by context."""

    _line = KvLine

    workload: build.WorkloadFacts = of_memory(lambda one: selection.workload_facts(one.work, dtype=one.cached.name))
    query_heads: int | None
    query_heads_by_layer: list[int] | None
    kv_heads: int | None
    kv_heads_by_layer: list[int] | None
    kv_block: int | None
    kv_page_bytes: int | None
    kv_bytes_per_token: int = WholeCache.kv_bytes_per_token
    kv_bytes_next_token: int = WholeCache.kv_bytes_next_token
    kv_cache_bytes: int = WholeCache.kv_cache_bytes
    kv_cache_bytes_without_windows: int = MemoryReport.kv_cache_bytes_without_windows
    cross_kv_cache_bytes: int = of_memory(lambda one: one.cache - one.cache_at(source=0))
    whole: WholeCache | None


def kv(
    models: Sequence[LoadedModel],
    request: Request,
    *,
    dtype: str | None = None,
    contexts: Sequence[int] | None = None,
    kv_block: int | None = None,
    mesh: Mesh | None = None,
) -> KvReport:
    """Bytes of the KV cache per token and by context, next to MHA and MQA. `contexts`: of the rows; totals are of
    the last one. `kv_block`: tokens of a page of the cache. `mesh`: the bytes are those of the fullest rank. Raises
    UsageError."""
    models, skipped = selection.keeping(models)
    if contexts is not None:
        contexts = sorted(set(contexts))
        request = replace(request, ctx=contexts[-1])
    options = MemoryOptions(request, None, _cache_format(None, dtype, kv_block), None, mesh)
    models, unpaged = _paged(models, options.cached)
    _check_mesh(models, options)
    whole_models, models, unfit = sharded(models, mesh, weights=False)
    stages = [_stages(*both, options) for both in zip(models, whole_models, strict=True)]
    counted = [max(each, key=lambda one: one.cache) for each in stages]
    about = About(counted, [_cache_facts(one, options, contexts) for one in counted], options)
    models, facts, alone, by_context = about.models, about.facts, len(counted) == 1, contexts is not None
    who = f"{build.label(models[0])}: " if alone else ""
    where = f"batch {request.batch:,}" if alone else build.workload_words(models, request)
    return build.report(
        KvReport,
        models,
        _one_cache(counted[0], facts[0]) if alone else _several_caches(models, facts, by_context),
        facts,
        title=f"{who}{model_notes.cache_words(models, about.caches)}{ranks.one_of_ranks(mesh, 'on')}, {where}",
        answer=_cache_answer(counted, facts),
        notes=lambda at: notes(CACHE_NOTES, about.of(at)),
        convention=f"the {model_notes.cache_name(models)} only; no weights, activations or engine buffers",
        requests=[request],
        skipped=[*skipped, *unpaged, *unfit],
        headline="kv_cache_bytes",
    )


def _cache_answer(counted: Sequence[ModelMemory], facts: Sequence[dict[str, Any]]) -> str:
    """The cache of one model and what more tokens add, or the range of several."""
    one, fact = counted[0], facts[0]
    if len(facts) > 1:
        return build.from_to([one.model for one in counted], (fact["kv_cache_bytes"] for fact in facts), units.binary)
    work, size = one.work, units.binary(fact["kv_cache_bytes"])
    where, batch = f"context {work.context:,}", f", batch {work.batch:,}" if work.batch > 1 else ""
    if not model_notes.attends([one.model]):  # another stage may hold more
        return f"{size} at {where if 'pp' in fact else 'every context'}{batch}."
    source = f", source {work.source:,}" if fact["cross_kv_cache_bytes"] else ""
    mha = fact["lines"][-1]["mha"]
    times = Fraction(mha, fact["kv_cache_bytes"]) if mha else Fraction(1)
    whole = str(times) if times.denominator == 1 else units.three(times)
    less = f", {whole} × less than with MHA" if times > 1 else ""
    return f"{size} at {where}{source}{batch}{less}; {_more(one)}."


def _more(one: ModelMemory) -> str:
    """What further tokens add to the cache."""
    work, ledger, cached, adds = one.work, one.model.ledger, one.cached, one.next_token
    period, of = lcm(ledger.period, cached.page), " of a sequence" if work.batch > 1 else ""
    if period > 1:  # one token may add more than the others, or take less
        ends = (Workload(context, 1).axes() for context in (work.context, work.context + period))
        now, then = (cache_bytes(ledger, end, cached) for end in ends)
        return f"the next {period:,} tokens{of} add {units.binary(then - now)} together"
    return f"the next token{of} adds {units.binary(adds) if adds else 'nothing'}"


def _cache_facts(one: ModelMemory, options: MemoryOptions, contexts: Sequence[int] | None) -> dict[str, Any]:
    model, lines = one.model, []
    longest = one.work.context
    powers = (1024 * 4**power for power in range(LARGEST.bit_length()))
    for context in contexts or [*(context for context in powers if context < longest), longest]:
        at = one.rank_axes(context=context)
        line: dict[str, Any] = {"keys": context}
        line |= {name: side and cache_bytes(side, at, one.cached) for name, side in one.variants.items()}
        lines.append(line)
    return values_of(
        KvReport,
        one,
        **build.by_layer("query_heads", build.of_attention(model, "heads")),
        **build.by_layer("kv_heads", None if is_latent(model) else build.of_attention(model, "kv_heads")),
        **_pages(one, None),
        **_rank_facts(one, WholeCache, options),
        lines=lines,
    )


def _one_cache(one: ModelMemory, fact: dict[str, Any]) -> Table:
    model, lines = one.model, fact["lines"]
    if not model_notes.attends([model]):
        return (
            (Column("keys", "context", "count"), Column("as_built", "state", "bytes")),
            (tuple(lines),),
            (),
        )
    queries, keys = (heads_words(fact[f"{key}_by_layer"] or fact[key] or []) for key in ("query_heads", "kv_heads"))
    if is_latent(model):  # or, where layers differ, both
        shared = dict.fromkeys(part.kv_heads for _, part in model.architecture.having(Attention))
        keys = f"{heads_words(list(shared))} or latent" if shared else "latent"
    sides, windows = one.variants, fact["kv_cache_bytes_without_windows"] != fact["kv_cache_bytes"]
    following: dict[str, Any] = {
        name: side and next_token_bytes(side, one.rank_axes(), one.cached) for name, side in sides.items()
    }
    mqa = Column("mqa", f"MQA ({heads_words(1)})", "bytes", drop=1 if windows else 0)
    columns = (
        Column("keys", "context", "count"),
        *((Column("mha", f"MHA ({queries})", "bytes"),) if sides["mha"] else ()),
        Column("as_built", f"as built ({keys})" if sides["mha"] else "as built", "bytes"),
        *((Column("unwindowed", "without windows", "bytes"),) if windows else ()),
        *((mqa,) if sides["mqa"] else ()),
    )
    if windows:
        lines = [{**line, "unwindowed": one.without_windows(context=line["keys"])} for line in lines]
        now, then = (one.without_windows(context=one.work.context + more) for more in (0, 1))
        following["unwindowed"] = then - now
    return columns, (tuple(lines),), ({**following, "keys": "next token"},)


def heads_words(count: int | list[int]) -> str:
    counts = count if isinstance(count, list) else [count]
    return f"{' or '.join(map(str, counts))} KV head{'' if counts == [1] else 's'}"


def _several_caches(models: Sequence[LoadedModel], facts: Sequence[dict[str, Any]], by_context: bool) -> Table:
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
    )
    sections = []
    for model, fact in zip(models, facts, strict=True):
        cells = {"model": build.label(model), "heads": build.each_of(fact, "query_heads")}
        cells |= {"kv_heads": "latent" if is_latent(model) else build.each_of(fact, "kv_heads")}
        cells |= {"kv_bytes_next_token": fact["kv_bytes_next_token"]}
        sections.append(tuple({**line, **cells} for line in fact["lines"][0 if by_context else -1 :]))
    return columns, tuple(sections) if by_context else (tuple(row for rows in sections for row in rows),), ()


def _of_ranks(about: About) -> list[str]:
    """Heads, layers and tokens of a rank."""
    mesh, whole_models = about.mesh, about.whole_models
    if mesh is None:
        return []
    latent = mesh.tp > 1 and any(map(is_latent, whole_models))
    return [
        *ranks.head_notes(whole_models, mesh),
        *(["Every rank caches the whole latent; only the heads that read it are sharded."] if latent else []),
        *ranks.stage_notes(whole_models, about.counted[0].stage, mesh),
        *ranks.axis_notes(mesh, "kv"),
    ]


CACHE_NOTES = (
    PAGES,
    NoteRow(
        "variants",
        3,
        lambda about: any(one.variants["mqa"] for one in about.counted),
        "MHA: one KV head per query head. MQA: one KV head for all query heads.",
    ),
    NoteRow("cache_format", 2, lambda about: model_notes.cache_notes(about.models, about.options.cached.name)),
    STATE_NOTE,
    NoteRow("windows", 2, lambda about: about.alone and model_notes.window_notes(about.whole_models[0], cached=True)),
    SHRINKING,
    NoteRow("ranks", 1, _of_ranks),
)


# Devices that hold a model


of_device: Keys[[Needed, str, int | None]] = Keys()


class FittingDevice(Object):
    """The fewest devices that fit a model, or the number in `on`, and bytes on each; null if they do not fit."""

    device: str = of_device(lambda one, *_: one.device.id)
    memory_bytes: int = of_device(lambda one, *_: one.device.memory)
    memory_from: str = of_device(lambda one, *_: one.device.memory_from)
    usable_bytes: int | None = of_device(
        lambda one, engine, _: None if engine and not one.memory.engine else one.memory.usable
    )
    count: int | None = of_device(lambda one, *_: one.share and one.share.devices)
    weights_bytes_each: int | None = of_device(lambda one, *_: one.share and one.share.weights)
    kv_cache_bytes_each: int | None = of_device(lambda one, *_: one.share and one.share.cache)
    largest_context: int | None = of_device(lambda *given: given[2])
    reason: str | None = of_device(lambda one, *_: one.unsupported or _reason(one))


def _reason(one: Needed) -> str | None:
    """Why no number of a device holds the model; None if one does."""
    if one.share is not None:
        return None
    if one.unlinked is not None:
        return f"needs {one.unlinked:,}, no link"
    if one.unsupported:
        return "not supported"
    most = one.asked or one.most
    return "cuts quantized blocks" if one.cuts else "too small" if most == 1 else f"too small at {most}"


class FitReport(build.StoredReport):
    """Number of devices of each kind that hold the weights and the cache."""

    _line = FittingDevice

    use: float | None
    reserve_bytes: int | None
    engine: str | None


class Fitting(NamedTuple):
    """The devices that fit a model. `longest`: contexts that fit them; `placed`: the model on one device; `alone`: its
    weights cannot be sharded. `engine`: the one that decides how much memory is usable, and its version."""

    model: LoadedModel
    placed: Placement
    devices: Sequence[Needed]
    longest: Sequence[int | None]
    alone: bool
    engine: str = ""


def fit(
    model: LoadedModel,
    request: Request,
    found: Sequence[tuple[int | None, devices.Device]],
    how: Deployment,
    engine: str = "",
    limit: Callable[[MemoryLimit], MemoryLimit | None] | None = None,
) -> FitReport:
    """Number of devices of each kind that hold the weights and the cache, or whether the number given with it does.
    `limit`: the memory that an `engine`, which has this name, leaves. Raises TfacctError."""
    from tfacct.timing.placement import device_counts, on_one_device

    work = selection.runnable(model, request)
    total, needed = device_counts(model, work, found, how, limit)
    dtype, alone = how.dtype, replace(how, ep=1)
    placed, stored = alone.place(model, 1, found[0][1]), selection.format_name(model, dtype)
    options = MemoryOptions(replace(request, batch=1), dtype, width(dtypes(dtype, how.kv_dtype)[1]))
    longest = [None if how.ep > 1 else _longest_on(model, one, options, engine) for one in needed]
    about = Fitting(model, placed, needed, longest, on_one_device(model, dtype), engine)
    lines = [values_of(FittingDevice, one, engine, most) for one, most in zip(needed, longest, strict=True)]
    rows: list[Row] = [
        {
            **line,
            "count": one.asked or line["count"],
            "each_bytes": one.share and one.share.total,
            "reason": _reason(one) or "",
        }
        for line, one in zip(lines, needed, strict=True)
    ]
    columns = (
        Column("device", "device"),
        Column("count", "number", "count", empty="none"),
        Column("usable_bytes", "usable each", "bytes", empty="–"),
        Column("each_bytes", "needed each", "bytes", drop=1, empty="–"),
        *((Column("largest_context", "longest request", "count", drop=1, empty="–"),) if any(longest) else ()),
        *((Column("reason", "reason"),) if any(map(_reason, needed)) else ()),
    )
    rule = needed[0].memory
    use = rule.use if all(one.memory.use == rule.use for one in needed) else None
    facts = {
        "workload": selection.workload_facts(work, dtype=placed.dtype),
        **selection.format_facts(model, placed.requested_dtype),
        "kv_dtype": placed.host.cache.name,
        **({"engine": engine} if engine else {"use": use, "reserve_bytes": rule.reserve}),
        "weights_bytes": total.weights,
        "kv_cache_bytes": total.cache,
        "total_bytes": total.total,
        **selection.range_facts(model, placed.host.weights, total.weights, total.cache),
        "lines": lines,
    }
    weights, cache = units.binary(total.weights), units.binary(total.cache)
    on = f" in {engine}" if engine else ""
    return build.report(
        FitReport,
        [model],
        (columns, (tuple(rows),), ()),
        [facts],
        title=f"{build.label(model)}: {weights} of weights and {cache} of cache, {stored}{on},"
        f" {build.workload_words([model], request)}",
        convention="weights and cache as stored; each device has its shard, plus everything that is not sharded",
        answer=_fit_answer(about),
        notes=lambda _: notes(FIT_NOTES, about),
        requests=[request],
    )


def _longest_on(model: LoadedModel, needed: Needed, options: MemoryOptions, engine: str) -> int | None:
    """Tokens of the longest request on the devices in use; None if none are, or if nothing limits them."""
    from tfacct.parallel.shard_model import on_devices

    count = needed.asked or (needed.share and needed.share.devices)
    if not count or not needed.device.links.known(count) or (engine and not needed.memory.engine):
        return None
    limit = replace(needed.memory, count=count)
    (model,), mesh = on_devices([model], limit, None)
    longest: int | None = _fit_of(model, options._replace(limit=limit, mesh=mesh))["largest_context"]
    return longest


def _fit_answer(about: Fitting) -> str:
    """The devices that fit, the fewest and smallest first, and those that do not."""
    fitting = sorted((one.share.devices, one.memory.usable, one.device.id) for one in about.devices if one.share)
    fits = [f"{count:,} × {name}" for count, _, name in fitting]
    unfit = [
        f"{one.asked:,} × {one.device.id}" if one.asked else one.device.id for one in about.devices if not one.share
    ]
    where = [f"on {listed(names, 3)}" for names in (fits, unfit) if names]
    return f"It {'fits' if fits else 'does not fit'} {', not '.join(where)}."


def _unsupported(about: Fitting) -> str:
    """Devices that the engine does not serve the model on, and the reason if there is one for all."""
    names = [one.device.id for one in about.devices if one.unsupported]
    reasons = {one.unsupported.removeprefix(f"{about.model.name}: ") for one in about.devices if one.unsupported}
    return f"{listed(names, 4)} ({reasons.pop() if len(reasons) == 1 else 'reasons: --json'})" if names else ""


def _rule(about: Fitting) -> str:
    """The rule for usable memory, and the devices of which less may be used."""
    rule, others = about.devices[0].memory, dict[float, list[str]]()
    for one in about.devices:
        others.setdefault(one.memory.use, []).append(one.device.id)
    less = [f"{use:g} on {listed(names, 4)}" for use, names in others.items() if use != rule.use]
    return f"{rule.rule}{f' ({joined(less)})' if less else ''}"


FIT_NOTES = (
    NoteRow("files", 1, lambda about: model_notes.files_notes([about.model], about.placed.requested_dtype)),
    NoteRow(
        "trained",
        1,
        lambda about: max([one or 0 for one in about.longest]) > about.model.context and about.model.context,
        "The model's own context is {:,} tokens.",
    ),
    NoteRow("unsupported", 1, _unsupported, "Not supported by the engine: {}."),
    NoteRow(
        "whole",
        1,
        lambda about: about.alone and about.placed.dtype,
        "Sharding is not supported for {} weights, so each row is for one device.",
    ),
    NoteRow(
        "rule",
        2,
        lambda about: f"what {about.engine} leaves at start" if about.engine else _rule(about),
        "Usable: {}. Number: as given, or the smallest that divides the query heads and has room for the model.",
    ),
    NoteRow("cache_format", 2, lambda about: model_notes.cache_notes([about.model], about.placed.host.cache.name)),
    NoteRow(
        "gathered",
        2,
        lambda about: ranks.cache_shard_notes(
            about.model, max(one.share.devices if one.share else 1 for one in about.devices)
        ),
    ),
    NoteRow("range", 2, lambda about: model_notes.range_notes([about.model], about.placed.requested_dtype)),
    NoteRow("memory", 3, lambda about: devices.memory_words([one.device for one in about.devices])),
)
