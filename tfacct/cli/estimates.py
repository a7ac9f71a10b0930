"""How long it takes: estimates, never counts. (Annotations are not postponed: that keeps the start short.)"""

from typing import Annotated

import typer

from tfacct.cli import ask, complete
from tfacct.cli import options as opt
from tfacct.cli.root import ESTIMATE, command

_ON = "Devices"
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
    dtype: opt.Dtype = None,
    kv_dtype: opt.KvDtype = None,
    bound_only: Annotated[
        bool, typer.Option("--bound-only", help="Only what no device of these peaks goes below; no estimate.")
    ] = False,
    output: opt.Output,
) -> None:
    """Estimate of a step's time, kernel by kernel: one new token, or a prefill."""
    from tfacct.reports.time import time

    asked = ask.request(opt.Step(ctx, tokens, decode, batch))
    report = time(
        ask.subject(one), asked, on, prefill=prefill, dtype=dtype, kv_dtype=kv_dtype, ep=ep, bound_only=bound_only
    )
    ask.show(report, output)
