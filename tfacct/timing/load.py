"""Concurrent requests on devices: how many fit, time to first token, time per output token, throughput and cost; the
fewest devices that are in time; workers that only prefill or decode. Estimates."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from tfacct.accounts.memory import largest_that_fits
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.einsum import rounded_up
from tfacct.ledger.workload import Request, Workload, check_size
from tfacct.loading import devices, selection
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.timing import measured_runs
from tfacct.timing.drafts_and_adapters import ServedLora, with_adapters, with_draft
from tfacct.timing.kernel_time import CONSTANTS
from tfacct.timing.placement import Deployment, Placement, device_numbers
from tfacct.timing.serving import Served, Speculation
from tfacct.timing.utilization import check_positive

REQUESTS = (1, 8, 32, 64, 128, 256, 512)
HOUR, MILLION = 3600, 10**6


@record
class Load:
    """Requests of `prompt` tokens that get `new` ones; how many `requests` at once, None for a few numbers up to what
    fits. `price`: of a device for an hour. `within`: seconds for each output token. `measured`: file of the user's own
    runs, which correct the estimate. `drafts`: tokens that are drafted in every step. `lora`: adapters that requests
    use. `ttft`: seconds for the first token. Raises UsageError."""

    prompt: int
    new: int
    requests: tuple[int, ...] | None = None
    price: float | None = None
    within: float | None = None
    measured: str | None = None
    drafts: Speculation | None = None
    lora: ServedLora | None = None
    ttft: float = inf

    @property
    def context(self) -> int:
        """Tokens of a whole request."""
        return self.prompt + self.new

    def cost(self, devices: int, rate: float) -> float | None:
        """Price of a million new tokens, at so many a second; None without a price."""
        return None if self.price is None else self.price * devices * MILLION / (rate * HOUR)

    def __post_init__(self) -> None:
        for name in ("prompt", "new"):
            check_size(option(name), getattr(self, name))
        if self.requests == ():
            raise UsageError(f"{option('requests')} has no values")
        for requests in self.requests or ():
            check_size(option("requests"), requests)
        if self.price is not None:
            check_positive("price", self.price, most=MILLION, hint="of one device for an hour: 2.50")
        if self.within is not None and self.new == 1:
            raise UsageError(
                f"{option('within')} is a time per output token after the first, and {option('new', 1)} has none",
                option("new", 256),
            )
        if self.drafts is not None and self.drafts.tokens >= self.new:
            draft = option("draft_tokens", self.drafts.tokens)
            raise UsageError(f"{draft} needs more than {self.drafts.tokens:,} new tokens, not {self.new:,}")

    def check_runs(self, model: LoadedModel) -> None:
        """Raises TfacctError for a model that generates no tokens, or has no positions for those of a request."""
        selection.generating([model])
        try:
            selection.runnable(model, Request(ctx=self.context))
        except UsageError as error:
            sizes = f"{self.prompt:,} tokens of {option('prompt')} and {self.new:,} of {option('new')}"
            prompt = model.context - self.new
            fits = f"; {option('prompt', prompt)} fits" if prompt > 0 else ""
            error.hint = f"a request has {sizes}{fits}"
            raise


class Loaded(NamedTuple):
    """So many concurrent requests and their cost. `interval`: seconds of one request between which 80% of measured runs
    lie. `token`: the same of time per output token; where no error is known, from prompts that wait for running answers
    to prompts that interrupt them; None for one new token, which comes with the prompt. `first_token`: from a request
    alone to one after the prompts of all others, with the ends of the interval where it is known."""

    served: Served
    interval: tuple[float, float] | None
    token: tuple[float, float] | None
    first_token: tuple[float, float]
    cost: float | None

    @property
    def requests(self) -> int:
        return self.served.loop.requests

    @property
    def each(self) -> float:
        """New tokens per second of one request."""
        return self.served.rate / self.requests

    @property
    def requests_per_second(self) -> float:
        """Requests that end in a second."""
        return self.requests / self.served.request

    @property
    def cost_interval(self) -> list[float] | None:
        """Cost at both ends of the interval."""
        if self.cost is None or self.interval is None:
            return None
        return [self.cost * end / self.served.request for end in self.interval]


@record
class Serving:
    """A model that is served: the load, its memory, and the answer for each number of requests that fits. `fitting`:
    requests whose cache fits; `target`: requests whose time per output token is within a time by both ends of its
    range, the upper one first; `within`: the answer for the first of these, if there are any."""

    one: Placement
    load: Load
    memory: MemoryLimit
    fitting: int
    loops: Sequence[Loaded]
    target: tuple[int, int] | None
    within: Loaded | None

    @property
    def most(self) -> Loaded:
        """The largest number of requests that is asked about and fits."""
        return max(self.loops, key=lambda loop: loop.requests)


def serving(model: LoadedModel, on: Deployment, load: Load, memory: MemoryLimit) -> Serving:
    """The load on a model's devices. Raises TfacctError where not one request fits."""
    one = on.place(model, memory.count, memory.device)
    if load.lora is not None:
        one = with_adapters(one, load.lora)
    load.check_runs(model)
    if load.drafts is not None:
        one = with_draft(one, load.drafts, load.context)
    fitting = requests_in(one, load, memory)
    needed = 1 if memory.engine else min(load.requests or (1,))
    if fitting < needed:
        one.check_fits(load.context, needed, memory)
    if not fitting:
        why = f"{model.name}: the pages of {memory.engine} hold no request of {load.context:,} tokens"
        raise UsageError(why, f"more devices, or fewer tokens of {option('prompt')}")
    if load.measured is not None:
        one = measured_runs.corrected(one, measured_runs.read(load.measured), memory.usable)
    most = min(fitting, memory.most_requests or fitting)
    target, inside = None, 0
    if (longest := load.within) is not None:

        def is_late(requests: int, end: int) -> bool:
            return _token(one, one.host.served(requests, load.prompt, load.new))[end] > longest

        by_fast = largest_that_fits(lambda n: is_late(n, 0), 0, most)
        inside = largest_that_fits(lambda n: is_late(n, 1), 0, by_fast)
        target = inside, by_fast
    fit = tuple(requests for requests in load.requests or () if requests <= fitting)
    counts = requests_tried(fit or load.requests, fitting if load.requests else most, inside)
    loops = [loaded(one, load, requests) for requests in counts]
    within = loaded(one, load, inside) if inside else None
    return Serving(one, load, memory, fitting, loops, target, within)


def requests_in(one: Placement, load: Load, memory: MemoryLimit) -> int:
    """Requests of the load whose cache fits: those that the pages of an engine hold, which has its own formats of
    states. Drafts and adapters take from its pool."""
    pages, more = memory.paged and memory.paged(load.context), one.host.draft or one.host.adapters
    if pages is not None and more is None:
        return pages
    fitting = one.host.capacity(load.context, memory.usable)
    return fitting if pages is None else min(fitting, pages)


def requests_tried(asked: Sequence[int] | None, fitting: int, inside: int = 0) -> list[int]:
    """Numbers of requests to ask about, by default with those `inside` a time. Raises UsageError for one whose cache
    does not fit."""
    if asked is not None:
        if max(asked) > fitting:
            raise UsageError(
                f"{option('requests', max(asked))} does not fit: there is memory for the KV cache of"
                f" {fitting:,} requests",
                "ask for no more than that",
            )
        return list(dict.fromkeys(asked))
    most = min(fitting, 2 * REQUESTS[-1])
    found = {*(count for count in REQUESTS if count < most), most, *([inside] if inside else [])}
    return sorted(found)


def loaded(one: Placement, load: Load, requests: int) -> Loaded:
    """The answer for so many requests on the devices of a placement."""
    served, alone = one.host.served(requests, load.prompt, load.new), one.host.served(1, load.prompt, 1)
    low, high = one.interval(1.0) or (1.0, 1.0)
    first_token = low * alone.request, high * (requests * served.prompt + CONSTANTS.request)
    token = None if load.new == 1 else _token(one, served)
    return Loaded(served, one.interval(served.request), token, first_token, load.cost(one.count, served.rate))


def _token(one: Placement, served: Served) -> tuple[float, float]:
    """The range of time per output token."""
    return one.interval(served.token[1], "token") or served.token


# The fewest devices that serve requests within two times, by the upper ends of their ranges: tensor parallelism inside
# a node, and replicas of it.


class Layout(NamedTuple):
    """`replicas` of a model, each on the devices of a placement. `loop`: requests of the fullest replica."""

    one: Placement
    memory: MemoryLimit
    replicas: int
    loop: Loaded

    @property
    def devices(self) -> int:
        return self.replicas * self.one.count


@record
class Fewest:
    """Layouts that give each of so many concurrent `requests` its tokens within the times of the load, if all prompts
    arrive at once: one for each tensor-parallel size, the fewest devices first, of equal numbers the one with the most
    tokens per second. `spread_out`: the first of those that do if no prompt waits for another. `one`, `memory`, `most`:
    of the first, a replica, and the requests of the fullest."""

    load: Load
    requests: int
    layouts: Sequence[Layout]
    spread_out: Layout
    one: Placement
    memory: MemoryLimit
    most: Loaded

    @property
    def best(self) -> Layout:
        """The layout with the fewest devices."""
        return self.layouts[0]


def fewest(model: LoadedModel, on: Deployment, load: Load, requests: int) -> Fewest:
    """The layouts that are in time, on as many devices as necessary, or on at most those of `on` if it has several.
    Raises TfacctError if there is none."""
    load.check_runs(model)
    count, device = devices.several(option("on"), on.on)
    node = count if count > 1 else device.links.node
    counts = [tp for tp in device_numbers(model, on.ep, on.dtype) if tp <= node and device.links.known(tp)]
    placed = [(one, on.memory_of(one.count, device)) for one in on.placements(model, device, counts)]
    holding = [(one, memory) for one, memory in placed if one.host.capacity(load.context, memory.usable, 1)]
    if not holding:
        one, memory = placed[-1]
        one.check_fits(load.context, 1, memory)
    at_once, spread_out = (
        sorted(
            (layout for each in holding if (layout := _with_replicas(*each, load, requests, spread))),
            key=lambda each: (each.devices, -each.loop.each),
        )
        for spread in (False, True)
    )
    found = [layout for layout in at_once if count == 1 or layout.devices <= count]
    if not found:
        raise _missed(load, requests, holding[-1][0], [*at_once[:1], *spread_out[:1]])
    best = found[0]
    return Fewest(load, requests, found, spread_out[0], best.one, best.memory, best.loop)


def _with_replicas(one: Placement, memory: MemoryLimit, load: Load, requests: int, spread_out: bool) -> Layout | None:
    """The fewest replicas of a placement that are in time by the upper ends of the ranges; None if not even a request
    alone is. `spread_out`: no prompt waits for another."""
    fitting = one.host.capacity(load.context, memory.usable, requests)
    first_token = loaded(one, load, 1).first_token[1]

    def is_late(each: int) -> bool:
        loop = loaded(one, load, each)
        is_slow = load.within is not None and loop.token is not None and loop.token[1] > load.within
        return is_slow or (first_token if spread_out else loop.first_token[1]) > load.ttft

    each = largest_that_fits(is_late, 0, fitting)
    if not each:
        return None
    replicas = rounded_up(requests, each)
    return Layout(one, memory, replicas, loaded(one, load, rounded_up(requests, replicas)))


def _missed(load: Load, requests: int, largest: Placement, best: Sequence[Layout]) -> UsageError:
    """The error for times that no layout meets on devices up to those of the `largest`. `best`: layouts on more
    devices, if prompts arrive at once, and spread out."""
    name, device = largest.model.name, largest.device
    goal = f"{units.requests(requests)} with the first token within {units.seconds(load.ttft)}"
    goal += "" if load.within is None else f" and each later token within {units.seconds(load.within)}"
    if best:
        needed, least = (layout.devices for layout in best)
        arrivals = f", or {least:,} if the prompts do not arrive at once" if least < needed else ""
        return UsageError(
            f"{name}: too few devices for {goal}: the fewest are {needed:,} × {device.name}{arrivals}",
            option("on", f"{needed}x{device.id}"),
        )
    alone = loaded(largest, load, 1)
    token = "" if alone.token is None else f", {units.seconds(alone.token[1])} per token"
    return UsageError(
        f"{name}: no layout of up to {largest.count:,} × {device.id} serves {goal}",
        f"even one request alone on {largest.count:,} devices: first token up to"
        f" {units.seconds(alone.first_token[1])}{token}",
    )


# Workers that only prefill, and workers that only decode: each alone, without a queue between them.


class Flow(NamedTuple):
    """So many requests in flight in both workers. `batch`: those of them that the decode worker has. `token`: seconds
    of its step. `request`: seconds of a request that waits for no other. `busy`: share of the time that the prefill
    worker computes; prompts queue where it is above 1, and there is no `rate` of new tokens per second."""

    requests: int
    batch: int
    token: float
    request: float
    busy: float
    rate: float | None
    cost: float | None


@record
class Disaggregated:
    """A model on a prefill worker and on a decode worker (`one`). `first_token`: seconds to the first token of a prompt
    alone. `fitting`: requests of both workers, the decode worker's share of which fits."""

    prefill: Placement
    one: Placement
    load: Load
    memory: MemoryLimit
    first_token: float
    fitting: int
    flows: Sequence[Flow]

    @property
    def most(self) -> Flow:
        """The largest number of requests for which a prefill worker is enough; the smallest if it is for none."""
        fewest = min(self.flows, key=lambda flow: flow.requests)
        return max((flow for flow in self.flows if flow.busy <= 1), key=lambda flow: flow.requests, default=fewest)


def disaggregated(model: LoadedModel, prefill_on: Deployment, on: Deployment, load: Load) -> Disaggregated:
    """The load on a prefill worker and a decode worker. Raises TfacctError."""
    if load.new == 1:
        raise UsageError(f"{option('new', 1)}: the prefill worker gives the first token, so none is decoded")
    load.check_runs(model)
    memory, prefill_memory = on.memory(), prefill_on.memory()
    one = on.place(model, memory.count, memory.device)
    prefill = prefill_on.place(model, prefill_memory.count, prefill_memory.device)
    prefill.check_fits(load.prompt, 1, prefill_memory)
    one.check_fits(load.context, 1, memory)
    first = prefill.host.served(1, load.prompt, 1).request
    fitting = int(_in_flight(one, load, first, one.host.capacity(load.context, memory.usable)))
    flows = [_flow(prefill, one, load, first, requests) for requests in requests_tried(load.requests, fitting)]
    return Disaggregated(prefill, one, load, memory, first, fitting, flows)


def _step(one: Placement, load: Load, batch: int) -> float:
    """Seconds of a decode step at the middle of an answer."""
    return one.host.step(Workload(load.prompt + load.new // 2, 1, batch)).seconds


def _in_flight(one: Placement, load: Load, first: float, batch: int) -> float:
    """Requests in flight in both workers where `batch` of them decode, by Little's law: as many as their share of the
    time of a request."""
    return batch * (1 + first / ((load.new - 1) * _step(one, load, batch)))


def _flow(prefill: Placement, one: Placement, load: Load, first: float, requests: int) -> Flow:
    def exceeds(batch: int) -> bool:
        return _in_flight(one, load, first, batch) * (1 - 0.5 / batch) > requests  # rounded to the nearest

    batch = max(1, largest_that_fits(exceeds, 0, requests))
    token = _step(one, load, batch)
    request = first + (load.new - 1) * token
    busy = requests / request * prefill.host.served(requests, load.prompt, 1).prompt
    rate = requests * load.new / request if busy <= 1 else None
    cost = None if rate is None else load.cost(prefill.count + one.count, rate)
    return Flow(requests, batch, token, request, busy, rate, cost)
