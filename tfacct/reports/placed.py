"""A model on devices, where every estimate of time begins, and the sentences that tell an estimate from a count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from tfacct.base import units
from tfacct.base.errors import ConfigError, TfacctError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option, spelled
from tfacct.ledger.storage import BF16, BF16_EACH, width
from tfacct.ledger.workload import Workload, check_size
from tfacct.loading import devices
from tfacct.loading.links import Link
from tfacct.loading.model import LoadedModel
from tfacct.reports import counting, sentences
from tfacct.reports.budget import Budget
from tfacct.timing.kernels import NoKernelError, Split, kernels, share
from tfacct.timing.serving import Host
from tfacct.timing.timing import CONSTANTS, WIDE, units_of
from tfacct.timing.validated import REPORTED, STORED, VALIDATED, Metric, Validation

MEASURED = "NVIDIA"
"""The maker of all devices that have measured runs."""
MEASURED_REACH = "domain"
"""Reach of the link in all measured runs of several devices: NVLink."""
CROWD = 1000
"""Sequences above which a bank of experts was measured too rarely."""
CONVENTION = (
    "an estimate: seconds by a fitted law over FLOPs, bytes and launches; FLOPs and bytes are counted, per device"
)


@record
class Placed:
    """A model on `count` devices of one kind, its weights stored as `dtype` says: in words for a title, `stored`, and
    where that is from, `stored_facts`."""

    subject: LoadedModel
    device: devices.Device
    count: int
    dtype: str
    cache: str
    host: Host
    stored: str
    stored_facts: Mapping[str, str | None]

    @property
    def where(self) -> str:
        """The devices in words: `4 × H100 SXM5 80GB`."""
        return self.device.name if self.count == 1 else f"{self.count:,} × {self.device.name}"

    @property
    def runs_alike(self) -> int:
        """Measured runs of models of this class with weights in this format."""
        stored = self.dtype.split("+")[0]
        return STORED[self.validation.kind].get("fp8" if stored == "fp8-block" else stored, 0)

    @property
    def link(self) -> Link | None:
        """The link of the devices; None of one."""
        return None if self.count == 1 else self.device.link(self.count)

    @property
    def validation(self) -> Validation:
        """Errors of whole requests of models of this class."""
        return VALIDATED["experts" if self.subject.ledger.experts else "dense", "request"]

    def error(self, metric: Metric = "request", sequences: int = 1) -> Validation | None:
        """Errors on measured runs of this class of models; None where none was like this."""
        if self.device.vendor != MEASURED or (self.subject.ledger.experts and sequences > CROWD):
            return None
        if self.link is not None and self.link.reach != MEASURED_REACH:
            return None
        return VALIDATED[self.validation.kind, metric]

    def facts(self) -> dict[str, Any]:
        """The devices, as they stand in the JSON."""
        split = self.host.split
        place = {"device": self.device.id, "count": self.count, "tp": split.tp, "ep": split.ep}
        link = None if self.link is None else self.link.facts()
        stored = {"dtype": self.dtype, **self.stored_facts, "kv_dtype": self.cache}
        return {**place, "link": link, **self.device.memory_facts(), **stored}


def placed(
    subject: LoadedModel, on: str, *, dtype: str | None = None, kv_dtype: str | None = None, ep: int = 1
) -> Placed:
    """The model on the devices that `on` names. Raises TfacctError."""
    count, device = devices.several(option("on"), on)
    check_size(option("ep"), ep)
    if device.calibration is not None:
        raise UsageError(
            f"{device.id} was swept with the reference model, which serves no users",
            "`tfacct time` predicts its passes",
        )
    return put(subject, count, device, dtype=dtype, kv_dtype=kv_dtype, ep=ep)


def put(
    subject: LoadedModel,
    count: int,
    device: devices.Device,
    *,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    ep: int = 1,
) -> Placed:
    """The model on so many devices. Raises TfacctError for one that has no kernels, or that they do not divide."""
    if (odd := _odd(subject)) is not None:
        raise ConfigError(f"{subject.name}: no estimate for {odd}", "decoders that keep a cache have one")
    if ep > 1 and not subject.ledger.experts:
        raise UsageError(f"{subject.name} has no experts, so {option('ep')} does not apply", "leave it out")
    if count % ep:
        raise UsageError(
            f"{option('ep', ep)} does not divide {count:,} devices",
            f"numbers that do: {', '.join(str(n) for n in range(1, count + 1) if not count % n)}",
        )
    if count > 1:
        device.link(count)
    if count > 1 and (what := unlowered(subject)) is not None:  # no other number of devices has them
        raise named(NoKernelError(what), subject)
    check_heads(subject, count)
    storage = subject.storage(dtype)
    if count > 1 and undivided(subject, dtype):
        raise UsageError(
            f"{subject.name}: weights in {storage.name} are not divided here",
            f"ask for one device: {option('on', device.id)}",
        )
    split = Split(count, 1, ep)
    if count > 1:
        from tfacct.parallel.support import check_shares

        each = (share(one.parameter, one.axes, split, one.experts) for one in subject.ledger.tensors())
        check_shares(subject, dtype, each, storage)
    name, wide = counting.dtypes(dtype)
    cache = counting.dtypes(dtype, kv_dtype)[1]
    host = Host(subject.ledger, device, split, storage, width(wide), width(cache))
    try:
        host.kernels(Workload(1, 1, 1))
    except ConfigError as error:
        error.message = f"{subject.name}: {error.message}"
        raise
    stored, facts = counting.format_name(subject, dtype), counting.format_facts(subject, dtype)
    return Placed(subject, device, count, storage.name if dtype is None else name, cache, host, stored, facts)


def undivided(subject: LoadedModel, dtype: str | None) -> bool:
    """Whether weights are llama.cpp's mixture, whose types follow from whole tensors and the blocks' numbers."""
    return (dtype is not None and units.dtype_name(dtype) in units.GGUF) or subject.storage(dtype).by_block


def _odd(subject: LoadedModel) -> str | None:
    if subject.architecture.mtp is not None:
        return "multi-token prediction heads"
    encoder = subject.architecture.encoder
    if encoder is not None:
        return encoder.words
    return None if subject.keeps else "an encoder"


def unlowered(subject: LoadedModel) -> str | None:
    """What of a model has no kernels, in words; None if all of it has."""
    if (odd := _odd(subject)) is not None:
        return odd
    try:
        kernels(subject.ledger, Workload(1, 1, 1).axes(), BF16, BF16_EACH, BF16_EACH)
    except NoKernelError as error:
        return error.what
    return None


def check_heads(subject: LoadedModel, count: int) -> None:
    """Raises UsageError for devices that would have unequal numbers of heads."""
    if count in (fitting := head_divisors(subject)) or not fitting:
        return
    heads, shared = ({group.axes[axis] for group in subject.ledger.groups if axis in group.axes} for axis in "NK")
    what = f"{units.between(heads)} query heads"
    if all(whole % count == 0 for whole in heads):
        what = f"{units.between(shared)} key/value heads"
    near = [*[one for one in fitting if one < count][-1:], *[one for one in fitting if one > count][:1]]
    said = f"{subject.name}: {count:,} devices do not divide the {what}"
    raise UsageError(said, f"try {' or '.join(map(str, near))}")


def head_divisors(subject: LoadedModel) -> list[int]:
    """Numbers of devices that divide the query heads, and divide the key/value heads or are a multiple of them; none
    where there are no heads."""
    each = [(group.axes["N"], group.axes.get("K")) for group in subject.ledger.groups if "N" in group.axes]
    return [
        count
        for count in range(1, max((heads for heads, _ in each), default=0) + 1)
        if all(
            heads % count == 0 and (not shared or shared % count == 0 or count % shared == 0) for heads, shared in each
        )
    ]


def check_room(one: Placed, context: int, sequences: int, memory: Budget) -> None:
    """Raises UsageError where the weights, or the cache next to them, do not fit into the usable memory."""
    stored, kept = one.host.stored(), one.host.kept(context, sequences)
    if stored + kept > memory.usable:
        what = f"{units.binary(stored)} of weights"
        if stored <= memory.usable:
            what += f" and {units.binary(kept)} of cache"
        raise UsageError(
            f"{one.subject.name}: {what} do not fit into the usable {memory.words}",
            spelled(f"`tfacct fit {one.subject.name}` says how many devices hold it", "ask for more of them"),
        )


def gathered_notes(subject: LoadedModel, count: int) -> list[str]:
    """How devices divide a cache whose keys are normed over all heads together, for transformers' plan divides none."""
    from tfacct.parallel.support import gathers_heads

    if count == 1 or not gathers_heads(subject):
        return []
    plan = spelled(f"`tfacct memory {subject.name} --tp {count}`", f"memory(tp={count})")
    return [f"The cache is divided by heads, as in vLLM. Under transformers' plan each rank has all of it ({plan})."]


def error_said(one: Placed, sequences: int = 1) -> str:
    """The sentence that every estimate carries: what it was measured against."""
    error, kind = one.error("request", sequences), one.validation.kind
    models = "Models with experts" if kind == "experts" else "Dense models"
    if error is None and one.device.vendor != MEASURED:
        maker = one.device.vendor or "this maker"
        return f"Estimate. No run on devices of {maker} was measured, so its error is not known."
    if error is None and one.link is not None and one.link.reach != MEASURED_REACH:
        return f"Estimate. No run {one.link.place} was measured, so its error is not known."
    if error is None:
        return f"Estimate. Experts under more than {CROWD:,} sequences were hardly measured, so its error is not known."
    reported, here = REPORTED[kind, "request"], error.on.get(one.device.id, 0)
    stored = "" if one.runs_alike else f", none with {one.dtype} weights"
    return (
        f"Estimate. {models}: median error {units.percent(reported.median)} (request latency) on {reported.runs:,} runs"
        f" never fitted; {f'{here:,} runs' if here else 'no run'} on this device {'were' if here else 'was'} fitted"
        f"{stored}."
    )


def stored_said(one: Placed) -> str:
    """How weights are stored and in what they are multiplied."""
    used, wide = units_of(one.device, one.dtype), one.host.activations.name
    said = f"FLOPs and bytes are per device. Weights {one.dtype}, activations {wide}, cache {one.cache}."
    if one.host.weights.least is not None:
        said += f" The upper end of the weights' range is counted: {one.host.weights.differs}."
    if one.dtype not in WIDE:
        said += f" Narrow weights are multiplied in {used}."
    elif used != one.dtype:
        said += f" The device has no {one.dtype} units: they are multiplied in {used}."
    return said


def files_said(one: Placed) -> list[str]:
    """How far the files next to the config are from what is counted, where the config says the format; and a cache that
    it stores in another format."""
    given = one.stored_facts["dtype_from"] == counting.GIVEN
    return [
        *(() if given else sentences.files_notes([one.subject])),
        *sentences.cache_notes([one.subject], one.cache),
    ]


def link_said(one: Placed) -> list[str]:
    """Which link the devices use; nothing of one device."""
    return [] if one.link is None else [one.link.words]


def validation_facts(one: Placed, sequences: int = 1) -> dict[str, Any] | None:
    """Errors on measured runs, as they stand in the JSON; null where none was like this."""
    error = one.error("request", sequences)
    if error is None:
        return None
    return facts_of_errors(error, one.device.id, one.runs_alike)


def facts_of_errors(error: Validation, device: str, alike: int) -> dict[str, Any]:
    """Errors as the JSON has them. `device`: its id; `alike`: fitted runs whose weights have the same format."""
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


def assumptions() -> dict[str, float]:
    """Every constant of the law."""
    return constants_of(CONSTANTS)


def constants_of(constants: Any) -> dict[str, float]:
    """Constants by name."""
    return {field.name: getattr(constants, field.name) for field in fields(constants)}


def interval(one: Placed, seconds: float, sequences: int = 1, least: float = 0) -> tuple[float, float] | None:
    """Seconds between which 80 % of such runs lie, and none below `least`; None where no error is known."""
    error = one.error("request", sequences)
    return None if error is None else (max(least, seconds * error.low), seconds * error.high)


def through(values: Sequence[float]) -> str:
    """Two times in one unit: `16.3 … 23.8 ms`."""
    low, high = map(units.seconds, values)
    return f"{low.split()[0]} … {high}" if low.split()[1] == high.split()[1] else f"{low} … {high}"


def named(error: TfacctError, subject: LoadedModel) -> TfacctError:
    """The error with the model's name in front."""
    if not error.message.startswith(subject.name):
        error.message = f"{subject.name}: {error.message}"
    return error
