"""Why to believe it. (Annotations are not postponed: that keeps the start short.)"""

import sys
from typing import Annotated

import typer

from tfacct.cli import ask
from tfacct.cli import options as opt
from tfacct.cli.root import TRUST, command
from tfacct.errors import UsageError


@command(TRUST)
def verify(
    models: opt.Models = None,
    ctx: opt.Ctx = None,
    tokens: opt.Tokens = None,
    decode: opt.Decode = False,
    batch: opt.Batch = "1",
    source: opt.Source = None,
    against: Annotated[
        str | None, typer.Option(metavar="transformers", help="Ask the transformers class too, module by module.")
    ] = None,
    all_layers: Annotated[
        bool, typer.Option("--all-layers", help="Run every block, not one of each kind that stands for its equals.")
    ] = False,
    prove: Annotated[
        str | None,
        typer.Option(metavar="FAMILY|MODEL", help="Prove the formula for all sizes: the same polynomial as the model."),
    ] = None,
    by: Annotated[
        opt.ProofChoice | None,
        typer.Option(help="How --prove proves: with symbols for sizes (default), or on a grid of small ones."),
    ] = None,
    sets: opt.Sets = None,
    family: opt.Family = None,
    max_params: opt.MaxParams = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
    exact: opt.Exact = False,
) -> None:
    """Ask the witnesses: fvcore, torch, published totals. Needs torch and fvcore; runs without memory."""
    from tfacct.reports.verify import verify
    from tfacct.view.progress import progress

    with progress() as tick:
        if prove is not None:
            from tfacct.reports.prove import prove as proven

            if ctx or tokens or decode or batch != "1" or source or against or all_layers or family or max_params:
                raise UsageError("--prove is for all sizes: it goes with --by and --set only")
            asked = ask.one_of_family(prove, models, sets)
            report = proven(asked, by=(by or opt.ProofChoice.symbols).value, progress=tick)
        elif by is not None:
            raise UsageError("--by says how to --prove: it means nothing without it")
        else:
            report = verify(
                ask.subjects(models, sets, family, max_params),
                ask.request(ctx, tokens=tokens, decode=decode, batch=batch, source=source),
                all_layers=all_layers,
                against=against,
                progress=tick,
            )
    ask.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)
    if not report.agrees:
        raise typer.Exit(1)


@command(TRUST)
def measure(
    model: opt.OneModel,
    ctx: opt.Ctx = None,
    batch: opt.Batch = "1",
    source: opt.Source = None,
    decode: opt.Decode = False,
    steps: Annotated[int, typer.Option(metavar="N", help="Timed runs, or decode steps.")] = 5,
    train: Annotated[bool, typer.Option("--train", help="Forward and backward.")] = False,
    sdpa: Annotated[bool, typer.Option("--sdpa", help="Fused attention: faster, and not counted itself.")] = False,
    device: Annotated[str, typer.Option(metavar="cpu|cuda|mps", help="Where it runs.")] = "cpu",
    dtype: Annotated[str, typer.Option(metavar="DTYPE", help="fp32, bf16 or fp16.")] = "fp32",
    sets: opt.Sets = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
) -> None:
    """Run the model here, with random weights: time, MFU, bytes really held. Needs torch and fvcore."""
    from tfacct.reports.measure import Plan, measure
    from tfacct.view.progress import progress

    (subject,) = ask.subjects([model], sets)
    plan = Plan(device=device, dtype=dtype, steps=steps, train=train, sdpa=sdpa)
    try:
        with progress() as tick:
            report = measure(subject, ask.request(ctx, decode=decode, batch=batch, source=source), plan, progress=tick)
    except KeyboardInterrupt:
        print("interrupted before the first run was finished", file=sys.stderr)
        raise typer.Exit(130) from None
    ask.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=False)
    if report.interrupted:
        raise typer.Exit(130)
    if not report.agrees:
        raise typer.Exit(1)
