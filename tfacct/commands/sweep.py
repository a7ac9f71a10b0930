"""Any metric against context, batch or fields of the config."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from tfacct import options as opt
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.output.chart import Chart
    from tfacct.reports.sweep import SweepReport

AXES = ("tp", "fsdp", "ep", "pp", "cp")
LISTED = (*opt.RecipeLists.__annotations__, *AXES)
"""Options that hold one value, or a list."""


class SweepOptions(opt.Where, opt.Counted, opt.RecipeLists, opt.RankLists, total=False):
    """The rest of the workload, and how metrics are counted; the recipe one value or a list."""

    source: opt.Source
    tokens: opt.Tokens
    decode: opt.Decode


def sweep(
    models: "Sequence[LoadedModel]",
    *,
    metric: Annotated[
        list[str] | None, Option("Metrics, comma-separated: see `tfacct help metrics`.", "NAME", complete="metrics")
    ] = None,
    ctx: Annotated[
        Collection[opt.Size] | str | None,
        Option("Contexts: 1k..128k doubles, 1k..8k:1k counts up, 1k,4k lists.", "S", opt.STEP),
    ] = None,
    batch: Annotated[
        Collection[opt.Size] | str, Option("Batch sizes, in the same syntax: 1,8,64.", "B", opt.STEP)
    ] = "1",
    fields: Annotated[
        list[str] | Mapping[str, Any] | None,
        Option("Config fields: num_key_value_heads=1,2,4,8. Repeatable.", "FIELD=VALUES", complete="assignment"),
    ] = None,
    zip: Annotated[  # noqa: A002
        list[str] | Mapping[str, Any] | None,
        Option("Config fields that vary together. Repeatable.", "FIELD=VALUES", complete="assignment"),
    ] = None,
    **options: Unpack[SweepOptions],
) -> "Found[SweepReport]":
    """Any metric against context, batch or a config field.

    `on`: devices, with the bytes of each row on one of them, and whether these fit: the metric `total_bytes`, or
    `peak_bytes` of a training step. They share the model as in `memory`, or the step as in `train`, unless ranks are
    given.
    """
    from tfacct.accounts.metrics import STEP_METRICS
    from tfacct.loading.overrides import read_override_lists
    from tfacct.reports.sweep import DEFAULT, Grid, sweep

    read = {each.name: each for each in models}
    sets, zipped = (
        _fields(given) if isinstance(given, Mapping) else read_override_lists(given or (), name)
        for name, given in {"fields": fields, "zip": zip}.items()
    )
    given: Any = options.get
    ranks = {axis: given(axis) for axis in AXES if given(axis) is not None}
    recipes = {name: opt.values(name, given(name)) for name in opt.RecipeLists.__annotations__ if given(name)}
    for name, values in recipes.items():
        if None in values:
            raise UsageError(f"{option(name)} has an empty value")
    grid = Grid(
        opt.sizes("ctx", ctx),
        opt.sizes("batch", batch),
        sets,
        zipped,
        {axis: opt.sizes(axis, numbers) for axis, numbers in ranks.items() if numbers != ""},
        given("sp") or False,
        {name: values for name, values in recipes.items() if len(values) > 1},
    )
    named = [name.strip() for text in metric or () for name in text.split(",")]
    training = bool(given("train") or recipes or STEP_METRICS.keys() & {*named})
    limit = opt.budget(options, training=training)
    needed = () if limit is None else ("peak_bytes" if training else "total_bytes",)
    named = [name for name in named if name not in needed]

    def over(grid: Grid) -> "SweepReport":
        return sweep(
            lambda name, changed: read[name].with_fields({**read[name].changed, **changed}),
            list(read),
            grid,
            metrics=(*named, *needed) or (("peak_bytes",) if recipes else DEFAULT),
            request=opt.request(opt.among(opt.Step, options), logits=given("logits") or "all"),
            limit=limit,
            terms=opt.counting({**options, **{name: values[0] for name, values in recipes.items()}}),
        )

    report = over(grid)

    def chart() -> "Chart":
        from tfacct.reports.charts import curve, sweep_chart

        metrics = report.models[0]["metrics"]
        drawn = metrics if named else list(dict.fromkeys((metrics[0], metrics[-1])))
        chart = sweep_chart(report, drawn)
        return sweep_chart(over(replace(grid, contexts=curve(grid.contexts))), drawn) if grid.contexts else chart

    return Found(report, chart)


def _fields(given: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """Values of every field; whole numbers may be a range, `"1..32"`. Raises UsageError for any other text."""
    return {
        name: _values(name, values) if isinstance(values, str) else _listed(name, values)
        for name, values in given.items()
    }


def _listed(name: str, given: Any) -> Sequence[Any]:
    if isinstance(given, range):  # perhaps very many
        return given
    values = given if isinstance(given, Collection) and not isinstance(given, Mapping) else [given]
    return [one if isinstance(one, str) else opt.size(name, one) for one in values]


def _values(name: str, text: str) -> Sequence[Any]:
    from tfacct.base import ranges

    try:
        return list(ranges.read_values(name, text.replace(",", ", ")))  # commas separate the values of a field
    except UsageError:
        if ".." in text:
            raise
        if name in ("metric", "metrics"):
            raise UsageError(f"{name} is a positional argument of sweep", f"sweep({text!r}, …)") from None
        raise UsageError(f"{name} must be a list of values, not {text!r}", f"{name}=[{text!r}], or a range") from None


COMMAND = Command(
    sweep,
    examples=(
        "tfacct sweep gpt2-xl --ctx 1k..32k",
        "tfacct sweep llama-3.1-8b --set num_key_value_heads=1,8 --metric kv_cache_bytes",
        "tfacct sweep llama-3.1-8b --recompute none,full --ctx 1k..8k",
    ),
    drawn=True,
    every_preset=False,
)
