"""The records of `plan`."""

from __future__ import annotations

from typing import Literal, TypedDict

from tfacct.reports import keys


class PlannedDivision(TypedDict):
    """A parallel layout: its mesh, the sequences that a rank takes at a time and how often in a step, what is
    recomputed, the bytes that it needs and sends, and the command that reports it; estimated seconds, the stack and the
    links that they assume, and the command that estimates them."""

    tp: int
    sp: bool
    fsdp: int
    dp: int
    zero: int
    pp: int
    cp: int
    cp_method: str | None
    ep: int
    ulysses: int
    batch: int
    times: int
    recompute: str | None
    bytes: int
    sent_bytes: int
    seconds: float | None
    timed_as: str | None
    links: list[keys.LinkUsed]
    command: str
    time_command: str | None


class PlanReport(keys.ModelReport):
    """Parallel layouts of some devices that hold a model."""

    workload: keys.Workload
    dtype_from: keys.DtypeFrom
    published_dtype: str | None
    train: bool
    gpus: int
    budget_bytes: int
    memory_bytes: int
    memory_from: str | None
    use: float
    reserve_bytes: int
    device: str | None
    devices: int
    by: Literal["time", "memory", "sent"]
    fitting: int
    tried: int
    not_counted: dict[str, int]
    divisions: list[PlannedDivision]
    larger: list[PlannedDivision]
