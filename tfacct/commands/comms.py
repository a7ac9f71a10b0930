"""What each rank sends."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

from tfacct import options as opt
from tfacct.commands.command import Command, Found
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.reports.comms import CommsReport


def comms(
    models: "Sequence[LoadedModel]",
    *,
    train: opt.Train = False,
    dtype: Annotated[
        str | None, Option("Dtype of what is sent: fp32, bf16 or fp16. Default: bf16.", "DTYPE", complete="kv_dtype")
    ] = None,
    after_head: Annotated[
        Literal["divided", "gathered", "loss"],
        Option("Logits stay sharded, are gathered, or enter the loss.", advanced=True),
    ] = "divided",
    reduce_dtype: Annotated[
        str | None,
        Option("Dtype of gradients that are summed over batches. Default: as sent.", "DTYPE", complete="kv_dtype"),
    ] = None,
    **step: Unpack[opt.StepOnLayout],
) -> "Found[CommsReport]":
    """What each rank sends: per token, pass or training step.

    >>> from tfacct import load
    >>> step = load("llama-3.1-70b").comms(tp=8, sp=True, fsdp=8, train=True, ctx="8k")
    >>> [(one["kind"], one["calls"], one["bytes"]) for one in step.collectives[:2]]
    [('all-gather', 161, 21609054208), ('reduce-scatter', 161, 2701131776)]

    `tp` ranks shard heads, widths and the vocabulary, with `sp` the tokens of the residual stream too; `fsdp` groups of
    them shard the weights, each with a batch of its own. `tp_plan`: whether gradients of one tensor are reduced
    matmul by matmul, as in torch's plan, or together, as in Megatron. `ep` of the ranks shard the experts, whose
    fullest receives `imbalance` times the mean. `dp`: copies of all these ranks, each with a batch of its own, which
    shard optimizer state (`zero=1`), gradients too (2), or all as `fsdp` does (3). `dtype`: of what is sent.
    `after_head`: whether logits stay sharded, are gathered, or go into a sharded loss. `reduce_dtype`: of gradients
    that are summed over batches.
    `pp` stages shard the layers; they take a batch in `microbatches` by a `schedule`, `interleaved` with so many
    `pp_chunks` on each rank, and the collectives are those of the stage that sends most. `cp` ranks shard a sequence's
    tokens, and keys and values go round (`cp_method`) or are gathered; `ulysses` ranks shard tokens, and heads inside
    attention.
    Raises TfacctError for a layout that does not divide what it must, and for a model with a part without a rule.
    """
    from tfacct.parallel.mesh import Mesh
    from tfacct.reports.comms import comms

    mesh = opt.mesh(step) or Mesh()
    request = opt.request(step)
    return Found(comms(models, request, mesh, train=train, dtype=dtype, after=after_head, reduce_dtype=reduce_dtype))


COMMAND = Command(
    comms,
    examples=(
        "tfacct comms llama-3.1-70b --tp 8 --sp --fsdp 8 --train --ctx 8k",
        "tfacct comms llama-3.1-70b --tp 8 --decode",
    ),
)
