"""The proof of what a training step keeps, as a report: the formula in letters against the transformers class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tfacct.algebra.symbols import Formula
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Report, Tick, unwatched
from tfacct.reports.conventions import TRAINING
from tfacct.reports.counting import Counting
from tfacct.reports.formula_saved import SEVERAL, saved_formula
from tfacct.reports.statements import DTYPES, proof_report
from tfacct.reports.training import refusal, training_memory
from tfacct.training.bounds import answered_groups
from tfacct.training.recipe import Recipe
from tfacct.witness.proof import Proven
from tfacct.witness.step_proof import Grid, Point

UNPROVEN = frozenset(("loss", "lora", "adapter_dtype", "lora_dropout", "weights_dtype"))
"""Fields of a recipe with which what is kept was measured, not proven."""


def prove_kept(
    subject: LoadedModel,
    terms: Counting,
    *,
    by: str | None = None,
    progress: Tick = unwatched,
) -> Report:
    """Prove that the formula of what a training step keeps is what the class keeps, in every size, by a grid of small
    models. Needs torch, transformers and sympy. Raises UsageError for a model whose step is not counted."""
    for name, value in terms.trained:
        if name in UNPROVEN:
            raise UsageError(f"{option(name, value)} is not proven", "the witnesses of one model measure it")
    if by not in (None, "grid"):
        raise UsageError(f"the transformers class takes no symbols for sizes: leave {option('by', by)} out")
    recipes = [
        replace(terms, dtype=dtype).recipe.for_model(subject) for dtype in ([terms.dtype] if terms.dtype else DTYPES)
    ]
    if not answered_groups(subject.family):
        training_memory(subject, Workload(1, 1), recipes[0])  # raises, and says why
    refused = {recipe: refusal(_small(subject, recipe), recipe) for recipe in recipes}
    asked = [recipe for recipe, why in refused.items() if why is None]
    if not asked:
        raise UsageError(f"{subject.name}: {next(iter(refused.values()))}")
    statements = [found for recipe in asked for found in _proven(subject, recipe, progress)]
    means = (
        f"The class has the biases and ties of {subject.name}, and any sizes. It counted at every point of a grid with"
        " two values of each size, and three of T. Two polynomials of degree 1 at most (2 in T) that agree there are"
        " the same. What is kept is such a polynomial: a tensor has each of its sizes once, and scores have T twice.",
        *(f"Not asked in {recipe.dtype}: {why}." for recipe, why in refused.items() if why),
    )
    return proof_report(
        subject,
        statements,
        by="grid",
        legend=_small_legend(subject, asked[0]),
        means=means,
        title="the formula of what a training step keeps is what the class keeps",
        convention=f"as transformers runs it with {asked[0].attention}: {TRAINING}",
        counted=asked[0].counted,
        model="class",
    )


def _small(subject: LoadedModel, recipe: Recipe) -> LoadedModel:
    """The family's smallest model of the grid: what is not counted at its sizes cannot be proven there."""
    grid = Grid(subject, rounded=recipe.rounds_tokens)
    return grid.model({letter: values[0] for letter, values in grid.values.items()})


def _small_legend(subject: LoadedModel, recipe: Recipe) -> dict[str, str]:
    written = saved_formula(_small(subject, recipe), recipe, Workload(1, 1, SEVERAL))
    used = {str(symbol) for symbol in written.total.free_symbols}
    return {letter: meaning for letter, meaning in written.symbolic.legend.items() if letter in used}


def _proven(subject: LoadedModel, recipe: Recipe, progress: Tick) -> Iterator[Proven]:
    import sympy

    grid = Grid(subject, rounded=recipe.rounds_tokens)
    assert recipe.attention is not None
    small = _small(subject, recipe)
    tokens = grid.values["T"][0]
    written = saved_formula(small, recipe, Workload(tokens, tokens, SEVERAL))
    symbols = {str(symbol): symbol for symbol in written.total.free_symbols}
    smallest = {letter: values[0] for letter, values in grid.values.items()}
    unvaried = [letter for letter in symbols if letter not in grid.letters(smallest)]
    if unvaried:
        raise UsageError(f"{subject.family}: not proven: no small models vary {', '.join(unvaried)} of its formula")
    formula = sympy.lambdify(list(symbols.values()), written.total)

    def said(point: Point) -> int:
        sizes = grid.letters(point.sizes)
        return int(formula(*(sizes[letter] for letter in symbols)))

    wrong = done = 0
    for done, point in enumerate(grid.points(recipe), start=1):
        if done % 48 == 0:
            progress(f"counting in {recipe.dtype}", done, grid.size)
        wrong += said(point) != point.kept
    heads = symbols.get("K", sympy.Integer(1)) * symbols.get("G", sympy.Integer(1))
    opened = sympy.expand(written.total.subs({symbols["D"]: heads * sympy.Symbol("Dn")} if "D" in symbols else {}))
    bounded = all(
        sympy.degree(opened, sympy.Symbol(str(symbol)) if str(symbol) == "Dn" else symbol)
        < len(grid.values[str(symbol)])
        for symbol in opened.free_symbols
        if str(symbol) in grid.values
    )
    what = f"kept in {recipe.dtype}"
    agreeing = f"0 at {done - wrong:,} of {done:,}"
    text = written.symbolic.in_front(written.total, ["L"], ["B", "T"])
    yield Proven(what, Formula(written.total, text), agreeing, "the class", bounded and not wrong)
    for fixed in grid.edges():
        edge = grid.edge(recipe, fixed)
        if refusal(edge.subject, recipe) is not None:
            continue
        work = Workload(edge.sizes["T"], edge.sizes["T"], edge.sizes["B"])
        difference = edge.kept - int(training_memory(edge.subject, work, recipe).step.saved_bytes())
        at = ", ".join(f"{letter} = {size}" for letter, size in fixed.items())
        yield Proven(f"{what} at {at}", None, f"{difference:,}", "the class", not difference)
