"""Formulas of a model's counts, in symbols."""

from typing import TYPE_CHECKING, Annotated, Literal, Unpack, get_args

from tfacct import options as opt
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.reports.formula import FormulaReport

Ranks = opt.Size | None
"""A number of ranks, or a symbol for it."""


def formula(
    model: "LoadedModel",
    *,
    family: bool = False,
    of: Annotated[
        Literal["flops", "params", "kv", "train", "saved"],
        Option(
            "What the formulas count. kv: elements of the cache; train: FLOPs of a training step; saved: activations"
            " saved for backward."
        ),
    ] = "flops",
    dtype: opt.StepDtype = None,
    recompute: opt.Recompute = None,
    attention: opt.Attention = None,
    weights_dtype: opt.WeightsDtype = None,
    tp: Annotated[Ranks, Option("Tensor-parallel ranks: a symbol (t) or a number (8).", "N", opt.LAYOUT)] = None,
    pp: Annotated[Ranks, Option("Pipeline stages: a symbol (p) or a number (4).", "N", opt.LAYOUT)] = None,
    cp: Annotated[Ranks, Option("Context-parallel ranks: a symbol (c) or a number (2).", "N", opt.LAYOUT)] = None,
    ep: Annotated[Ranks, Option("Expert-parallel ranks: a symbol (e) or a number (4).", "N", opt.LAYOUT)] = None,
    sp: Annotated[bool, Option("Sequence parallelism over the tp ranks.", None, opt.LAYOUT)] = False,
    **step: Unpack[opt.Step],
) -> "Found[FormulaReport]":
    """The formulas, in symbols or LaTeX.

    FLOPs, stored parameters, cached elements, or the bytes that a training step in `dtype` saves for its backward pass,
    line by line with their values. `.total_formula` is the formula as sympy parses it, its axes symbols (see
    `reports.formula.formula`). On ranks, the count is that of one rank. Raises TfacctError.
    """
    from tfacct.reports.formula import Of, formula

    given = {"tp": tp, "pp": pp, "cp": cp, "ep": ep}
    axes = {axis: str(number) for axis, number in given.items() if number is not None}
    terms = opt.counting(
        {"dtype": dtype, "recompute": recompute, "attention": attention, "weights_dtype": weights_dtype}
    )
    report = formula(model, opt.request(step), of=of, family=family, terms=terms, axes=axes, sp=sp)

    def latex() -> str:
        from tfacct.algebra import latex

        title, _, rest = latex.align(report).partition("\n")
        others = "|".join(one for one in get_args(Of) if one != of)
        return f"{title}; other formulas: {option('of', others)}\n{rest}"

    return Found(report, latex=latex)


COMMAND = Command(
    formula, examples=("tfacct formula llama", "tfacct formula gpt2-xl --of params --latex"), latex=True, of_family=True
)
