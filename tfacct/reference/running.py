"""Runs the reference model on a real device, with random weights, and measures time and memory."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.reference.counting import storage_bytes
from tfacct.reference.model import Decoder, Inputs, build

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Dtypes in which the reference model computes. The others are storage formats."""

PEAK_SIDES = {"cpu": (512, 1024, 2048), "cuda": (4096, 8192), "mps": (2048, 4096)}
"""Sides of the square matmuls timed for the device's peak: the fastest counts."""


ResultT = TypeVar("ResultT")


SLOW = 0.05
"""Seconds of one matmul after which no larger one is tried."""


class NotANumberError(TfacctError):
    """The results are not finite, so their times are meaningless."""


@dataclass(slots=True)
class Timed:
    """Seconds of every finished run, and the result of the last one."""

    seconds: list[float] = field(default_factory=list)
    interrupted: bool = False
    parameter_bytes: int = 0
    cache_bytes: int = 0
    peak_bytes: int = 0


def device(name: str) -> torch.device:
    """The device of this name. Raises UsageError if it is not available."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(kind := name.partition(":")[0]):
        problem = f"no {name} device here" if kind in there else f"no device {name!r}"
        raise UsageError(problem, f"here: {', '.join(known for known, is_ in there.items() if is_)}")
    try:
        found = torch.device(name)
        torch.empty(1, device=found)
    except RuntimeError as error:
        raise UsageError(f"no device {name!r}: {str(error).splitlines()[0]}") from None
    return found


def dtype(name: str, on: torch.device) -> torch.dtype:
    """The torch dtype of this name. Raises UsageError if the device cannot multiply in it."""
    if name not in DTYPES:
        raise UsageError(f"{name} is a storage format: the model computes in {', '.join(DTYPES)}")
    try:
        square = torch.ones(8, 8, dtype=DTYPES[name], device=on)
        (square @ square).sum().item()
    except (RuntimeError, TypeError) as error:
        raise UsageError(f"{on} cannot multiply in {name}: {str(error).splitlines()[0]}") from None
    return DTYPES[name]


def _proc(file: str, field: str) -> str | None:
    """A field of one of Linux's /proc files; None elsewhere."""
    path = Path("/proc") / file
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), None)


def describe(on: torch.device) -> dict[str, object]:
    """The device's name, torch's version, threads."""
    name = (_proc("cpuinfo", "model name") if on.type == "cpu" else None) or platform.machine()
    if on.type == "cuda":
        name = torch.cuda.get_device_name(on)
    return {"device": str(on), "device_name": name, "torch": torch.__version__, "threads": torch.get_num_threads()}


def free_bytes(on: torch.device) -> int:
    """Bytes that can still be allocated on the device."""
    if on.type == "cuda":
        return int(torch.cuda.mem_get_info(on)[0])
    if on.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
    available = _proc("meminfo", "MemAvailable")
    if available:
        return int(available.split()[0]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def matmul_peak(on: torch.device, of: torch.dtype) -> float:
    """Multiply-adds per second of the fastest square matmul on the device: the peak for a model."""
    best = 0.0
    for side in PEAK_SIDES[on.type]:
        square = torch.randn(side, side, dtype=of, device=on)
        run = partial(torch.matmul, square, square)
        run()
        fastest = min(timed(run, on)[0] for _ in range(5))
        best = max(best, side**3 / fastest)
        if fastest > SLOW:
            break  # a larger one would take long without being faster
    return best


def memory_bytes(on: torch.device) -> int:
    """Bytes of the device's memory."""
    if on.type == "cuda":
        return int(torch.cuda.mem_get_info(on)[1])
    if on.type == "mps":
        return int(torch.mps.recommended_max_memory())
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def memory_errors(on: torch.device) -> Iterator[None]:
    """Turns running out of memory into a message with the allocated bytes."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        text = str(error)
        if not isinstance(error, (torch.OutOfMemoryError, MemoryError)) and "allocate" not in text:
            raise
        peak = peak_bytes(on)
        raise UsageError(
            f"out of memory on {on}, with {peak:,} bytes at the peak",
            f"use a smaller {option('ctx')} or {option('batch')}, or {option('sdpa', True)}",
        ) from None


def peak_bytes(on: torch.device) -> int:
    """Peak bytes: of torch's allocator on cuda, of this process on a CPU."""
    if on.type == "cuda":
        return int(torch.cuda.max_memory_allocated(on))
    if on.type == "mps":
        return int(torch.mps.driver_allocated_memory())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def prepare(shape: Transformer, on: torch.device, of: torch.dtype, *, fused: bool, logits: str | None) -> Decoder:
    """The model with random weights."""
    if on.type == "cuda":
        torch.cuda.reset_peak_memory_stats(on)
    torch.manual_seed(0)
    return build(shape, device=str(on), dtype=of, fused=fused, logits=logits)


def one_pass(model: Decoder, given: Inputs, train: bool) -> tuple[Tensor, ...]:
    """Results of a pass; with `train`, a backward pass of a simple loss follows, and its gradients are dropped."""
    if not train:
        with torch.no_grad():
            return model(*given.all)
    logits, *caches = model(*given.all)
    logits.float().mean().backward()
    model.zero_grad(set_to_none=True)
    return logits, *caches


def timed_passes(
    model: Decoder, given: Inputs, on: torch.device, *, runs: int, train: bool, tick: Callable[[int], None]
) -> Timed:
    """The same pass `runs` times, after an untimed one. Ctrl-C ends it with the runs so far."""

    once = partial(one_pass, model, given, train)
    found = Timed(parameter_bytes=storage_bytes(model.parameters()))
    try:
        _check(once()[0])
        for done in range(runs):
            tick(done)
            seconds, result = timed(once, on)
            found.seconds.append(seconds)
            found.cache_bytes = storage_bytes(result[1:])
            del result  # otherwise it would be alive together with the next run's
    except KeyboardInterrupt:
        found.interrupted = True
    found.peak_bytes = peak_bytes(on)
    return found


def timed_decode(model: Decoder, given: Inputs, on: torch.device, *, steps: int, tick: Callable[[int], None]) -> Timed:
    """`steps` decode steps, each with the cache of the previous one. `given`: inputs with the cache before the
    first."""
    found = Timed(parameter_bytes=storage_bytes(model.parameters()))
    past = given.past
    try:
        with torch.no_grad():
            _check(model(*given.all)[0])
            for done in range(steps):
                tick(done)
                seconds, result = timed(partial(model, given.tokens, past, given.positions + done), on)
                found.seconds.append(seconds)
                past = result[1:]
                found.cache_bytes = storage_bytes(past)
                del result
    except KeyboardInterrupt:
        found.interrupted = True
    found.peak_bytes = peak_bytes(on)
    return found


def _check(logits: Tensor) -> None:
    if not torch.isfinite(logits).all():
        raise NotANumberError("the results are not finite: this dtype overflows, so the times are meaningless")


def timed(run: Callable[[], ResultT], on: torch.device) -> tuple[float, ResultT]:
    """Wall time of one run in seconds, and its result; on cuda, time between two events of the stream."""
    if on.type == "cuda":
        with torch.cuda.device(on):  # events are recorded on the current device's stream
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            torch.cuda.synchronize(on)
            start.record()
            result = run()
            end.record()
            torch.cuda.synchronize(on)
            return float(start.elapsed_time(end)) / 1000, result
    began = time.perf_counter()
    result = run()
    if on.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter() - began, result
