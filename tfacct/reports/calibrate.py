"""A sweep over this machine, and the device's file from which `time --on` predicts the reference model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option, spelled
from tfacct.ledger.workload import Workload
from tfacct.loading import devices
from tfacct.loading.calibrated import BACKWARD, BLOCK, WORK, Calibration, Checks, Curve, Swept
from tfacct.loading.model import subject
from tfacct.output import files
from tfacct.output.report import Column, Report, Row, Tick, unwatched
from tfacct.reports.time_calibrated import DOUBT, priced
from tfacct.verify.checks import reference_rooms

if TYPE_CHECKING:
    from tfacct.reference.calibrating import Case

CACHE = 4 * 2**20
"""Bytes of weights up to which they are taken to stay in a cache from step to step."""
LLAMA: Mapping[str, Any] = {
    **{"model_type": "llama", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8},
    **{"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 16_384, "max_position_embeddings": 2048},
}
GPT2: Mapping[str, Any] = {
    **{"model_type": "gpt2", "n_embd": 512, "n_layer": 8, "n_head": 8, "vocab_size": 16_384, "n_positions": 1024}
}
SMALL: Mapping[str, Any] = {
    **LLAMA,
    **{
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "vocab_size": 64,
    },
}
"""A model that takes little but the calls of its modules."""
ONE = Workload(1, 1)
PASSES: Mapping[str, tuple[Workload, bool]] = {
    "forward": (Workload(96, 96), False),
    "decode": (Workload(160, 1, 2), False),
    "train": (Workload(48, 48), True),
}
"""Whole passes of two small models that a sweep is held against, and whether each runs backward."""


def calibrate(
    *,
    device: str = "cpu",
    dtype: str = "fp32",
    output: str | None = None,
    force: bool = False,
    progress: Tick = unwatched,
) -> Report:
    """Sweep the machine and write a device's file. Raises UsageError for a file that is there, unless with `force`."""
    path = _path(device, output, force)
    reference_rooms("measure --calibrate")
    from tfacct.loading import calibration
    from tfacct.reference import calibrating, running

    on = running.device(device)
    of = running.dtype(units.dtype_name(dtype), on)
    models = {"llama": subject("llama of 39 M", LLAMA), "gpt2": subject("gpt2 of 34 M", GPT2)}
    passes = {f"{name} {kind}": (models[name], *how) for name in models for kind, how in PASSES.items()}
    whole = [calibrating.Checked(one.architecture, work.sizes, train) for one, work, train in passes.values()]
    small = subject("small", SMALL)
    whole += [calibrating.Checked(small.architecture, ONE.sizes, train) for train in (False, True)]
    cases = calibrating.sweep(on, of, whole, lambda done, every: progress("sweeping", done, every))
    described = running.describe(on)
    found = Calibration(
        machine=str(described["device_name"]),
        dtype=units.dtype_name(dtype),
        threads=int(str(described["threads"])),
        torch=str(described["torch"]),
        clock=calibrating.clock_of(on),
        read=date.today().isoformat(),
        cache=CACHE,
        products=_products(cases),
        work=_work(cases, calibrating.HEADS, calibrating.GROUP, calibrating.TOKENS[2]),
        checks=Checks({"none": 1.0}),
    )
    measured = [case.seconds["forward"] for case in cases if case.kind == "whole"]
    calls = [
        max(1e-9, measured[len(passes) + train] - sum(one.seconds for one in priced(small, ONE, train == 1, found)))
        / SMALL["num_hidden_layers"]
        for train in (0, 1)
    ]
    found = replace(found, work={**found.work, BLOCK: Curve((1,), (calls[0],), (calls[1],))})
    ratios = {
        name: measured[number] / sum(one.seconds for one in priced(*given, found))
        for number, (name, given) in enumerate(passes.items())
    }
    found = replace(found, checks=Checks(ratios))
    copied = next(case for case in cases if case.kind == "bandwidth")
    wide = units.BITS[found.dtype] // 8
    peak = max(
        2 * m * one.elements / seconds
        for one in found.products
        for m, seconds in zip(one.rows.sizes, one.rows.forward, strict=True)
    )
    bandwidth = 2 * wide * copied.size / copied.seconds["forward"]
    memory = running.memory_bytes(on)
    threads = "one thread" if found.threads == 1 else f"{found.threads} threads"
    name, machine = f"{found.machine}, {threads}", on.type == "cpu"
    _write(path, calibration.written(name, memory, bandwidth, peak, found, machine=machine))
    return _report(path, found, memory, bandwidth, peak)


def _path(device: str, output: str | None, force: bool) -> Path:
    """File to write. Raises UsageError for one that is there, and for a name that `--on` would not take."""
    if output is not None and re.search(r"\s", output):
        raise UsageError(f"{option('output', output)}: a device's name has no spaces", "for example my-laptop.toml")
    path = devices.own_folder() / f"{device.partition(':')[0]}.toml"
    if output is None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path.parent}: {error.strerror}", f"{option('output')} names a file") from None
    return files.check("output", str(path) if output is None else output, (".toml",), "device", force=force)


def _write(path: Path, text: str) -> None:
    files.write_text("output", path, text)
    devices.paths.cache_clear()


def _products(cases: Sequence[Case]) -> tuple[Swept, ...]:
    shapes = dict.fromkeys(case.shape for case in cases if case.kind == "product")
    return tuple(Swept(*shape, _curve([one for one in cases if one.shape == shape])) for shape in shapes)


def _work(cases: Sequence[Case], heads: int, group: int, most: int) -> dict[str, Curve]:
    """Curves by kind; attention as that of one head: longer prompts were swept with fewer of them."""
    found = {}
    for kind in (*WORK, *BACKWARD):
        some = [case for case in cases if case.kind == kind]
        if kind.endswith(("_heads", "_token")):
            for case in some:
                number = group if kind.endswith("_heads") and case.size > most else heads
                case.seconds = {name: seconds / number for name, seconds in case.seconds.items()}
        found[kind] = _curve(some)
    return found


def _curve(cases: Sequence[Case]) -> Curve:
    """Seconds by size; where a case runs in one pass alone, the same for both."""
    each = sorted(cases, key=lambda case: case.size)
    forward = tuple(case.seconds.get("forward", case.seconds.get("train", 0.0)) for case in each)
    train = tuple(case.seconds.get("train", case.seconds.get("forward", 0.0)) for case in each)
    return Curve(tuple(case.size for case in each), forward, train)


def _report(path: Path, found: Calibration, memory: int, bandwidth: float, peak: float) -> Report:
    low, high = found.checks.ends
    named = path.stem if path.parent == devices.own_folder().resolve() else str(path)
    clock = {"process": "seconds of the process", "wall": "seconds on the wall", "events": "events of the stream"}
    facts = [
        ("device", named),
        ("machine", found.machine),
        ("threads", f"{found.threads:,}"),
        ("torch", found.torch),
        ("seconds are", clock[found.clock]),
        ("memory", f"{memory:,} bytes ({units.binary(memory)})"),
        ("bandwidth of a copy", f"{units.decimal_bytes(round(bandwidth))}/s"),
        (f"fastest product, {found.dtype}", f"{units.si(round(peak))}FLOP/s"),
        *((f"{name}, measured over predicted", f"{ratio:.2f}") for name, ratio in found.checks.ratios.items()),
        ("median error of these", units.percent(found.checks.error)),
    ]
    rows: tuple[Row, ...] = tuple({"what": what, "value": value} for what, value in facts)
    return Report(
        command="measure",
        title=f"{found.machine} swept in {found.dtype}",
        columns=(Column("what", "what"), Column("value", "value", "text")),
        sections=(rows,),
        models=(),
        convention="seconds of the fastest of a few rounds; of products, attention, copies, other work",
        answer=f"Wrote {path}: whole passes took × {low:.2f} … {high:.2f} of what it says.",
        notes=(
            *([DOUBT] if found.checks.doubtful else []),
            spelled(
                f"`tfacct time MODEL --on {named}` predicts the reference model here.",
                f"time(on={named!r}) predicts the reference model here.",
            ),
        ),
    )
