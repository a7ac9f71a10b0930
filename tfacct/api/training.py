"""What training a model takes, and what the ranks of a mesh send."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Unpack, overload

from tfacct.api.answer import answered
from tfacct.api.answers_training import CommsReport, ExactTrainReport, TrainReport
from tfacct.api.asked import Asked
from tfacct.api.keywords import StepOnMesh, WholeOnMesh, mesh, request, spelled_out
from tfacct.output.chart import Chart
from tfacct.reports.train import By


class TrainOptions(WholeOnMesh, total=False):
    """Keywords of `train`, for type checkers."""

    dtype: str
    optimizer: str
    recompute: str
    attention: Literal["sdpa", "eager"] | None
    gradient_accumulation: int | None
    micro_batch_size: int | None
    global_batch_size: int | None
    keep_logits: bool
    loss: Literal["whole", "chunked"]
    lora: int | str | None
    qlora: bool
    adapter_dtype: str
    lora_dropout: float
    weights_dtype: str | None
    master_weights: str | None
    gradient_dtype: str | None
    offload: str | None
    packing: bool
    fit: int | str | None
    use: float | None
    reserve: int | str | None
    by: By


class Trainable(Asked):
    """Questions about training, and about the ranks of a mesh."""

    @overload
    def train(self, *, exact: Literal[True], **options: Unpack[TrainOptions]) -> ExactTrainReport: ...

    @overload
    def train(self, *, exact: Literal[False] = False, **options: Unpack[TrainOptions]) -> TrainReport: ...

    @spelled_out
    def train(
        self,
        *,
        dtype: str = "bf16",
        optimizer: str = "adamw",
        recompute: str = "none",
        attention: Literal["sdpa", "eager"] | None = None,
        gradient_accumulation: int | None = None,
        micro_batch_size: int | None = None,
        global_batch_size: int | None = None,
        keep_logits: bool = False,
        loss: Literal["whole", "chunked"] = "whole",
        lora: int | str | None = None,
        qlora: bool = False,
        adapter_dtype: str = "fp32",
        lora_dropout: float = 0.0,
        weights_dtype: str | None = None,
        master_weights: str | None = None,
        gradient_dtype: str | None = None,
        offload: str | None = None,
        packing: bool = False,
        fit: int | str | None = None,
        use: float | None = None,
        reserve: int | str | None = None,
        by: By = "phase",
        exact: bool = False,
        **step: Unpack[WholeOnMesh],
    ) -> TrainReport | ExactTrainReport:
        """Bytes of a training step at its peak, as the transformers class runs it.

        >>> from tfacct import load
        >>> llama = load("llama-3.1-8b")
        >>> step = llama.train(ctx=4096)
        >>> step.saved_bytes, step.peak_bytes, step.peak_phase
        (28562244364, 80946473364, 'loss, backward')
        >>> llama.train(ctx="8k", fit="80GiB").fit["largest_context"]
        4715

        `dtype`: of the pass; of weights, gradients and optimizer state too, unless `weights_dtype` is set: `"fp32"`
        runs the pass under torch.autocast, `"nf4"` stores frozen weights in 4 bits (QLoRA). `master_weights="fp32"`:
        the optimizer updates a copy of 16-bit weights; `gradient_dtype="fp32"`: gradients are accumulated in fp32.
        `offload`: what is on the host, `"optimizer"` (state and master weights), `"activations"` (inputs of recomputed
        layers), or `"optimizer,activations"`. `packing`: one row of `batch` · `ctx` tokens, which a mask separates.
        `recompute`: activation checkpointing of every layer (`full`), of its `attention`, or of modules (`selective`;
        `selective:mlp,layernorm` as in Megatron, `selective:op` as in torchtitan). `gradient_accumulation`:
        micro-batches of an optimizer step, each of `batch` sequences (`micro_batch_size`) on each data-parallel rank;
        `global_batch_size`: sequences of all of them, from which one of the others follows. `keep_logits`: the caller
        keeps the logits. `loss`: of all tokens at once, or of an eighth at a time. `lora`: the rank of adapters, which
        alone are trained, or a rank and modules (`"16:q_proj,v_proj"`); `qlora`: rank 16 on weights in nf4;
        `adapter_dtype`: their dtype; `lora_dropout`: dropout on their inputs. `fit` (bytes, `"80GiB"`, or devices:
        `"8xh100-sxm"`) adds the largest context and batch, and what would make more fit. Of each device `use` times its
        memory less `reserve` is usable: 1 and 2 GB; of bytes all.
        `tp`, `sp`, `fsdp`, `tp_plan`, `ep`, `imbalance`, `dp`, `zero`, `pp` and what goes with it, `cp`, `cp_method`,
        `ulysses`: a mesh, as `comms` has it; all is of one rank then, a budget too.

        >>> rank = load("llama-3.1-70b").train(ctx="8k", recompute="full", weights_dtype="fp32", tp=8, sp=True, fsdp=8)
        >>> rank.mesh["ranks"], rank.weights_bytes, rank.peak_phase
        (64, 4410183680, 'layer 1, backward')

        `exact` runs the model's class on the meta device: the byte, in seconds, on one device. Needs torch and
        transformers, peft for adapters.

        >>> load("gpt2").train(ctx=64, exact=True).peak_bytes  # doctest: +SKIP
        1149909080

        Raises TfacctError for a model whose step has not been measured.
        """
        from tfacct.reports.budget import budget, layout
        from tfacct.reports.train import train
        from tfacct.training.batch_sizes import batch_sizes
        from tfacct.training.recipe import Recipe

        ranks, usable = mesh(step), budget(fit, use, reserve, training=True)
        ranks = layout(usable, ranks, 1 if ranks is None else ranks.ranks, training=True)
        asked = request(step)
        batch = asked.batch if "batch" in step else None
        sizes = batch_sizes(batch, micro_batch_size, gradient_accumulation, global_batch_size, ranks)
        rank = None if lora is None else str(lora)
        recipe = Recipe(
            dtype,
            optimizer,
            recompute,
            attention,
            sizes.gradient_accumulation,
            keep_logits,
            loss,
            rank,
            adapter_dtype,
            lora_dropout,
            weights_dtype,
            master_weights,
            gradient_dtype,
            offload,
            packing,
            sizes.mesh,
        )
        recipe, asked = recipe.with_qlora() if qlora else recipe, replace(asked, batch=sizes.batch)
        if exact:
            from tfacct.reports.train import train_exact

            return answered(ExactTrainReport, train_exact([self.loaded], asked, recipe, fit=usable, by=by))
        report = train([self.loaded], asked, recipe, fit=usable, by=by)

        def chart() -> Chart:
            from tfacct.reports.charts import train_chart

            return train_chart([self.loaded], report)

        return answered(TrainReport, report, chart)

    @spelled_out
    def comms(
        self,
        *,
        train: bool = False,
        dtype: str | None = None,
        after_head: Literal["divided", "gathered", "loss"] = "divided",
        reduce_dtype: str | None = None,
        **step: Unpack[StepOnMesh],
    ) -> CommsReport:
        """Collectives of the ranks of a mesh, for one new token, for `tokens` of them, or with `train` in a training
        step.

        >>> from tfacct import load
        >>> step = load("llama-3.1-70b").comms(tp=8, sp=True, fsdp=8, train=True, ctx="8k")
        >>> [(one["kind"], one["calls"], one["bytes"]) for one in step.collectives[:2]]
        [('all-gather', 161, 21609054208), ('reduce-scatter', 161, 2701131776)]

        `tp` ranks divide heads, widths and the vocabulary, with `sp` the tokens of the stream too; `fsdp` groups of
        them divide the weights, each with a batch of its own. `tp_plan`: whether gradients of one tensor are reduced
        product by product, as torch's plan has it, or together, as Megatron does. `ep` of the ranks divide the experts,
        whose fullest receives `imbalance` times the mean. `dp`: copies of all these ranks, each with a batch of its
        own, which divide moments (`zero=1`), gradients too (2), or all as `fsdp` does (3). `dtype`: of what is sent.
        `after_head`: whether logits stay divided, are gathered, or go into a divided loss. `reduce_dtype`: of gradients
        that are summed over batches.
        `pp` stages divide the blocks; they take a batch in `microbatches` by a `schedule`, `interleaved` with so many
        `pp_chunks` on each rank, and the collectives are those of the stage that sends most. `cp` ranks divide a
        sequence's tokens, and keys and values go round (`cp_method`) or are gathered; `ulysses` ranks divide tokens,
        and heads inside attention.
        Raises TfacctError for a mesh that does not divide what it must, and for a model with a part that has no rule.
        """
        from tfacct.parallel.mesh import Mesh
        from tfacct.reports.comms import comms

        ranks = mesh(step) or Mesh()
        report = comms(
            [self.loaded], request(step), ranks, train=train, dtype=dtype, after=after_head, reduce_dtype=reduce_dtype
        )
        return answered(CommsReport, report)
