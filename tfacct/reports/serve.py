"""Throughput, latency and cost by number of concurrent requests: estimates, with ranges where the scheduler decides."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from typing import Any, TypedDict

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Request
from tfacct.loading import selection
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, NoteRow, Row, Table, notes
from tfacct.reports import build, ranks
from tfacct.reports.time import (
    CONVENTION,
    OnDevices,
    Validated,
    assumptions,
    error_facts,
    error_note,
    evidence_note,
    files_notes,
    formats_note,
    interval_words,
    link_notes,
    placement_facts,
    range_note,
    validation_facts,
)
from tfacct.timing.disaggregated import Disaggregated, Flow, disaggregated
from tfacct.timing.fewest import Fewest, Goal, Layout, fewest
from tfacct.timing.load import Load, Loaded, Serving, serving
from tfacct.timing.placement import Deployment
from tfacct.timing.speculative import MTP_CELLS, MTP_DRAFTS, MTP_ERROR, MTP_RUNS
from tfacct.timing.validated import FEW, FIRST_TOKEN, MODELS, model_kind


class Within(TypedDict):
    """Requests that get each token within a time, by the upper end of the range of a token and by the lower."""

    seconds: float
    requests_least: int
    requests_most: int


class Drafts(TypedDict):
    """Speculative decoding."""

    draft_tokens: int
    acceptance: float
    tokens_per_step: float
    draft_model: str | None
    draft_weights_bytes: int


class LoraAdapters(TypedDict):
    """LoRA adapters of a served model."""

    lora: str
    adapters_loaded: int
    adapter_parameters: int
    adapters_bytes: int


class ServedRequests(TypedDict):
    """So many concurrent requests. `value_seconds`: latency of one. `token_seconds`: time per output token, a range of
    80% of measured runs; without a known error, from prompts that wait to prompts that interrupt answers."""

    requests: int
    prompts_at_once: int
    token_seconds: list[float] | None
    value_seconds: float
    interval_80_seconds: list[float] | None
    bound_seconds: float
    first_token_seconds_most: float
    tokens_per_second_each: float
    tokens_per_second: float
    cost_per_million: float | None
    cost_per_million_80: list[float] | None


class ServeReport(build.ModelReport):
    """Estimated throughput, latency and cost by number of concurrent requests."""

    _line = ServedRequests

    on: OnDevices
    estimate: bool
    prompt: int
    new_tokens: int
    use: float
    reserve_bytes: int
    price_per_hour: float | None
    largest_requests: int
    within: Within | None
    drafts: Drafts | None
    adapters: LoraAdapters | None
    validation: Validated | None
    assumptions: dict[str, float]


def serve(model: LoadedModel, on: Deployment, load: Load) -> ServeReport:
    """Throughput, latency and cost by number of requests. Raises TfacctError, also if no request fits."""
    load = load.checked()
    memory = on.memory()
    _check_serves(memory)
    about = serving(model, on, load, memory)
    one = about.one
    return build.report(
        ServeReport,
        [model],
        _table(about),
        [_facts(about)],
        title=f"{build.label(model)}: {one.where}, {selection.format_name(model, on.dtype)}, {load.words}",
        convention=CONVENTION,
        answer=_answer(about),
        notes=lambda _: notes(NOTES, about),
        requests=[Request(ctx=load.context)],
    )


def _check_serves(memory: MemoryLimit) -> None:
    """Raises UsageError for a device whose times are those of the reference model."""
    assert memory.device is not None
    if memory.device.calibration is not None:
        raise UsageError(
            f"{memory.device.id} was calibrated with the reference model, which serves no requests",
            "`tfacct time` estimates its passes",
        )


def _table(about: Serving) -> Table:
    rows: list[Row] = [
        {
            "requests": loop.requests,
            **_times(loop),
            "request_seconds": Fraction(loop.served.request),
            "tokens_per_second_each": Fraction(loop.each),
            "tokens_per_second": Fraction(loop.served.rate),
            "cost_per_million": None if loop.cost is None else Fraction(loop.cost),
        }
        for loop in about.loops
    ]
    # 80 columns have room for the rate of one user or the seconds of a request; with a price, only for the seconds.
    each_drop = 2 if about.load.price is None else 4
    columns = (
        Column("requests", "requests", "count"),
        *_time_columns(about.load),
        Column("request_seconds", "≈ request", "seconds", drop=3),
        Column("tokens_per_second_each", "≈ tokens/s each", "rate", drop=each_drop),
        *_rate_columns(about.load),
    )
    return columns, (tuple(rows),), ()


def _times(loop: Loaded) -> Row:
    """The cells of `_time_columns`."""
    return {
        "token_seconds": None if loop.token is None else _range(*loop.token),
        "first_token_seconds": _range(*loop.first_token),
    }


def _time_columns(load: Load) -> Iterator[Column]:
    """Columns of the time per output token, if there is one after the first, and of the time to first token."""
    token, first = ((f"{name}_low", f"{name}_high") for name in ("token_seconds", "first_token_seconds"))
    if load.new > 1:
        yield Column("token_seconds", "≈ per token", "seconds", keys=token)
    yield Column("first_token_seconds", "≈ first token", "seconds", keys=first, drop=1)


def _rate_columns(load: Load) -> Iterator[Column]:
    """Columns of the throughput and, with a price, of the cost."""
    yield Column("tokens_per_second", "≈ tokens/s", "rate")
    if load.price is not None:
        yield Column("cost_per_million", "≈ per million", "rate")


def _range(low: float, high: float) -> tuple[Fraction, Fraction | None]:
    return Fraction(low), None if low == high else Fraction(high)


def _answer(about: Serving) -> str:
    """Requests within the time that was asked for, or the most that are shown, with their throughput; and those that
    fit."""
    requests = about.most.requests
    at_once = " fits at once" if requests == 1 else " fit at once"
    fit = f" ({about.fitting:,} fit)" if requests < about.fitting else at_once
    most = f"{_requests(requests)}{fit}: {_throughput(about.most)}."
    if about.load.within is None:
        return most
    within = f"within {units.seconds(about.load.within)} per token"
    if about.within is None:
        return f"No request is {within}; {most}"
    at_once = "1 fits at once" if about.fitting == 1 else f"{about.fitting:,} fit at once"
    return f"≈ {_requests(about.within.requests)} {within}: {_throughput(about.within)}; {at_once}."


def _throughput(loop: Loaded) -> str:
    """Tokens per second of all requests, and their cost."""
    million = "" if loop.cost is None else f", ≈ {units.three(loop.cost)} per million output tokens"
    return f"≈ {units.three(loop.served.rate)} tokens/s{million}"


def _requests(number: int) -> str:
    return "1 request" if number == 1 else f"{number:,} requests"


def _waiting(about: Serving) -> str:
    if about.target is None or about.target[0] == about.target[1]:
        return ""
    slow, fast = about.target
    within = units.seconds(about.load.within or 0)
    return f"Within {within}: ≈ {_requests(slow)} by the slow end of the range, ≈ {fast:,} by the fast end."


def _drafts(about: Serving) -> str:
    """The new tokens of a step with drafts, and what such estimates were compared with."""
    draft, drafts = about.one.host.draft, about.load.drafts
    if draft is None or drafts is None:
        return ""
    measured = (
        f"On {MTP_RUNS} runs of DeepSeek-V3, TPOT erred {units.percent(MTP_ERROR)} (median): {MTP_DRAFTS} drafts and an"
        f" acceptance fitted to each of {MTP_CELLS} cells were taken, as the runs log neither."
    )
    others = "No run with a draft model was measured."
    return (
        f"A step verifies {drafts.tokens + 1:,} tokens of a request and yields {draft.accepted:.2f} on average."
        f" {measured if drafts.model is None else others}"
    )


def _draft_formats(about: Serving) -> dict[str, Any] | None:
    draft, drafts = about.one.host.draft, about.load.drafts
    if draft is None or drafts is None or drafts.model is None:
        return None
    stored = selection.format_name(drafts.model, None)
    return {"name": draft.name, "weights": stored, "cache": draft.host.cache.name}


def _adapters(about: Serving) -> dict[str, Any] | None:
    adapters, lora = about.one.host.adapters, about.load.lora
    if adapters is None or lora is None:
        return None
    bytes_each = units.binary(adapters.stored(about.one.host))
    return {"words": lora.words, "bytes": bytes_each, "each": " on each device" if about.one.count > 1 else ""}


def _ranges(about: Serving | Fewest) -> str:
    """What the ranges of a token and of a first token mean."""
    first = "First token: from a request alone to one that waits for all other prompts"
    if about.load.new == 1:
        return f"{first}." if about.most.requests > 1 else ""
    if about.most.requests == 1 and about.one.error("token") is None:
        return ""
    schedules = "from prompts that wait for running answers to prompts that interrupt them"
    token = schedules if about.one.error("token") is None else "80% of measured runs, under any scheduler"
    token = "80% of measured runs, and all of your own" if about.one.scattered else token
    return f"Ranges. Per token: {token}. {first}; chunked prefill lies between these two."


ERROR = NoteRow("error", 1, lambda about: error_note(about.one))
PLACED_NOTES = (
    NoteRow("range", 2, lambda about: range_note(about.one)),
    NoteRow("price", 2, lambda about: about.load.price, "Price: {:g} per GPU-hour, as given."),
    NoteRow("files", 2, lambda about: files_notes(about.one)),
    NoteRow("links", 2, lambda about: link_notes(about.one.link)),
    NoteRow("limit", 2, lambda about: about.memory.notes),
    NoteRow("pool", 2, lambda about: about.memory.pool_words),
    NoteRow(
        "engine",
        3,
        lambda about: not about.memory.engine,
        "An engine may leave less memory for the cache: see `tfacct engine`.",
    ),
    NoteRow("gathered", 2, lambda about: ranks.cache_shard_notes(about.one.model, about.one.count)),
    NoteRow("formats", 3, lambda about: formats_note(about.one)),
)
SHARED_NOTES = (
    *PLACED_NOTES,
    NoteRow("ranges", 2, _ranges),
    NoteRow("evidence", 3, lambda about: evidence_note(about.one)),
)
NOTES = (
    ERROR,
    NoteRow("within", 1, _waiting),
    NoteRow("drafts", 1, _drafts),
    NoteRow(
        "adapters",
        1,
        _adapters,
        "{words} in bf16: {bytes}{each}. Requests share adapters if there are fewer adapters than requests.",
    ),
    *SHARED_NOTES,
    NoteRow("draft_formats", 3, _draft_formats, "Draft model {name}: weights {weights}, cache {cache}."),
    NoteRow(
        "fitting", 3, lambda about: _requests(about.fitting), "Exact: weights and the KV cache of {} fit in memory."
    ),
)


def _facts(about: Serving) -> dict[str, Any]:
    """Keys of `ServeReport`."""
    facts = {
        **_shared_facts(about),
        "largest_requests": about.fitting,
        "lines": [_line(loop) for loop in about.loops],
    }
    if (draft := about.one.host.draft) is not None:
        facts["drafts"] = {
            "draft_tokens": draft.tokens,
            "acceptance": draft.acceptance,
            "tokens_per_step": draft.accepted,
            "draft_model": None
            if about.load.drafts is None or about.load.drafts.model is None
            else about.load.drafts.model.name,
            "draft_weights_bytes": draft.stored(),
        }
    if (adapters := about.one.host.adapters) is not None and about.load.lora is not None:
        facts["adapters"] = {
            "lora": about.load.lora.targets,
            "adapters_loaded": adapters.loaded,
            "adapter_parameters": sum(adapters.ledger.parameters().values()),
            "adapters_bytes": adapters.stored(about.one.host),
        }
    if about.target is not None:
        least, most = about.target
        facts["within"] = {"seconds": about.load.within, "requests_least": least, "requests_most": most}
    return facts


def _shared_facts(about: Serving | Fewest | Disaggregated) -> dict[str, Any]:
    """Keys of all reports of serving."""
    return {
        "on": placement_facts(about.one),
        "estimate": True,
        "prompt": about.load.prompt,
        "new_tokens": about.load.new,
        "use": about.memory.use,
        "reserve_bytes": about.memory.reserve,
        "price_per_hour": about.load.price,
        "validation": validation_facts(about.one),
        "assumptions": assumptions(about.one.host.constants),
    }


def _line(loop: Loaded) -> dict[str, Any]:
    """Keys of `ServedRequests`."""
    served = loop.served
    return {
        "requests": loop.requests,
        "prompts_at_once": served.prompts,
        "token_seconds": loop.token,
        "value_seconds": served.request,
        "interval_80_seconds": loop.interval,
        "bound_seconds": served.request_bound,
        "first_token_seconds_most": loop.first_token[1],
        "tokens_per_second_each": loop.each,
        "tokens_per_second": served.rate,
        "cost_per_million": loop.cost,
        "cost_per_million_80": loop.cost_interval,
    }


# The fewest devices that meet a time to first token and a time per output token.


class ServedLayout(TypedDict):
    """A layout that meets the times: `replicas` of `tp` devices. `requests`: of the fullest replica."""

    devices: int
    tp: int
    replicas: int
    requests: int
    token_seconds: list[float] | None
    first_token_seconds: list[float]
    value_seconds: float
    tokens_per_second: float
    cost_per_million: float | None


class FewestReport(build.ModelReport):
    """The fewest devices that serve requests within a time to first token and a time per output token."""

    _name = "serve-ttft"
    _line = ServedLayout

    on: OnDevices
    estimate: bool
    prompt: int
    new_tokens: int
    requests: int
    ttft_seconds: float
    tpot_seconds: float | None
    devices: int
    replicas: int
    use: float
    reserve_bytes: int
    price_per_hour: float | None
    validation: Validated | None
    assumptions: dict[str, float]


def fewest_devices(model: LoadedModel, on: Deployment, load: Load, goal: Goal) -> FewestReport:
    """The layouts that meet a goal, the fewest devices first. Raises TfacctError if there is none."""
    _check_serves(on.memory())
    about = fewest(model, on, load, goal)
    stored = selection.format_name(model, on.dtype)
    return build.report(
        FewestReport,
        [model],
        _layouts_table(about),
        [_fewest_facts(about)],
        title=f"{build.label(model)}: {_requests(goal.requests)} on {about.one.device.name}, {stored}, {load.words}",
        convention=CONVENTION,
        answer=_fewest_answer(about),
        notes=lambda _: notes(FEWEST_NOTES, about),
        requests=[Request(ctx=load.context)],
    )


def _layouts_table(about: Fewest) -> Table:
    rows: list[Row] = [
        {
            "devices": layout.devices,
            "tp": layout.one.count,
            "replicas": layout.replicas,
            "requests": layout.loop.requests,
            **_times(layout.loop),
            "tokens_per_second": Fraction(about.rate(layout)),
            "cost_per_million": None if (cost := about.cost(layout)) is None else Fraction(cost),
        }
        for layout in about.layouts
    ]
    columns = (
        Column("devices", "devices", "count"),
        Column("tp", "tp", "count"),
        Column("replicas", "replicas", "count", drop=0 if any(one.replicas > 1 for one in about.layouts) else 2),
        Column("requests", "requests each", "count", drop=2),
        *_time_columns(about.load),
        *_rate_columns(about.load),
    )
    return columns, (tuple(rows),), ()


def _fewest_answer(about: Fewest) -> str:
    best, rate = about.best, units.three(about.rate(about.best))
    first, token = best.loop.first_token, best.loop.token
    times = f"≈ {units.seconds(first[1])} to the first token"
    ends = " (upper end of its range)"
    if token is not None:
        times += f", ≈ {units.seconds(token[1])} per token"
        ends = " (upper ends of their ranges)"
    if first[0] == first[1]:
        ends = ""
    return f"Needs {best.devices:,} × {best.one.device.name} ({best.words}): {times}{ends}; ≈ {rate} tokens/s."


def _first_token_measured(about: Fewest) -> str:
    """The share of measured runs whose first token came by the upper end of its range; empty without a known error."""
    one, requests = about.one, about.most.requests
    if one.error() is None:
        return ""
    measured = FIRST_TOKEN.get((one.kind, requests <= FEW))
    if measured is None:
        return "First token: its range was compared with no measured run on such devices."
    share = units.percent(Fraction(measured.in_time, measured.runs), 0)
    return (
        f"First token: by the upper end of its range in {share} of {measured.runs:,} measured runs of"
        f" {MODELS[model_kind(one.model.ledger)]} with {'at most' if requests <= FEW else 'more than'} {FEW} requests."
    )


FEWEST_NOTES = (
    ERROR,
    NoteRow("first_token", 1, _first_token_measured),
    NoteRow(
        "waits",
        1,
        lambda about: about.most.requests > 1,
        "First token, upper end: the prompts of all requests of a replica arrive at once.",
    ),
    NoteRow("tried", 2, lambda _: True, "Tried: tensor parallelism inside a node, and replicas of it."),
    *SHARED_NOTES,
)


def _fewest_facts(about: Fewest) -> dict[str, Any]:
    """Keys of `FewestReport`."""
    return {
        **_shared_facts(about),
        "requests": about.goal.requests,
        "ttft_seconds": about.goal.first_token,
        "tpot_seconds": about.goal.token,
        "devices": about.best.devices,
        "replicas": about.best.replicas,
        "lines": [_layout_line(about, layout) for layout in about.layouts],
    }


def _layout_line(about: Fewest, layout: Layout) -> dict[str, Any]:
    """Keys of `ServedLayout`."""
    return {
        "devices": layout.devices,
        "tp": layout.one.count,
        "replicas": layout.replicas,
        "requests": layout.loop.requests,
        "token_seconds": layout.loop.token,
        "first_token_seconds": layout.loop.first_token,
        "value_seconds": layout.loop.served.request,
        "tokens_per_second": about.rate(layout),
        "cost_per_million": about.cost(layout),
    }


# Workers that only prefill, and workers that only decode.


class DisaggregatedRequests(TypedDict):
    """So many requests in flight in both workers. `token_seconds`: a decode step, a range of 80% of measured runs where
    its error is known."""

    requests: int
    decode_batch: int
    token_seconds: list[float]
    value_seconds: float
    prefill_busy: float
    tokens_per_second: float | None
    cost_per_million: float | None


class DisaggregatedReport(build.ModelReport):
    """Time to first token of a worker that only prefills, and time per output token of one that only decodes."""

    _name = "serve-disaggregated"
    _line = DisaggregatedRequests

    on: OnDevices
    prefill_on: OnDevices
    estimate: bool
    prompt: int
    new_tokens: int
    first_token_seconds: list[float]
    largest_requests: int
    use: float
    reserve_bytes: int
    price_per_hour: float | None
    validation: Validated | None
    assumptions: dict[str, float]


def serve_disaggregated(model: LoadedModel, prefill_on: Deployment, on: Deployment, load: Load) -> DisaggregatedReport:
    """Both workers by number of requests. Raises TfacctError."""
    for where in (prefill_on, on):
        _check_serves(where.memory())
    about = disaggregated(model, prefill_on, on, load)
    stored = selection.format_name(model, on.dtype)
    workers = f"prefill on {about.prefill.where}, decode on {about.one.where}"
    return build.report(
        DisaggregatedReport,
        [model],
        _flow_table(about),
        [_flow_facts(about)],
        title=f"{build.label(model)}: {workers}, {stored}, {load.words}",
        convention=CONVENTION,
        answer=_flow_answer(about),
        notes=lambda _: notes(DISAGGREGATED_NOTES, about),
        requests=[Request(ctx=load.context)],
    )


def _flow_table(about: Disaggregated) -> Table:
    first = _range(*_first_token(about))
    rows: list[Row] = [
        {
            "requests": flow.requests,
            "decode_batch": flow.batch,
            "token_seconds": _range(*_flow_token(about, flow)),
            "first_token_seconds": first,
            "prefill_busy": Fraction(flow.busy),
            "tokens_per_second": None if flow.rate is None else Fraction(flow.rate),
            "cost_per_million": None if flow.cost is None else Fraction(flow.cost),
        }
        for flow in about.flows
    ]
    columns = (
        Column("requests", "requests", "count"),
        Column("decode_batch", "decode batch", "count", drop=2),
        *_time_columns(about.load),
        Column("prefill_busy", "≈ prefill busy", "share"),
        *_rate_columns(about.load),
    )
    return columns, (tuple(rows),), ()


def _first_token(about: Disaggregated) -> tuple[float, float]:
    """The range of the time to first token of a prompt alone."""
    return about.prefill.interval(about.first_token) or (about.first_token, about.first_token)


def _flow_token(about: Disaggregated, flow: Flow) -> tuple[float, float]:
    """The range of a decode step."""
    return about.one.interval(flow.token, "decode") or (flow.token, flow.token)


def _flow_answer(about: Disaggregated) -> str:
    most = about.most
    times = f"≈ {units.seconds(about.first_token)} to the first token, ≈ {units.seconds(most.token)} per token"
    if most.rate is None:
        return f"The prefill worker is too slow even for {_requests(most.requests)}; alone: {times}."
    return f"{_requests(most.requests)}: {times}, ≈ {units.three(most.rate)} tokens/s."


def _decode_error(about: Disaggregated) -> str:
    """The measured error of a decode step, or why it is not known."""
    one, error = about.one, about.one.error("decode")
    if error is not None:
        return (
            f"Estimate: median error of a decode step {units.percent(error.median)} on {error.runs:,} disaggregated"
            f" runs of MoE models (cross-validation). {interval_words(error)}"
        )
    models = "MoE" if one.model.ledger.experts else "dense"
    reason = one.unmeasured or f"No disaggregated run of {models} models on such devices was measured"
    return f"Estimate. {reason}, so the error of a decode step is not known."


def _queued(about: Disaggregated) -> dict[str, Any] | None:
    busiest = about.busiest
    if busiest.busy <= 1:
        return None
    return {
        "busy": units.percent(busiest.busy, 0),
        "requests": _requests(busiest.requests),
        "workers": ceil(busiest.busy),
    }


DISAGGREGATED_NOTES = (
    NoteRow("decode_error", 1, _decode_error),
    NoteRow(
        "queued",
        1,
        _queued,
        "{requests} would keep a prefill worker {busy} busy, so prompts queue: {workers:,} such workers keep up.",
    ),
    NoteRow("alone", 1, lambda _: True, "Not included: queues, and sending the KV cache from worker to worker."),
    NoteRow("prefill_links", 2, lambda about: link_notes(about.prefill.link)),
    *PLACED_NOTES,
)


def _flow_facts(about: Disaggregated) -> dict[str, Any]:
    """Keys of `DisaggregatedReport`."""
    error = about.one.error("decode")
    return {
        **_shared_facts(about),
        "prefill_on": placement_facts(about.prefill),
        "first_token_seconds": list(_first_token(about)),
        "largest_requests": about.fitting,
        "lines": [_flow_line(about, flow) for flow in about.flows],
        "validation": None if error is None else error_facts(error, about.one.device.id, about.one.runs_alike),
    }


def _flow_line(about: Disaggregated, flow: Flow) -> dict[str, Any]:
    """Keys of `DisaggregatedRequests`."""
    return {
        "requests": flow.requests,
        "decode_batch": flow.batch,
        "token_seconds": list(_flow_token(about, flow)),
        "value_seconds": flow.request,
        "prefill_busy": flow.busy,
        "tokens_per_second": flow.rate,
        "cost_per_million": flow.cost,
    }
