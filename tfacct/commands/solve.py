"""The largest size before two numbers meet."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Unpack

from tfacct import options as opt
from tfacct.commands.command import Command, Found
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.reports.solve import SolveReport


class SolveOptions(opt.Step, opt.Ranks, opt.MetricTerms, total=False):
    """A step, the ranks that shard it, and how metrics are counted."""


def solve(
    model: "LoadedModel",
    *,
    unknown: Annotated[
        str,
        Option(
            "ctx, batch, a field, or the fewest tp, fsdp, pp, ep.",
            "UNKNOWN",
            complete="unknown",
        ),
    ],
    until: Annotated[
        str,
        Option(
            "Two metrics, or one and a number: total_bytes=24GiB.",
            "LEFT=RIGHT",
            complete="until",
        ),
    ],
    **options: Unpack[SolveOptions],
) -> "Found[SolveReport]":
    """The largest context, batch or size within a limit."""
    from tfacct.reports.solve import solve

    terms = replace(opt.counting(options), mesh=opt.mesh(options))
    request = opt.request(options, logits=options.get("logits", "all"))
    return Found(solve(model, request, unknown=unknown, until=until, terms=terms))


COMMAND = Command(
    solve,
    examples=(
        "tfacct solve llama-3.1-8b --for ctx --until total_bytes=24GiB",
        "tfacct solve llama-3.1-70b --for tp --until total_bytes=80GB --ctx 8k",
    ),
)
