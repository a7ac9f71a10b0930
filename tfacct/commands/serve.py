"""Throughput, latency and cost of serving: an estimate, with its error."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from tfacct import options as opt
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found
from tfacct.commands.time import On
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.output.chart import Chart
    from tfacct.reports.serve import ServeReport


def serve(
    model: "LoadedModel",
    *,
    on: On,
    prompt: Annotated[opt.Size, Option("Prompt length in tokens; 2k is 2,048.", "T")],
    new: Annotated[opt.Size, Option("New tokens per request.", "N")],
    requests: Annotated[
        int | Sequence[int] | str | None,
        Option("Numbers of concurrent requests. Default: several, up to the most that fit.", "N[,N…]"),
    ] = None,
    within: Annotated[
        float | str | None, Option("Find how many requests get each token within TIME: 50ms.", "TIME")
    ] = None,
    measured: Annotated[
        str | None,
        Option("Correct the estimate with your own runs, from a CSV.", "FILE"),
    ] = None,
    price: Annotated[float | None, Option("Price per device-hour, in any currency.", "P")] = None,
    ep: opt.ExpertGroups = 1,
    dtype: opt.Dtype = None,
    kv_dtype: opt.KvDtype = None,
    engine: opt.Engine = None,
    **usable: Unpack[opt.Usable],
) -> "Found[ServeReport]":
    """Throughput, latency and cost by concurrent requests.

    >>> from tfacct import load
    >>> served = load("llama-3.1-8b").serve(on="h100", prompt="2k", new=256, requests=[1, 16], within="50ms")
    >>> served.largest_requests, [line["requests"] for line in served.lines]
    (193, [1, 16])

    `prompt`, `new`: tokens of a request. `requests`: concurrent requests. `within`: the time per output token, in
    seconds or as `"50ms"`, for which the number of requests is found. `measured`: a CSV file of runs of your own, which
    correct the estimate. `price`: of one device for an hour. Usable memory of each device: `use` (0.9) times its
    memory, less `reserve` (2 GB), or the pool of an `engine`. Raises TfacctError.
    """
    from tfacct.reports.serve import serve
    from tfacct.timing.load import Load
    from tfacct.timing.placement import Deployment

    load = Load(
        opt.size("prompt", prompt),
        opt.size("new", new),
        _some(requests),
        price,
        units.read_seconds(option("within"), within) if isinstance(within, str) else within,
        measured,
    )
    where = Deployment(on, dtype, kv_dtype, ep, usable.get("use"), usable.get("reserve"))
    if engine is not None:
        from tfacct.engines.limit import with_engine

        if where.reserve is not None or ep > 1:
            other = option("reserve") if ep == 1 else option("ep")
            raise UsageError(f"{option('engine', engine)} does not work with {other}", "leave one of the two out")
        given: Any = {"dtype": dtype, "kv_dtype": kv_dtype, "use": where.use}
        limit = with_engine(where.memory(), engine, model, length=load.prompt + load.new, **given)
        where = replace(where, limit=limit)
    report = serve(model, where, load)

    def chart() -> "Chart":
        from tfacct.reports.charts import serve_chart

        return serve_chart(report)

    return Found(report, chart)


def _some(requests: int | Sequence[int] | str | None) -> tuple[int, ...] | None:
    """The numbers of concurrent requests."""
    from tfacct.base import ranges

    if requests is None:
        return None
    if isinstance(requests, str):
        return tuple(ranges.read_some(option("requests"), requests))
    return (requests,) if isinstance(requests, int) else tuple(opt.sizes("requests", requests))


COMMAND = Command(
    serve,
    examples=(
        "tfacct serve llama-3.1-8b --on h100 --prompt 2k --new 256",
        "tfacct serve llama-3.1-70b --on 4xh100 --prompt 2k --new 256 --price 2.50",
    ),
    drawn=True,
)
