"""The fewest devices that serve requests within two times: tensor parallelism inside a node, and replicas of it.
Estimates, with the upper ends of their ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tfacct.accounts.memory import largest_that_fits
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.einsum import rounded_up
from tfacct.loading import devices
from tfacct.loading.links import NODE
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.timing.load import Load, Loaded, loaded
from tfacct.timing.placement import Deployment, Placement, device_numbers


class Layout(NamedTuple):
    """`replicas` of a model, each on the devices of a placement. `loop`: requests of the fullest replica. `rate`: new
    tokens per second of all requests; `cost`: price of a million of them."""

    one: Placement
    memory: MemoryLimit
    replicas: int
    loop: Loaded
    rate: float
    cost: float | None

    @property
    def devices(self) -> int:
        """Devices of all replicas."""
        return self.replicas * self.one.count

    @property
    def words(self) -> str:
        """The layout in words: `3 replicas of tp=2`."""
        tp = f"tp={self.one.count}"
        return tp if self.replicas == 1 else f"{self.replicas:,} replicas of {tp}"


@record
class Fewest:
    """Layouts that give each of so many concurrent `requests` its first token within `ttft` seconds, and each further
    one within the time of the load, if all prompts arrive at once: one for each tensor-parallel size, the fewest
    devices first, of equal numbers the one with the most tokens per second. `spread_out`: the first of those that do if
    no prompt waits for another. `one`, `memory`, `most`: of the first, a replica, and the requests of the fullest."""

    load: Load
    requests: int
    ttft: float
    layouts: Sequence[Layout]
    spread_out: Layout
    one: Placement
    memory: MemoryLimit
    most: Loaded

    @property
    def best(self) -> Layout:
        """The layout with the fewest devices."""
        return self.layouts[0]


def fewest(model: LoadedModel, on: Deployment, load: Load, requests: int, ttft: float) -> Fewest:
    """The layouts that are in time, on as many devices as necessary, or on at most those of `on` if it has several.
    Raises TfacctError if there is none."""
    load.check_runs(model)
    count, device = devices.several(option("on"), on.on)
    node = count if count > 1 else max(NODE, device.links.joined)
    counts = [tp for tp in device_numbers(model, on.ep, on.dtype) if tp <= node and device.links.known(tp)]
    placed = [(one, on.memory_of(one.count, device)) for one in on.placements(model, device, counts)]
    holding = [(one, memory) for one, memory in placed if one.host.capacity(load.context, memory.usable, 1)]
    if not holding:
        one, memory = placed[-1]
        one.check_fits(load.context, 1, memory)
    at_once, spread_out = (
        sorted(
            (layout for each in holding if (layout := _with_replicas(*each, load, requests, ttft, spread))),
            key=lambda each: (each.devices, -each.loop.each),
        )
        for spread in (False, True)
    )
    found = [layout for layout in at_once if count == 1 or layout.devices <= count]
    if not found:
        raise _missed(load, requests, ttft, holding[-1][0], [*at_once[:1], *spread_out[:1]])
    best = found[0]
    return Fewest(load, requests, ttft, found, spread_out[0], best.one, best.memory, best.loop)


def _with_replicas(
    one: Placement, memory: MemoryLimit, load: Load, requests: int, ttft: float, spread_out: bool
) -> Layout | None:
    """The fewest replicas of a placement that are in time by the upper ends of the ranges; None if not even a request
    alone is. `spread_out`: no prompt waits for another."""
    fitting = one.host.capacity(load.context, memory.usable, requests)
    first_token = loaded(one, load, 1).first_token[1]

    def is_late(each: int) -> bool:
        loop = loaded(one, load, each)
        is_slow = load.within is not None and loop.token is not None and loop.token[1] > load.within
        return is_slow or (first_token if spread_out else loop.first_token[1]) > ttft

    each = largest_that_fits(is_late, 0, fitting)
    if not each:
        return None
    replicas = rounded_up(requests, each)
    loop = loaded(one, load, rounded_up(requests, replicas))
    rate = requests * loop.each
    return Layout(one, memory, replicas, loop, rate, load.cost(replicas * one.count, rate))


def _missed(load: Load, requests: int, ttft: float, largest: Placement, best: Sequence[Layout]) -> UsageError:
    """The error for times that no layout meets on devices up to those of the `largest`. `best`: layouts on more
    devices, if prompts arrive at once, and spread out."""
    name, device = largest.model.name, largest.device
    goal = f"{units.requests(requests)} with the first token within {units.seconds(ttft)}"
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
