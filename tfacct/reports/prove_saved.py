"""Proof of the formula of saved activations: in symbols, against the transformers class on a grid of small models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tfacct.algebra.symbols import Formula
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option, spelled
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Report, Tick, unwatched
from tfacct.reports.conventions import TRAINING
from tfacct.reports.counting import Counting
from tfacct.reports.statements import DTYPES, proof_report
from tfacct.training.bounds import answered_groups
from tfacct.training.memory import training_memory
from tfacct.training.recipe import Recipe
from tfacct.training.saved_formula import SEVERAL, saved_formula
from tfacct.training.unsupported import refusal
from tfacct.verify.proof import Proven
from tfacct.verify.step_proof import Grid, Point

UNPROVEN = frozenset(("loss", "lora", "adapter_dtype", "lora_dropout", "weights_dtype"))
"""Fields of a recipe with which saved activations are measured, not proven."""


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
    refused = {recipe: refusal(_small(model, recipe), recipe) for recipe in recipes}
    asked = [recipe for recipe, why in refused.items() if why is None]
    if not asked:
        raise UsageError(f"{model.name}: {next(iter(refused.values()))}")
    statements = [found for recipe in asked for found in _proven(model, recipe, progress)]
    means = (
        f"The class has the biases and ties of {model.name}, and any sizes. It counted at every point of a grid with"
        " two values of each size, and three of T. Two polynomials of degree 1 at most (2 in T) that agree there are"
        " the same. Saved bytes are such a polynomial: a tensor has each of its sizes once, and scores have T twice.",
        *(f"Not asked in {recipe.dtype}: {why}." for recipe, why in refused.items() if why),
    )
    return proof_report(
        model,
        statements,
        by="grid",
        legend=_small_legend(model, asked[0]),
        means=means,
        title="the formula of saved activations is what the class saves",
        convention=f"as transformers runs it with {asked[0].attention}: {TRAINING}",
        counted=asked[0].counted,
        model="class",
    )


def _small(model: LoadedModel, recipe: Recipe) -> LoadedModel:
    """The smallest model of the grid."""
    grid = Grid(model, rounded=recipe.rounds_tokens)
    return grid.model({letter: values[0] for letter, values in grid.values.items()})


def _small_legend(model: LoadedModel, recipe: Recipe) -> dict[str, str]:
    written = saved_formula(_small(model, recipe), recipe, Workload(1, 1, SEVERAL))
    used = {str(symbol) for symbol in written.total.free_symbols}
    return {letter: meaning for letter, meaning in written.symbolic.legend.items() if letter in used}


def _proven(model: LoadedModel, recipe: Recipe, progress: Tick) -> Iterator[Proven]:
    import sympy

    grid = Grid(model, rounded=recipe.rounds_tokens)
    assert recipe.attention is not None
    small = _small(model, recipe)
    tokens = grid.values["T"][0]
    written = saved_formula(small, recipe, Workload(tokens, tokens, SEVERAL))
    symbols = {str(symbol): symbol for symbol in written.total.free_symbols}
    smallest = {letter: values[0] for letter, values in grid.values.items()}
    unvaried = [letter for letter in symbols if letter not in grid.letters(smallest)]
    if unvaried:
        raise UsageError(f"{model.family}: not proven: no small models vary {', '.join(unvaried)} of its formula")
    formula = sympy.lambdify(list(symbols.values()), written.total)

    def evaluated(point: Point) -> int:
        sizes = grid.letters(point.sizes)
        return int(formula(*(sizes[letter] for letter in symbols)))

    wrong = done = 0
    for done, point in enumerate(grid.points(recipe), start=1):
        if done % 48 == 0:
            progress(f"counting in {recipe.dtype}", done, grid.size)
        wrong += evaluated(point) != point.kept
    heads = symbols.get("K", sympy.Integer(1)) * symbols.get("G", sympy.Integer(1))
    opened = sympy.expand(written.total.subs({symbols["D"]: heads * sympy.Symbol("Dn")} if "D" in symbols else {}))
    bounded = all(
        sympy.degree(opened, sympy.Symbol(str(symbol)) if str(symbol) == "Dn" else symbol)
        < len(grid.values[str(symbol)])
        for symbol in opened.free_symbols
        if str(symbol) in grid.values
    )
    what = f"saved in {recipe.dtype}"
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
