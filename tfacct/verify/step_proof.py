"""Proof of the formula for saved activations: counts of the transformers class on a grid of small sizes, which
determine a polynomial of these degrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

from tfacct.algebra.symbols import Formula
from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.record import record
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Tick
from tfacct.training.exact import build
from tfacct.training.memory import training_memory
from tfacct.training.recipe import Recipe
from tfacct.training.saved_formula import SEVERAL, saved_formula
from tfacct.training.unsupported import refusal
from tfacct.verify.proof import Proven

FIELDS: Mapping[str, tuple[str, ...]] = {
    "D": ("hidden_size", "n_embd"),
    "N": ("num_attention_heads", "n_head"),
    "K": ("num_key_value_heads",),
    "H": ("head_dim",),
    "F": ("intermediate_size", "n_inner", "ffn_dim"),
    "Fe": ("moe_intermediate_size", "intermediate_size"),
    "V": ("vocab_size",),
    "L": ("num_hidden_layers", "n_layer"),
    "E": ("num_local_experts", "num_experts"),
    "A": ("num_experts_per_tok",),
}
"""Axes of sizes → their fields in a config."""
SAME = {"word_embed_proj_dim": "D"}
"""Other fields with the size of an axis."""
HALVES = ("partial_rotary_factor", "rotary_pct")
"""Fields of the rotary part of a head: one half, so that it is even at every point."""
ANGLES = ("rope_scaling", "rope_parameters")
"""Fields that may list a factor for every pair of a head's elements; no tensor's size depends on them."""
PAD = "pad_token_id"
OTHERS = ("bos_token_id", "eos_token_id", PAD)
"""Token ids that must be inside a small vocabulary; a class may have a larger default for padding."""
WIDTHS = "Dn"
"""Hidden size per head: classes require that heads divide the hidden size."""
VALUES: Mapping[str, tuple[int, ...]] = {
    "B": (2, 3),
    "T": (5, 6, 7),
    "K": (2, 3),
    "G": (2, 3),
    WIDTHS: (8, 16),
    "H": (8, 16),
    "F": (16, 24),
    "Fe": (16, 24),
    "V": (11, 12),
    "L": (1, 2),
    "E": (3, 4),
    "A": (1, 2),
}
"""Values of each size: one more than its degree. Kernels need heads and experts in multiples of 8."""
ROUNDED_TOKENS = (32, 64, 96)
"""Numbers of tokens for a kernel that rounds them up to a multiple of 32."""


@record
class Point:
    """Sizes, a model with these sizes, and the bytes that its class saves."""

    sizes: Mapping[str, int]
    model: LoadedModel
    saved: int


class Grid:
    """The sizes of a family that can vary: those with config fields."""

    def __init__(self, given: LoadedModel, *, rounded: bool) -> None:
        shape, raw = given.architecture, given.raw
        known = {*given.raw, *type(given.config).counted()}
        self.given = given
        self.fields = {
            axis: next(name for name in names if name in known)
            for axis, names in FIELDS.items()
            if any(name in known for name in names)
        }
        routed = any("E" in part.axes() for part in shape.parts())
        for axis in ("F",) if routed else ("Fe", "E", "A"):
            self.fields.pop(axis, None)
        values = {axis: VALUES[axis] for axis in ("B", "T", "K", *self.fields) if axis in VALUES}
        self.grouped, self.free_heads = "K" in self.fields, "H" in self.fields and "head_dim" in {*raw, *known}
        if self.grouped:
            values["G"] = VALUES["G"]
        rotary = any("Hr" in part.axes() for part in shape.parts())
        self.angles = [name for name in ANGLES if "long_factor" in (raw.get(name) or {})]
        self.halves = [name for name in HALVES if rotary and name in type(given.config).model_fields]
        values.pop("D", None)
        values[WIDTHS if self.free_heads else "H"] = VALUES["H"]
        if self.free_heads:
            values["H"] = VALUES["H"]
        if rounded:
            values["T"] = ROUNDED_TOKENS
        self.values = values

    def sizes_at(self, point: Mapping[str, int]) -> dict[str, int]:
        """Sizes of the axes of a formula at a point."""
        heads = point["K"] * point.get("G", 1)
        sizes = {**point, "N": heads, "D": heads * point[WIDTHS if self.free_heads else "H"]}
        rotary = {"Hr": sizes["H"] // 2} if self.halves else {}
        return sizes | {"G": point.get("G", 1), "S": point["T"], **rotary}

    def model(self, point: Mapping[str, int]) -> LoadedModel:
        """The model of a point. Raises UsageError if the family does not support these sizes."""
        sizes = self.sizes_at(point)
        fields = {name: sizes[axis] for axis, name in self.fields.items()}
        fields |= {name: sizes[axis] for name, axis in SAME.items() if name in self.given.raw}
        halves, angles = dict.fromkeys(self.halves, 0.5), dict.fromkeys(self.angles)
        fields |= {name: 0 for name in OTHERS if name == PAD or isinstance(self.given.raw.get(name), (int, list))}
        try:
            return self.given.with_fields({**self.given.changed, **fields, **halves, **angles})
        except ConfigError as error:
            raise UsageError(f"{self.given.family}: no grid of small models: {error.message}", error.hint) from None

    @property
    def size(self) -> int:
        """Number of points."""
        return prod(map(len, self.values.values()))

    def points(self, recipe: Recipe) -> Iterator[Point]:
        """Every point with the bytes that the class saves. A model is built once for all its batches and contexts."""
        inner = {axis: values for axis, values in self.values.items() if axis in ("B", "T")}
        outer = {axis: values for axis, values in self.values.items() if axis not in inner}
        for chosen in product(*outer.values()):
            sizes = dict(zip(outer, chosen, strict=True))
            model, built = self.model({**sizes, "B": 1, "T": 1}), None
            for step in product(*inner.values()):
                built = built or build(model, Workload(1, 1), recipe)
                at = {**sizes, **dict(zip(inner, step, strict=True))}
                yield Point(at, model, _saved(built.model, at))

    def edge(self, recipe: Recipe, fixed: Mapping[str, int]) -> Point:
        """One point with some sizes at their smallest values."""
        at = {**{axis: values[0] for axis, values in self.values.items()}, **fixed}
        model = self.model(at)
        return Point(at, model, _saved(build(model, Workload(1, 1), recipe).model, at))

    def edges(self) -> list[dict[str, int]]:
        """Points outside the grid: one sequence, one key head, one query head per key head, and the first two
        together."""
        alone = [{"B": 1}, {"K": 1}, *([{"G": 1}] if self.grouped else []), {"B": 1, "K": 1}]
        return [*alone, {"T": self.values["T"][0] + 1}] if self.values["T"] == ROUNDED_TOKENS else alone


def small_model(model: LoadedModel, recipe: Recipe) -> LoadedModel:
    """The smallest model of the grid."""
    grid = Grid(model, rounded=recipe.rounds_tokens)
    return grid.model({axis: values[0] for axis, values in grid.values.items()})


def proven_steps(model: LoadedModel, recipe: Recipe, progress: Tick) -> Iterator[Proven]:
    """The formula for saved activations compared with the class at every point of the grid, and at sizes outside the
    grid. Raises UsageError if small models cannot vary one of its axes."""
    import sympy

    grid = Grid(model, rounded=recipe.rounds_tokens)
    tokens = grid.values["T"][0]
    formula = saved_formula(small_model(model, recipe), recipe, Workload(tokens, tokens, SEVERAL))
    symbols = {str(symbol): symbol for symbol in formula.total.free_symbols}
    smallest = {axis: values[0] for axis, values in grid.values.items()}
    unvaried = [axis for axis in symbols if axis not in grid.sizes_at(smallest)]
    if unvaried:
        raise UsageError(f"{model.family}: not proven: no small models vary {', '.join(unvaried)}")
    evaluate = sympy.lambdify(list(symbols.values()), formula.total)
    wrong = done = 0
    for done, point in enumerate(grid.points(recipe), start=1):
        if done % 48 == 0:
            progress(f"counting in {recipe.dtype}", done, grid.size)
        sizes = grid.sizes_at(point.sizes)
        wrong += int(evaluate(*(sizes[axis] for axis in symbols))) != point.saved
    heads = symbols.get("K", sympy.Integer(1)) * symbols.get("G", sympy.Integer(1))
    opened = sympy.expand(formula.total.subs({symbols["D"]: heads * sympy.Symbol("Dn")} if "D" in symbols else {}))
    bounded = all(
        sympy.degree(opened, symbol) < len(grid.values[str(symbol)])
        for symbol in opened.free_symbols
        if str(symbol) in grid.values
    )
    what = f"saved in {recipe.dtype}"
    agreeing = f"0 at {done - wrong:,} of {done:,}"
    text = formula.symbolic.in_front(formula.total, ["L"], ["B", "T"])
    yield Proven(what, Formula(formula.total, text), agreeing, "the class", bounded and not wrong)
    for fixed in grid.edges():
        edge = grid.edge(recipe, fixed)
        if refusal(edge.model, recipe) is not None:
            continue
        work = Workload(edge.sizes["T"], edge.sizes["T"], edge.sizes["B"])
        difference = edge.saved - int(training_memory(edge.model, work, recipe).step.saved_bytes())
        at = ", ".join(f"{axis} = {size}" for axis, size in fixed.items())
        yield Proven(f"{what} at {at}", None, f"{difference:,}", "the class", not difference)


def _saved(model: Any, at: Mapping[str, int]) -> int:
    """Bytes that autograd saves in a step of the class with B sequences of T tokens."""
    from tfacct.meta import step
    from tfacct.meta.model import inputs

    return sum(each.bytes for each in step.saved(model, inputs(model, at["B"], at["T"])))
