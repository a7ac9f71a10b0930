"""How devices divide a model."""

from __future__ import annotations

from typing import TypedDict

from tfacct.api import lines as each
from tfacct.api.answers import _Common


class PlannedDivision(TypedDict):
    """A division of devices: its mesh, the sequences that a rank takes at a time and how often in a step, what it needs
    and sends, and the command that asks for it; estimated seconds where they were asked for, and what asks for them."""

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
    bytes: int
    sent_bytes: int
    seconds: float | None
    timed_as: str | None
    links: list[each.LinkUsed]
    command: str
    time_command: str | None


class PlanReport(_Common):
    """Divisions of devices that hold a model."""

    workload: each.Workload
    dtype_from: each.DtypeFrom
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
    fitting: int
    tried: int
    not_counted: dict[str, int]
    divisions: list[PlannedDivision]
    larger: list[PlannedDivision]
