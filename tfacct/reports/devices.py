"""Devices: peaks, memory, links, and their sources; and the calibration of a machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option, spelled
from tfacct.loading import devices as device_files
from tfacct.loading.devices import Device, Memory
from tfacct.loading.links import Links
from tfacct.output import files
from tfacct.output.answer import Answer
from tfacct.output.report import Cell, Column, Note, Row, Tick, unwatched

if TYPE_CHECKING:
    from tfacct.timing.calibrated import Sweep

COLUMNS: Mapping[Column, Callable[[Device], Cell]] = {
    Column("device", "device"): lambda one: one.id,
    Column("bf16", "bf16", "flops", empty="–"): lambda one: one.peak.get("bf16"),
    Column("fp8", "fp8", "flops", empty="–", drop=1): lambda one: one.peak.get("fp8"),
    Column("memory_bytes", "memory", "bytes"): lambda one: one.memory,
    Column("bandwidth", "B/s", "flops", drop=1): lambda one: one.bandwidth,
    Column("link_bandwidth", "link B/s", "flops", empty="–", drop=1): lambda one: one.links.one_way,
    Column("domain", "joins", "count", empty="–", drop=1): lambda one: one.links.one_way and one.links.domain,
    Column("pcie", "PCIe B/s", "flops", empty="–", drop=1): lambda one: one.links.pcie,
    Column("node_network", "network B/s", "flops", empty="–", drop=1): lambda one: one.links.network,
    Column("tdp", "watts", "count", empty="–", drop=1): lambda one: one.tdp,
}
"""Columns, and the value of each for a device."""
ASIDE: Mapping[Column, Callable[[Device], Cell]] = {
    Column("memory_from", "memory from"): lambda one: one.memory_from,
    Column("read_from", "source"): lambda one: one.kind,
    Column("torch_bytes", "torch", "bytes", empty="–"): lambda one: one.totals.torch,
    Column("torch_least_bytes", "torch, least seen", "bytes", empty="–"): lambda one: one.totals.torch_ends[0],
    Column("torch_most_bytes", "torch, most seen", "bytes", empty="–"): lambda one: one.totals.torch_ends[1],
    Column("torch_seen", "seen in", empty="–"): lambda one: one.totals.torch_seen or None,
    Column("board_bytes", "board", "bytes", empty="–"): lambda one: one.totals.board,
    Column("board_from", "board from", empty="–"): lambda one: one.totals.board and one.totals.board_from,
}
"""The same for columns that only programs read."""
MIB = 2**20


def devices(found: Sequence[Device]) -> Answer:
    """A row for each device; for one device all its facts, and in JSON the same row."""
    several = _several(found)
    return _one(found[0], several) if len(found) == 1 else several


def _several(found: Sequence[Device]) -> Answer:
    return Answer(
        command="devices",
        title="",
        answer=_sizes(found),
        columns=tuple(COLUMNS),
        sections=(tuple(map(_row, found)),),
        models=(),
        aside=tuple(ASIDE),
        notes=(
            "bf16, fp8: dense FLOPs per second with FP32 accumulation. B/s: memory bandwidth. Links: one way."
            " NVLink (or similar) connects the given number of devices; PCIe connects the rest of a node; the network"
            " connects nodes.",
            "`tfacct devices NAME` lists the sources of a device's figures.",
        ),
    )


def _sizes(found: Sequence[Device]) -> str:
    """The number of devices, and the memory of the smallest and the largest."""
    by_size = sorted(found, key=lambda one: one.memory)
    least, most = (f"{units.binary(one.memory)} ({one.id})" for one in (by_size[0], by_size[-1]))
    return f"{len(found)} devices: {least} to {most} of memory."


def _row(device: Device) -> Row:
    return {column.key: value(device) for column, value in {**COLUMNS, **ASIDE}.items()}


def _one(device: Device, data: Answer) -> Answer:
    """All facts of a device."""
    facts = {
        "vendor": device.vendor,
        "memory": device.memory_words,
        "torch": _torch(device.totals),
        "seen": device.totals.torch_seen,
        "board": _board(device.totals),
        "shared": device.shared_words,
        "bandwidth": f"{units.decimal_bytes(device.bandwidth)}/s",
        **{dtype: f"{units.si(value)} FLOP/s, dense" for dtype, value in device.peak.items()},
        **dict(_links(device.links)),
        "TDP": None if device.tdp is None else f"{device.tdp:,} W",
        "source": ", ".join(device.urls),
        "read": device.read or ("not read again" if device.kind == "unread" else None),
        "note": device.note,
    }
    peak = f", {units.si(device.peak['bf16'])}FLOP/s in bf16" if "bf16" in device.peak else ""
    answer = f"{units.binary(device.memory)} of memory at {units.decimal_bytes(device.bandwidth)}/s{peak}."
    listed = _listed("devices", device.name, facts)
    return replace(listed, answer=answer, data=replace(data, answer=answer))


def _listed(command: str, title: str, facts: Mapping[str, str | None]) -> Answer:
    """A report with one row per known fact."""
    rows: tuple[Row, ...] = tuple({"what": what, "value": value} for what, value in facts.items() if value)
    columns = (Column("what", "what"), Column("value", "value"))
    return Answer(command=command, title=title, columns=columns, sections=(rows,), models=())


def _links(links: Links) -> Iterator[tuple[str, str]]:
    """Links by name: rate, and number of devices."""
    if links.one_way is not None:
        kind = f"{links.kind}, " if links.kind else ""
        yield "link", f"{kind}{units.decimal_bytes(links.one_way)}/s, one way, joins {links.domain:,} devices"
    if links.pcie is not None:
        yield "PCIe", f"{units.decimal_bytes(links.pcie)}/s, one way"
    if links.network is not None:
        yield "network", f"{units.decimal_bytes(links.network)}/s, one way, all network cards of a node together"


def _torch(totals: Memory) -> str | None:
    """Torch's total memory, and its range."""
    if totals.torch is None:
        return None
    message = _bytes(totals.torch)
    if totals.torch_range is not None:
        low, high = (f"{end / MIB:,.0f}" for end in totals.torch_range)
        message += f"; {low} to {high} MiB, depending on the driver"
    return message


def _board(totals: Memory) -> str | None:
    """The board's total memory, and its source."""
    whose = {"nvidia-smi": "by nvidia-smi", "maker": "by its maker", "marketed": "as marketed", "machine": "in all"}
    whose["own"] = "from the device file"
    return None if totals.board is None else f"{_bytes(totals.board)}, {whose[totals.board_from]}"


def _bytes(value: int) -> str:
    return f"{value:,} bytes ({value / MIB:,.0f} MiB)"


# The calibration of a machine.


def calibrate(
    *,
    device: str = "cpu",
    dtype: str = "fp32",
    output: str | None = None,
    force: bool = False,
    progress: Tick = unwatched,
) -> Answer:
    """Measure the machine and write a device's file; with `force` over an existing one. Raises UsageError."""
    from tfacct.loading.calibration import written
    from tfacct.timing.calibrated import sweep
    from tfacct.verify.checks import reference_modules

    path = _path(device, output, force)
    reference_modules(spelled("devices --calibrate", "calibrate()"))
    swept = sweep(device, dtype, progress)
    found, name = swept.found, f"{swept.found.machine}, {swept.found.threads_words}"
    text = written(name, swept.memory, swept.bandwidth, swept.peak, found, machine=swept.is_machine)
    files.write_text("output", path, text)
    device_files.paths.cache_clear()
    return _calibration_report(path, swept)


def _path(device: str, output: str | None, force: bool) -> Path:
    """File to write. Raises UsageError for one that exists, and for a name that `--on` does not accept."""
    if output is not None and re.search(r"\s", output):
        raise UsageError(f"{option('output', output)}: a device name cannot have spaces", "for example my-laptop.toml")
    path = device_files.user_folder() / f"{device.partition(':')[0]}.toml"
    if output is None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path.parent}: {error.strerror}", f"{option('output')} names a file") from None
    return files.check("output", str(path) if output is None else output, (".toml",), force=force)


def _calibration_report(path: Path, swept: Sweep) -> Answer:
    from tfacct.reports.estimates import DOUBT

    found = swept.found
    low, high = found.checks.ends
    named = path.stem if path.parent == device_files.user_folder().resolve() else str(path)
    clock = {"process": "process seconds", "wall": "wall-clock seconds", "events": "CUDA events"}
    use = spelled(f"`tfacct time MODEL --on {named}`", f"time(on={named!r})")
    facts = {
        "device": named,
        "machine": found.machine,
        "threads": f"{found.threads:,}",
        "torch": found.torch,
        "seconds are": clock[found.clock],
        "memory": f"{swept.memory:,} bytes ({units.binary(swept.memory)})",
        "copy bandwidth": f"{units.decimal_bytes(round(swept.bandwidth))}/s",
        f"fastest matmul, {found.dtype}": f"{units.si(round(swept.peak))}FLOP/s",
        **{f"{name}, measured over estimated": f"{ratio:.2f}" for name, ratio in found.checks.ratios.items()},
        "median error of these": units.percent(found.checks.error),
    }
    return replace(
        _listed("measure", f"{found.machine}, calibrated in {found.dtype}", facts),
        convention="the fastest of a few rounds of matmuls, attention, copies and other work",
        answer=f"Wrote {path}: whole passes took {low:.2f} to {high:.2f} × their estimates.",
        notes=(
            *([Note("doubtful", 1, DOUBT)] if found.checks.doubtful else []),
            Note("use", 2, f"{use} estimates the reference model on this machine."),
        ),
    )
