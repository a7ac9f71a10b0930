"""What the formulas are, and what the knobs do. (Annotations are not postponed: that keeps the start short.)"""

from typing import Annotated

import typer

from tfacct.cli import ask
from tfacct.cli import options as opt
from tfacct.cli.root import EXPLORE, command
from tfacct.errors import UsageError


@command(EXPLORE)
def formula(
    name: opt.FamilyOrModel,
    of: Annotated[opt.OfChoice, typer.Option(help="What is counted.")] = opt.OfChoice.flops,
    ctx: opt.Ctx = None,
    tokens: opt.Tokens = None,
    decode: opt.Decode = False,
    batch: opt.Batch = "1",
    source: opt.Source = None,
    sets: opt.Sets = None,
    as_latex: opt.Latex = False,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
    exact: opt.Exact = False,
) -> None:
    """The formulas themselves, in symbols."""
    from tfacct.reports.formula import formula

    if as_latex:
        ask.apart("--latex", {"--json": as_json, "--csv": as_csv, "--markdown": as_markdown})
    subject, family = ask.family_or_model(name, sets)
    request = ask.request(ctx, tokens=tokens, decode=decode, batch=batch, source=source)
    report = formula(subject, request, of=of.value, family=family)
    if as_latex:
        from tfacct.view import latex

        print(latex.align(report))
    else:
        ask.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)


@command(EXPLORE)
def diff(
    model: opt.OneModel,
    other: Annotated[
        str | None, typer.Argument(metavar="[OTHER]", help="A second model. None: the first, changed.")
    ] = None,
    sets: opt.Sets = None,
    ctx: opt.Ctx = None,
    tokens: opt.Tokens = None,
    decode: opt.Decode = False,
    batch: opt.Batch = "1",
    source: opt.Source = None,
    to_ctx: Annotated[str | None, typer.Option(metavar="S", help="The new side's context.")] = None,
    to_tokens: Annotated[str | None, typer.Option(metavar="T", help="The new side's new tokens.")] = None,
    to_batch: Annotated[str | None, typer.Option(metavar="B", help="The new side's sequences.")] = None,
    logits: opt.Logits = opt.LogitsChoice.all,
    train: opt.Train = False,
    masked: opt.Masked = False,
    dtype: opt.Dtype = None,
    kv_dtype: opt.KvDtype = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
    exact: opt.Exact = False,
) -> None:
    """What a knob changes, line by line."""
    from tfacct.reports._points import Terms
    from tfacct.reports.diff import diff

    (old,) = ask.subjects([model], None)
    new = ask.changed(old, sets) if other is None else ask.subjects([other], sets)[0]
    before = ask.request(ctx, tokens=tokens, decode=decode, batch=batch, logits=logits, source=source)
    to = {"ctx": to_ctx, "tokens": to_tokens, "batch": to_batch}
    if decode and to_tokens is not None:
        raise UsageError("--decode is one new token on both sides: leave --to-tokens out")
    given = {"ctx": ctx, "tokens": tokens, "batch": batch} | {name: v for name, v in to.items() if v is not None}
    after = ask.request(
        given["ctx"], tokens=given["tokens"], decode=decode, batch=given["batch"] or "", logits=logits, source=source
    )
    report = diff(old, new, before, after, terms=Terms(dtype, kv_dtype, masked, train))
    ask.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)


@command(EXPLORE)
def sweep(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="Preset, path to a config.json, or -.", autocompletion=opt.complete_model),
    ],
    ctx: Annotated[
        str | None,
        typer.Option(metavar="S", help="Contexts: 1k..128k doubles, 1k..8k:1k counts up, 1k,4k lists."),
    ] = None,
    batch: Annotated[str, typer.Option(metavar="B", help="Batches, written alike: 1,8,64.")] = "1",
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUES", help="Fields: num_key_value_heads=1,2,4,8. Repeatable.", show_default=False
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Numbers by their JSON keys, share.NAME, flops.NAME; comma-separated or repeated. The last is drawn.",
            show_default=False,
        ),
    ] = None,
    tokens: opt.Tokens = None,
    decode: opt.Decode = False,
    source: opt.Source = None,
    logits: opt.Logits = opt.LogitsChoice.all,
    train: opt.Train = False,
    masked: opt.Masked = False,
    dtype: opt.Dtype = None,
    kv_dtype: opt.KvDtype = None,
    plot: opt.Plot = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
    exact: opt.Exact = False,
) -> None:
    """Any number against context, batch or any field."""
    from tfacct import ranges, sources
    from tfacct.reports._points import Terms
    from tfacct.reports.sweep import DEFAULT, Grid, sweep
    from tfacct.view.progress import progress

    ask.check_plot(plot, force)
    grid = Grid(
        contexts=None if ctx is None else ranges.read_values("--ctx", ctx),
        batches=ranges.read_values("--batch", batch),
        fields=sources.read_lists(sets or ()),
    )
    names = [name.strip() for text in metric or () for name in text.split(",")] or DEFAULT
    with progress() as tick:
        report = sweep(
            ask.reader(),
            models,
            grid,
            metrics=names,
            request=ask.request(None, tokens=tokens, decode=decode, logits=logits, source=source),
            terms=Terms(dtype, kv_dtype, masked, train),
            progress=tick,
        )
    ask.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)
    if plot is not None:
        from tfacct.reports.charts import sweep_chart

        ask.draw(plot, force, sweep_chart(report))


@command(EXPLORE)
def solve(
    model: opt.OneModel,
    unknown: Annotated[str, typer.Option("--for", metavar="ctx|batch|num_key_value_heads", help="What is asked for.")],
    until: Annotated[
        str,
        typer.Option(
            metavar="LEFT=RIGHT",
            help='Two metrics, or one and a number: "kv_cache_bytes=weights_bytes", "share.attn=50%".',
        ),
    ],
    ctx: opt.Ctx = None,
    tokens: opt.Tokens = None,
    decode: opt.Decode = False,
    batch: opt.Batch = "1",
    source: opt.Source = None,
    logits: opt.Logits = opt.LogitsChoice.all,
    train: opt.Train = False,
    masked: opt.Masked = False,
    dtype: opt.Dtype = None,
    kv_dtype: opt.KvDtype = None,
    sets: opt.Sets = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
    exact: opt.Exact = False,
) -> None:
    """The largest context or batch until two numbers meet."""
    from tfacct.reports._points import Terms
    from tfacct.reports.solve import solve

    (subject,) = ask.subjects([model], sets)
    request = ask.request(ctx, tokens=tokens, decode=decode, batch=batch, logits=logits, source=source)
    report = solve(subject, request, unknown=unknown, until=until, terms=Terms(dtype, kv_dtype, masked, train))
    ask.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)
