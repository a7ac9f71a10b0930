"""How devices divide a model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack

from tfacct.api import lines as each
from tfacct.api.answer import answered
from tfacct.api.answers import _Common
from tfacct.api.asked import Asked
from tfacct.api.keywords import request, spelled_out
from tfacct.ledger.workload import Whole


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


class Planned(Asked):
    """Questions about divisions."""

    @spelled_out
    def plan(
        self,
        *,
        gpus: int,
        fit: int | str,
        use: float | None = None,
        reserve: int | str | None = None,
        train: bool = False,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        recipe: dict[str, Any] | None = None,
        global_batch_size: int | None = None,
        by: Literal["sent", "time"] = "sent",
        **step: Unpack[Whole],
    ) -> PlanReport:
        """Divisions of `gpus` devices, each with `fit` (bytes, `"80GB"`, or a device's name), that hold the model, or
        with `train` a training step; the one that sends least comes first. The batch is that of all devices.

        >>> from tfacct import load
        >>> plan = load("llama-3.1-8b").plan(gpus=8, fit="80GB", train=True, ctx="4k", batch=64)
        >>> plan.divisions[0]["command"]
        'tfacct train llama-3.1-8b --ctx 4096 --pp 8 --batch 64'
        >>> load("llama-3.1-70b").plan(gpus=8, fit="80GB", ctx="8k", batch=64).answer
        '7 layouts of 8 devices fit in 80 GB; --pp 4 sends least.'

        Of each device `use` times its memory less `reserve` is usable: 0.9 and 2 GB to serve, 1 and 2 GB to train; of
        bytes all. `global_batch_size`: the same as `batch`. `recipe`: keywords of `train`, as `{"recompute": "full"}`.
        `by="time"`: those first that are estimated to take least on the device that `fit` names. Raises TfacctError
        where no division is counted, or none has an estimate.
        """
        from tfacct.base.errors import UsageError
        from tfacct.reports.budget import budget
        from tfacct.reports.plan import plan
        from tfacct.training.recipe import Recipe

        if recipe and not train:
            raise UsageError("recipe goes with train=True")
        usable = budget(fit, use, reserve, training=train)
        assert usable is not None
        how = Recipe(dtype or "bf16", **(recipe or {})).checked() if train else None
        asked = request(step)
        if global_batch_size is not None and "batch" in step:
            raise UsageError("global_batch_size and batch are the same size: give one")
        asked = asked if global_batch_size is None else replace(asked, batch=global_batch_size)
        report = plan(
            self.loaded,
            asked,
            gpus=gpus,
            fit=usable.checked_for(gpus),
            recipe=how,
            given=recipe,
            dtype=dtype,
            kv_dtype=kv_dtype,
            by=by,
        )
        return answered(PlanReport, report)
