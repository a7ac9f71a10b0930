"""Parallel layouts for a number of devices."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from tfacct import options as opt
from tfacct.base.errors import UsageError, exclusive
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found, Variant
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.reports.comms import CommsReport
    from tfacct.reports.plan import PlanReport


SHARDING = ("tp", "sp", "pp", "dp", "fsdp", "ep", "cp", "ulysses")
"""Options that make a layout: without devices, what its ranks send is the answer."""
DEFAULTS = ("1", "False")


Batch = Annotated[
    opt.Size | None,
    Option(
        "Sequences per step over all devices. Default: 1; in training, the smallest that every layout can run.",
        "B",
        opt.STEP,
    ),
]
GlobalBatchSize = Annotated[opt.Size | None, Option("Sequences per step over all devices; same as --batch.", "N")]


class PlanOptions(opt.Lengths, opt.Where, opt.Layout, opt.TrainingRecipe, total=False):
    """Whole sequences, devices, the given part of the layout, and the recipe of a training step."""


class CommsOptions(opt.Lengths, opt.NewTokens, opt.Layout, total=False):
    """A step in a parallel layout."""


def _batch(batch: opt.Size | None, global_batch_size: opt.Size | None) -> Any:
    """The batch of all devices. Raises UsageError if it is given twice."""
    if global_batch_size is None:
        return opt.size("batch", batch)
    if batch is not None:
        raise UsageError(f"{option('global_batch_size')} and {option('batch')} set the same size: give only one")
    return opt.size("global_batch_size", global_batch_size)


def plan(
    model: "LoadedModel",
    *,
    gpus: Annotated[int | None, Option("Number of devices. Default: N of --on NxDEVICE.", "N")] = None,
    train: Annotated[bool, Option("Plan a training step instead of serving.")] = False,
    by: Annotated[
        Literal["time", "memory", "sent"] | None,
        Option("Sort order. Default: estimated time, or bytes sent if there is no estimate."),
    ] = None,
    limit: opt.Limit = None,
    batch: Batch = None,
    global_batch_size: GlobalBatchSize = None,
    dtype: opt.Dtype = None,
    kv_dtype: opt.KvDtype = None,
    **options: Unpack[PlanOptions],
) -> "Found[PlanReport]":
    """Parallel layouts (TP, PP, FSDP, …) that fit on N GPUs.

    >>> from tfacct import load
    >>> plan = load("llama-3.1-8b").plan(on="8x80GB", train=True, ctx="4k", batch=64)
    >>> plan.layouts[0]["command"]
    'tfacct train llama-3.1-8b --ctx 4k --pp 8 --batch 64 --on 8x80GB'
    >>> load("llama-3.1-70b").plan(on="8x80GB", ctx="8k", batch=64).answer
    '7 layouts fit. Least communication: pp=4 dp=2, 512 KiB sent a decode step.'

    `on`: the devices (`"64xh100"`), or the memory of each of `gpus`. By default, a training step has the fewest
    sequences that all layouts divide, and the largest micro-batch that fits, without recomputation, with that of
    attention, and with that of all layers, unless `recompute` or `gradient_accumulation` is given. Options of the
    layout fix its axes; of a whole layout memory, collectives and time are reported. Raises TfacctError if no layout is
    supported, or if none has the estimate that `by` needs.
    """
    from tfacct.reports.plan import plan

    recipe = {
        name: value for name, value in opt.among(opt.TrainingRecipe, options).items() if value not in (None, False)
    }
    if recipe and not train:
        raise UsageError(f"{option(next(iter(recipe)))} needs {option('train', True)}")
    if train and kv_dtype is not None:
        raise exclusive(option("train", True), option("kv_dtype"))
    size = _batch(batch, global_batch_size)
    budget = opt.budget(options, training=train)
    if budget is None:
        example = f"such as {option('on', f'{gpus or 64}xh100')}; or {option('tp', 8)} to see only what each rank sends"
        raise UsageError("plan needs devices or a layout", example)
    layout = opt.mesh(options)
    count = gpus or (budget.count if layout is None or budget.count > 1 else layout.ranks)
    report = plan(
        model,
        opt.request(options, batch=1 if size is None else size),
        gpus=count,
        fewest=size is None,
        fit=budget.checked_for(count),
        recipe=opt.recipe(options, dtype).checked() if train else None,
        given=recipe,
        dtype=dtype,
        kv_dtype=kv_dtype,
        layout=layout,
        by=by,
        limit=limit,
    )
    return Found(report)


def comms(
    model: "LoadedModel",
    *,
    train: opt.Train = False,
    batch: Batch = None,
    global_batch_size: GlobalBatchSize = None,
    dtype: Annotated[
        str | None, Option("Dtype of communication: fp32, bf16 or fp16.", "DTYPE", complete="kv_dtype")
    ] = None,
    after_head: Annotated[
        Literal["sharded", "gathered", "loss"],
        Option("Logits after the LM head: sharded, gathered, or consumed by a sharded loss.", advanced=True),
    ] = "sharded",
    reduce_dtype: Annotated[
        str | None,
        Option(
            "Dtype of the gradient reduction. Default: as --dtype.",
            "DTYPE",
            complete="kv_dtype",
            advanced=True,
        ),
    ] = None,
    recompute: opt.Recompute = None,
    **step: Unpack[CommsOptions],
) -> "Found[CommsReport]":
    """Bytes that each rank sends: per token, pass or training step.

    >>> from tfacct import load
    >>> step = load("llama-3.1-70b").comms(tp=8, sp=True, fsdp=8, train=True, ctx="8k")
    >>> [(one["kind"], one["calls"], one["bytes"]) for one in step.collectives[:2]]
    [('all-gather', 161, 21609054208), ('reduce-scatter', 161, 2701131776)]

    By default, `batch` is the fewest sequences that the layout divides. With `pp`, the collectives are those of the
    stage that sends most. `recompute`: layers or attention whose collectives run again. Raises TfacctError for an
    unsupported layout or part.
    """
    from tfacct.parallel.mesh import Mesh
    from tfacct.reports.comms import comms

    mesh, size = opt.mesh(step) or Mesh(), _batch(batch, global_batch_size)
    report = comms(
        model,
        opt.request(step, batch=1 if size is None else size),
        mesh,
        fewest=size is None,
        train=train,
        dtype=dtype,
        after=after_head,
        reduce_dtype=reduce_dtype,
        recompute=recompute or "none",
    )
    return Found(report)


COMMAND = Command(
    plan,
    examples=(
        "tfacct plan llama-3.1-70b --train --ctx 8k --batch 64 --on 64xh100",
        "tfacct plan llama-3.1-405b --dtype fp8 --ctx 32k --batch 16 --on 16xh100",
        "tfacct plan llama-3.1-70b --train --ctx 8k --tp 8 --sp --fsdp 8",
    ),
    variants={name: Variant(comms, when=lambda given: str(given) not in DEFAULTS, unless="on") for name in SHARDING},
)
