"""A closed loop of users on devices: request time, rates and cost as estimates, and brackets for what a scheduler
decides."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, Workload, check_size
from tfacct.loading.model import LoadedModel
from tfacct.loading.where import MemoryLimit
from tfacct.output.report import Column, Report, Row, Table
from tfacct.reports import compose, counting
from tfacct.reports.estimates import (
    CONVENTION,
    assumptions,
    error_note,
    files_notes,
    formats_note,
    gathered_notes,
    link_notes,
    placement_facts,
    validation_facts,
)
from tfacct.reports.generate import foreseeing
from tfacct.timing.placement import CROWD, Deployment, Placement
from tfacct.timing.serving import Served, largest_within
from tfacct.timing.timing import CONSTANTS

USERS = (1, 8, 32, 64, 128, 256, 512)
HOUR, MILLION = 3600, 10**6


@record
class Load:
    """Requests of `prompt` tokens that get `new` ones; how many `users` at once, None for a few numbers up to what
    fits. `price`: of a device for an hour. `within`: seconds from token to token that users put up with."""

    prompt: int
    new: int
    users: tuple[int, ...] | None = None
    price: float | None = None
    within: float | None = None

    @property
    def words(self) -> str:
        """Requests in words."""
        return f"prompts of {self.prompt:,}, answers of {self.new:,}"

    def checked(self) -> Load:
        """The load. Raises UsageError."""
        for name in ("prompt", "new"):
            check_size(option(name), getattr(self, name))
        for users in self.users or ():
            check_size(option("users"), users)
        if self.price is not None and not 0 < self.price < MILLION:
            raise UsageError(
                f"{option('price')} must be above 0 and below {MILLION:,}, not {self.price:g}",
                "of one device for an hour: 2.50",
            )
        return self


class Loaded(NamedTuple):
    """A closed loop, its cost and the interval of its request."""

    served: Served
    interval: tuple[float, float] | None
    cost: float | None

    @property
    def each(self) -> float:
        """New tokens per second of one user."""
        return self.served.rate / self.served.users


def serve(model: LoadedModel, on: Deployment, load: Load) -> Report:
    """Request time, rates and cost by the number of users. Raises TfacctError, also where not one request fits."""
    load = load.checked()
    memory = on.memory()
    assert memory.device is not None
    if memory.device.calibration is not None:
        raise UsageError(
            f"{memory.device.id} was swept with the reference model, which serves no users",
            "`tfacct time` predicts its passes",
        )
    one = on.place(model, memory)
    foreseeing([model])
    request = Request(ctx=load.prompt + load.new)
    counting.runnable(model, request)
    fitting = one.host.capacity(load.prompt + load.new, memory.usable)
    if not fitting:
        one.check_room(load.prompt + load.new, 1, memory)
    loops = [_loaded(one, load, users) for users in _users(load, fitting)]
    target = None if load.within is None else _target(one, load, fitting, load.within)
    return compose.report(
        "serve",
        [model],
        _table(loops, load),
        [_facts(one, load, memory, fitting, loops, target)],
        title=f"{compose.name_of(model)}: {one.where}, {counting.format_name(model, on.dtype)}, {load.words}",
        convention=CONVENTION,
        answer=_answer(loops),
        notes=lambda _: _notes(one, load, memory, fitting, loops, target),
        requests=[request],
    )


def _users(load: Load, fitting: int) -> list[int]:
    """Numbers of users to ask about. Raises UsageError for one whose cache does not fit."""
    if load.users is not None:
        if max(load.users) > fitting:
            raise UsageError(
                f"{option('users', max(load.users))}: the cache of {fitting:,} requests fits",
                "ask for no more than that",
            )
        return list(load.users)
    most = min(fitting, 2 * USERS[-1])
    return [*(users for users in USERS if users < most), most]


def _loaded(one: Placement, load: Load, users: int) -> Loaded:
    served = one.host.loop(users, load.prompt, load.new).served()
    interval = one.interval(served.request, users, served.request_bound)
    cost = None if load.price is None else load.price * one.count * MILLION / (served.rate * HOUR)
    return Loaded(served, interval, cost)


def _target(one: Placement, load: Load, fitting: int, within: float) -> tuple[int, int]:
    """Largest numbers of users whose tokens come within a time, if prompts cut in and if they wait."""

    def token(users: int, end: int) -> float:
        return one.host.loop(users, load.prompt, load.new).served().token[end]

    most = largest_within(within, fitting, lambda users: token(users, 0))
    return largest_within(within, most, lambda users: token(users, 1)), most


def _table(loops: Sequence[Loaded], load: Load) -> Table:
    rows: list[Row] = []
    for loop in loops:
        served = loop.served
        low, high = (Fraction(end) for end in served.token)
        rows.append(
            {
                "users": served.users,
                "token_seconds": (low, None if low == high else high),
                "request_seconds": Fraction(served.request),
                "tokens_per_second_each": Fraction(loop.each),
                "tokens_per_second": Fraction(served.rate),
                "cost_per_million": None if loop.cost is None else Fraction(loop.cost),
            }
        )
    cost = (Column("cost_per_million", "≈ price of 1 M new", "rate"),) if load.price is not None else ()
    columns = (
        Column("users", "users", "count"),
        Column("token_seconds", "≈ from token to token", "seconds", keys=("token_seconds_low", "token_seconds_high")),
        Column("request_seconds", "≈ request", "seconds"),
        Column("tokens_per_second_each", "≈ tok/s each", "rate", drop=3),
        Column("tokens_per_second", "≈ tok/s all", "rate"),
        *cost,
    )
    return columns, (tuple(rows),), ()


def _answer(loops: Sequence[Loaded]) -> str:
    served, cost = loops[-1].served, loops[-1].cost
    users = _users_said(served.users)
    million = "" if cost is None else f", ≈ {units.three(cost)} for a million"
    rate = units.three(served.rate)
    return f"{users}: ≈ {rate} new tokens/s{million}; a request takes ≈ {units.seconds(served.request)}."


def _notes(
    one: Placement,
    load: Load,
    memory: MemoryLimit,
    fitting: int,
    loops: Sequence[Loaded],
    target: tuple[int, int] | None,
) -> list[str]:
    alone = one.host.step(Workload(load.prompt, load.prompt, 1, "last")).seconds + CONSTANTS.request
    fewest, most = _ends(loops)
    last = max(_first_token(loop.served) for loop in loops)
    among = f", up to ≈ {units.seconds(last)} at {most:,} users" if most > 1 else ""
    said = [*files_notes(one), error_note(one, fewest)]
    error = one.error("request", fewest)
    if error is not None:
        said.append(
            f"Each request: × {error.low:.2f} … {error.high:.2f}, an interval of 80% (it held"
            f" {units.percent(error.coverage)} of the measured runs); rates and prices follow it."
        )
        said += _cut(loops)
        if one.error("request", most) is None:
            said.append(f"Above {CROWD:,} users experts were hardly measured, so the error there is not known.")
    said += [
        "From token to token: first if new prompts wait for running answers, then if all of them cut in.",
        f"First token: ≈ {units.seconds(alone)} alone; with others it depends on the scheduler{among}.",
        f"The cache of {fitting:,} requests fits with the weights: a count.",
        *memory.notes,
        *gathered_notes(one.model, one.count),
    ]
    if target is not None and load.within is not None:
        cut_in, wait = target
        said.append(
            f"Within {units.seconds(load.within)} from token to token: {cut_in:,} users if prompts cut in, {wait:,} if"
            " they wait. An estimate."
        )
    if load.price is not None:
        said.append(f"Price: {load.price:g} for a device and an hour, as given.")
    return [*said, *link_notes(one.link), formats_note(one)]


def _cut(loops: Sequence[Loaded]) -> list[str]:
    """The sentence of intervals that would go below what the devices' peaks allow."""
    cut = [loop.served for loop in loops if loop.interval is not None and loop.interval[0] == loop.served.request_bound]
    if not cut:
        return []
    ends = ", ".join(f"{units.seconds(served.request_bound)} at {_users_said(served.users)}" for served in cut)
    return [f"No request goes below its bound, where that interval begins instead: {ends}."]


def _users_said(users: int) -> str:
    return "1 user" if users == 1 else f"{users:,} users"


def _first_token(served: Served) -> float:
    """Seconds of a first token behind the prompts of all others."""
    return served.users * served.prompt + CONSTANTS.request


def _ends(loops: Sequence[Loaded]) -> tuple[int, int]:
    """Fewest and most users that are asked about."""
    found = [loop.served.users for loop in loops]
    return min(found), max(found)


def _facts(
    one: Placement,
    load: Load,
    memory: MemoryLimit,
    fitting: int,
    loops: Sequence[Loaded],
    target: tuple[int, int] | None,
) -> dict[str, Any]:
    within = None if target is None else {"seconds": load.within, "users_least": target[0], "users_most": target[1]}
    return {
        "on": placement_facts(one),
        "estimate": True,
        "prompt": load.prompt,
        "new_tokens": load.new,
        "use": memory.use,
        "reserve_bytes": memory.reserve,
        "price_per_hour": load.price,
        "largest_users": fitting,
        "within": within,
        "lines": [_line(loop) for loop in loops],
        "validation": validation_facts(one, _ends(loops)[0]),
        "assumptions": assumptions(),
    }


def _line(loop: Loaded) -> dict[str, Any]:
    served, ends = loop.served, loop.interval
    return {
        "users": served.users,
        "prompts_at_once": served.prompts,
        "token_seconds": list(served.token),
        "value_seconds": served.request,
        "interval_80_seconds": None if ends is None else list(ends),
        "bound_seconds": served.request_bound,
        "first_token_seconds_most": _first_token(served),
        "tokens_per_second_each": loop.each,
        "tokens_per_second": served.rate,
        "cost_per_million": loop.cost,
        "cost_per_million_80": _cost_ends(loop),
    }


def _cost_ends(loop: Loaded) -> list[float] | None:
    if loop.cost is None or loop.interval is None:
        return None
    return [loop.cost * end / loop.served.request for end in loop.interval]
