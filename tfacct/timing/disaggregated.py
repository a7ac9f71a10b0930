"""Workers that only prefill, and workers that only decode: each alone, without a queue between them. Estimates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tfacct.accounts.memory import largest_that_fits
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.workload import Workload
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.timing.load import Load, requests_tried
from tfacct.timing.placement import Deployment, Placement


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
    flows = [_flow(prefill, one, load, first, requests) for requests in requests_tried(load, fitting)]
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
