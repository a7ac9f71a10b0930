"""Time of one step on devices: an estimate, with its interval."""

from typing import TYPE_CHECKING, Annotated, Unpack, cast

from tfacct import options as opt
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found, Variant
from tfacct.commands.train import StepOptions, TrainOptions, step_of
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.reports.time import TimeReport, TimeTrainReport

On = Annotated[str, Option("Devices that shard the model: h100, 4xh100.", "[N]xDEVICE", opt.WHERE, complete="device")]


class Timed(opt.Step, opt.Deployed, total=False):
    """A step, and how the model is served."""


def devices_of(on: str, tp: int) -> str:
    """All devices that shard the model: `4xh100` for h100 and 4 ranks. Raises UsageError for two numbers."""
    from tfacct.loading.devices import number_and_name

    count, name = number_and_name(option("on"), on)
    if count != 1 and tp not in (1, count):
        problem = f"{option('on', on)} with {option('tp', tp)}: an estimate shards the model over all devices"
        raise UsageError(problem, option("on", f"{tp}x{name}"))
    return f"{tp}x{name}" if tp > count else on


def time(
    model: "LoadedModel",
    *,
    on: On,
    prefill: Annotated[bool, Option("A prefill (TTFT): all tokens of the context are new.")] = False,
    lower_bound: Annotated[bool, Option("Print only the lower bound from peak FLOP/s and bandwidth.")] = False,
    ep: opt.ExpertGroups = 1,
    tp: opt.Tp = 1,
    pp: opt.Pp = 1,
    cp: opt.Cp = 1,
    **step: Unpack[Timed],
) -> "Found[TimeReport]":
    """Time of a decode step, or of a prompt (--prefill), by kernel.

    >>> from tfacct import load
    >>> step = load("llama-3.1-8b").time(on="h100", ctx="8k", batch=32)
    >>> low, high = step.interval_80_seconds
    >>> step.estimate, step.bound_seconds < low < step.value_seconds < high
    (True, True)

    An estimate of one new token, or with `prefill` of whole prompts. `on`: devices that share the model, or with `tp`
    one of them. Raises TfacctError.
    """
    from tfacct.reports.time import time
    from tfacct.timing.placement import Deployment

    _check_layout(pp, cp)
    where = Deployment(devices_of(on, tp), ep=ep, **opt.among(opt.Deployed, step))
    return Found(time(model, opt.request(step), where, prefill=prefill, bound_only=lower_bound))


def train_time(
    model: "LoadedModel",
    *,
    on: On,
    total_tokens: Annotated[
        opt.Size | None, Option("Also print the days for N training tokens: 1.5T, 300B.", "N")
    ] = None,
    mfu: Annotated[float | None, Option("Assume this utilization instead of an estimate: 0.5.", "SHARE")] = None,
    **step: Unpack[StepOptions],
) -> "Found[TimeTrainReport]":
    """Estimated seconds of a training step, by default under FSDP with `batch` sequences on each device.

    >>> from tfacct import load
    >>> step = load("mpt-7b").train_time(on="8xa100-sxm-40gb", ctx="2k", batch=6, recompute="full")
    >>> step.validation["points"], sorted(step.parts_seconds)[:3]
    (49, ['attention', 'exchange', 'experts'])

    Batch sizes, recipe and layout are those of `train`, whose memory is reported too. Layouts other than FSDP: as
    Megatron-LM runs them, with the other devices as replicas. `dtype`: bf16, or fp8 (mxfp8) or nvfp4 for the matmuls of
    layers. Experts are assumed to get equally many tokens. Printed by `time --train`. Raises TfacctError for a step
    unlike those that were measured.
    """
    from tfacct.reports.time import time_train
    from tfacct.timing.placement import Deployment

    total = total_tokens
    if isinstance(total, str):
        total = units.read_count(option("total_tokens"), total, "tokens", "15T or 300B")
    where = Deployment(on, step.get("dtype"), **opt.among(opt.Usable, step))
    request, recipe, _ = step_of(cast("TrainOptions", {**step, "on": on, "dtype": None}))
    return Found(time_train(model, request, recipe.checked(), where, tokens_total=total, mfu=mfu))


def _check_layout(pp: int, cp: int) -> None:
    """Raises UsageError for a layout that only training has."""
    for name, size, axis in (("cp", cp, "context"), ("pp", pp, "pipeline")):
        if size != 1:
            raise UsageError(
                f"{option(name, size)} needs {option('train', True)}: no serving under {axis} parallelism was measured",
                "`tfacct flops` and `tfacct memory` count one rank",
            )


COMMAND = Command(
    time,
    examples=(
        "tfacct time llama-3.1-70b --on 4xh100 --dtype fp8 --ctx 8k --batch 32",
        "tfacct time llama-3.1-8b --train --on 8xh100 --ctx 8k --recompute full",
    ),
    variants={"train": Variant(train_time, Option("A training step, under FSDP or --tp and --pp."))},
)
