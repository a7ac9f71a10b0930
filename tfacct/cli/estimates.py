"""How long it takes: estimates, never counts. (Annotations are not postponed: that keeps the start short.)"""

from typing import Annotated

import typer

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.cli import ask, complete
from tfacct.cli import options as opt
from tfacct.cli.mesh_options import Cp, Pp, Sp, Tp
from tfacct.cli.root import ACCOUNT, ESTIMATE, command

_ON = "Devices"
_TRAIN = "Training"
On = Annotated[
    str,
    typer.Option(
        metavar="[N]xDEVICE",
        help="Devices that share the model: h100-sxm, 4xh100-sxm; `tfacct devices` lists them.",
        autocompletion=complete.device,
        rich_help_panel=_ON,
    ),
]
Ep = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Parts that experts are divided into by number; within a part by width.",
        rich_help_panel=_ON,
    ),
]


@command(ESTIMATE, "tfacct time llama-3.1-70b --on 4xh100-sxm --dtype fp8 --ctx 8k --batch 32")
def time(
    *,
    one: opt.One,
    on: On,
    ep: Ep = 1,
    ctx: opt.Ctx = None,
    batch: opt.Batch = "1",
    decode: opt.Decode = False,
    prefill: Annotated[
        bool,
        typer.Option("--prefill", help="Whole prompts: all tokens of the context are new.", rich_help_panel="Workload"),
    ] = False,
    tokens: Annotated[
        str | None,
        typer.Option(metavar="T", help="New tokens, out of the context. Default: 1.", rich_help_panel="Workload"),
    ] = None,
    train: Annotated[
        bool,
        typer.Option(
            "--train", help="A training step; devices share it by FSDP, or by --tp and --pp.", rich_help_panel=_TRAIN
        ),
    ] = False,
    accumulate: Annotated[
        int, typer.Option(metavar="N", help="Micro-batches before an update.", rich_help_panel=_TRAIN)
    ] = 1,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Blocks run again before their backward pass.", rich_help_panel=_TRAIN)
    ] = False,
    recompute_attention: Annotated[
        bool,
        typer.Option("--recompute-attention", help="Scores to values run again, under --tp.", rich_help_panel=_TRAIN),
    ] = False,
    tp: Tp = 1,
    sp: Sp = False,
    pp: Pp = 1,
    cp: Cp = 1,
    pp_chunks: Annotated[
        int, typer.Option(metavar="N", help="Parts of each stage's blocks, interleaved.", rich_help_panel=_TRAIN)
    ] = 1,
    tokens_total: Annotated[
        str | None,
        typer.Option(metavar="N", help="Add the days for so many tokens: 1.5T, 300B.", rich_help_panel=_TRAIN),
    ] = None,
    dtype: opt.Dtype = None,
    kv_dtype: opt.KvDtype = None,
    bound_only: Annotated[
        bool, typer.Option("--bound-only", help="Only the bound that follows from the peaks; no estimate.")
    ] = False,
    usable: opt.Usable,
    output: opt.Output,
) -> None:
    """Estimate of a step's time, kernel by kernel: one new token, a prefill, or with --train a training step."""
    _check_timed(train, tp, pp, cp)
    if train:
        ask.apart("--train", {"--decode": decode, "--prefill": prefill, "--tokens": tokens, "--ep": ep != 1})
        ask.apart("--train", {"--kv-dtype": kv_dtype, "--bound-only": bound_only})
        from tfacct.reports.time import time_train
        from tfacct.timing.megatron_time import MegatronLayout
        from tfacct.timing.placement import Deployment
        from tfacct.timing.step_estimate import StepOptions

        total = (
            None if tokens_total is None else units.read_count("--tokens-total", tokens_total, "tokens", "15T or 300B")
        )
        mesh = MegatronLayout(tp, sp, pp, pp_chunks)
        how = StepOptions(accumulate, recompute, total, recompute_attention, mesh)
        asked = ask.request(opt.Whole(ctx, batch))
        report = time_train(ask.subject(one), asked, Deployment(on, dtype, use=usable.use, reserve=usable.reserve), how)
        ask.show(report, output)
        return
    ask.apart_from("--train", {"--accumulate": accumulate - 1 or None, "--recompute": recompute or None})
    ask.apart_from("--train", {"--tokens-total": tokens_total, "--recompute-attention": recompute_attention or None})
    ask.apart_from("--train", {"--sp": sp or None, "--pp-chunks": pp_chunks - 1 or None})
    from tfacct.reports.time import time
    from tfacct.timing.placement import Deployment

    asked = ask.request(opt.Step(ctx, tokens, decode, batch))
    where = Deployment(on, dtype, kv_dtype, ep, usable.use, usable.reserve)
    report = time(ask.subject(one), asked, where, prefill=prefill, bound_only=bound_only)
    ask.show(report, output)


@command(ESTIMATE, "tfacct serve llama-3.1-70b --on 4xh100-sxm --dtype fp8 --prompt 2k --new 256 --price 2.50")
def serve(
    *,
    one: opt.One,
    on: On,
    ep: Ep = 1,
    prompt: Annotated[
        str, typer.Option(metavar="T", help="Tokens of a prompt; 2k is 2,048.", rich_help_panel="Workload")
    ],
    new: Annotated[str, typer.Option(metavar="N", help="New tokens of a request.", rich_help_panel="Workload")],
    users: Annotated[
        str | None,
        typer.Option(
            metavar="U[,U…]",
            help="Requests in flight at all times. Default: some numbers up to what fits.",
            rich_help_panel="Workload",
            show_default=False,
        ),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Add how many users get their tokens within this time: 50ms."),
    ] = None,
    price: Annotated[
        float | None, typer.Option(metavar="P", help="Price of one device for an hour, in your currency.")
    ] = None,
    usable: opt.Usable,
    dtype: opt.Dtype = None,
    kv_dtype: opt.KvDtype = None,
    picture: opt.Picture,
    output: opt.Output,
) -> None:
    """Estimate of request time, tokens per second and cost, by how many users are served at once."""
    from tfacct.base import ranges
    from tfacct.reports.serve import Load, serve
    from tfacct.timing.placement import Deployment

    load = Load(
        units.read_tokens("--prompt", prompt),
        units.read_tokens("--new", new),
        None if users is None else tuple(ranges.read_some("--users", users, grouped=False)),
        price,
        None if within is None else units.read_seconds("--within", within),
    )
    report = serve(ask.subject(one), Deployment(on, dtype, kv_dtype, ep, usable.use, usable.reserve), load)
    chart = None
    if picture.plot is not None:
        from tfacct.reports.charts import serve_chart

        chart = serve_chart(report)
    ask.show(report, output, picture, chart)


@command(ACCOUNT, "tfacct fit llama-3.1-405b --dtype fp8 --ctx 32k --batch 16")
def fit(
    *,
    one: opt.One,
    on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DEVICE",
            help="Only this device. Repeatable. Default: all.",
            show_default=False,
            autocompletion=complete.device,
            rich_help_panel=_ON,
        ),
    ] = None,
    ep: Ep = 1,
    ctx: opt.Ctx = None,
    batch: opt.Batch = "1",
    dtype: opt.Dtype = None,
    kv_dtype: opt.KvDtype = None,
    usable: opt.Usable,
    output: opt.Output,
) -> None:
    """How many of each device hold the weights and the cache."""
    from tfacct.loading import devices
    from tfacct.reports.fit import fit

    found = [devices.load(name) for name in (on or devices.for_sale())]
    report = fit(
        ask.subject(one),
        ask.request(opt.Whole(ctx, batch)),
        found,
        dtype=dtype,
        kv_dtype=kv_dtype,
        ep=ep,
        use=usable.use,
        reserve=usable.reserve,
    )
    ask.show(report, output)


def _check_timed(train: bool, tp: int, pp: int, cp: int) -> None:
    """Refuse ranks whose time was not measured, with what is counted of them."""
    if cp != 1:
        said = f"--cp {cp} is not timed: no run whose ranks divide a sequence was measured"
        raise UsageError(
            said, f"`tfacct flops --cp {cp}` and `tfacct comms --cp {cp}` count what a rank computes and sends"
        )
    if pp != 1 and not train:
        said = f"--pp {pp} needs --train: no run that serves in stages was measured"
        raise UsageError(said, f"`tfacct flops --pp {pp}` and `tfacct memory --pp {pp}` count a stage")
    if tp != 1 and not train:
        raise UsageError("--tp needs --train: the devices of --on divide a model that is served", f"--on {tp}xDEVICE")
