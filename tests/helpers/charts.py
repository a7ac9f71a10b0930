"""Charts of the tests."""

from tfacct import load
from tfacct.base.ranges import read_values
from tfacct.ledger.workload import Request
from tfacct.loading import find as sources
from tfacct.output.chart import Chart
from tfacct.reports.charts import flops_chart, sweep_chart
from tfacct.reports.flops import flops
from tfacct.reports.sweep import Grid, sweep

GPT2 = ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")


def charted(*names: str, ctx: int | None = None, decode: bool = False, **flags: bool) -> Chart:
    models, request = [load(name).loaded for name in names], Request(ctx=ctx, decode=decode)
    return flops_chart(models, request, flops(models, request, **flags), **flags)


def of_sweep(*names: str, metrics: tuple[str, ...] = ("kv_cache_bytes",), **knobs: str) -> Chart:
    ctx = read_values("--ctx", knobs.pop("ctx"))
    fields = {name: list(read_values(name, values)) for name, values in knobs.items()}
    return sweep_chart(sweep(sources.find, names, Grid(ctx, fields=fields), metrics=metrics))
