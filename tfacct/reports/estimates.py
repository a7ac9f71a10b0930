"""What every estimate of time prints: devices, formats, and the error on measured runs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, TypedDict

from tfacct.base import units
from tfacct.base.spelling import spelled
from tfacct.loading.devices import Device
from tfacct.loading.links import Link
from tfacct.loading.model import LoadedModel
from tfacct.parallel.support import gathers_heads
from tfacct.reports import keys, model_notes, selection
from tfacct.timing.placement import Placement
from tfacct.timing.step_estimate import measured_alike, unmeasured_step
from tfacct.timing.timing import CONSTANTS, WIDE, units_of
from tfacct.timing.validated import NEWER_STACKS, REPORTED, VALIDATED, Class, Validation

CONVENTION = (
    "an estimate: seconds by a fitted law over FLOPs, bytes and launches; FLOPs and bytes are counted, per device"
)


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


def error_note(one: Placement, sequences: int = 1) -> str:
    """The measured error of an estimate of serving, or the reason why none is known."""
    error = one.error("request", sequences)
    if error is None:
        return _unknown(one.unmeasured(sequences))
    reported = REPORTED[error.kind, "request"]
    missing = [] if error.on.get(one.device.id) else ["on this device"]
    missing += [] if one.runs_alike else [f"with {one.dtype} weights"]
    none = f"; none {' or '.join(missing)}" if missing else ""
    return (
        f"Estimate: median error {units.percent(reported.median)} on {reported.runs:,} runs never fitted; 80% lie"
        f" within × {error.low:.2f} … {error.high:.2f}{none}."
    )


def evidence_note(one: Placement, sequences: int = 1) -> str:
    """The runs that the error was measured on; empty where none is known."""
    error = one.error("request", sequences)
    if error is None:
        return ""
    models = "models with experts" if error.kind == "experts" else "dense models"
    return (
        f"The error is that of the latency of requests to {models}; {_fitted(error.on.get(one.device.id, 0), 'run')},"
        f" and {units.percent(error.coverage)} of the measured runs lie in the interval of the others."
    )


def step_error_note(model: LoadedModel, device: Device, megatron: bool, link: Link | None) -> str:
    """The measured error of the estimate of a training step, or the reason why none is known. `link`: of all
    devices."""
    if reason := unmeasured_step(device, link):
        return _unknown(reason)
    kind: Class = "divided" if megatron else "training"
    reported, here = REPORTED[kind, "step"], VALIDATED[kind, "step"].on.get(device.id, 0)
    if megatron:
        where = f"{here:,} of them" if here else "none of them"
        unknown = "" if here else ", so its error here is not known"
        return (
            f"Estimate. GPT models under Megatron-LM (2021 and 2022): median error {units.percent(reported.median)} on"
            f" {reported.runs:,} steps, {where} on this device{unknown}."
        )
    if measured_alike(model, megatron):
        return (
            f"Estimate. MPT under FSDP (llm-foundry, 2023): median error {units.percent(reported.median)} on"
            f" {reported.runs:,} steps never fitted; {_fitted(here, 'step')}."
        )
    stacks = " and ".join(f"{units.percent(one.median, 0)} on {name}" for name, one in NEWER_STACKS.items())
    return f"Estimate by constants of MPT steps of 2023. Steps of 2024 to 2026: median error {stacks}."


def _unknown(reason: str) -> str:
    return f"Estimate. {reason}, so its error is not known."


def _fitted(here: int, what: str) -> str:
    return f"{f'{here:,} {what}s' if here else f'no {what}'} on this device {'were' if here else 'was'} fitted"


def formats_note(one: Placement) -> str:
    """The format of weights, and the units that multiply them."""
    used, wide = units_of(one.device, one.dtype), one.host.activations.name
    note = f"FLOPs and bytes are per device. Weights {one.dtype}, activations {wide}, cache {one.cache}."
    if one.dtype not in WIDE:
        note += f" Narrow weights are multiplied in {used}."
    elif used != one.dtype:
        note += f" The device has no {one.dtype} units: they are multiplied in {used}."
    return note


def range_note(one: Placement) -> str:
    """Says that the upper end is counted, where the bytes of the weights are a range."""
    weights = one.host.weights
    return "" if weights.least is None else f"The upper end of the weights' range is counted: {weights.differs}."


def files_notes(one: Placement) -> list[str]:
    """The difference between the files next to the config and the count, where the config names the format; and a
    cache that it stores in another format."""
    given = selection.format_facts(one.model, one.asked)["dtype_from"] == selection.GIVEN
    return [
        *(() if given else model_notes.files_notes([one.model])),
        *model_notes.cache_notes([one.model], one.cache),
    ]


def link_notes(*links: Link | None) -> list[str]:
    """The links that devices use."""
    return list(dict.fromkeys(link.words for link in links if link is not None))


def gathered_notes(model: LoadedModel, count: int) -> list[str]:
    """Says how devices shard a cache whose keys are normed over all heads together: transformers' plan shards none."""
    if count == 1 or not gathers_heads(model):
        return []
    plan = spelled(f"`tfacct memory {model.name} --tp {count}`", f"memory(tp={count})")
    return [f"The cache is divided by heads, as in vLLM. Under transformers' plan each rank has all of it ({plan})."]


def placement_facts(one: Placement) -> dict[str, Any]:
    """The devices in the JSON."""
    split = one.host.split
    return {
        "device": one.device.id,
        "count": one.count,
        "tp": split.tp,
        "ep": split.ep,
        "link": None if one.link is None else one.link.facts(),
        **one.device.memory_facts(),
        "dtype": one.dtype,
        **selection.format_facts(one.model, one.asked),
        "kv_dtype": one.cache,
    }


def validation_facts(one: Placement, sequences: int = 1) -> dict[str, Any] | None:
    """Errors on measured runs in the JSON; null where none was like this."""
    error = one.error("request", sequences)
    return None if error is None else error_facts(error, one.device.id, one.runs_alike)


def error_facts(error: Validation, device: str, alike: int) -> dict[str, Any]:
    """Errors in the JSON. `device`: its id; `alike`: fitted runs whose weights have the same format."""
    reported = REPORTED[error.kind, error.metric]
    return {
        "class": error.kind,
        "metric": error.metric,
        "points": reported.runs,
        "points_fitted": error.runs,
        "cells": error.cells,
        "points_on_device": error.on.get(device, 0),
        "points_in_dtype": alike,
        "median_error": reported.median,
        "coverage": reported.coverage,
    }


def assumptions(*laws: Any) -> dict[str, float]:
    """Every constant of the laws by name; of serving without any."""
    return {field.name: getattr(law, field.name) for law in laws or (CONSTANTS,) for field in fields(law)}
