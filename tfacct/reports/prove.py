"""`verify --prove`: proofs that the formulas are what model and class do, for all sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypedDict

from tfacct.base.errors import UsageError
from tfacct.base.spelling import option, spelled
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.answer import answers
from tfacct.output.report import Column, Report, Row, Tick, unwatched
from tfacct.reports import build
from tfacct.reports.keys import Letter, ModelReport
from tfacct.reports.model_notes import TRAINING
from tfacct.reports.selection import Counting
from tfacct.training.bounds import answered_groups
from tfacct.training.memory import training_memory
from tfacct.training.recipe import Recipe
from tfacct.training.saved_formula import SEVERAL, saved_formula
from tfacct.training.unsupported import refusal
from tfacct.verify.proof import By, Proof, Proven, proven
from tfacct.verify.step_proof import proven_steps, small_model

DTYPES = ("bf16", "fp32")
"""Dtypes in which saved activations are proven, where none is named."""
UNPROVEN = frozenset(("loss", "lora", "adapter_dtype", "lora_dropout", "weights_dtype"))
"""Fields of a recipe with which saved activations are measured, not proven."""


class Statement(TypedDict):
    """One statement of a proof."""

    what: str
    formula: str | None
    difference: str
    evidence: str
    proven: bool


class ProveReport(ModelReport):
    """Proof of a formula for all sizes."""

    by: Literal["symbols", "grid"]
    proven: bool
    legend: dict[str, Letter]
    statements: list[Statement]


@answers(ProveReport)
def prove(model: LoadedModel, *, by: By = "symbols", progress: Tick = unwatched) -> Report:
    """Prove that formula and model are the same polynomial, for all sizes. Needs torch and fvcore; sympy."""
    if by not in ("symbols", "grid"):
        raise UsageError(f"{option('by')} is symbols or grid, not {by!r}")
    model = model.running("expanded")  # one formula is proven; the other forms are a --set away
    try:
        proof = proven(model.architecture, by=by, progress=progress)
    except RuntimeError as error:  # torch's, of a reference model whose code needs a size as a number
        what = f"{model.name}: its reference model does not run with {by} for sizes: nothing is proven"
        raise UsageError(
            what, f"leave {option('prove', True)} out: its counts are compared at sizes of your own"
        ) from error
    return _report(model, proof)


def _report(model: LoadedModel, proof: Proof) -> Report:
    symbolic = proof.symbolic
    pairs = " full T x S attention, S = C + T;" if model.architecture.attentions else ""
    counted = f"2 FLOPs per multiply-add; products only;{pairs}{' all logits' if model.logits else ''}"
    return _proof_report(
        model,
        proof.statements,
        by=proof.by,
        legend={letter: symbolic.legend[letter] for letter in symbolic.symbols},
        means=[_means(model, proof)],
        title="the formula is what the model does",
        convention=counted.removesuffix(";"),
        hints=()
        if proof.changed is None
        else (f"hint: torch's private symbolic shapes have changed ({proof.changed}): proven on a grid instead",),
    )


def _means(model: LoadedModel, proof: Proof) -> str:
    like = f"The model has the biases and ties of {model.name}, and any sizes."
    if proof.by == "grid":
        return (
            f"{like} Counted at every point of a grid with the two smallest values of each size and the three"
            " smallest of T. Two polynomials of degree 1 at most (2 in T) that agree there are the same. Each count is"
            " such a polynomial, because the model multiplies each size of a product once."
        )
    sizes = "Every size was a symbol, so each count is itself a polynomial"
    if proof.sizes.recurs:
        *before, last = (str(tokens) for tokens in proof.sizes.tokens_tried)
        curve, read = ("line", "once") if proof.sizes.tokens_degree == 1 else ("parabola", "once or twice")
        sizes = (
            "Every size but T was a symbol, so each count is itself a polynomial in them. T was proven by"
            f" interpolation, because {proof.sizes.recurrence} runs over the tokens: T was"
            f" {', '.join(before)} and {last}, and the last lies on the {curve} through the others. It is a"
            f" {curve}, because every product multiplies T {read}"
        )
    cases = "one block"
    if proof.sizes.chunk is not None:
        sizes = (
            f"{sizes}. A recurrence runs chunk by chunk, so T was a symbol in one chunk of {proof.sizes.chunk} tokens,"
            " in two and in three: the third adds what the second adds"
        )
        cases = "one block of each kind and two chunks"
    beyond = ", ".join(proof.sizes.conditions())
    holds = f"torch assumed nothing, so it holds for all sizes of at least 2{f' ({beyond})' if beyond else ''}"
    compared = f"compared with the formula symbol by symbol{f', and {holds}' if proof.holds else ''}"
    return (
        f"{like} {sizes}. Each polynomial was {compared}. Cases that a symbol leaves out were run separately, with"
        f" {cases}. The blocks are one loop over the same code, so a count is linear in L: checked at 1, 2 and 3."
    )


@answers(ProveReport)
def prove_saved(
    model: LoadedModel,
    terms: Counting,
    *,
    by: str | None = None,
    progress: Tick = unwatched,
) -> Report:
    """Prove that the formula of saved activations is what the class saves, in every size, by a grid of small models.
    Needs torch, transformers and sympy. Raises UsageError for a model whose step is not answered."""
    for name, value in terms.trained:
        if name in UNPROVEN:
            measures = spelled("tfacct verify --train", "verify(train=True)")
            raise UsageError(f"{option(name, value)} is not proven", f"{measures} measures it")
    if by not in (None, "grid"):
        raise UsageError("the transformers class takes no symbols for sizes", f"leave {option('by', by)} out")
    recipes = [
        replace(terms, dtype=dtype).recipe.for_model(model) for dtype in ([terms.dtype] if terms.dtype else DTYPES)
    ]
    if not answered_groups(model.family):
        training_memory(model, Workload(1, 1), recipes[0])  # raises, and says why
    refused = {recipe: refusal(small_model(model, recipe), recipe) for recipe in recipes}
    asked = [recipe for recipe, why in refused.items() if why is None]
    if not asked:
        raise UsageError(f"{model.name}: {next(iter(refused.values()))}")
    statements = [found for recipe in asked for found in proven_steps(model, recipe, progress)]
    means = (
        f"The class has the biases and ties of {model.name}, and any sizes. It counted at every point of a grid with"
        " two values of each size, and three of T. Two polynomials of degree 1 at most (2 in T) that agree there are"
        " the same. Saved bytes are such a polynomial: a tensor has each of its sizes once, and scores have T twice.",
        *(f"Not asked in {recipe.dtype}: {why}." for recipe, why in refused.items() if why),
    )
    return _proof_report(
        model,
        statements,
        by="grid",
        legend=_saved_legend(model, asked[0]),
        means=means,
        title="the formula of saved activations is what the class saves",
        convention=f"as transformers runs it with {asked[0].attention}: {TRAINING}",
        counted=asked[0].counted,
        counter="class",
    )


def _saved_legend(model: LoadedModel, recipe: Recipe) -> dict[str, str]:
    written = saved_formula(small_model(model, recipe), recipe, Workload(1, 1, SEVERAL))
    used = {str(symbol) for symbol in written.total.free_symbols}
    return {letter: meaning for letter, meaning in written.symbolic.legend.items() if letter in used}


def _proof_report(
    model: LoadedModel,
    statements: Sequence[Proven],
    *,
    by: By,
    legend: Mapping[str, str],
    means: Iterable[str],
    title: str,
    convention: str,
    counted: str = "",
    counter: str = "model",
    hints: Iterable[str] = (),
) -> Report:
    """A proof as a report. `means`: sentences on what the statements mean. `counter`: whose counts the formulas are
    compared with."""
    holds = all(each.holds for each in statements)
    columns = (
        Column("what", "count"),
        Column("difference", f"{counter} − formula"),
        Column("evidence", "assumptions" if by == "symbols" else "counted by"),
        Column("verdict", "", "verdict"),
    )
    rows: list[Row] = [
        {
            "what": each.what,
            "difference": each.difference,
            "evidence": each.evidence,
            "verdict": "proven" if each.holds else "NOT PROVEN",
        }
        for each in statements
    ]
    # A second check of one count ("forward, chunked") writes its formula no second time.
    formulas = {
        each.what: each.formula.written.text for each in statements if each.formula is not None and "," not in each.what
    }
    fact = {
        "by": by,
        "proven": holds,
        "legend": {letter: {"meaning": meaning} for letter, meaning in legend.items()},
        "statements": [
            {
                "what": each.what,
                "formula": None if each.formula is None else str(each.formula.expression),
                "difference": each.difference,
                "evidence": each.evidence,
                "proven": each.holds,
            }
            for each in statements
        ],
    }
    notes = (
        *(f"{what} = {text}" for what, text in formulas.items()),
        "; ".join(f"{letter} {meaning}" for letter, meaning in legend.items()),
        *means,
    )
    return build.report(
        "verify",
        [model],
        (columns, (tuple(rows),), ()),
        [fact],
        title=f"{model.family}: {title}",
        answer="Proven: both are the same polynomial in every size." if holds else "Not proven.",
        convention=convention,
        counted=counted,
        notes=lambda _: notes,
        hints=hints,
        defaults=[],
        agrees=holds,
    )
