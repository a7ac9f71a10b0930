"""Commands that count a model's costs. (Annotations are not postponed: that keeps the start short.)"""

from typing import Annotated, Any

import typer

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.cli import ask, complete
from tfacct.cli import options as opt
from tfacct.cli.root import ACCOUNT, command
from tfacct.ledger.workload import Request


@command(ACCOUNT, "tfacct flops gpt2-xl --ctx 16k")
def flops(
    *,
    step: opt.Step,
    train: opt.Train = False,
    recompute: Annotated[
        opt.RecomputeChoice,
        typer.Option(help="With --train: what the backward pass runs again, every block or its attention."),
    ] = opt.RecomputeChoice.none,
    masked: opt.Masked = False,
    logits: opt.Logits = opt.LogitsChoice.all,
    by: Annotated[opt.ByChoice, typer.Option(help="One row per product, part or block.")] = opt.ByChoice.line,
    pointwise: Annotated[
        bool, typer.Option("--pointwise", help="List norms, softmax and activations too, in elements.")
    ] = False,
    generate: opt.Generate = None,
    moved: opt.Bytes = False,
    dtype: opt.BytesDtype = None,
    ranks: opt.Ranks,
    picture: opt.Picture,
    which: opt.Which,
    how: opt.Explained,
    output: opt.Output,
) -> None:
    """FLOPs of a pass, a training step or a whole request."""
    if dtype is not None and not moved:
        raise UsageError("--dtype does not change FLOPs: use it with --bytes")
    again = {f"--recompute {recompute.value}": recompute is not opt.RecomputeChoice.none}
    lines_only = {"--train": train, **again, "--pointwise": pointwise, f"--by {by.value}": by is not opt.ByChoice.line}
    if generate is not None:
        others = {"--tokens": step.tokens, "--decode": step.decode, **lines_only, "--bytes": moved, **ask.given(ranks)}
        ask.apart("--generate", others)
    beside = {"--generate": generate, "--bytes": moved, "--pointwise": pointwise, **again, **ask.given(ranks)}
    ask.check_explained(how, output, {**beside, f"--by {by.value}": by is not opt.ByChoice.line})
    if moved:
        ask.apart("--bytes", {**lines_only, "--masked": masked})
    if picture.plot is not None:
        ask.apart("--plot", {"--generate": generate, "--bytes": moved, **again})
    if which.part is opt.PartChoice.both:  # an image's tokens are no text's
        ask.apart("--part both", {"--ctx": step.ctx, "--tokens": step.tokens, "--decode": step.decode})
        ask.apart("--part both", {"--generate": generate})
    request, mesh = ask.request(step, logits), ask.of_one_rank(ranks)
    chosen = ask.subjects(which, "work")
    if generate is not None:
        from tfacct.reports.generate import generate as requested

        report = requested(chosen, request, units.read_tokens("--generate", generate), masked=masked)
    elif moved:
        from tfacct.reports.flops import traffic

        report = traffic(chosen, request, dtype=dtype, mesh=mesh)
    else:
        from tfacct.reports.flops import flops

        how_much: Any = {"train": train, "masked": masked, "pointwise": pointwise, "recompute": recompute.value}
        report = flops(chosen, request, by=by.value, mesh=mesh, **how_much)
    chart = None
    if picture.plot is not None:
        from tfacct.parallel.shard_model import shard_for_flops
        from tfacct.reports.charts import flops_chart
        from tfacct.reports.ranks import check_drawn, drawn

        check_drawn(mesh, "FLOPs")
        of = shard_for_flops(chosen, mesh)[1]
        chart = drawn(flops_chart(of, request, report, masked=masked, train=train), mesh)
    if generate is None and not moved:
        report = ask.explained(report, chosen, request, how, train=train, masked=masked)
    ask.show(report, output, picture, chart, how)


@command(ACCOUNT, "tfacct params gpt2-xl")
def params(
    *,
    ranks: opt.Ranks,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 where the expected total of a file is another.")
    ] = False,
    picture: opt.Picture,
    which: opt.Which,
    how: opt.Explained,
    output: opt.Output,
) -> None:
    """Parameters, tensor by tensor."""
    from tfacct.reports.params import params

    ask.check_explained(how, output, ask.given(ranks))
    chosen = ask.subjects(which, "parameters")
    mesh = ask.mesh(ranks)
    if mesh is not None:
        from tfacct.parallel.mesh import checked

        mesh = checked(mesh)
    report = params(chosen, mesh)
    chart = None
    if picture.plot is not None:
        from tfacct.reports.charts import params_chart

        chart = params_chart(chosen, report)
    ask.show(ask.explained(report, chosen, Request(), how), output, picture, chart, how)
    if strict and not report.agrees:
        raise typer.Exit(1)


@command(ACCOUNT, "tfacct memory llama-3.1-8b --ctx 8k --fit 24GiB")
def memory(
    *,
    whole: opt.Whole,
    dtype: opt.Dtype = None,
    kv_dtype: opt.KvDtype = None,
    fit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Find the largest context and batch that fit: 24GiB (24GB: 24·10⁹ bytes), h100-sxm or 2xh100-sxm.",
        ),
    ] = None,
    usable: opt.Usable,
    kv_block: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of a page of the KV cache, as engines keep it: 16.")
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="See `tfacct train`: a training step holds more.")] = False,
    ranks: opt.Ranks,
    picture: opt.Picture,
    which: opt.Which,
    how: opt.Explained,
    output: opt.Output,
) -> None:
    """Bytes for weights and KV cache, and what fits a card; --batch 1,8,64: a row each."""
    from tfacct.reports.memory import memory

    if train:
        words = " ".join(["tfacct train", *(which.models or ()), *([f"--ctx {whole.ctx}"] if whole.ctx else [])])
        raise UsageError("memory takes no --train: a training step has a command of its own", words)
    if which.part is opt.PartChoice.both:  # each part would have all of the memory
        ask.apart("--part both", {"--fit": fit})
    batches, whole = ask.several("batch", whole)
    ask.check_explained(how, output, {"--batch of several": batches, "--kv-block": kv_block, **ask.given(ranks)})
    chosen, request = ask.subjects(which, "parameters"), ask.request(whole)
    mesh, budget = ask.of_one_rank(ranks), ask.budget(fit, usable)
    if budget is not None:
        from tfacct.parallel.mesh import ranks_of
        from tfacct.reports.budget import layout

        mesh = layout(budget, mesh, ranks_of(mesh))
    if mesh is not None:
        from tfacct.reports.ranks import check_drawn

        ask.check_explained(how, output, {f"--fit {fit}": True})
        if picture.plot is not None:
            check_drawn(mesh, "memory")
    stored: Any = {"dtype": dtype, "kv_dtype": kv_dtype, "kv_block": kv_block, "mesh": mesh}
    if batches is None:
        report = memory(chosen, request, fit=budget, **stored)
    else:
        from tfacct.reports.memory import by_batch

        report = by_batch(chosen, request, batches, fit=budget, **stored)
    chart = None
    if picture.plot is not None:
        from tfacct.parallel.shard_model import shard_models
        from tfacct.reports.charts import memory_chart
        from tfacct.reports.ranks import drawn

        chart = drawn(memory_chart(shard_models(chosen, mesh, dtype)[1], request, report), mesh)
    report = ask.explained(report, chosen, request, how, dtype=dtype, kv_dtype=kv_dtype)
    ask.show(report, output, picture, chart, how)


@command(ACCOUNT, "tfacct kv llama-3.1-8b --dtype fp8")
def kv(
    *,
    whole: opt.Whole,
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="DTYPE", help="How the KV cache is stored. Default: bf16.", autocompletion=complete.kv_dtype
        ),
    ] = None,
    ranks: opt.Ranks,
    picture: opt.Picture,
    which: opt.Which,
    how: opt.Explained,
    output: opt.Output,
) -> None:
    """KV cache by context, --ctx 1k..128k: as built, as MHA, as MQA."""
    from tfacct.reports.kv import kv

    ask.check_explained(how, output, ask.given(ranks))
    mesh = ask.of_one_rank(ranks)
    if picture.plot is not None and mesh is not None:
        from tfacct.reports.ranks import check_drawn

        check_drawn(mesh, "the cache")
    chosen = ask.subjects(which)
    contexts, whole = ask.several("ctx", whole)
    request = ask.request(whole)
    report = kv(chosen, request, dtype=dtype, contexts=contexts, mesh=mesh)
    chart = None
    if picture.plot is not None:
        from tfacct.parallel.shard_model import shard_for_flops
        from tfacct.reports.charts import kv_chart
        from tfacct.reports.ranks import drawn

        chart = drawn(kv_chart(shard_for_flops(chosen, mesh)[1], request, report), mesh)
    ask.show(ask.explained(report, chosen, request, how, dtype=dtype), output, picture, chart, how)
