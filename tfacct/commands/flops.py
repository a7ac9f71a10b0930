"""FLOPs of a pass, a training step or a whole request; bytes that matmuls move."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from tfacct import options as opt
from tfacct.base.errors import UsageError
from tfacct.commands.command import Command, Found, Variant
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.output.chart import Chart
    from tfacct.output.report import Report
    from tfacct.reports.flops import FlopsReport, GenerateReport, TrafficReport


def flops(
    models: "Sequence[LoadedModel]",
    *,
    train: opt.Train = False,
    recompute: Annotated[
        Literal["none", "full", "attention"], Option("Recompute layers (full) or only attention.")
    ] = "none",
    by: Annotated[Literal["line", "part", "layer"], Option("Rows: one per matmul, part or layer.")] = "line",
    masked: Annotated[bool, Option("Only visible query–key pairs (causal, window).")] = False,
    logits: Annotated[Literal["all", "last"], Option("Positions whose logits are computed.")] = "all",
    pointwise: Annotated[bool, Option("Also list elements of norms, softmax, activations.")] = False,
    **step: Unpack[opt.StepOnRanks],
) -> "Found[FlopsReport]":
    """FLOPs per matmul of a pass or a training step.

    >>> from tfacct import load
    >>> gpt2 = load("gpt2")
    >>> gpt2.flops(ctx=1024).total
    291648307200
    >>> gpt2.flops(ctx=1024, decode=True).total, gpt2.flops(ctx=1024, train=True).total
    (284812800, 874944921600)

    Two FLOPs per multiply-add. On ranks, the FLOPs are those of the rank that computes most; `whole` has those of the
    whole model. Raises TfacctError.
    """
    from tfacct.reports.flops import flops

    request, mesh = opt.request(step, logits=logits), opt.mesh_of_pass(step)
    how: Any = {"train": train, "masked": masked}
    report = flops(models, request, by=by, mesh=mesh, pointwise=pointwise, recompute=recompute, **how)

    def chart() -> "Chart":
        from tfacct.reports.charts import flops_chart, of_one_rank

        if recompute != "none":
            raise UsageError("a FLOPs picture does not support recomputation", "leave recompute out")
        return of_one_rank(lambda drawn: flops_chart(drawn, request, report, **how), models, mesh, "FLOPs")

    def derived() -> "Report":
        from tfacct.reports.explain import explained

        return explained(report, models, request, **how)

    return Found(report, chart, derived)


def generate(
    models: "Sequence[LoadedModel]",
    *,
    new_tokens: Annotated[opt.Size | None, Option("A request: a --ctx prompt, then N new tokens.", "N")],
    masked: opt.Masked = False,
    **whole: Unpack[opt.Sequences],
) -> "Found[GenerateReport]":
    """FLOPs of a whole request, 2 per multiply-add: the prefill of a prompt of `ctx` tokens, and all decode steps.

    The prefill computes the logits of the last position only, which give the first of the `new_tokens`. The command is
    `flops --generate`. Raises TfacctError.
    """
    from tfacct.reports.flops import generate

    return Found(generate(models, opt.request(whole), opt.size("new_tokens", new_tokens), masked=masked))


def traffic(
    models: "Sequence[LoadedModel]",
    *,
    logits: opt.LogitsOf = "all",
    dtype: opt.Dtype = None,
    **step: Unpack[opt.StepOnRanks],
) -> "Found[TrafficReport]":
    """Bytes read and written by each matmul in unfused kernels, and its FLOPs per byte.

    On ranks, the bytes are those of the rank that moves most; `whole` has those of the whole model. The command is
    `flops --traffic`. Raises TfacctError.
    """
    from tfacct.reports.flops import traffic

    return Found(traffic(models, opt.request(step, logits=logits), dtype=dtype, mesh=opt.mesh_of_pass(step)))


COMMAND = Command(
    flops,
    examples=(
        "tfacct flops gpt2-xl --ctx 16k",
        "tfacct flops llama-3.1-8b --ctx 8k --train --by part",
        "tfacct flops qwen3-8b --ctx 4k --generate 256",
    ),
    variants={
        "new_tokens": Variant(generate),
        "traffic": Variant(traffic, Option("Bytes moved by each matmul, and FLOPs per byte.")),
    },
    explained=("pointwise", "recompute", "by", *opt.Ranks.__annotations__),
    drawn=True,
    not_both=("ctx", "tokens", "decode", "new_tokens"),
    counts_projector="work",
)
