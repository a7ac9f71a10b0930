"""The commands. (Annotations are not postponed here: typer would evaluate each string four times at start-up.)"""

import sys
from typing import Annotated

import typer

from tfacct import __version__, units
from tfacct.cli import options as opt
from tfacct.errors import UsageError

app = typer.Typer(
    help="Count the parameters, FLOPs and memory of a transformer from its config.json.",
    epilog="Examples:  tfacct flops gpt2-xl --ctx 16k  ·  tfacct memory --dtype bf16  ·  tfacct flops - < config.json",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

ACCOUNT, EXPLORE, PRESETS, TRUST = "Account", "Explore", "Presets", "Trust"


def _version(asked: bool) -> None:
    if asked:
        print(f"tfacct {__version__}")
        raise typer.Exit


@app.callback()
def tfacct(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Count the parameters, FLOPs and memory of a transformer from its config.json."""


@app.command(rich_help_panel=ACCOUNT)
def flops(
    models: opt.Models = None,
    ctx: opt.Ctx = None,
    tokens: opt.Tokens = None,
    decode: opt.Decode = False,
    batch: opt.Batch = "1",
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
    sets: opt.Sets = None,
    family: opt.Family = None,
    max_params: opt.MaxParams = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
    exact: opt.Exact = False,
) -> None:
    """FLOPs of one forward pass, or of a whole request, product by product."""
    if dtype is not None and not moved:
        raise UsageError("--dtype changes no FLOPs: it goes with --bytes")
    lines_only = {"--train": train, "--pointwise": pointwise, f"--by {by.value}": by is not opt.ByChoice.line}
    if generate is not None:
        opt.apart("--generate", {"--tokens": tokens, "--decode": decode, **lines_only, "--bytes": moved})
    if moved:
        opt.apart("--bytes", {**lines_only, "--masked": masked})
    request = opt.request(ctx, tokens=tokens, decode=decode, batch=batch, logits=logits)
    chosen = opt.subjects(models, sets, family, max_params)
    if generate is not None:
        from tfacct.reports.generate import generate as requested

        report = requested(chosen, request, units.read_tokens("--generate", generate), masked=masked)
    elif moved:
        from tfacct.reports.traffic import traffic

        report = traffic(chosen, request, dtype=dtype)
    else:
        from tfacct.reports.flops import flops

        report = flops(chosen, request, train=train, masked=masked, by=by.value, pointwise=pointwise)
    opt.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)


@app.command(rich_help_panel=ACCOUNT)
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

    report = params(opt.subjects(models, sets, family, max_params))
    opt.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)


@app.command(rich_help_panel=ACCOUNT)
def memory(
    models: opt.Models = None,
    ctx: opt.Ctx = None,
    batch: opt.Batch = "1",
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
        opt.subjects(models, sets, family, max_params),
        opt.request(ctx, batch=batch),
        dtype=dtype,
        kv_dtype=kv_dtype,
        fit=None if fit is None else units.read_bytes("--fit", fit),
    )
    opt.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)


@app.command(rich_help_panel=ACCOUNT)
def kv(
    models: opt.Models = None,
    ctx: opt.Ctx = None,
    batch: opt.Batch = "1",
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

    report = kv(opt.subjects(models, sets, family, max_params), opt.request(ctx, batch=batch), dtype=dtype)
    opt.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)


@app.command(rich_help_panel=EXPLORE)
def formula(
    name: opt.FamilyOrModel,
    of: Annotated[opt.OfChoice, typer.Option(help="What is counted.")] = opt.OfChoice.flops,
    ctx: opt.Ctx = None,
    tokens: opt.Tokens = None,
    decode: opt.Decode = False,
    batch: opt.Batch = "1",
    sets: opt.Sets = None,
    as_latex: opt.Latex = False,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
    exact: opt.Exact = False,
) -> None:
    """The formulas themselves, in symbols: each line, and the total factored for reading."""
    from tfacct.reports.formula import formula

    if as_latex:
        opt.apart("--latex", {"--json": as_json, "--csv": as_csv, "--markdown": as_markdown})
    subject, family = opt.family_or_model(name, sets)
    request = opt.request(ctx, tokens=tokens, decode=decode, batch=batch)
    report = formula(subject, request, of=of.value, family=family)
    if as_latex:
        from tfacct.view import latex

        print(latex.align(report))
    else:
        opt.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)


@app.command(rich_help_panel=PRESETS)
def models(
    sets: opt.Sets = None,
    family: opt.Family = None,
    max_params: opt.MaxParams = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
    exact: opt.Exact = False,
) -> None:
    """The presets, by family and size."""
    from tfacct.reports.models import models

    report = models(opt.subjects(None, sets, family, max_params))
    opt.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)


@app.command(rich_help_panel=PRESETS)
def show(
    model: opt.OneModel,
    sets: opt.Sets = None,
    as_json: opt.Json = False,
    as_csv: opt.Csv = False,
    as_markdown: opt.Markdown = False,
    exact: opt.Exact = False,
) -> None:
    """One model's config, its source, and what was defaulted."""
    from tfacct.reports.models import show

    (subject,) = opt.subjects([model], sets)
    opt.show(show(subject), as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)


@app.command(rich_help_panel=TRUST)
def verify(
    models: opt.Models = None,
    ctx: opt.Ctx = None,
    tokens: opt.Tokens = None,
    decode: opt.Decode = False,
    batch: opt.Batch = "1",
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

            if ctx or tokens or decode or batch != "1" or against or all_layers or family or max_params:
                raise UsageError("--prove is for all sizes: it goes with --by and --set only")
            asked = opt.one_of_family(prove, models, sets)
            report = proven(asked, by=(by or opt.ProofChoice.symbols).value, progress=tick)
        elif by is not None:
            raise UsageError("--by says how to --prove: it means nothing without it")
        else:
            report = verify(
                opt.subjects(models, sets, family, max_params),
                opt.request(ctx, tokens=tokens, decode=decode, batch=batch),
                all_layers=all_layers,
                against=against,
                progress=tick,
            )
    opt.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)
    if not report.agrees:
        raise typer.Exit(1)


@app.command(rich_help_panel=TRUST)
def measure(
    model: opt.OneModel,
    ctx: opt.Ctx = None,
    batch: opt.Batch = "1",
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

    (subject,) = opt.subjects([model], sets)
    plan = Plan(device=device, dtype=dtype, steps=steps, train=train, sdpa=sdpa)
    try:
        with progress() as tick:
            report = measure(subject, opt.request(ctx, decode=decode, batch=batch), plan, progress=tick)
    except KeyboardInterrupt:
        print("interrupted before the first run was finished", file=sys.stderr)
        raise typer.Exit(130) from None
    opt.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=False)
    if report.interrupted:
        raise typer.Exit(130)
    if not report.agrees:
        raise typer.Exit(1)
