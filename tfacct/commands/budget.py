"""The model size, tokens and days for a compute budget."""

from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

from tfacct import options as opt
from tfacct.base import units
from tfacct.base.errors import UsageError, cut
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found, named
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.reports.budget import BudgetReport


class Training(TypedDict, total=False):
    """How long a model is trained, and where."""

    tokens: Annotated[opt.Size | None, Option("Training tokens for a MODEL, instead of FLOPS: 15T.", "N")]
    tokens_per_parameter: Annotated[float | None, Option("Tokens per parameter. Default: 20 (Chinchilla).", "R")]
    days: Annotated[float | None, Option("Days of training on the devices, instead of FLOPS.", "N")]
    ctx: Annotated[
        opt.Size | None, Option("Sequence length. Default: 4,096, or the model's longest context if shorter.", "S")
    ]
    on: Annotated[str | None, Option("Devices, to estimate days: 8xh100.", "[N]xDEVICE", complete="device")]
    mfu: Annotated[float | None, Option("Assumed utilization. Default: 0.4.", "SHARE")]
    dtype: Annotated[str | None, Option("Dtype of the matmuls. Default: bf16.", "DTYPE")]
    price: Annotated[float | None, Option("Price per device-hour, in any currency.", "P")]


def budget(
    *,
    what: Annotated[
        str | None,
        Option("FLOPs (1e21), parameters (1.3B) or a model.", "FLOPS|SIZE|MODEL", argument=True, complete="model"),
    ] = None,
    model: Annotated[str | None, Option("Model to train with these FLOPs.", "MODEL", complete="model")] = None,
    fields: opt.Sets = None,
    **training: Unpack[Training],
) -> "Found[BudgetReport]":
    """Model size, tokens and days for a compute budget."""
    if what is None:
        what, model = model, None
    flops = None if what is None else units.read_number(what)
    if what is not None and flops is None and model is not None:
        raise UsageError(f"FLOPS must be a number, not {cut(what)!r}", "for example 1e21")
    name = what if flops is None else model
    if fields and name is None:
        raise UsageError(f"{option('fields')} needs {option('model')}")
    return _budget(None if name is None else named(name, fields), flops, training)


def budget_of(
    model: "LoadedModel",
    *,
    flops: Annotated[float | str | None, Option("Training FLOPs, such as 1e21.", "FLOPS")] = None,
    **training: Unpack[Training],
) -> "Found[BudgetReport]":
    """Tokens on which these FLOPs train the model; without FLOPs, the FLOPs, days and cost of the given tokens.

    >>> from tfacct import load
    >>> report = load("llama-3.2-3b").budget(flops=1e21, on="8xh100")
    >>> report.tokens, round(report.days, 2), round(report.device_hours)
    (42547204551, 3.66, 702)

    Raises TfacctError.
    """
    number = units.read_number(flops) if isinstance(flops, str) else flops
    if flops is not None and number is None:
        raise UsageError(f"{option('flops')} must be a number, not {cut(str(flops))!r}", "for example 1e21")
    return _budget(model, number, training)


def _budget(model: "LoadedModel | None", flops: Any, training: Training) -> "Found[BudgetReport]":
    from tfacct.reports.budget import budget

    given: Any = {**training, "ctx": opt.size("ctx", training.get("ctx"))}
    if isinstance(tokens := training.get("tokens"), str):
        given["tokens"] = units.read_count(option("tokens"), tokens, "tokens", "15T or 300B")
    return Found(budget(model, None if flops is None else float(flops), **given))


COMMAND = Command(
    budget,
    examples=(
        "tfacct budget 1e21 --on 8xh100 --mfu 0.4",
        "tfacct budget 1e21 --model llama-3.2-3b --price 2.5 --on 8xh100",
        "tfacct budget llama-3.1-8b --tokens 15T --on 1024xh100",
    ),
)
