"""Throughput, latency and cost by number of concurrent requests: estimates, with ranges where the scheduler decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import repeat
from math import ceil
from typing import Any, TypeAlias

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.ledger.storage import dtypes
from tfacct.ledger.workload import Request
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.output.answer import AnswerT
from tfacct.output.keys import Keys, Object, values_of
from tfacct.output.report import Column, NoteRow, Row, notes
from tfacct.reports import build, model_notes, ranks
from tfacct.reports.estimates import (
    CONVENTION,
    FILES,
    HEAD_NORMS,
    LINKS,
    RANGE,
    OnDevices,
    Validated,
    assumptions,
    calibrated_id,
    error_note,
    formats_note,
    interval_words,
    link_notes,
    placement_facts,
    validation_facts,
)
from tfacct.timing.drafts_and_adapters import ServedLora
from tfacct.timing.kernel_time import CONSTANTS
from tfacct.timing.load import (
    Disaggregated,
    Fewest,
    Flow,
    Layout,
    Load,
    Loaded,
    Serving,
    disaggregated,
    fewest,
    requests_in,
    serving,
)
from tfacct.timing.placement import Deployment, Placement
from tfacct.timing.validated import DRAFTED, FEW, FIRST_TOKEN, MODELS, model_kind

Served: TypeAlias = Serving | Fewest | Disaggregated

of_served: Keys[[Served]] = Keys()
of_serving: Keys[[Serving]] = Keys()
of_loop: Keys[[Loaded]] = Keys()
of_more: Keys[[Any]] = Keys()
"""Of a model that is served with what is optional."""


class Within(Object):
    """Requests that meet a time per token: by the upper end of its range, and by the lower."""

    seconds: float = of_more(lambda about: about.load.within)
    requests_least: int = of_more(lambda about: about.target[0])
    requests_most: int = of_more(lambda about: about.target[1])


class Drafts(Object):
    """Speculative decoding."""

    draft_tokens: int = of_more(lambda about: about.load.drafts.tokens)
    acceptance: float = of_more(lambda about: about.load.drafts.acceptance)
    tokens_per_step: float = of_more(lambda about: about.load.drafts.accepted)
    draft_model: str | None = of_more(lambda about: about.load.drafts.model and about.load.drafts.model.name)
    draft_weights_bytes: int = of_more(lambda about: about.one.host.draft.stored())


class LoraAdapters(Object):
    """LoRA adapters of a served model."""

    lora: str = of_more(lambda about: about.load.lora.targets)
    adapters_loaded: int = of_more(lambda about: about.load.lora.loaded)
    adapter_parameters: int = of_more(lambda about: sum(about.one.host.adapters.ledger.parameters().values()))
    adapters_bytes: int = of_more(lambda about: about.one.host.adapters.stored(about.one.host))


class ServedRequests(Object):
    """One number of concurrent requests. `value_seconds`: latency of a request. `token_seconds`: time per output token,
    a range of 80% of measured runs; without a known error, from prompts that wait to prompts that interrupt answers."""

    requests: int = of_loop(lambda loop: loop.requests)
    prompts_at_once: int = of_loop(lambda loop: loop.served.loop.prompts)
    token_seconds: list[float] | None = of_loop(lambda loop: loop.token)
    value_seconds: float = of_loop(lambda loop: loop.served.request)
    interval_80_seconds: list[float] | None = of_loop(lambda loop: loop.interval)
    bound_seconds: float = of_loop(lambda loop: loop.served.request_bound)
    first_token_seconds: list[float] = of_loop(lambda loop: loop.first_token)
    tokens_per_second_each: float = of_loop(lambda loop: loop.each)
    tokens_per_second: float = of_loop(lambda loop: loop.served.rate)
    requests_per_second: float = of_loop(lambda loop: loop.requests_per_second)
    cost_per_million: float | None = of_loop(lambda loop: loop.cost)
    cost_per_million_80: list[float] | None = of_loop(lambda loop: loop.cost_interval)


class ServedReport(build.ModelReport):
    """Keys of every report of serving."""

    on: OnDevices = of_served(lambda about: placement_facts(about.one))
    estimate: bool = of_served(lambda _: True)
    prompt: int = of_served(lambda about: about.load.prompt)
    new_tokens: int = of_served(lambda about: about.load.new)
    use: float = of_served(lambda about: about.memory.use)
    reserve_bytes: int = of_served(lambda about: about.memory.reserve)
    price_per_hour: float | None = of_served(lambda about: about.load.price)
    validation: Validated | None = of_served(lambda about: validation_facts(about.one))
    assumptions: dict[str, float] = of_served(lambda about: assumptions(about.one.host.constants))


class ServeReport(ServedReport):
    """Estimated throughput, latency and cost by number of concurrent requests."""

    _line = ServedRequests

    largest_requests: int = of_serving(lambda about: about.fitting)
    within: Within | None = of_serving(lambda about: about.target and values_of(Within, about))
    drafts: Drafts | None = of_serving(lambda about: about.load.drafts and values_of(Drafts, about))
    adapters: LoraAdapters | None = of_serving(lambda about: about.load.lora and values_of(LoraAdapters, about))
    lines: list[dict[str, Any]] = of_serving(lambda about: [values_of(ServedRequests, loop) for loop in about.loops])


def serve(model: LoadedModel, on: Deployment, load: Load) -> ServeReport:
    """Throughput, latency and cost by number of requests. Raises TfacctError, also if no request fits."""
    _check_serves(on)
    about = serving(model, on, load, on.memory())
    less = _less_in_vllm(about)
    return _report(
        ServeReport,
        about,
        (Column("requests", "requests", "count"),),
        (Column("request_seconds", "≈ request", "seconds", drop=3),),
        [{"request_seconds": one.served.request} for one in about.loops],
        where=_where(about.one),
        answer=_answer(about),
        note_rows=(*FIRST, NoteRow("less_in_engine", 1, lambda _: less) if less else BUFFERS, *NOTES),
    )


def _where(one: Placement) -> str:
    """The devices, and the layout on several: `2 × H100 SXM5 80GB (tp=2)`."""
    mesh = one.host.mesh
    layout = f" (tp={mesh.tp}{f' ep={mesh.ep}' if mesh.ep > 1 else ''})"
    return f"{one.where}{layout if one.count > 1 else ''}"


def _check_serves(on: Deployment) -> None:
    """Raises UsageError for a device whose times are those of the reference model."""
    if device := calibrated_id(on):
        raise UsageError(
            f"{device} was calibrated with the reference model, which serves no requests",
            "`tfacct time` estimates its passes",
        )


def _report(
    kind: type[AnswerT],
    about: Served,
    first: Sequence[Column],
    middle: Sequence[Column] = (),
    cells: Iterable[Row] = repeat({}),
    *,
    where: str,
    answer: str,
    note_rows: Sequence[NoteRow],
) -> AnswerT:
    """The report of serving `where` the model is. Its columns: the `first`, the time per output token, if there is one
    after the first, the time to first token, those in the `middle`, the throughput, and the cost if it has a price.
    `cells`: those of each row that are not in the JSON."""
    facts = values_of(kind, about)
    rows = tuple({**line, **more} for line, more in zip(facts["lines"], cells, strict=False))
    token, first_token = ((f"{name}_low", f"{name}_high") for name in ("token_seconds", "first_token_seconds"))
    columns = (
        *first,
        *([Column("token_seconds", "≈ per token", "seconds", keys=token)] if about.load.new > 1 else []),
        Column("first_token_seconds", "≈ first token", "seconds", keys=first_token, drop=1),
        *middle,
        Column("tokens_per_second", "≈ tokens/s", "rate"),
        *([] if about.load.price is None else [Column("cost_per_million", "≈ per million", "rate")]),
    )
    one, model, load = about.one, about.one.model, about.load
    stored = selection.format_name(model, one.requested_dtype)
    if one.host.cache.name != dtypes(one.requested_dtype)[1]:
        stored += f", {one.host.cache.name} cache"
    return build.report(
        kind,
        [model],
        (columns, (rows,), ()),
        [facts],
        title=f"{build.label(model)}: {where}, {stored}, prompts of {load.prompt:,}, answers of {load.new:,}",
        convention=CONVENTION,
        answer=answer,
        notes=lambda _: notes(note_rows, about),
        requests=[Request(ctx=about.load.context)],
    )


def _lora_words(lora: ServedLora) -> str:
    return f"{units.number_of(lora.loaded, 'LoRA adapter')} of rank {lora.targets.replace(':', ' on ')}"


def _answer(about: Serving) -> str:
    """Requests within the time that is given, or the most that are shown, with their throughput; and those that fit, by
    an estimate if an engine's pool holds them."""
    most, within, near = about.most, about.within, "≈ " if about.memory.engine else ""
    if most.requests == about.fitting:
        at_once = "fits at once" if about.fitting == 1 else "fit at once"
        shown = f"{near}{units.requests(most.requests)} {at_once}: {_throughput(most)}."
    else:
        shown = f"{units.requests(most.requests)} ({near}{about.fitting:,} fit): {_throughput(most)}."
    if about.load.within is None:
        return shown
    in_time = f"within {units.seconds(about.load.within)} per token"
    if within is None:
        return f"No request is {in_time}; {shown}"
    room = f"Memory has room for {near}{units.requests(about.fitting)}."
    return f"≈ {units.requests(within.requests)} {in_time}: {_throughput(within)}. {room}"


def _throughput(loop: Loaded) -> str:
    """Tokens and requests per second, and their cost, with 80% intervals where an error is known."""
    ends = loop.interval and [loop.served.rate * loop.served.request / end for end in reversed(loop.interval)]
    rate = f"≈ {units.three(loop.served.rate)} output tokens/s{_interval(ends, '80% interval ')}"
    rate += f" or {units.three(loop.requests_per_second)} requests/s"
    if loop.cost is None:
        return rate
    return f"{rate}, cost ≈ {units.three(loop.cost)} per million output tokens{_interval(loop.cost_interval)}"


def _interval(ends: Sequence[float] | None, name: str = "") -> str:
    return f" ({name}{' … '.join(map(units.three, ends))})" if ends else ""


def _drafts(about: Any) -> dict[str, Any] | None:
    """The new tokens of a step with drafts, and what such estimates were compared with."""
    if about.load.drafts is None:
        return None
    measured = (
        f"The {DRAFTED['runs']} measured runs of DeepSeek-V3 log neither drafts nor acceptance. Assuming"
        f" {DRAFTED['drafts']} drafts, and with one acceptance fitted to each of {DRAFTED['cells']} combinations of"
        f" device, engine and format, the median error of TPOT was {units.percent(DRAFTED['median'])}."
    )
    compared = "" if about.load.drafts.model else f" {measured}"
    return {"draft": about.load.drafts, "verified": about.load.drafts.tokens + 1, "compared": compared}


def _adapters(about: Any) -> dict[str, Any] | None:
    if about.load.lora is None:
        return None
    stored = units.binary(about.one.host.adapters.stored(about.one.host))
    each = " on each device" if about.one.count > 1 else ""
    return {"lora": _lora_words(about.load.lora), "bytes": f"{stored}{each}"}


def _unfit(about: Serving) -> dict[str, Any] | None:
    """Requests that do not fit, and those that do."""
    unfit = [f"{requests:,}" for requests in about.load.requests or () if requests > about.fitting]
    return {"unfit": " or ".join(unfit), "fitting": about.fitting} if unfit else None


def _less_in_vllm(about: Serving) -> str:
    """The requests that vLLM's own buffers leave room for, if they are fewer."""
    from tfacct.engines.limit import usual_pool

    memory, one, load = about.memory, about.one, about.load
    if memory.engine or one.host.mesh.ep > 1:
        return ""
    pool = usual_pool(memory, one.model, one.requested_dtype, one.host.cache.name)
    counted = {"largest_batch": about.fitting}
    return model_notes.less_in_vllm(pool, lambda pool: {"largest_batch": requests_in(one, load, pool)}, counted)


def _ranges(about: Serving | Fewest) -> str:
    """What the ranges of a token and of a first token mean."""
    one, outside = about.one, f"≈ {units.seconds(CONSTANTS.request)} outside the model"
    ends = "from one prompt on an idle server to the last prompt if all arrive at once"
    widened = "" if one.error() is None else ", with the 80% interval of each"
    first = f"First token: {ends}{widened}; includes {outside}."
    if about.load.new == 1:
        return first
    token = "the low end if prompts wait for running answers, the high end if they interrupt them"
    if one.error("token") is not None:
        token = "the 80% interval; includes waits for other prefills"
    return f"Time per token: {token}. {first}"


def _errors(about: Serving | Fewest) -> str:
    """The measured errors of a request's time and of the time per token, or why they are not known."""
    note, token = error_note(about.one), about.one.error("token")
    if about.load.new == 1 or about.one.scattered or token in (None, about.one.error()):
        return note
    return f"{note} The 80% interval of the time per token is {token.low:.2f} to {token.high:.2f} × the estimate."


ERROR = NoteRow("error", 1, _errors)
BUFFERS = NoteRow("engine", 3, lambda about: not about.memory.engine, model_notes.ENGINE_BUFFERS)
PLACED_NOTES = (
    HEAD_NORMS,
    RANGE,
    FILES,
    LINKS,
    NoteRow("limit", 2, lambda about: about.memory.notes),
    NoteRow("pool", 2, lambda about: about.memory.pool_words),
    NoteRow("gathered", 2, lambda about: ranks.cache_shard_notes(about.one.model, about.one.count)),
    NoteRow("formats", 3, lambda about: formats_note(about.one)),
)
SHARED_NOTES = (*PLACED_NOTES, NoteRow("ranges", 2, _ranges))
FIRST = (
    NoteRow("unfit", 1, _unfit, "{unfit} requests do not fit: at most {fitting:,} do."),
    ERROR,
)
NOTES = (
    NoteRow(
        "most_requests",
        1,
        lambda about: about.fitting > (about.memory.most_requests or about.fitting) and about.memory,
        "{0.engine} runs at most {0.most_requests:,} requests at once unless --max-num-seqs is larger: others wait.",
    ),
    NoteRow(
        "drafts",
        1,
        _drafts,
        "A step verifies {verified:,} tokens of a request and yields {draft.accepted:.2f} on average.{compared}",
    ),
    NoteRow(
        "adapters",
        1,
        _adapters,
        "{lora} in bf16: {bytes}. Requests share adapters if there are fewer adapters than requests.",
    ),
    *SHARED_NOTES,
)


# The fewest devices that meet a time to first token and a time per output token.


of_layout: Keys[[Fewest, Layout]] = Keys()
of_fewest: Keys[[Fewest]] = Keys()


class ServedLayout(Object):
    """A layout that meets the times: `replicas` of `tp` devices. `requests`: of the fullest replica."""

    devices: int = of_layout(lambda _, layout: layout.devices)
    tp: int = of_layout(lambda _, layout: layout.one.count)
    replicas: int = of_layout(lambda _, layout: layout.replicas)
    requests: int = of_layout(lambda _, layout: layout.loop.requests)
    token_seconds: list[float] | None = of_layout(lambda _, layout: layout.loop.token)
    first_token_seconds: list[float] = of_layout(lambda _, layout: layout.loop.first_token)
    value_seconds: float = of_layout(lambda _, layout: layout.loop.served.request)
    tokens_per_second: float = of_layout(lambda about, layout: about.requests * layout.loop.each)
    cost_per_million: float | None = of_layout(
        lambda about, layout: about.load.cost(layout.devices, about.requests * layout.loop.each)
    )


class FewestReport(ServedReport):
    """The fewest devices that serve requests within a time to first token and a time per output token.

    `devices`: if all prompts arrive at once. `spread_out`: if no prompt waits for another."""

    _name = "serve-ttft"
    _line = ServedLayout

    requests: int = of_fewest(lambda about: about.requests)
    ttft_seconds: float = of_fewest(lambda about: about.load.ttft)
    tpot_seconds: float | None = of_fewest(lambda about: about.load.within)
    devices: int = of_fewest(lambda about: about.best.devices)
    replicas: int = of_fewest(lambda about: about.best.replicas)
    spread_out: ServedLayout = of_fewest(lambda about: values_of(ServedLayout, about, about.spread_out))
    lines: list[dict[str, Any]] = of_fewest(
        lambda about: [values_of(ServedLayout, about, layout) for layout in about.layouts]
    )


def fewest_devices(model: LoadedModel, on: Deployment, load: Load, requests: int) -> FewestReport:
    """The layouts that are in time, the fewest devices first. Raises TfacctError if there is none."""
    _check_serves(on)
    about = fewest(model, on, load, requests)
    first = (
        Column("devices", "devices", "count"),
        Column("tp", "tp", "count"),
        Column("replicas", "replicas", "count", drop=0 if any(one.replicas > 1 for one in about.layouts) else 2),
        Column("requests", "requests each", "count", drop=2),
    )
    return _report(
        FewestReport,
        about,
        first,
        where=f"{units.requests(requests)} on {about.one.device.name}",
        answer=_fewest_answer(about),
        note_rows=FEWEST_NOTES,
    )


def _layout_words(layout: Layout) -> str:
    """A layout in words: `3 replicas of tp=2`."""
    tp = f"tp={layout.one.count}"
    return tp if layout.replicas == 1 else f"{layout.replicas:,} replicas of {tp}"


def _fewest_answer(about: Fewest) -> str:
    best, spread_out, token = about.best, about.spread_out, about.load.within
    needs = f"Needs {best.devices:,} × {best.one.device.name} ({_layout_words(best)})"
    if spread_out.devices < best.devices:
        least = f"at least {spread_out.devices:,} ({_layout_words(spread_out)}) if they are spread out"
        needs += f" if all prompts arrive at once, {least}"
    later = "" if token is None else f", later ones within {units.seconds(token)}"
    return f"{needs}: first token within {units.seconds(about.load.ttft)}{later}."


def _first_token_measured(about: Fewest) -> str:
    """The share of measured runs whose first token came by the upper end of its range; empty without a known error."""
    one, requests = about.one, about.most.requests
    if one.error() is None:
        return ""
    if one.kind not in FIRST_TOKEN:
        return "First token: its range was compared with no measured run on such devices."
    runs, in_time = FIRST_TOKEN[one.kind]["few" if requests <= FEW else "many"]
    share = units.percent(Fraction(in_time, runs), 0)
    few = "at most" if requests <= FEW else "more than"
    of = f"{runs:,} measured runs of {MODELS[model_kind(one.model.ledger)]} with {few} {FEW} requests"
    return f"In {share} of {of}, the first token came before the upper end of its range."


FEWEST_NOTES = (
    ERROR,
    NoteRow("first_token", 1, _first_token_measured),
    NoteRow(
        "spread_out",
        1,
        lambda about: about.spread_out.devices < about.best.devices,
        "Spread out: no prompt waits for another. Real arrivals lie between this and all at once.",
    ),
    NoteRow("tried", 2, lambda _: True, "Tried: tensor parallelism inside a node, and replicas of it."),
    *SHARED_NOTES,
    BUFFERS,
)


# Workers that only prefill, and workers that only decode.


of_flow: Keys[[Disaggregated, Flow]] = Keys()
of_both: Keys[[Disaggregated]] = Keys()


class DisaggregatedRequests(Object):
    """One number of requests in flight in both workers. `token_seconds`: a decode step; where its error is known, a
    range of 80% of measured runs."""

    requests: int = of_flow(lambda _, flow: flow.requests)
    decode_batch: int = of_flow(lambda _, flow: flow.batch)
    token_seconds: list[float] = of_flow(lambda about, flow: _flow_token(about, flow))
    value_seconds: float = of_flow(lambda _, flow: flow.request)
    prefill_busy: float = of_flow(lambda _, flow: flow.busy)
    tokens_per_second: float | None = of_flow(lambda _, flow: flow.rate)
    cost_per_million: float | None = of_flow(lambda _, flow: flow.cost)


class DisaggregatedReport(ServedReport):
    """Time to first token of a worker that only prefills, and time per output token of one that only decodes."""

    _name = "serve-disaggregated"
    _line = DisaggregatedRequests

    prefill_on: OnDevices = of_both(lambda about: placement_facts(about.prefill))
    first_token_seconds: list[float] = of_both(lambda about: _first_token(about))
    largest_requests: int = of_both(lambda about: about.fitting)
    validation: Validated | None = of_both(lambda about: validation_facts(about.one, "decode"))
    lines: list[dict[str, Any]] = of_both(
        lambda about: [values_of(DisaggregatedRequests, about, flow) for flow in about.flows]
    )


def serve_disaggregated(model: LoadedModel, prefill_on: Deployment, on: Deployment, load: Load) -> DisaggregatedReport:
    """Both workers by number of requests. Raises TfacctError."""
    for where in (prefill_on, on):
        _check_serves(where)
    about = disaggregated(model, prefill_on, on, load)
    return _report(
        DisaggregatedReport,
        about,
        (Column("requests", "requests", "count"), Column("decode_batch", "decode batch", "count", drop=2)),
        (Column("prefill_busy", "≈ prefill busy", "share"),),
        repeat({"first_token_seconds": _first_token(about)}),
        where=f"prefill on {about.prefill.where}, decode on {about.one.where}",
        answer=_flow_answer(about),
        note_rows=DISAGGREGATED_NOTES,
    )


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
        return f"The prefill worker is too slow even for {units.requests(most.requests)}; alone: {times}."
    rate = f"≈ {units.three(most.rate)} output tokens/s"
    too_many = min((flow.requests for flow in about.flows if flow.requests > most.requests), default=0)
    more = f", but not with {too_many:,}" if too_many else ""
    return f"The prefill worker keeps up with {units.requests(most.requests)} ({times}, {rate}){more}."


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
    busiest = max(about.flows, key=lambda flow: flow.requests)
    if busiest.busy <= 1:
        return None
    return {
        "busy": units.percent(busiest.busy, 0),
        "requests": units.requests(busiest.requests),
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
    NoteRow("prefill_links", 2, lambda about: about.prefill.link != about.one.link and link_notes(about.prefill.link)),
    *PLACED_NOTES,
    BUFFERS,
)
