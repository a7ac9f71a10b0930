"""Concurrent requests on devices: how many fit, time to first token, time per output token, throughput and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tfacct.accounts.memory import largest_that_fits
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, check_size
from tfacct.loading import selection
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.timing import measured_runs
from tfacct.timing.adapters import ServedLora, with_adapters
from tfacct.timing.kernel_time import CONSTANTS
from tfacct.timing.placement import Deployment, Placement
from tfacct.timing.serving import Served
from tfacct.timing.speculative import Speculation, with_draft
from tfacct.timing.utilization import check_positive

REQUESTS = (1, 8, 32, 64, 128, 256, 512)
HOUR, MILLION = 3600, 10**6


@record
class Load:
    """Requests of `prompt` tokens that get `new` ones; how many `requests` at once, None for a few numbers up to what
    fits. `price`: of a device for an hour. `within`: seconds for each output token. `measured`: file of the user's own
    runs, which correct the estimate. `drafts`: tokens that are drafted in every step. `lora`: adapters that requests
    use. Raises UsageError."""

    prompt: int
    new: int
    requests: tuple[int, ...] | None = None
    price: float | None = None
    within: float | None = None
    measured: str | None = None
    drafts: Speculation | None = None
    lora: ServedLora | None = None

    @property
    def context(self) -> int:
        """Tokens of a whole request."""
        return self.prompt + self.new

    def cost(self, devices: int, rate: float) -> float | None:
        """Price of a million new tokens, at so many a second; None without a price."""
        return None if self.price is None else self.price * devices * MILLION / (rate * HOUR)

    @property
    def words(self) -> str:
        """Requests in words."""
        more = [f", {one.words}" for one in (self.drafts, self.lora) if one is not None]
        return f"prompts of {self.prompt:,}, answers of {self.new:,}{''.join(more)}"

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
        """Number of concurrent requests."""
        return self.served.loop.requests

    @property
    def each(self) -> float:
        """New tokens per second of one request."""
        return self.served.rate / self.requests

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
    counts = requests_tried(replace(load, requests=fit or load.requests), fitting if load.requests else most, inside)
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


def requests_tried(load: Load, fitting: int, inside: int = 0) -> list[int]:
    """Numbers of requests to ask about, by default with those `inside` a time. Raises UsageError for one whose cache
    does not fit."""
    if load.requests is not None:
        if max(load.requests) > fitting:
            raise UsageError(
                f"{option('requests', max(load.requests))} does not fit: there is memory for the KV cache of"
                f" {fitting:,} requests",
                "ask for no more than that",
            )
        return list(dict.fromkeys(load.requests))
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
