"""How long a model takes on devices: estimates, with what they were measured against."""

from __future__ import annotations

from typing import Literal, TypedDict, Unpack

from tfacct.api import lines as each
from tfacct.api.answer import answered
from tfacct.api.answers import _Common
from tfacct.api.asked import Asked
from tfacct.api.keywords import request, spelled_out
from tfacct.ledger.workload import Step


class OnDevices(TypedDict):
    """Devices that share a model."""

    device: str
    count: int
    tp: int
    ep: int
    memory_bytes: int
    dtype: str
    kv_dtype: str


Validated = TypedDict(
    "Validated",
    {
        "class": Literal["dense", "experts"],
        "metric": Literal["request", "token"],
        "points": int,
        "cells": int,
        "points_on_device": int,
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
    bytes: int
    limit: Literal["compute", "memory", "launch", "link"]
    seconds: float | None


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


class Estimated(Asked):
    """Questions about time."""

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
        **step: Unpack[Step],
    ) -> TimeReport:
        """Estimated seconds of a step on devices: of a decode step, of `tokens` new ones, or with `prefill` of prompts.

        >>> from tfacct import load
        >>> step = load("llama-3.1-70b").time(on="4xh100-sxm", dtype="fp8", ctx="8k", batch=32)
        >>> step.bound_seconds < step.interval_80_seconds[0] < step.value_seconds
        True

        `on`: devices that share the model, `"4xh100-sxm"`. `ep`: parts that experts are divided into by number.
        `bound_only`: what no device of these peaks goes below, and no estimate. Raises TfacctError for devices that are
        not known, or that the model does not fit, and for a model with a part that has no kernel.
        """
        from tfacct.reports.time import time

        report = time(
            self.loaded,
            request(step),
            on,
            prefill=prefill,
            dtype=dtype,
            kv_dtype=kv_dtype,
            ep=ep,
            bound_only=bound_only,
        )
        return answered(TimeReport, report)
