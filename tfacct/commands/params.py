"""Parameters, tensor by tensor."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

from tfacct import options as opt
from tfacct.commands.command import Command, Found
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.output.chart import Chart
    from tfacct.output.report import Report
    from tfacct.reports.params import ParamsReport


def params(
    models: "Sequence[LoadedModel]",
    *,
    by: Annotated[Literal["line", "part"], Option("Rows: one per tensor (line) or part.")] = "line",
    **ranks: Unpack[opt.Ranks],
) -> "Found[ParamsReport]":
    """Parameters, tensor by tensor.

    Every stored tensor once. With a layout of `tp`, `fsdp`, `ep`, `pp` and `cp` ranks, `rank_params` is the number of
    parameters on the fullest rank. Raises TfacctError if the layout does not divide the model.
    """
    from tfacct.reports.params import params

    mesh = opt.mesh(ranks)
    if mesh is not None:
        from tfacct.parallel.mesh import checked

        mesh = checked(mesh)
    report = params(models, mesh, by=by)

    def chart() -> "Chart":
        from tfacct.reports.charts import params_chart

        return params_chart(models, report)

    def derived() -> "Report":
        from tfacct.ledger.workload import Request
        from tfacct.reports.explain import explained

        return explained(report, models, Request())

    return Found(report, chart, derived)


COMMAND = Command(
    params,
    examples=("tfacct params gpt2 --by part --set n_layer=24,n_embd=1536", "tfacct params mixtral-8x7b --tp 8 --json"),
    explained=("by", *opt.Ranks.__annotations__),
    drawn=True,
    fails="strict",
    counts_projector="parameters",
)
