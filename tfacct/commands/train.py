"""Memory of a training step."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from tfacct import options as opt
from tfacct.commands.command import Command, Found, tick
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.ledger.workload import Request
    from tfacct.loading.memory_limit import MemoryLimit
    from tfacct.loading.model import LoadedModel
    from tfacct.output.chart import Chart
    from tfacct.reports.train import ExactTrainReport, TrainReport
    from tfacct.training.recipe import Recipe


_RARE: dict[str, Any] = {"group": opt.RECIPE, "advanced": True}


class StepOptions(opt.Sequences, opt.Usable, opt.Layout, opt.TrainingRecipe, total=False):
    """Options of a training step: workload, usable memory, layout and recipe."""

    dtype: opt.StepDtype
    packing: Annotated[
        bool,
        Option(
            "Sequence packing: one row of --batch × --ctx tokens, with a mask between sequences.",
            **_RARE,
            default=False,
        ),
    ]
    keep_logits: Annotated[bool, Option("Keep the logits in memory during the whole step.", **_RARE, default=False)]
    micro_batch_size: Annotated[
        int | None,
        Option(
            "Sequences per forward pass on each data-parallel rank; without --pp, same as --batch.", "N", opt.RECIPE
        ),
    ]
    global_batch_size: Annotated[
        int | None,
        Option("Sequences per optimizer step: micro-batch × --accumulate × data-parallel ranks.", "N", opt.RECIPE),
    ]


class TrainOptions(StepOptions, opt.Where, total=False):
    """Options of `train`: a training step, its devices, and the rows of the table."""

    by: Annotated[
        Literal["phase", "tensor", "part"],
        Option("Rows: phases, saved tensors, or parts of the model.", default="phase"),
    ]


def step_of(options: TrainOptions) -> "tuple[Request, Recipe, MemoryLimit | None]":
    """The workload, the recipe with its layout, and the memory of the devices that options of a training step ask for.
    Raises TfacctError."""
    from tfacct.parallel.mesh import mesh_on
    from tfacct.training.recipe import batch_sizes

    budget = opt.budget(options, training=True)
    mesh = mesh_on(budget, opt.mesh(options), training=True)
    request = opt.request(options)
    batch = None if options.get("batch", 1) == 1 else request.batch
    micro, whole = options.get("micro_batch_size"), options.get("global_batch_size")
    sizes = batch_sizes(batch, micro, options.get("gradient_accumulation"), whole, mesh)
    recipe = opt.recipe(
        options,
        options.get("dtype"),
        gradient_accumulation=sizes.gradient_accumulation,
        keep_logits=options.get("keep_logits", False),
        packing=options.get("packing", False),
        mesh=sizes.mesh,
    )
    return replace(request, batch=sizes.batch), recipe, budget


def train(
    models: "Sequence[LoadedModel]",
    *,
    exact: Annotated[
        bool, Option("Run the transformers class on the meta device. Exact bytes; needs torch, takes seconds.")
    ] = False,
    **options: Unpack[TrainOptions],
) -> "Found[TrainReport | ExactTrainReport]":
    """Memory of a training step: full, LoRA or QLoRA, on N GPUs.

    >>> from tfacct import load
    >>> llama = load("llama-3.1-8b")
    >>> step = llama.train(ctx=4096)
    >>> step.saved_bytes, step.peak_bytes, step.peak_phase
    (28562244364, 80946473364, 'loss, backward')
    >>> llama.train(ctx="8k", on="80GiB").fit["largest_context"]
    4715

    `dtype`: of the pass; of weights, gradients and optimizer state too, unless `weights_dtype` is set. Of a LoRA step,
    the adapters alone are trained. `on` (devices, or bytes: `"80GiB"`, all usable) adds the largest context and batch,
    and what would make more fit. Several devices share the step by FSDP unless a layout other than `ep` is given, or
    are replicas if FSDP does not support the step. On ranks, all bytes are of one. `phases` has the memory of each
    phase, `saved` the saved tensors.

    >>> rank = load("llama-3.1-70b").train(ctx="8k", recompute="full", weights_dtype="fp32", tp=8, sp=True, fsdp=8)
    >>> rank.mesh["ranks"], rank.weights_bytes, rank.peak_phase
    (64, 4410183680, 'layer 1, backward')

    `exact` runs the model's class on the meta device: the byte, in seconds, on one device. Needs torch and
    transformers, peft for adapters.

    >>> load("gpt2").train(ctx=64, exact=True).peak_bytes  # doctest: +SKIP
    1149909080

    Raises TfacctError for a model whose step has not been measured.
    """
    request, recipe, budget = step_of(options)
    if opt.mesh(options) is None:
        from tfacct.training.unsupported import on_all_devices

        recipe = on_all_devices(models, recipe)
    by = options.get("by", "phase")
    if exact:
        from tfacct.reports.train import train_exact

        return Found(train_exact(models, request, recipe, fit=budget, by=by, progress=tick))
    from tfacct.reports.train import train

    report = train(models, request, recipe, fit=budget, by=by)

    def chart() -> "Chart":
        from tfacct.reports.charts import train_chart

        return train_chart(models, report)

    return Found(report, chart)


COMMAND = Command(
    train,
    examples=(
        "tfacct train llama-3.1-8b --ctx 8k --on 8xh100",
        "tfacct train llama-3.1-8b --ctx 4k --qlora --on 4090",
        "tfacct train llama-3.1-70b --ctx 8k --tp 8 --sp --fsdp 8",
        "tfacct compare llama-3.1-8b --ctx 4k --train --zero 1,3 --on 8xh100",
    ),
    drawn=True,
    fails="strict",
)
