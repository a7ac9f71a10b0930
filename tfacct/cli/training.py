"""What training takes, and what ranks send. (Annotations are not postponed: that keeps the start short.)"""

import sys
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from tfacct.cli import ask, complete
from tfacct.cli import options as opt
from tfacct.cli.root import ACCOUNT, command


class ByChoice(StrEnum):
    """Rows of the table."""

    phase = "phase"
    tensor = "tensor"
    part = "part"


@command(ACCOUNT, "tfacct train llama-3.1-8b --ctx 8k --fit 80GiB")
def train(
    *,
    whole: opt.Whole,
    dtype: Annotated[
        str,
        typer.Option(
            metavar="DTYPE",
            help="Of the pass; of weights and gradients too, unless --weights says so.",
            autocompletion=complete.kv_dtype,
        ),
    ] = "bf16",
    optimizer: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="adamw (fused), adamw-foreach, adamw-for-loop, adamw-amsgrad, adafactor, muon, rmsprop, adagrad,"
            " adamax, nadam, sgd, sgd-foreach, sgd-momentum, sgd-momentum-foreach, none; of transformers,"
            " adafactor-transformers, adafactor-transformers-beta1; of bitsandbytes, adamw-8bit, adamw-8bit-trainer"
            " (embeddings in 32 bits, as Trainer asks for), adamw-32bit, lion-8bit, lion-8bit-trainer, lion-32bit,"
            " ademamix-8bit, paged-adamw-8bit, paged-adamw-32bit, paged-lion-8bit, paged-lion-32bit.",
            autocompletion=complete.optimizer,
        ),
    ] = "adamw",
    recompute: Annotated[
        str,
        typer.Option(
            metavar=opt.RECOMPUTED,
            help="Activation checkpointing: none, full (every layer), attention, selective (Megatron's core_attn, from"
            " scores to values), selective:mlp,layernorm (its modules), selective:op (torchtitan: sdpa and every second"
            " matmul save their result).",
            autocompletion=complete.recompute,
        ),
    ] = "none",
    attention: Annotated[
        opt.AttentionChoice | None,
        typer.Option(
            help="How transformers runs it. Default: sdpa, or eager where the class has no other.", show_default=False
        ),
    ] = None,
    gradient_accumulation: Annotated[
        int | None,
        typer.Option(
            "--accumulate",
            metavar="N",
            help="Gradient accumulation: micro-batches of a step (--gradient-accumulation-steps). Default: 1.",
            show_default=False,
        ),
    ] = None,
    micro_batch_size: Annotated[
        int | None, typer.Option(metavar="N", help="Sequences of a forward pass on each data-parallel rank: --batch.")
    ] = None,
    global_batch_size: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Sequences of an optimizer step: --micro-batch-size × --accumulate × data-parallel ranks."
        ),
    ] = None,
    keep_logits: Annotated[
        bool, typer.Option("--keep-logits", help="The caller keeps the logits through the step.")
    ] = False,
    loss: Annotated[
        opt.LossChoice, typer.Option(help="chunked: head and cross entropy of an eighth of the tokens at a time.")
    ] = opt.LossChoice.whole,
    lora: Annotated[
        str | None,
        typer.Option(
            metavar="R[:LAYERS]", help="Adapters of rank R on all linear layers inside the layers, or on these (peft)."
        ),
    ] = None,
    qlora: Annotated[
        bool, typer.Option("--qlora", help="--lora 16 --weights nf4: adapters on frozen weights in 4 bits.")
    ] = False,
    adapter_dtype: Annotated[
        str,
        typer.Option(
            "--adapters", metavar="DTYPE", help="Dtype of the adapters: fp32, peft's default, or that of the weights."
        ),
    ] = "fp32",
    lora_dropout: Annotated[float, typer.Option(metavar="SHARE", help="Dropout on the adapters' inputs.")] = 0.0,
    weights_dtype: Annotated[
        str | None,
        typer.Option(
            "--weights",
            metavar="FORMAT",
            help="fp32: the pass runs under torch.autocast, as in Trainer; nf4: frozen weights in 4 bits, with --lora"
            " (QLoRA).",
        ),
    ] = None,
    master_weights: opt.MasterWeights = None,
    gradient_dtype: opt.GradientDtype = None,
    offload: opt.Offload = None,
    packing: Annotated[
        bool, typer.Option("--packing", help="One row of --batch × --ctx tokens, with a mask between sequences.")
    ] = False,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Run the model's class on the meta device: the byte, in seconds. Needs torch."),
    ] = False,
    fit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Add what fits, and what would make more fit: 80GiB, h100-sxm, 8xh100-sxm."),
    ] = None,
    usable: opt.Usable,
    mesh: opt.Mesh,
    by: Annotated[ByChoice, typer.Option(help="One row per phase, saved tensor, or part of the model.")] = (
        ByChoice.phase
    ),
    picture: opt.Picture,
    which: opt.Which,
    output: opt.Output,
) -> None:
    """Memory of a training step, phase by phase, and its peak."""
    from tfacct.reports.train import train
    from tfacct.training.batch_sizes import batch_sizes
    from tfacct.training.recipe import Recipe

    ranks, budget = ask.mesh(mesh), ask.budget(fit, usable, training=True)
    if budget is not None:
        from tfacct.reports.budget import layout

        ranks = layout(budget, ranks, 1 if ranks is None else ranks.ranks, training=True)
    request = ask.request(whole)
    batch = None if whole.batch == "1" else request.batch
    sizes = batch_sizes(batch, micro_batch_size, gradient_accumulation, global_batch_size, ranks)
    recipe = Recipe(
        dtype,
        optimizer,
        recompute,
        None if attention is None else attention.value,
        sizes.gradient_accumulation,
        keep_logits,
        loss.value,
        lora=lora,
        adapter_dtype=adapter_dtype,
        lora_dropout=lora_dropout,
        weights_dtype=weights_dtype,
        master_weights=master_weights,
        gradient_dtype=gradient_dtype,
        offload=offload,
        packing=packing,
        mesh=sizes.mesh,
    )
    chosen = ask.subjects(which)
    recipe, request = recipe.with_qlora() if qlora else recipe, replace(request, batch=sizes.batch)
    if exact:
        from tfacct.output.progress import progress
        from tfacct.reports.train import slow_words, train_exact

        ask.apart("--exact", {"--plot": picture.plot})
        if slow := slow_words(chosen):
            print(slow, file=sys.stderr)
        with progress() as tick:
            report = train_exact(chosen, request, recipe, fit=budget, by=by.value, progress=tick)
        ask.show(report, output)
        return
    report = train(chosen, request, recipe, fit=budget, by=by.value)
    chart = None
    if picture.plot is not None:
        from tfacct.reports.charts import train_chart

        chart = train_chart(chosen, report)
    ask.show(report, output, picture, chart)


@command(ACCOUNT, "tfacct comms llama-3.1-70b --tp 8 --sp --fsdp 8 --train --ctx 8k")
def comms(
    *,
    mesh: opt.Mesh,
    step: opt.Step,
    train: opt.Train = False,
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="DTYPE",
            help="Of what is sent: fp32, bf16 or fp16. Default: bf16.",
            show_default=False,
            autocompletion=complete.kv_dtype,
        ),
    ] = None,
    after_head: Annotated[
        opt.AfterHeadChoice, typer.Option(help="Logits: left divided, gathered, or put into a divided loss.")
    ] = opt.AfterHeadChoice.divided,
    reduce_dtype: Annotated[
        str | None,
        typer.Option(
            metavar="DTYPE",
            help="In which gradients are summed over batches. Default: as sent.",
            show_default=False,
            autocompletion=complete.kv_dtype,
        ),
    ] = None,
    which: opt.Which,
    output: opt.Output,
) -> None:
    """What each rank sends: for one new token, for --tokens, or in a training step."""
    from tfacct.parallel.mesh import Mesh
    from tfacct.reports.comms import comms

    ranks = ask.mesh(mesh) or Mesh()
    report = comms(
        ask.subjects(which),
        ask.request(step),
        ranks,
        train=train,
        dtype=dtype,
        after=after_head.value,
        reduce_dtype=reduce_dtype,
    )
    ask.show(report, output)
