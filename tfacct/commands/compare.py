"""Models side by side; and two sides, such as one model before and after a change, line by line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from tfacct import options as opt
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.memory_limit import MemoryLimit
    from tfacct.loading.model import LoadedModel
    from tfacct.reports.compare import CompareReport, DiffReport, Side

AXES, RECIPE = tuple(opt.LayoutLists.__annotations__), tuple(opt.RecipeLists.__annotations__)
LISTED = ("ctx", "batch", "tokens", "dtype", "kv_dtype", *RECIPE, *AXES)
"""Options that hold one value, or a list."""
PLAIN = ("ctx", "source", "dtype", "kv_dtype")
"""Options of a step and of metrics that every column takes."""


class CompareOptions(opt.Step, opt.Where, opt.Counted, opt.RecipeLists, opt.LayoutLists, total=False):
    """A step, the devices and their layout, and how metrics are counted."""


def compare(
    models: "Sequence[LoadedModel]",
    *,
    fields: opt.Sets = None,
    by: Annotated[
        Literal["model", "line"] | None,
        Option(
            "A column per model, or two models line by line. With --set: the model before and after. Default: model;"
            " with --all or --set line, unless --on, --metric, --train or a list is given."
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        Option("Additional rows: metrics, as in `sweep`.", "NAME", complete="metrics"),
    ] = None,
    all: Annotated[bool, Option("Line by line, with the rows that do not change.")] = False,  # noqa: A002
    **options: Unpack[CompareOptions],
) -> "Found[CompareReport] | Found[DiffReport]":
    """Models, or one model before and after a change.

    >>> from tfacct import load
    >>> load("llama-3.1-8b").compare("qwen3-30b-a3b", ctx="8k", on="h100").answer
    'qwen3-30b-a3b has 3.8 × the parameters of llama-3.1-8b and 0.65 × its decode FLOPs.'

    A list of contexts, batches, dtypes, recipes or layouts, such as `ctx="8k,64k"` or `zero="1,3"`, gives a side each;
    an empty value, as in `ctx=",64k"`, is the default. `on`: devices, for the requests of this context that fit, or of
    a training step, which they share as in `train`; `tp`, `fsdp`, `dp`, `zero` and other axes are its layout. `metric`:
    further numbers, counted as the other options say; `train` or a recipe adds peak memory and what else changes in the
    step, on one rank of a layout. With `by="line"` FLOPs, parameters and bytes of two sides, of lists and models one
    each: the rows that change, or `all`. Raises TfacctError.
    """
    from tfacct.reports.compare import by_line, compare

    lists = {name: opt.values(name, options[name]) for name in LISTED if options.get(name) is not None}  # type: ignore[literal-required]
    sharded = [name for name in AXES if options.get(name)]
    training = any(options.get(name) for name in ("train", *RECIPE))
    plain = max(map(len, lists.values()), default=1) == 1 and not (metric or training or options.get("on"))
    every, line = list(models), by == "line" or (by is None and (all or (bool(fields) and plain)))
    if fields:
        from tfacct.loading.overrides import read_overrides

        if len(every) > 1 and not line:
            raise UsageError(f"{option('fields')} compares one MODEL before and after: name one")
        every[1:] = [every[-1].with_fields({**every[-1].changed, **read_overrides(fields)})]
    if sharded and not training:
        raise UsageError(f"{option(sharded[0])} needs {option('train', True)}")
    given = {**options, "metric": metric}
    if line and (columns := [name for name in (*AXES, *RECIPE, "on", "metric") if given.get(name)]):
        raise UsageError(f"{option(columns[0])} needs {option('by', 'model')}")
    devices, mesh = None if line else opt.budget(options, training=training), None
    sides = [
        _side(one, {**options, **values}, devices if training else None)
        for one, values in (_pairs(every, lists) if line else product(every, _combinations(lists)))
    ]
    if line:
        old, new = sides
        return Found(by_line(old, new, every=all))
    _check(options, metric or (["peak_bytes"] if training else None), all)
    if devices is not None and not training:
        from tfacct.parallel.mesh import mesh_on

        mesh = mesh_on(devices, None)
    names = [name for one in metric or () for name in one.split(",")]
    return Found(compare(sides, fit=devices, mesh=mesh, metrics=names))


def _combinations(lists: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """All combinations of the listed values."""
    return (dict(zip(lists, values, strict=True)) for values in product(*lists.values()))


def _pairs(
    models: "Sequence[LoadedModel]", lists: Mapping[str, Sequence[Any]]
) -> "Iterator[tuple[LoadedModel, dict[str, Any]]]":
    """Two sides: the first model with the first value of each list, and the last with the last."""
    for name, values in {"by": models, **lists}.items():
        if not 1 <= len(values) <= 2:
            what = f"models, not {len(values)}" if name == "by" else f"values of {option(name)}, not {len(values)}"
            raise UsageError(f"{option('by', 'line')} compares two {what}", "leave the others out")
    for at in (0, -1):
        yield models[at], {name: values[at] for name, values in lists.items()}


def _side(model: "LoadedModel", options: Mapping[str, Any], devices: "MemoryLimit | None") -> "Side":
    """A model at a workload. `devices`: those that share its training step."""
    from tfacct.parallel.mesh import mesh_on
    from tfacct.reports.compare import Side

    given = {name: value for name, value in options.items() if value is not None}
    logits = given.get("logits", "all")
    terms = replace(opt.counting(given), mesh=mesh_on(devices, opt.mesh(given), training=True))
    if terms.trained:
        terms.recipe.checked()
    return Side(model, opt.request(given, logits=logits), terms)


def _check(options: CompareOptions, metric: list[str] | None, all_: bool) -> None:
    """Refuse options that change no number of the columns."""
    if all_:
        raise UsageError(f"{option('all', True)} needs {option('by', 'line')}")
    given = {**options, "batch": options.get("batch") not in (None, 1), "logits": options.get("logits") == "last"}
    for name in (*opt.Step.__annotations__, *opt.MetricTerms.__annotations__):
        if name not in PLAIN and given.get(name) not in (None, False) and not metric:
            example = f"such as {option('metric', 'peak_bytes' if options.get('train') else 'total_flops')}"
            raise UsageError(f"{option(name)} needs {option('metric')}, or {option('by', 'line')}", example)


COMMAND = Command(
    compare,
    examples=(
        "tfacct compare llama-3.1-8b qwen3-8b qwen3-30b-a3b --ctx 8k --on h100",
        "tfacct compare llama-3.1-8b --set num_hidden_layers=16,num_key_value_heads=1",
        "tfacct compare llama-3.1-8b --train --ctx 4k --recompute none,full",
    ),
)
