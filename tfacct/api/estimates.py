"""How long a model takes on devices: estimates, with what they were measured against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict, Unpack

from tfacct.api import lines as each
from tfacct.api.answer import answered
from tfacct.api.answers import _Common
from tfacct.api.asked import Asked
from tfacct.api.keywords import request, size, sizes, spelled_out
from tfacct.base import units
from tfacct.base.spelling import option
from tfacct.ledger.workload import Step, Whole
from tfacct.output.chart import Chart


class OnDevices(TypedDict):
    """Devices that share a model."""

    device: str
    count: int
    tp: int
    ep: int
    link: each.LinkUsed | None
    memory_bytes: int
    memory_from: str
    dtype: str
    dtype_from: each.DtypeFrom
    published_dtype: str | None
    kv_dtype: str


Validated = TypedDict(
    "Validated",
    {
        "class": Literal["dense", "experts", "training", "divided"],
        "metric": Literal["request", "token", "step"],
        "points": int,
        "points_fitted": int,
        "cells": int,
        "points_on_device": int,
        "points_in_dtype": int,
        "median_error": float,
        "coverage": float,
    },
)

Validated.__doc__ = "Errors of such estimates on measured runs that the constants had not seen; shares are of 1."


class TimedKernel(TypedDict):
    """Kernels of one name in all blocks: FLOPs and bytes of one device, and seconds, an estimate."""

    kernel: str
    times: int
    flops: int
    bytes: int | None
    limit: Literal["compute", "memory", "launch", "link"] | None
    seconds: float | None


class Calibrated(TypedDict):
    """The sweep of a machine: whole passes measured over predicted, the median error of these, and their ends."""

    machine: str
    dtype: str
    threads: int
    torch: str
    clock: Literal["process", "wall", "events"]
    read: str
    checks: dict[str, float]
    median_error: float
    low: float
    high: float


class TimeReport(_Common):
    """Estimated time of a step on devices, kernel by kernel."""

    workload: each.Workload
    on: OnDevices
    estimate: bool
    value_seconds: float | None
    interval_80_seconds: list[float] | None
    bound_seconds: float
    tokens_per_second: float | None
    engine_seconds: float | None
    kernels: list[TimedKernel]
    validation: Validated | None
    assumptions: dict[str, float]
    calibration: Calibrated | None


class TimeTrainReport(_Common):
    """Estimated time of a training step under FSDP, beside that of a constant utilization."""

    workload: each.Workload
    train: bool
    device: str
    devices: int
    accumulate: int
    recompute: Literal["full", "attention", "none"]
    tp: int
    sp: bool
    pp: int
    pp_chunks: int
    link: each.LinkUsed | None
    link_tp: each.LinkUsed | None
    estimate: bool
    fits: bool | None
    least_bytes: int
    needed_bytes: int | None
    usable_bytes: int
    value_seconds: float | None
    interval_80_seconds: list[float] | None
    constant_utilization_seconds: float | None
    parts_seconds: dict[str, float] | None
    tokens_per_second_each: float | None
    mfu: float | None
    mfu_palm: float | None
    days: float | None
    validation: Validated | None
    assumptions: dict[str, float]
    calibration: Calibrated | None


class Within(TypedDict):
    """Users whose tokens come within a time: at least, if prompts cut in, and at most, if they wait."""

    seconds: float
    users_least: int
    users_most: int


class ServedUsers(TypedDict):
    """A closed loop of users: all an estimate. `value_seconds` is a request's time, `token_seconds` a bracket."""

    users: int
    prompts_at_once: int
    token_seconds: list[float]
    value_seconds: float
    interval_80_seconds: list[float] | None
    bound_seconds: float
    first_token_seconds_most: float
    tokens_per_second_each: float
    tokens_per_second: float
    cost_per_million: float | None
    cost_per_million_80: list[float] | None


class ServeReport(_Common):
    """Estimated request time, rates and cost by the number of users."""

    _line = ServedUsers

    on: OnDevices
    estimate: bool
    prompt: int
    new_tokens: int
    use: float
    reserve_bytes: int
    price_per_hour: float | None
    largest_users: int
    within: Within | None
    validation: Validated | None
    assumptions: dict[str, float]


class FittingDevice(TypedDict):
    """The fewest of a device that hold a model, and bytes on each; null where none do. `count_without_link`: the fewest
    that would, where no link of so many is known."""

    device: str
    memory_bytes: int
    memory_from: str
    usable_bytes: int
    count: int | None
    count_without_link: int | None
    weights_bytes_each: int | None
    kv_cache_bytes_each: int | None


class FitReport(_Common):
    """How many of each device hold the weights and the cache: a count."""

    _line = FittingDevice

    workload: each.Workload
    dtype_from: each.DtypeFrom
    published_dtype: str | None
    kv_dtype: str
    use: float
    reserve_bytes: int
    weights_low_bytes: int | None
    weights_high_bytes: int | None
    total_low_bytes: int | None
    total_high_bytes: int | None
    range_reason: str | None
    weights_bytes: int
    kv_cache_bytes: int
    total_bytes: int


class Estimated(Asked):
    """Questions about time, users and devices."""

    @spelled_out
    def time(
        self,
        *,
        on: str,
        ep: int = 1,
        prefill: bool = False,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        bound_only: bool = False,
        use: float | None = None,
        reserve: int | str | None = None,
        **step: Unpack[Step],
    ) -> TimeReport:
        """Estimated seconds of a step on devices: of a decode step, of `tokens` new ones, or with `prefill` of prompts.

        >>> from tfacct import load
        >>> step = load("llama-3.1-70b").time(on="4xh100-sxm", dtype="fp8", ctx="8k", batch=32)
        >>> step.bound_seconds < step.interval_80_seconds[0] < step.value_seconds
        True

        `on`: devices that share the model, `"4xh100-sxm"`. `ep`: parts that experts are divided into by number.
        `bound_only`: what no device of these peaks goes below, and no estimate. Of each device `use` times its memory
        less `reserve` is usable: 0.9 and 2 GB. Raises TfacctError for devices that are not known, or that the model
        does not fit, and for a model with a part that has no kernel.
        """
        from tfacct.reports.time import time
        from tfacct.timing.placement import Deployment

        where = Deployment(on, dtype, kv_dtype, ep, use, reserve)
        report = time(self.loaded, request(step), where, prefill=prefill, bound_only=bound_only)
        return answered(TimeReport, report)

    @spelled_out
    def train_time(
        self,
        *,
        on: str,
        accumulate: int = 1,
        recompute: bool = False,
        tokens_total: int | None = None,
        dtype: str | None = None,
        tp: int = 1,
        sp: bool = False,
        pp: int = 1,
        pp_chunks: int = 1,
        recompute_attention: bool = False,
        use: float | None = None,
        reserve: int | str | None = None,
        **whole: Unpack[Whole],
    ) -> TimeTrainReport:
        """Estimated seconds of a training step on devices that share it by FSDP, each with `batch` sequences.

        >>> from tfacct import load
        >>> step = load("mpt-7b").train_time(on="8xa100-sxm-40gb", ctx="2k", batch=6, recompute=True)
        >>> step.validation["points"], sorted(step.parts_seconds)[:3]
        (49, ['attention', 'gathers', 'head'])

        `accumulate`: micro-batches before an update. `recompute`: blocks run again before their backward pass.
        `tp`, `pp`: devices that share widths, and stages that share blocks, each in `pp_chunks` parts, instead of FSDP;
        then `tp` · `pp` devices have `batch` sequences together. `sp`: those of `tp` share the stream's tokens too.
        `recompute_attention`: scores to values run again. `tokens_total`: adds the days that so many take.
        Of each device `use` times its memory less `reserve` is usable: 1 and 2 GB.
        `dtype`: bf16, or, under FSDP, fp8 for the blocks' products. Raises TfacctError, also for a model with experts:
        no step of one was measured.
        """
        from tfacct.reports.time import time_train
        from tfacct.timing.megatron_time import MegatronLayout
        from tfacct.timing.placement import Deployment
        from tfacct.timing.step_estimate import StepOptions

        mesh = MegatronLayout(tp, sp, pp, pp_chunks)
        how = StepOptions(accumulate, recompute, tokens_total, recompute_attention, mesh)
        report = time_train(self.loaded, request(whole), Deployment(on, dtype, use=use, reserve=reserve), how)
        return answered(TimeTrainReport, report)

    def serve(
        self,
        *,
        on: str,
        prompt: int | str,
        new: int | str,
        users: int | Sequence[int] | str | None = None,
        within: float | str | None = None,
        price: float | None = None,
        use: float | None = None,
        reserve: int | str | None = None,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        ep: int = 1,
    ) -> ServeReport:
        """Estimated request time, tokens per second and cost, by how many users are served at once.

        >>> from tfacct import load
        >>> served = load("llama-3.1-8b").serve(on="h100-sxm", prompt="2k", new=256, users=[1, 16], within="50ms")
        >>> served.largest_users, [line["users"] for line in served.lines]
        (193, [1, 16])

        `prompt`, `new`: tokens of a request. `users`: requests in flight at all times. `within`: seconds (or `"50ms"`)
        from token to token; `price`: of one device for an hour. Of each device `use` times its memory less
        `reserve` is usable: 0.9 and 2 GB. Raises TfacctError.
        """
        from tfacct.reports.serve import Load, serve
        from tfacct.timing.placement import Deployment

        asked = (users,) if isinstance(users, int) else users if users is None else tuple(sizes("users", users))
        load = Load(
            size("prompt", prompt),
            size("new", new),
            asked,
            price,
            units.read_seconds(option("within"), within) if isinstance(within, str) else within,
        )
        report = serve(self.loaded, Deployment(on, dtype, kv_dtype, ep, use, reserve), load)

        def chart() -> Chart:
            from tfacct.reports.charts import serve_chart

            return serve_chart(report)

        return answered(ServeReport, report, chart)

    @spelled_out
    def fit(
        self,
        *,
        on: str | Sequence[str] | None = None,
        ep: int = 1,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        use: float | None = None,
        reserve: int | str | None = None,
        **whole: Unpack[Whole],
    ) -> FitReport:
        """How many of each device hold the weights and the cache: a count.

        >>> from tfacct import load
        >>> fitting = load("llama-3.1-405b").fit(on=["h100-sxm", "mi300x"], dtype="fp8", ctx="32k", batch=16)
        >>> [(line["device"], line["count"]) for line in fitting.lines]
        [('h100-sxm', 16), ('mi300x', 4)]

        `on`: devices; all without it. Of each `use` times its memory less `reserve` is usable: 0.9 and 2 GB. Raises
        TfacctError.
        """
        from tfacct.loading import devices
        from tfacct.reports.fit import fit

        named = [on] if isinstance(on, str) else on or devices.for_sale()
        report = fit(
            self.loaded,
            request(whole),
            [devices.load(name) for name in named],
            dtype=dtype,
            kv_dtype=kv_dtype,
            ep=ep,
            use=use,
            reserve=reserve,
        )
        return answered(FitReport, report)
