"""What the reference model keeps in a training step, proven: its saved bytes with symbols for sizes are the formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy

from tfacct.accounts.training import Step
from tfacct.algebra.symbols import SymbolicModel, in_symbols, with_sizes
from tfacct.architecture.transformer import Transformer
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.kept import Pass
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Workload
from tfacct.output.report import Tick, unwatched
from tfacct.profiles.reference_images import groups_of
from tfacct.witness.checks import reference_rooms
from tfacct.witness.proof import (
    NOTHING,
    Proven,
    for_all_layers,
    unstretched,
    what_was_assumed,
)
from tfacct.witness.sizes import Edge, Sizes, layers_tried

PREFILL = {"C": 0, "Cw": 0}
"""Whole sequences: nothing is in a cache."""
ALONE = Edge("B = 1, K = 1", {"B": 1, "K": 1})
"""One sequence whose queries share a key head, which is not copied for them."""


@record
class KeptProof:
    """The statements about what is kept in some dtypes."""

    symbolic: SymbolicModel
    statements: tuple[Proven, ...]
    sizes: Sizes


@record
class _Subject:
    """A model, its letters, and the account of its pass: of a shape, in a dtype, of so many sequences and tokens."""

    shape: Transformer
    symbolic: SymbolicModel
    sizes: Sizes
    passed: Callable[[Transformer, str, Workload], Pass]

    def said(self, dtype: str, fixed: Mapping[str, int]) -> Any:
        """The formula, with some sizes fixed. A symbol of the step stands for more than one."""
        symbols: Mapping[str, Any] = {**self.symbolic.symbols, **fixed}
        open_ = with_sizes(self.shape, symbols.__getitem__, self.sizes.fixed)
        tokens, batch, source = symbols["T"], symbols["B"], symbols.get("J", 0)
        work = Workload(context=tokens, tokens=tokens, batch=batch, source=source, new_source=source)
        at = {**work.axes(), **groups_of(open_, tokens)}
        step = Step(self.passed(open_, dtype, work), self.symbolic.ledger, at, width(dtype), 0)
        counted = step.kept_of(step.run)
        return sympy.expand(counted)

    def measured(self, dtype: str, layers: Mapping[str, int], fixed: Mapping[str, int]) -> tuple[Any, list[str]]:
        """Bytes that autograd saved, in our symbols, and what torch assumed of them."""
        from tfacct.reference.symbolic import kept

        def open_shape(size: Callable[[str], Any]) -> Transformer:
            plain = self.shape.mapped(unstretched)
            return with_sizes(
                plain, lambda letter: layers[letter] if letter in layers else size(letter), self.sizes.fixed
            )

        fixed = {**PREFILL, **fixed}
        letters = [letter for letter in self.sizes.letters if letter not in PREFILL]
        found = kept(open_shape, letters, dtype, fixed, self.sizes.factors(fixed), self.sizes.whole)
        ours = self.sizes.in_ours(found.symbols, fixed)
        return sympy.expand(found.counts["kept"].subs(ours, simultaneous=True)), found.guards


def kept_proven(
    shape: Transformer,
    dtypes: list[str],
    passed: Callable[[Transformer, str, Workload], Pass],
    *,
    progress: Tick = unwatched,
) -> KeptProof:
    """Hold the formula of what is kept against the reference model's own saved bytes, for all sizes. `passed` makes the
    account's pass. Needs torch, fvcore and sympy."""
    reference_rooms(option("prove"))
    symbolic = in_symbols(shape, cached=True)
    subject = _Subject(shape, symbolic, Sizes(shape, symbolic), passed)
    statements = tuple(found for dtype in dtypes for found in _by_symbols(subject, dtype, progress))
    return KeptProof(symbolic, statements, subject.sizes)


def _by_symbols(subject: _Subject, dtype: str, progress: Tick) -> Iterator[Proven]:
    """The count with symbols for all sizes, then with each size that may be 1 fixed there."""
    stacks, what = subject.sizes.stacks, f"kept in {dtype}"
    tried, edges, guards, counts = layers_tried(stacks), list(_edges(subject)), [], {}
    for done, layers in enumerate(tried):
        progress(f"tracing in {dtype}", done, len(tried) + len(edges))
        counts[layers], own = subject.measured(dtype, dict(zip(stacks, layers, strict=True)), {})
        guards += own
    whole, linear = for_all_layers(counts, [subject.symbolic.symbols[letter] for letter in stacks])
    formula, assumed = subject.said(dtype, {}), what_was_assumed(guards)
    difference = sympy.expand(whole - formula)
    evidence = assumed + ("" if linear else f", not linear in {', '.join(stacks)}")
    holds = difference == 0 and linear and assumed == NOTHING
    yield Proven(what, subject.symbolic.formula([formula]), str(difference), evidence, holds)
    ones = dict.fromkeys(stacks, 1)
    for done, edge in enumerate(edges, start=len(tried)):
        progress(f"tracing in {dtype}", done, len(tried) + len(edges))
        some, own = subject.measured(dtype, ones, edge.sizes)
        wrong = sympy.expand(some - subject.said(dtype, {**edge.sizes, **ones}))
        yield Proven(f"{what} at {edge.said}", None, str(wrong), what_was_assumed(own), wrong == 0 and not own)


def _edges(subject: _Subject) -> Iterator[Edge]:
    """What a symbol leaves out, of whole sequences."""
    for edge in subject.sizes.edges():
        if not edge.sizes.keys() & PREFILL.keys() and edge.sizes.get("T", subject.sizes.front) >= subject.sizes.front:
            yield edge
    if "K" in subject.sizes.declared:
        yield ALONE
