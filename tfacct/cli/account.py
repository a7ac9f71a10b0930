"""What a model costs. (Annotations are not postponed: that keeps the start short.)"""

from typing import Annotated

import typer

from tfacct import units
from tfacct.cli import ask
from tfacct.cli import options as opt
from tfacct.cli.root import ACCOUNT, command
from tfacct.errors import UsageError


@command(ACCOUNT)
def flops(
    models: opt.Models = None,
    ctx: opt.Ctx = None,
    tokens: opt.Tokens = None,
    decode: opt.Decode = False,
    batch: opt.Batch = "1",
    source: opt.Source = None,
    train: opt.Train = False,
    masked: opt.Masked = False,
    logits: opt.Logits = opt.LogitsChoice.all,
    by: Annotated[opt.ByChoice, typer.Option(help="What a row stands for.")] = opt.ByChoice.line,
    pointwise: Annotated[
        bool, typer.Option("--pointwise", help="List norms, softmax and activations too, in elements.")
    ] = False,
    generate: opt.Generate = None,
    moved: opt.Bytes = False,
    dtype: opt.BytesDtype = None,
    plot: opt.Plot = None,
    force: opt.Force = False,
    sets: opt.Sets = None,
    family: opt.Family = None,
    max_params: opt.MaxParams = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
    exact: opt.Exact = False,
) -> None:
    """FLOPs of a pass, a training step or a whole request."""
    if dtype is not None and not moved:
        raise UsageError("--dtype changes no FLOPs: it goes with --bytes")
    ask.check_plot(plot, force)
    lines_only = {"--train": train, "--pointwise": pointwise, f"--by {by.value}": by is not opt.ByChoice.line}
    if generate is not None:
        ask.apart("--generate", {"--tokens": tokens, "--decode": decode, **lines_only, "--bytes": moved})
    if moved:
        ask.apart("--bytes", {**lines_only, "--masked": masked})
    if plot is not None:
        ask.apart("--plot", {"--generate": generate, "--bytes": moved})
    request = ask.request(ctx, tokens=tokens, decode=decode, batch=batch, logits=logits, source=source)
    chosen = ask.subjects(models, sets, family, max_params)
    if generate is not None:
        from tfacct.reports.generate import generate as requested

        report = requested(chosen, request, units.read_tokens("--generate", generate), masked=masked)
    elif moved:
        from tfacct.reports.traffic import traffic

        report = traffic(chosen, request, dtype=dtype)
    else:
        from tfacct.reports.flops import flops

        report = flops(chosen, request, train=train, masked=masked, by=by.value, pointwise=pointwise)
    ask.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)
    if plot is not None:
        from tfacct.reports.charts import flops_chart

        ask.draw(plot, force, flops_chart(chosen, request, report, masked=masked, train=train))


@command(ACCOUNT)
def params(
    models: opt.Models = None,
    sets: opt.Sets = None,
    family: opt.Family = None,
    max_params: opt.MaxParams = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
    exact: opt.Exact = False,
) -> None:
    """Parameters, tensor by tensor."""
    from tfacct.reports.params import params

    report = params(ask.subjects(models, sets, family, max_params))
    ask.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)


@command(ACCOUNT)
def memory(
    models: opt.Models = None,
    ctx: opt.Ctx = None,
    batch: opt.Batch = "1",
    source: opt.Source = None,
    dtype: opt.Dtype = None,
    kv_dtype: opt.KvDtype = None,
    fit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Add the largest context and batch that fit: 24GiB, 80GB."),
    ] = None,
    sets: opt.Sets = None,
    family: opt.Family = None,
    max_params: opt.MaxParams = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
    exact: opt.Exact = False,
) -> None:
    """Bytes for weights and KV cache, and what fits a card."""
    from tfacct.reports.memory import memory

    report = memory(
        ask.subjects(models, sets, family, max_params),
        ask.request(ctx, batch=batch, source=source),
        dtype=dtype,
        kv_dtype=kv_dtype,
        fit=None if fit is None else units.read_bytes("--fit", fit),
    )
    ask.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)


@command(ACCOUNT)
def kv(
    models: opt.Models = None,
    ctx: opt.Ctx = None,
    batch: opt.Batch = "1",
    source: opt.Source = None,
    dtype: Annotated[
        str | None, typer.Option(metavar="DTYPE", help="How the KV cache is stored. Default: bf16.")
    ] = None,
    sets: opt.Sets = None,
    family: opt.Family = None,
    max_params: opt.MaxParams = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
    exact: opt.Exact = False,
) -> None:
    """KV cache by context: as built, as MHA, as MQA."""
    from tfacct.reports.kv import kv

    report = kv(
        ask.subjects(models, sets, family, max_params), ask.request(ctx, batch=batch, source=source), dtype=dtype
    )
    ask.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)
