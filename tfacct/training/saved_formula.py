"""Activations saved for backward in a training step, in symbols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tfacct.algebra.symbols import SymbolicModel, in_symbols, layer_axes, with_sizes
from tfacct.architecture.parts import Patches
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.einsum import AXIS, rounded_up
from tfacct.ledger.storage import width
from tfacct.ledger.workload import CHUNKS, PATCHES, Workload
from tfacct.loading.model import LoadedModel
from tfacct.training.model_step import graph_of
from tfacct.training.recipe import Recipe
from tfacct.training.saved_tensors import PADDED
from tfacct.training.step import TrainingStep

SEVERAL = 2
"""Sequences of a batch: a single sequence has a different tensor layout."""


class SavedFormula(NamedTuple):
    """A training step in symbols, and the bytes that it saves."""

    symbolic: SymbolicModel
    step: TrainingStep
    total: Any

    def at(self, sizes: Mapping[str, int]) -> Any:
        """The total for some sizes."""
        named = {axis: sizes[axis] for axis in AXIS.findall(str(self.total)) if axis in sizes}
        return self.total.subs({self.symbolic.symbols[axis]: size for axis, size in named.items()})


def saved_formula(model: LoadedModel, recipe: Recipe, work: Workload) -> SavedFormula:
    """Saved bytes of steps with this tensor layout, for any sizes. Raises UsageError."""
    import sympy

    shape = model.architecture
    if shape.encoder is not None:
        raise UsageError(
            f"{model.name}: {option('of', 'saved')} does not work with encoder–decoders",
            f"`tfacct train {model.name}` counts it at given sizes",
        )
    # A single key head stays a number: it is a view for one sequence, and a copy for several.
    single = work.batch == 1 and any(getattr(part, "kv_heads", 0) == 1 for part in shape.attentions)
    symbolic = in_symbols(shape, fixed=model.config.constant_axes | ({"K"} if single else set()))
    symbols, stacks = symbolic.symbols, layer_axes(shape)
    fixed = frozenset(name for name in shape.declared_axes() if name not in symbols)
    in_sizes = with_sizes(shape, symbols.__getitem__, fixed.union(stacks))
    written = replace(model, architecture=in_sizes, ledger=in_sizes.ledger())
    graph = graph_of(model, work, recipe, sizes=written)
    padded = {f"{axis}{multiple}" for axis, multiple in PADDED}
    if any(not padded.isdisjoint(group.axes) for group in graph.layers):
        raise UsageError(
            f"{model.name}: an attention kernel pads {work.tokens:,} tokens, so saved bytes are a polynomial only at"
            " multiples of 32",
            None if isinstance(shape.embed, Patches) else option("ctx", 32 * rounded_up(work.tokens, 32)),
        )
    if len(graph.layers) != len(stacks):
        raise UsageError(f"{model.name}: layers of the same kind save different tensors", "`tfacct train` counts them")
    counted = zip(graph.layers, stacks, strict=True)
    graph = graph._replace(layers=tuple(group._replace(count=symbols[axis]) for group, axis in counted))
    tokens = symbols["T"]
    at = Workload(context=tokens, tokens=tokens, batch=symbols["B"]).axes()
    at |= {axis: symbols[axis] for axis in (CHUNKS, PATCHES) if axis in symbols}
    compute, stored = width(recipe.dtype), width(recipe.stored_dtype)
    step = TrainingStep(graph, symbolic.ledger, at, compute, stored, recompute=recipe.recompute == "full")
    return SavedFormula(symbolic, step, sympy.expand(step.saved_bytes()))
