"""The commands that turn knobs. (Annotations are not postponed, as in `app`.)"""

from typing import Annotated

import typer

from tfacct.cli import options as opt
from tfacct.cli.app import app

EXPLORE = "Explore"


@app.command(rich_help_panel=EXPLORE)
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
    """The largest context, batch or number of key heads until two numbers meet."""
    from tfacct.reports._points import Terms
    from tfacct.reports.solve import solve

    (subject,) = opt.subjects([model], sets)
    request = opt.request(ctx, tokens=tokens, decode=decode, batch=batch, logits=logits)
    report = solve(subject, request, unknown=unknown, until=until, terms=Terms(dtype, kv_dtype, masked, train))
    opt.show(report, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, exact=exact)
