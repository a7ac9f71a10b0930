"""How many of each device hold a model's weights and its cache: a count, not an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple, TypedDict

from tfacct.base import units
from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.spelling import option, spelled
from tfacct.ledger.workload import Request, Workload, check_size
from tfacct.loading import devices
from tfacct.loading.links import Links
from tfacct.loading.model import LoadedModel
from tfacct.loading.where import MemoryLimit, of_device
from tfacct.output.answer import answers
from tfacct.output.report import Column, NoteRow, Report, Row, Table, notes
from tfacct.parallel.support import CutError
from tfacct.reports import build, keys, model_notes, selection
from tfacct.reports.estimates import gathered_notes
from tfacct.timing.placement import (
    Placement,
    check_experts,
    head_divisors,
    on_one_device,
    place,
    unsupported_part,
)

MOST = 1024
"""Devices that one model is divided among."""


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


class Share(NamedTuple):
    """Bytes on each of so many devices."""

    devices: int
    weights: int
    cache: int

    @property
    def total(self) -> int:
        """Bytes of both."""
        return self.weights + self.cache


class Needed(NamedTuple):
    """A device, its memory that may be used, and the fewest that hold the model and whose link is known; None if none
    do, with the `reason`. `unlinked`: the fewest that hold it, where no link of so many is known. `most`: the largest
    number that was tried; `cut`: a larger one would hold it, but cuts blocks of the weights' format."""

    device: devices.Device
    memory: MemoryLimit
    share: Share | None
    unlinked: int | None
    most: int
    cut: bool

    @property
    def usable(self) -> int:
        """Bytes of each device that may be used."""
        return self.memory.usable

    @property
    def reason(self) -> str | None:
        """Why no number of this device is recommended; None where one is."""
        if self.share is not None:
            return None
        if self.unlinked is not None:
            most = self.device.links.largest
            return "no link" if most == 1 else f"no link past {most}"
        return "cuts blocks" if self.cut else f"too small at {self.most}" if self.most > 1 else "too small"


class Fitting(NamedTuple):
    """A model, and what of each device holds it. `placed`: it on one device; `whole`: its bytes there; `stored`: the
    format of its weights; `alone`: weights that are not divided among devices."""

    model: LoadedModel
    placed: Placement
    whole: Share
    devices: Sequence[Needed]
    stored: str
    alone: bool


@answers(FitReport)
def fit(
    model: LoadedModel,
    request: Request,
    found: Sequence[devices.Device],
    *,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    ep: int = 1,
    use: float | None = None,
    reserve: int | str | None = None,
) -> Report:
    """How many of each device hold the weights and the cache at the end of a step. Raises TfacctError."""
    if request.tokens is not None or request.decode:
        raise UsageError(f"{option('tokens')} and {option('decode')} change nothing that is kept", "leave them out")
    _check_counted(model)
    counts = _counts(model, ep, dtype)
    found = list({device.id: device for device in found}.values())
    work = selection.runnable(model, request)
    joined = replace(found[0], links=Links(one_way=1, domain=MOST))
    every = []
    for count in counts:  # no byte depends on what the device is
        parts = ep if count % ep == 0 else 1
        try:
            host = place(model, count, joined, dtype=dtype, kv_dtype=kv_dtype, ep=parts).host
        except CutError:
            continue
        every.append(Share(count, host.stored(), host.kept(work.context, work.batch)))
    whole, most = every[0], every[-1].devices
    needed = []
    for device in found:
        memory = of_device(1, device, use, reserve)
        fewest = next((one for one in every if one.total <= memory.usable and one.devices % ep == 0), None)
        unlinked = None if fewest is None or device.links.known(fewest.devices) else fewest.devices
        cut = any(count > most and whole.total <= count * memory.usable for count in counts)
        needed.append(Needed(device, memory, fewest if unlinked is None else None, unlinked, most, cut))
    one, stored = place(model, 1, found[0], dtype=dtype, kv_dtype=kv_dtype), selection.format_name(model, dtype)
    about = Fitting(model, one, whole, needed, stored, on_one_device(model, dtype))
    weights, cache = units.binary(whole.weights), units.binary(whole.cache)
    return build.report(
        "fit",
        [model],
        _table(about),
        [_facts(about, work)],
        title=f"{build.name_of(model)}: {weights} of weights and {cache} of cache, {stored},"
        f" {build.workload_words([model], request)}",
        convention="weights and cache as stored; each device holds its share, and what is not divided",
        answer=_answer(about),
        notes=lambda _: notes(NOTES, about),
        requests=[request],
    )


def _check_counted(model: LoadedModel) -> None:
    """Raises ConfigError, in the words of a count, for a model that is not divided among devices here."""
    odd = unsupported_part(model)
    if odd is not None:
        raise ConfigError(
            f"{model.name}: devices are not counted for {odd}",
            spelled(
                f"`tfacct memory {model.name} --on DEVICE` counts whether one holds it",
                "memory(fit=...) counts whether one device holds it",
            ),
        )


def _counts(model: LoadedModel, ep: int, dtype: str | None) -> list[int]:
    """Numbers of devices that divide the heads. Raises UsageError for parts of experts that none is divided into."""
    check_size(option("ep"), ep)
    check_experts(model, ep)
    counts = (
        [1]
        if on_one_device(model, dtype)
        else head_divisors(model) or [1 << power for power in range(MOST.bit_length())]
    )
    if all(count % ep for count in counts):
        raise UsageError(
            f"{option('ep', ep)} divides none of {', '.join(map(str, counts))} devices", "a power of two may"
        )
    return counts


def _table(about: Fitting) -> Table:
    needed, whole = about.devices, about.whole
    rows: list[Row] = [
        {
            "device": one.device.id,
            "usable_bytes": one.usable,
            "needs": None if not one.usable else Fraction(whole.total, one.usable),
            "count": None if one.share is None else one.share.devices,
            "each_bytes": None if one.share is None else one.share.total,
            "left_bytes": None if one.share is None else one.usable - one.share.total,
            "reason": one.reason or "",
        }
        for one in needed
    ]
    columns = (
        Column("device", "device"),
        Column("usable_bytes", "usable each", "bytes"),
        Column("needs", "needed", "ratio", drop=2, empty="–"),
        Column("count", "in use", "count", empty="none"),
        Column("each_bytes", "on each", "bytes", drop=1, empty="–"),
        Column("left_bytes", "left on each", "bytes", drop=1, empty="–"),
        *((Column("reason", "why none"),) if any(one.reason for one in needed) else ()),
    )
    return columns, (tuple(rows),), ()


def _answer(about: Fitting) -> str:
    needed = about.devices
    counts = {one.device.id: one.share.devices for one in needed if one.share is not None}
    if len(needed) == 1:
        (one,) = needed
        most = one.device.links.largest
        if counts:
            return f"It takes {counts[one.device.id]:,} × {one.device.id}."
        if one.unlinked is not None:
            known = f"no link of more than {most} is known" if most != 1 else "no link between them is known"
            return f"It would take {one.unlinked:,} × {one.device.id}, but {known}."
        if one.cut:
            return f"More than {one.most:,} × {one.device.id} would hold it, but cut blocks of its weights."
        return "One of this device does not hold it." if about.alone else "No number of this device holds it."
    if not counts:
        return "None of these devices hold it."
    fewest, left = min(counts.values()), len(needed) - len(counts)
    names = [name for name, count in counts.items() if count == fewest]
    more = f" and {len(names) - 3} others" if len(names) > 3 else ""
    none = f"; the table says why none of the other {left} does" if left else ""
    hold = "One device holds it:" if fewest == 1 else f"The fewest that hold it are {fewest:,}, of"
    return f"{hold} {', '.join(names[:3])}{more}{none}."


def _unlinked(about: Fitting) -> dict[str, str] | None:
    """Devices without a known link for the number that would hold the model."""
    found = [f"{one.device.id}: {one.unlinked:,}" for one in about.devices if one.unlinked is not None]
    more = f" and {len(found) - 3:,} more" if len(found) > 3 else ""
    return {"devices": ", ".join(found[:3]), "more": more} if found else None


def _cuts(about: Fitting) -> dict[str, Any] | None:
    """Numbers of devices that would cut blocks of the weights' format."""
    if not any(one.reason == "cuts blocks" for one in about.devices):
        return None
    whole = f"; {option('ep')} leaves experts whole" if about.model.ledger.experts else ""
    return {"most": about.devices[0].most, "stored": about.stored, "whole": whole}


NOTES = (
    NoteRow("files", 1, lambda about: model_notes.files_notes([about.model], about.placed.asked)),
    NoteRow("unlinked", 1, _unlinked, "No link: none is known for the number that would hold it ({devices}{more})."),
    NoteRow("cuts", 1, _cuts, "Cuts blocks: more than {most:,} devices cut blocks of {stored}{whole}."),
    NoteRow(
        "whole",
        1,
        lambda about: about.alone and about.placed.dtype,
        "Weights in {} are not divided here: one of each device is asked about.",
    ),
    NoteRow(
        "rule",
        2,
        lambda about: about.devices[0].memory.rule,
        "Usable: {}. In use: the fewest devices that divide the query heads and hold weights and cache.",
    ),
    NoteRow("cache_format", 2, lambda about: model_notes.cache_notes([about.model], about.placed.cache)),
    NoteRow(
        "gathered",
        2,
        lambda about: gathered_notes(about.model, max(one.share.devices if one.share else 1 for one in about.devices)),
    ),
    NoteRow("range", 2, lambda about: model_notes.range_notes([about.model], about.placed.asked)),
    NoteRow("memory", 3, lambda about: devices.memory_said([one.device for one in about.devices])),
)


def _facts(about: Fitting, work: Workload) -> dict[str, Any]:
    placed, whole, rule = about.placed, about.whole, about.devices[0].memory
    return {
        "workload": selection.workload_facts(work, dtype=placed.dtype),
        **selection.format_facts(about.model, placed.asked),
        "kv_dtype": placed.cache,
        "use": rule.use,
        "reserve_bytes": rule.reserve,
        "weights_bytes": whole.weights,
        "kv_cache_bytes": whole.cache,
        "total_bytes": whole.total,
        **selection.range_facts(about.model, placed.host.weights, whole.weights, whole.cache),
        "lines": [
            {
                "device": one.device.id,
                **one.device.memory_facts(),
                "usable_bytes": one.usable,
                "count": None if one.share is None else one.share.devices,
                "count_without_link": one.unlinked,
                "weights_bytes_each": None if one.share is None else one.share.weights,
                "kv_cache_bytes_each": None if one.share is None else one.share.cache,
            }
            for one in about.devices
        ],
    }
