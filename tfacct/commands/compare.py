"""Models side by side; and two sides, such as one model before and after a change, line by line."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from tfacct import options as opt
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.output.chart import Chart
    from tfacct.reports.compare import Side

LISTED = ("ctx", "dtype", "kv_dtype")
"""Options that hold one value, or a list with a side for each."""


class CompareOptions(opt.Step, opt.Where, opt.MetricTerms, total=False):
    """A step, the devices, and how metrics are counted."""


def compare(
    models: "Sequence[LoadedModel]",
    *,
    fields: opt.Sets = None,
    by: Annotated[
        Literal["model", "line"] | None,
        Option("A column per model, or two sides line by line. Default: line with --set."),
    ] = None,
    metric: Annotated[
        list[str] | None, Option("Further rows: metrics, as in sweep.", "NAME", complete="metrics")
    ] = None,
    all: Annotated[bool, Option("Line by line: also the rows that do not change.")] = False,  # noqa: A002
    **options: Unpack[CompareOptions],
) -> Found:
    """Models, or one model before and after a change.

    >>> from tfacct import load
    >>> load("llama-3.1-8b").compare("qwen3-30b-a3b", ctx="8k", on="h100").answer
    'qwen3-30b-a3b has 3.8 × the parameters of llama-3.1-8b, 0.65 × its decode FLOPs.'

    A list, such as `ctx="8k,64k"` or `dtype="bf16,fp8"`, gives a side each. `on`: devices, for the requests of this
    context that fit. `metric`: further numbers, counted as the other options say. With `by="line"` FLOPs, parameters
    and bytes of two sides, the rows that change, or `all`; with `train` the bytes of a training step too. Raises
    TfacctError.
    """
    from tfacct.reports.compare import compare, sides_of

    every = list(models)
    if fields:
        from tfacct.loading.sets import read_sets

        if len(every) != 1:
            raise UsageError(f"{option('fields')} changes one MODEL, which is compared before and after")
        every.append(every[0].with_fields({**every[0].changed, **read_sets(fields)}))
    lists = {name: _list(name, options.get(name)) for name in LISTED}
    plain: Any = {name: value for name, value in options.items() if name not in LISTED}
    request, terms = opt.request(plain, logits=options.get("logits") or "all"), opt.counting(plain)
    sides = sides_of(every, lists["ctx"], lists["dtype"], lists["kv_dtype"], request=request, terms=terms)
    if by == "line" or (by is None and fields and len(sides) == 2 and not (metric or options.get("on"))):
        return _by_line(sides, options, metric, all)
    _check(options, metric, all)
    devices, mesh = opt.budget(options), None
    if devices is not None:
        from tfacct.parallel.mesh import mesh_on

        mesh = mesh_on(devices, None)
    names = [name for one in metric or () for name in one.split(",")]
    return Found(compare(sides, fit=devices, mesh=mesh, metrics=names))


def _list(name: str, given: Any) -> list[Any]:
    """The values that an option lists; one of None where it is not given."""
    if name == "ctx":
        several, one = opt.several("ctx", {"ctx": given})
        return several or [opt.size("ctx", one["ctx"])]
    if given is None or isinstance(given, str):
        return [None] if given is None else [each.strip() for each in given.split(",")]
    return list(given)


def _check(options: CompareOptions, metric: list[str] | None, all_: bool) -> None:
    """Refuse options that change no number of the columns."""
    if all_:
        raise UsageError(f"{option('all', True)} needs {option('by', 'line')}")
    given = {**options, "batch": options.get("batch") not in (None, 1), "logits": options.get("logits") == "last"}
    for name in (*opt.Step.__annotations__, *opt.MetricTerms.__annotations__):
        if name not in (*LISTED, "source") and given.get(name) not in (None, False) and not metric:
            raise UsageError(f"{option(name)} needs {option('metric')}, or {option('by', 'line')}")


def _by_line(sides: "Sequence[Side]", options: CompareOptions, metric: list[str] | None, all_: bool) -> Found:
    from tfacct.reports.diff import diff

    if len(sides) != 2:
        raise UsageError(f"{option('by', 'line')} compares two sides, not {len(sides)}", "leave a model or a value out")
    for name, value in {"on": options.get("on"), "metric": metric}.items():
        if value:
            raise UsageError(f"{option(name)} needs {option('by', 'model')}")
    old, new = sides
    report = diff(old.model, new.model, old.request, new.request, terms=old.terms, to=new.terms, every=all_)

    def chart() -> "Chart":
        from tfacct.reports.charts import diff_chart

        return diff_chart(old.model, new.model, old.request, new.request, report, old.terms)

    return Found(report, chart)


COMMAND = Command(
    compare,
    examples=(
        "tfacct compare llama-3.1-8b qwen3-8b qwen3-30b-a3b --ctx 8k --on h100",
        "tfacct compare llama-3.1-8b --set num_key_value_heads=1",
        "tfacct compare gpt2-xl --ctx 1k,16k --by line",
    ),
    drawn=True,
)
