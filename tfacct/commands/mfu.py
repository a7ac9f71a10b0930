"""Model FLOPs utilization: of a run that was timed, or of one on this machine."""

from typing import TYPE_CHECKING, Annotated, Unpack

from tfacct import options as opt
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found, Variant, tick
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.reports.mfu import MeasureReport, MfuReport


def mfu(
    model: "LoadedModel",
    *,
    on: Annotated[
        str | None, Option("Devices that ran it: h100, 8xh100.", "[N]xDEVICE", opt.WHERE, complete="device")
    ] = None,
    tokens_per_second: Annotated[
        float | str | None, Option("Throughput of all devices together: 60000, 1.2M.", "N")
    ] = None,
    step_time: Annotated[
        float | str | None, Option("Instead: time of one step of --batch sequences, 1.2s.", "T")
    ] = None,
    forward: Annotated[bool, Option("The run was inference: forward passes only.")] = False,
    dtype: Annotated[str | None, Option("Dtype of the matmuls. Default: bf16.", "DTYPE", opt.DTYPES)] = None,
    batch: Annotated[opt.Size | None, Option("Sequences per step on all devices.", "B", opt.STEP)] = None,
    **step: Unpack[opt.Lengths],
) -> "Found[MfuReport]":
    """Model FLOPs utilization of a run.

    >>> from tfacct import load
    >>> run = load("llama-3.1-8b").mfu(on="8xh100", ctx="8k", tokens_per_second=60_000)
    >>> run.answer
    '43.9% MFU (full attention): 434 of 989 TFLOP/s on each device.'

    By full attention, causal pairs alone, PaLM's formula and 6·N·D. Raises TfacctError.
    """
    from tfacct.reports.mfu import mfu

    if on is None:
        raise UsageError("mfu needs devices", f"such as {option('on', '8xh100')}")
    speed, time = tokens_per_second, step_time
    if isinstance(speed, str):
        speed = units.read_count(option("tokens_per_second"), speed, "tokens", "60000 or 1.2M")
    if isinstance(time, str):
        number = units.read_number(time)
        time = units.read_seconds(option("step_time"), time) if number is None else float(number)
    if time is not None and batch is None:
        every = "the sequences of a step on all devices"
        raise UsageError(f"{option('step_time')} needs {option('batch')}, {every}", f"such as {option('batch', 64)}")
    request = opt.request(step, batch=1 if batch is None else batch)
    report = mfu(model, request, on, tokens_per_second=speed, step_time=time, dtype=dtype, train=not forward)
    return Found(report)


def measure(
    model: "LoadedModel",
    *,
    decode: opt.Decode = False,
    steps: Annotated[int, Option("With --run: timed runs, or decode steps. Default: 5.", "N")] = 5,
    train: Annotated[bool, Option("A training run (default). With --run, adds the backward pass.")] = False,
    sdpa: Annotated[bool, Option("With --run: fused attention. Faster, but its FLOPs are not counted.")] = False,
    device: Annotated[str, Option("With --run: device. Default: cpu.", "cpu|cuda|mps")] = "cpu",
    dtype: Annotated[str | None, Option("fp32 (default), bf16 or fp16.", "DTYPE")] = None,
    **step: Unpack[opt.Sequences],
) -> "Found[MeasureReport]":
    """Run a model on this machine: time, MFU, memory.

    The weights are random. Printed by `mfu --run`. Needs torch and fvcore. Raises TfacctError.
    """
    from tfacct.reports.mfu import measure
    from tfacct.verify.measured import Plan

    plan = Plan(device=device, dtype=dtype or "fp32", steps=steps, train=train, sdpa=sdpa)
    request = opt.request(step, decode=decode, batch=step.get("batch") or 1)
    return Found(measure(model, request, plan, progress=tick))


COMMAND = Command(
    mfu,
    examples=(
        "tfacct mfu llama-3.1-8b --ctx 8k --tokens-per-second 60000 --on 8xh100",
        "tfacct mfu gpt2 --ctx 1k --batch 512 --step-time 0.9s --on 8xa100",
        "tfacct mfu gpt2 --run --ctx 128 --steps 3",
    ),
    variants={"run": Variant(measure, Option("Run it on this machine: time, MFU, memory. Needs torch."))},
    fails="disagrees",
)
