"""Commands that show the formulas and vary a model. (Annotations are not postponed: that keeps the start short.)"""

from dataclasses import replace
from typing import Annotated, Any

import typer

from tfacct.base.errors import UsageError
from tfacct.cli import ask, complete
from tfacct.cli import options as opt
from tfacct.cli.mesh_options import Sp
from tfacct.cli.root import EXPLORE, command


@command(EXPLORE, "tfacct formula llama")
def formula(
    *,
    name: opt.FamilyOrModel,
    of: Annotated[
        opt.OfChoice, typer.Option(help="Quantity to count; saved: activations that a training step saves.")
    ] = opt.OfChoice.flops,
    step: opt.Step,
    dtype: Annotated[
        str | None,
        typer.Option(metavar="DTYPE", help="Of a training step. Default: bf16.", autocompletion=complete.kv_dtype),
    ] = None,
    trained: opt.Kept,
    sets: opt.Sets = None,
    as_latex: opt.Latex = False,
    tp: Annotated[
        str | None,
        typer.Option(metavar="N", help="Tensor-parallel ranks: t, or 8.", rich_help_panel="Mesh"),
    ] = None,
    pp: Annotated[
        str | None, typer.Option(metavar="N", help="Pipeline stages of layers: p, or 4.", rich_help_panel="Mesh")
    ] = None,
    cp: Annotated[
        str | None, typer.Option(metavar="N", help="Context-parallel ranks: c, or 2.", rich_help_panel="Mesh")
    ] = None,
    ep: Annotated[
        str | None, typer.Option(metavar="N", help="Expert-parallel ranks: e, or 4.", rich_help_panel="Mesh")
    ] = None,
    sp: Sp = False,
    output: opt.Output,
) -> None:
    """The formulas themselves, in symbols."""
    from tfacct.reports.formula import formula

    if as_latex:
        others = {"--csv": output.as_csv, "--markdown": output.as_markdown, "--html": output.html}
        ask.apart("--latex", {"--json": output.as_json, **others})
    subject, family = ask.family_or_model(name, sets)
    request = ask.request(step)
    terms = ask.counting(opt.Counted(dtype=dtype), trained)
    axes = {"tp": tp, "pp": pp, "cp": cp, "ep": ep}
    report = formula(subject, request, of=of.value, family=family, terms=terms, axes=axes, sp=sp)
    if as_latex:
        from tfacct.algebra import latex

        print(latex.align(report))
    else:
        ask.show(report, output)


@command(EXPLORE, "tfacct diff llama-3.1-8b --set num_key_value_heads=1")
def diff(
    *,
    one: opt.One,
    other: Annotated[
        str | None, typer.Argument(metavar="[OTHER]", help="Second model. Default: the first one, changed.")
    ] = None,
    step: opt.Step,
    to_ctx: Annotated[str | None, typer.Option(metavar="S", help="Context of the new side.")] = None,
    to_tokens: Annotated[str | None, typer.Option(metavar="T", help="New tokens of the new side.")] = None,
    to_batch: Annotated[str | None, typer.Option(metavar="B", help="Batch of the new side.")] = None,
    to_dtype: Annotated[
        str | None,
        typer.Option(metavar="DTYPE", help="How the new side's weights are stored.", autocompletion=complete.dtype),
    ] = None,
    to_kv_dtype: Annotated[
        str | None,
        typer.Option(metavar="DTYPE", help="How its KV cache is stored.", autocompletion=complete.kv_dtype),
    ] = None,
    to_optimizer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Optimizer of the new side.", autocompletion=complete.optimizer),
    ] = None,
    to_recompute: Annotated[
        str | None, typer.Option(metavar=opt.RECOMPUTED, help="What is run again on the new side.")
    ] = None,
    to_attention: Annotated[opt.AttentionChoice | None, typer.Option(help="Attention of the new side.")] = None,
    to_loss: Annotated[opt.LossChoice | None, typer.Option(help="How its loss is computed.")] = None,
    to_lora: Annotated[str | None, typer.Option(metavar="R[:MODULES]", help="LoRA of the new side.")] = None,
    to_adapter_dtype: Annotated[
        str | None, typer.Option("--to-adapters", metavar="DTYPE", help="Dtype of its adapters.")
    ] = None,
    to_lora_dropout: Annotated[float | None, typer.Option(metavar="SHARE", help="What they drop.")] = None,
    to_weights_dtype: Annotated[
        str | None, typer.Option("--to-weights", metavar="FORMAT", help="Its weights in training.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also list the rows that do not change.")] = False,
    counted: opt.Counted,
    trained: opt.Trained,
    picture: opt.Picture,
    output: opt.Output,
) -> None:
    """Two models, or one model before and after a change, line by line."""
    from tfacct.reports.diff import diff

    old = ask.subject(opt.One(one.model))
    new = ask.changed(old, one.sets) if other is None else ask.subject(opt.One(other, one.sets))
    before = ask.request(step, counted.logits)
    if step.decode and to_tokens is not None:
        raise UsageError("--decode is one new token on both sides: leave --to-tokens out")
    sizes = {"ctx": to_ctx, "tokens": to_tokens, "batch": to_batch}
    changed: dict[str, Any] = {name: said for name, said in sizes.items() if said is not None}
    after = ask.request(replace(step, **changed), counted.logits)
    terms = ask.counting(counted, trained)
    to = terms.stored(to_dtype, to_kv_dtype).with_recipe(
        {
            "optimizer": to_optimizer,
            "recompute": to_recompute,
            "attention": to_attention,
            "loss": to_loss,
            "lora": to_lora,
            "adapter_dtype": to_adapter_dtype,
            "lora_dropout": to_lora_dropout,
            "weights_dtype": to_weights_dtype,
        }
    )
    report = diff(old, new, before, after, terms=terms, to=to, every=every)
    chart = None
    if picture.plot is not None:
        from tfacct.reports.charts import diff_chart

        chart = diff_chart(old, new, before, after, report, terms)
    ask.show(report, output, picture, chart)


@command(EXPLORE, "tfacct sweep gpt2-xl --ctx 1k..32k")
def sweep(
    *,
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="Preset, path to a config.json, or -.", autocompletion=complete.model),
    ],
    ctx: Annotated[
        str | None,
        typer.Option(metavar="S", help="Contexts: 1k..128k doubles, 1k..8k:1k counts up, 1k,4k lists."),
    ] = None,
    batch: Annotated[str, typer.Option(metavar="B", help="Batches, written the same way: 1,8,64.")] = "1",
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUES",
            help="Fields: num_key_value_heads=1,2,4,8. Repeatable.",
            show_default=False,
            autocompletion=complete.assignment,
        ),
    ] = None,
    zipped: Annotated[
        list[str] | None,
        typer.Option(
            "--zip",
            metavar="FIELD=VALUES",
            help="Fields that vary together: --zip d_model=512,768 --zip num_heads=8,12.",
            show_default=False,
            autocompletion=complete.assignment,
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Metrics by JSON key, share.NAME or flops.NAME; comma-separated or repeated. --plot draws the last.",
            show_default=False,
            autocompletion=complete.metrics,
        ),
    ] = None,
    tp: Annotated[
        str | None,
        typer.Option(metavar="N", help="Tensor-parallel ranks: 1,2,4,8.", rich_help_panel="Mesh"),
    ] = None,
    fsdp: Annotated[str | None, typer.Option(metavar="N", help="FSDP ranks: 1,8,64.", rich_help_panel="Mesh")] = None,
    ep: Annotated[
        str | None, typer.Option(metavar="N", help="Expert-parallel ranks: 1,8.", rich_help_panel="Mesh")
    ] = None,
    pp: Annotated[
        str | None, typer.Option(metavar="N", help="Pipeline stages of layers: 1,2,4.", rich_help_panel="Mesh")
    ] = None,
    cp: Annotated[
        str | None, typer.Option(metavar="N", help="Context-parallel ranks: 1,2,4.", rich_help_panel="Mesh")
    ] = None,
    sp: opt.Sp = False,
    tokens: opt.Tokens = None,
    decode: opt.Decode = False,
    source: opt.Source = None,
    counted: opt.Counted,
    trained: opt.Trained,
    picture: opt.Picture,
    output: opt.Output,
) -> None:
    """Any metric against context, batch or any field, at up to 20,000 points."""
    from tfacct.base import ranges
    from tfacct.cli.sets import read_lists
    from tfacct.output.progress import progress
    from tfacct.reports.sweep import DEFAULT, Grid, sweep

    ranks = {"tp": tp, "fsdp": fsdp, "ep": ep, "pp": pp, "cp": cp}
    grid = Grid(
        contexts=None if ctx is None else ranges.read_values("--ctx", ctx),
        batches=ranges.read_values("--batch", batch),
        fields=read_lists(sets or ()),
        zipped=read_lists(zipped or (), "--zip"),
        ranks={axis: ranges.read_values(f"--{axis}", text) for axis, text in ranks.items() if text},
        sp=sp,
    )
    names = [name.strip() for text in metric or () for name in text.split(",")] or DEFAULT
    with progress() as tick:
        report = sweep(
            ask.reader(),
            models,
            grid,
            metrics=names,
            request=ask.request(opt.Step(tokens=tokens, decode=decode, source=source), counted.logits),
            terms=ask.counting(counted, trained),
            progress=tick,
        )
    chart = None
    if picture.plot is not None:
        from tfacct.reports.charts import sweep_chart

        chart = sweep_chart(report)
    ask.show(report, output, picture, chart)


@command(EXPLORE, "tfacct solve llama-3.1-8b --for ctx --until kv_cache_bytes=weights_bytes")
def solve(
    *,
    unknown: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="ctx|batch|AXIS|FIELD",
            help="Unknown: ctx, batch, a field of the config that holds a whole number; of an AXIS (tp, fsdp, pp, ep)"
            " the fewest ranks.",
            autocompletion=complete.unknown,
        ),
    ],
    until: Annotated[
        str,
        typer.Option(
            metavar="LEFT=RIGHT",
            help='Two metrics, or a metric and a number: "kv_cache_bytes=weights_bytes", "share.attn=50%".',
            autocompletion=complete.until,
        ),
    ],
    step: opt.Step,
    counted: opt.Counted,
    trained: opt.Trained,
    ranks: opt.Ranks,
    one: opt.One,
    output: opt.Output,
) -> None:
    """The largest context, batch or field before two numbers meet, or the fewest ranks."""
    from tfacct.reports.solve import solve

    subject = ask.subject(one)
    request = ask.request(step, counted.logits)
    terms = replace(ask.counting(counted, trained), mesh=ask.mesh(ranks))
    report = solve(subject, request, unknown=unknown, until=until, terms=terms)
    ask.show(report, output)


@command(EXPLORE, "tfacct metrics")
def metrics(*, output: opt.Output) -> None:
    """The metrics by name, for sweep and solve."""
    from tfacct.reports.metrics import metrics

    ask.show(metrics(), output)
