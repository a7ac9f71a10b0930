"""The largest value of an unknown within a limit."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Unpack

from tfacct import options as opt
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.reports.solve import SolveReport


class SolveOptions(opt.Step, opt.Where, opt.Ranks, opt.MetricTerms, total=False):
    """A step, the devices and ranks that it runs on, and how metrics are counted."""


def solve(
    model: "LoadedModel",
    *,
    unknown: Annotated[
        str, Option("ctx, batch, a field, or the smallest tp, fsdp, pp, ep.", "UNKNOWN", complete="unknown")
    ],
    until: Annotated[
        str | None,
        Option(
            "METRIC=NUMBER or METRIC=METRIC: total_bytes=24GiB. Default: the memory of --on.",
            "LEFT=RIGHT",
            complete="until",
        ),
    ] = None,
    **options: Unpack[SolveOptions],
) -> "Found[SolveReport]":
    """The largest context, batch or size within a limit."""
    from tfacct.reports.solve import RANKS, solve

    training = bool(options.get("train"))
    terms = replace(opt.counting(options), mesh=opt.mesh(options))
    if budget := opt.budget(options, training=training):
        if until is not None:
            raise UsageError(f"{option('until')} and {option('on')} both set a limit", "give one")
        if budget.count > 1 and unknown in RANKS:
            one = f"{option('unknown', unknown)} solves for the number of devices, so {option('on')} takes one"
            raise UsageError(one, option("on", budget.each))
        terms = terms.on(budget, training=training)
        until = f"{'peak' if training else 'total'}_bytes={budget.usable}B"
    if until is None:
        raise UsageError(
            "solve needs an equation or a device", f"{option('until', 'LEFT=RIGHT')}, or {option('on', 'h100')}"
        )
    request = opt.request(options, logits=options.get("logits", "all"))
    return Found(solve(model, request, unknown=unknown, until=until, terms=terms, limit=budget))


COMMAND = Command(
    solve,
    examples=(
        "tfacct solve llama-3.1-8b --for ctx --until total_bytes=24GiB",
        "tfacct solve llama-3.1-8b --for batch --ctx 8k --on h100",
        "tfacct solve llama-3.1-8b --for ctx --until kv_cache_bytes=weights_bytes",
        "tfacct solve llama-3.2-1b --for ctx --until share.attn_scores_values=0.5",
        "tfacct solve llama-3.1-70b --for tp --until total_bytes=80GB --ctx 8k",
    ),
)
