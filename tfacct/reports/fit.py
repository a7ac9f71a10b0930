"""How many of each device hold a model's weights and its cache: a count, not an estimate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from tfacct.base import units
from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.spelling import option, spelled
from tfacct.ledger.workload import Request, check_size
from tfacct.loading import devices
from tfacct.loading.links import Links
from tfacct.loading.model import LoadedModel
from tfacct.loading.where import MemoryLimit, of_device
from tfacct.output.report import Column, Report, Row, Table
from tfacct.parallel.support import CutError
from tfacct.reports import compose, counting, sentences
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


def fit(
    subject: LoadedModel,
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
    _check_counted(subject)
    counts = _counts(subject, ep, dtype)
    found = list({device.id: device for device in found}.values())
    work = counting.runnable(subject, request)
    joined = replace(found[0], links=Links(one_way=1, domain=MOST))
    every = list(_shares(subject, work.context, work.batch, joined, dtype, kv_dtype, ep, counts))
    whole = every[0]
    needed = []
    for device in found:
        memory = of_device(1, device, use, reserve)
        fewest = next((one for one in every if one.total <= memory.usable and one.devices % ep == 0), None)
        unlinked = None if fewest is None or device.links.known(fewest.devices) else fewest.devices
        most = every[-1].devices
        cut = any(count > most and whole.total <= count * memory.usable for count in counts)
        needed.append(Needed(device, memory, fewest if unlinked is None else None, unlinked, most, cut))
    rule = needed[0].memory
    weights, cache = units.binary(whole.weights), units.binary(whole.cache)
    named = place(subject, 1, found[0], dtype=dtype, kv_dtype=kv_dtype)
    stored = counting.format_name(subject, dtype)
    words = compose.workload_words([subject], request)
    return compose.report(
        "fit",
        [subject],
        _table(needed, whole),
        [_facts(named, work, rule, whole, needed)],
        title=f"{compose.name_of(subject)}: {weights} of weights and {cache} of cache, {stored}, {words}",
        convention="weights and cache as stored; each device holds its share, and what is not divided",
        answer=_answer(needed, alone=on_one_device(subject, dtype)),
        notes=lambda _: [
            *sentences.files_notes([subject], dtype),
            *sentences.cache_notes([subject], named.cache),
            f"Usable: {rule.rule}. Needed: weights and cache over that. In use: the fewest that divide the query heads"
            " and hold it; norms, and key/value heads beyond their number, are on several.",
            *_reasons(subject, needed, stored),
            devices.memory_said(found),
            *gathered_notes(subject, max((one.share.devices for one in needed if one.share is not None), default=1)),
            *(
                [f"Weights in {named.dtype} are not divided here: one of each device is asked about."]
                * on_one_device(subject, dtype)
            ),
            *sentences.range_notes([subject], dtype),
        ],
        requests=[request],
    )


def _check_counted(subject: LoadedModel) -> None:
    """Raises ConfigError, in the words of a count, for a model that is not divided among devices here."""
    odd = unsupported_part(subject)
    if odd is not None:
        raise ConfigError(
            f"{subject.name}: devices are not counted for {odd}",
            spelled(
                f"`tfacct memory {subject.name} --fit DEVICE` counts whether one holds it",
                "memory(fit=...) counts whether one device holds it",
            ),
        )


def _counts(subject: LoadedModel, ep: int, dtype: str | None) -> list[int]:
    """Numbers of devices that divide the heads. Raises UsageError for parts of experts that none is divided into."""
    check_size(option("ep"), ep)
    check_experts(subject, ep)
    counts = (
        [1]
        if on_one_device(subject, dtype)
        else head_divisors(subject) or [1 << power for power in range(MOST.bit_length())]
    )
    if all(count % ep for count in counts):
        raise UsageError(
            f"{option('ep', ep)} divides none of {', '.join(map(str, counts))} devices", "a power of two may"
        )
    return counts


def _shares(
    subject: LoadedModel,
    context: int,
    batch: int,
    linked: devices.Device,
    dtype: str | None,
    kv_dtype: str | None,
    ep: int,
    counts: Sequence[int],
) -> Iterator[Share]:
    """Bytes on each of so many devices, without numbers that cut blocks of the weights' format. (No byte depends on
    what the device is.)"""
    for count in counts:
        parts = ep if count % ep == 0 else 1
        try:
            host = place(subject, count, linked, dtype=dtype, kv_dtype=kv_dtype, ep=parts).host
        except CutError:
            continue
        yield Share(count, host.stored(), host.kept(context, batch))


def _table(needed: Sequence[Needed], whole: Share) -> Table:
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


def _reasons(subject: LoadedModel, needed: Sequence[Needed], stored: str) -> list[str]:
    """What the reasons in the table mean."""
    said = []
    if linked := [f"{one.device.id}: {one.unlinked:,}" for one in needed if one.unlinked is not None]:
        more = f" and {len(linked) - 3:,} more" if len(linked) > 3 else ""
        said.append(f"No link: none is known for the number that would hold it ({', '.join(linked[:3])}{more}).")
    if any(one.reason == "cuts blocks" for one in needed):
        experts = f"; {option('ep')} leaves experts whole" if subject.ledger.experts else ""
        said.append(f"Cuts blocks: more than {needed[0].most:,} devices cut blocks of {stored}{experts}.")
    return said


def _answer(needed: Sequence[Needed], alone: bool) -> str:
    holding = [one for one in needed if one.share is not None]
    one = "One of this device does not hold it." if alone else "No number of this device holds it."
    if len(needed) == 1 and (unlinked := needed[0].unlinked) is not None:
        most, device = needed[0].device.links.largest, needed[0].device.id
        known = f"no link of more than {most} is known" if most != 1 else "no link between them is known"
        return f"It would take {unlinked:,} × {device}, but {known}."
    if not holding and len(needed) == 1 and needed[0].cut:
        return f"More than {needed[0].most:,} × {needed[0].device.id} would hold it, but cut blocks of its weights."
    if not holding:
        return "None of these devices hold it." if len(needed) > 1 else one
    if len(needed) == 1:
        share = holding[0].share
        assert share is not None
        return f"It takes {share.devices:,} × {holding[0].device.id}."
    fewest = min(one.share.devices for one in holding if one.share is not None)
    names = [one.device.id for one in holding if one.share is not None and one.share.devices == fewest]
    more = f" and {len(names) - 3} others" if len(names) > 3 else ""
    left = len(needed) - len(holding)
    none = (
        ""
        if not left
        else f"; none of the other {left} does alone"
        if alone
        else f"; the table says why none of the other {left} does"
        if any(one.unlinked or one.cut for one in needed if one.share is None)
        else f"; no number of the other {left} does"
    )
    if fewest == 1:
        return f"One device holds it: {', '.join(names[:3])}{more}{none if left else ''}."
    return f"The fewest that hold it are {fewest:,}, of {', '.join(names[:3])}{more}{none}."


def _facts(named: Placement, work: Any, rule: MemoryLimit, whole: Share, needed: Sequence[Needed]) -> dict[str, Any]:
    return {
        "workload": counting.workload_facts(work, dtype=named.dtype),
        **counting.format_facts(named.model, named.asked),
        "kv_dtype": named.cache,
        "use": rule.use,
        "reserve_bytes": rule.reserve,
        "weights_bytes": whole.weights,
        "kv_cache_bytes": whole.cache,
        "total_bytes": whole.total,
        **counting.range_facts(named.model, named.host.weights, whole.weights, whole.cache),
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
            for one in needed
        ],
    }
