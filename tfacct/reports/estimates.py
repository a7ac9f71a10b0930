"""What every estimate of time reports: the devices, the formats, and the errors on measured runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal

from tfacct.base import units
from tfacct.loading import selection
from tfacct.loading.devices import Device
from tfacct.loading.links import Link, LinkUsed
from tfacct.output.keys import Keys, Object, values_of
from tfacct.output.report import NoteRow
from tfacct.parallel.support import gathers_heads
from tfacct.reports import build, model_notes
from tfacct.timing.kernel_time import CONSTANTS, units_of
from tfacct.timing.placement import Deployment, Placement
from tfacct.timing.validated import (
    NEWER_LAYOUTS,
    NEWER_STACKS,
    VALIDATED,
    Class,
    Metric,
    Validation,
    reported,
    runs_in,
    unmeasured_step,
)

CONVENTION = "FLOPs, bytes and kernel launches of each device; seconds are estimated from them by a fitted law"


of_placement: Keys[[Placement]] = Keys()
of_error: Keys[[Validation, str, int]] = Keys()


class OnDevices(Object):
    """The devices of a model that is served, the formats of its weights and its cache."""

    device: str = of_placement(lambda one: one.device.id)
    count: int = of_placement(lambda one: one.count)
    tp: int = of_placement(lambda one: one.host.mesh.tp)
    ep: int = of_placement(lambda one: one.host.mesh.ep)
    link: LinkUsed | None = of_placement(lambda one: one.link and one.link.facts())
    memory_bytes: int
    memory_from: str
    dtype: str = of_placement(lambda one: one.dtype)
    dtype_from: build.DtypeFrom
    published_dtype: str | None
    kv_dtype: str = of_placement(lambda one: one.host.cache.name)


class Validated(Object):
    """Errors of these estimates, as shares of 1, on measured runs that no constant was fitted to."""

    class_: Literal["dense", "experts", "recurrent", "indexed", "pcie", "amd", "training", "divided"] = of_error(
        lambda error, *_: error.kind
    )
    metric: Metric = of_error(lambda error, *_: error.metric)
    points: int = of_error(lambda error, *_: reported(error.kind, error.metric).runs)
    cells: int = of_error(lambda error, *_: error.cells)
    points_on_device: int = of_error(lambda error, device, _: error.on.get(device, 0))
    points_in_dtype: int = of_error(lambda _, __, alike: alike)
    median_error: float = of_error(lambda error, *_: reported(error.kind, error.metric).median)
    coverage: float = of_error(lambda error, *_: reported(error.kind, error.metric).coverage)


HOW_MEASURED: Mapping[Class, str] = {
    "dense": "runs (cross-validation)",
    "experts": "runs of MoE models (cross-validation)",
    "recurrent": "runs of Qwen3.5 (no constant was fitted to them)",
    "indexed": "runs of GLM-5 (no constant was fitted to them)",
    "pcie": "runs over PCIe (cross-validation)",
    "amd": "runs (a factor for AMD was fitted to them)",
}
"""The runs that an error was measured on."""


def error_note(one: Placement, metric: Metric = "request") -> str:
    """The measured error of a serving estimate, or why it is not known."""
    error = one.error(metric)
    if error is None:
        return f"Estimate. {_unknown(one.unmeasured)}" + (_corrected(one, None) if one.measured_runs else "")
    if one.measured_runs:
        return _corrected(one, error)
    return (
        f"Estimate: median error {units.percent(error.median)} on {error.runs:,} {HOW_MEASURED[error.kind]}"
        f"{_without(one, error)}. {interval_words(error)}"
    )


def _without(one: Placement, error: Validation) -> str:
    """That no measured run was on this device, or in this format; empty if one was."""
    missing = [] if error.on.get(one.device.id) else ["on this device"]
    missing += [] if runs_in(one.kind, one.dtype) else [f"with {one.dtype} weights"]
    return f", none of them {' or '.join(missing)}" if missing else ""


ESTIMATED: Mapping[Metric, str] = {"token": "the time per token", "decode": "a decode step"}


def interval_words(error: Validation) -> str:
    """The 80% interval, and the share of runs that lay in it when their cell was left out."""
    what = ESTIMATED.get(error.metric, "a request's time")
    covered, ends = units.percent(error.coverage, 0), f"{error.low:.2f} to {error.high:.2f}"
    return f"The 80% interval of {what}, {ends} × the estimate, covered {covered} of these runs."


def _corrected(one: Placement, error: Validation | None) -> str:
    """How runs of the user's own correct the estimate, and the measured error after so many."""
    own = f"{units.number_of(len(one.measured_runs), 'run')} of your own"
    note = f"Times are scaled by {one.host.constants.pace:.2f} to fit {own}"
    if error is None:
        return f" {note}."
    if one.scattered:
        ends = " … ".join(dict.fromkeys(f"{end(one.measured_runs):.2f}" for end in (min, max)))
        return f"{note}. Your times are {ends} × the scaled ones, and the ranges include them."
    measured = f"Median error {units.percent(error.median)} on {error.runs:,} measured runs{_without(one, error)}"
    return f"{note}. {measured}. {interval_words(error)}"


def step_error(alike: str, device: Device, link: Link | None, dtype: str) -> str:
    """The measured error of a training step's estimate in words. `alike`: the measured steps that it is like. `link`:
    of all devices. `dtype`: of the matmuls."""
    if reason := unmeasured_step(device, link, alike):
        return _unknown(reason)
    others = "Expect larger errors with other software."
    in_fp8 = "" if dtype == "fp8" else f" The measured steps ran in fp8, this one runs in {dtype}."
    if alike == "stacks":
        stacks = " and ".join(f"{units.percent(one.median)} with {name}" for name, one in NEWER_STACKS.items())
        return f"Median error on fp8 steps (2024 to 2026): {stacks}. {others}{in_fp8}"
    if (newer := NEWER_LAYOUTS.get(alike)) is not None:
        fitted = "one constant was fitted to these steps" if newer.chosen else "no constant was fitted to these steps"
        return (
            f"Median error {units.percent(newer.median)} on {newer.runs} steps {alike} ({newer.stack}, 2024 to 2026);"
            f" {fitted}. {others}{in_fp8 if newer.fp8_only else ''}"
        )
    error, here = reported(alike, "step"), VALIDATED[alike, "step"].on.get(device.id, 0)
    steps = f"median error {units.percent(error.median)} on {error.runs:,} steps"
    if alike == "divided":
        where = f"{here:,} of them" if here else "none of them"
        unknown = "" if here else ", so its error here is not known"
        return f"GPT models under Megatron-LM (2021 and 2022): {steps}, {where} on this device{unknown}."
    fitted = f"{here:,} steps on this device were" if here else "no step on this device was"
    return f"MPT under FSDP (llm-foundry, 2023): {steps} that were not fitted; {fitted} fitted."


def _unknown(reason: str) -> str:
    return f"{reason}, so its error is not known."


def formats_note(one: Placement) -> str:
    """The formats of weights, activations and cache, and the units that multiply."""
    used, wide = units_of(one.device, one.dtype), one.host.activations.name
    formats = f"Weights {one.dtype}, activations {wide}, cache {one.host.cache.name}; matmuls run in {used}."
    return f"FLOPs and bytes are per device. {formats}"


def link_notes(*links: Link | None) -> list[str]:
    """The links between devices, each once."""
    return list(dict.fromkeys(link.words for link in links if link is not None))


def placement_facts(one: Placement) -> dict[str, Any]:
    """Keys of `OnDevices`."""
    return values_of(
        OnDevices, one, **one.device.memory_facts(), **selection.format_facts(one.model, one.requested_dtype)
    )


def validation_facts(one: Placement, metric: Metric = "request") -> dict[str, Any] | None:
    """Keys of `Validated`; None if no run like this was measured, or the user's own differ more than such runs."""
    error = None if one.scattered else one.error(metric)
    return None if error is None else values_of(Validated, error, one.device.id, runs_in(one.kind, one.dtype))


DOUBT = (
    "The sweep's own checks are far off: the machine was busy, or its threads waited for others. Sweep it again when it"
    " is idle, or with one thread (OMP_NUM_THREADS=1)."
)
"""Note on the calibration of a busy machine."""


def assumptions(*laws: Any) -> dict[str, float]:
    """Fitted constants by name: those of the laws given, or of serving."""
    return {field.name: getattr(law, field.name) for law in laws or (CONSTANTS,) for field in fields(law)}


def calibrated_id(on: Deployment, *, train: bool = False) -> str:
    """The id of a device with a calibration; empty for another."""
    device = on.memory(training=train).device
    assert device is not None
    return device.id if device.calibration is not None else ""


def _files(one: Placement) -> list[str]:
    """How the checkpoint differs from the count, if the format was not given; and the format of the cache, if the
    config names one."""
    given = selection.format_facts(one.model, one.requested_dtype)["dtype_from"] == selection.GIVEN
    return [
        *(() if given else model_notes.files_notes([one.model])),
        *model_notes.cache_notes([one.model], one.host.cache.name),
    ]


FILES = NoteRow("files", 2, lambda about: _files(about.one))
RANGE = NoteRow(
    "range",
    2,
    lambda about: about.one.host.weights.least is not None and about.one.host.weights.differs,
    "Weights are counted at the upper end of their range: {}.",
)
LINKS = NoteRow("links", 2, lambda about: link_notes(about.one.link))
HEAD_NORMS = NoteRow(
    "head_norms",
    2,
    lambda about: about.one.count > 1 and gathers_heads(about.one.model),
    "Not included: what devices exchange for the norm over all query or key heads.",
)
"""Notes on a model that is served, `about.one`."""
