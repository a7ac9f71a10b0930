"""How long a model takes on devices: estimates, with what they were measured against."""

from __future__ import annotations

from typing import Literal, TypedDict

from tfacct.reports import keys


class OnDevices(TypedDict):
    """Devices that share a model."""

    device: str
    count: int
    tp: int
    ep: int
    link: keys.LinkUsed | None
    memory_bytes: int
    memory_from: str
    dtype: str
    dtype_from: keys.DtypeFrom
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


class TimeReport(keys.ModelReport):
    """Estimated time of a step on devices, kernel by kernel."""

    workload: keys.Workload
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


class TimeTrainReport(keys.ModelReport):
    """Estimated time of a training step under FSDP, beside that of a constant utilization."""

    workload: keys.Workload
    train: bool
    device: str
    devices: int
    accumulate: int
    recompute: Literal["full", "attention", "none"]
    tp: int
    sp: bool
    pp: int
    pp_chunks: int
    link: keys.LinkUsed | None
    link_tp: keys.LinkUsed | None
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


class ServeReport(keys.ModelReport):
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


class FitReport(keys.ModelReport):
    """How many of each device hold the weights and the cache: a count."""

    _line = FittingDevice

    workload: keys.Workload
    dtype_from: keys.DtypeFrom
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
