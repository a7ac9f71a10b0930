"""Torch's own counts with symbols for sizes, where new tokens are a symbol and where a recurrence runs over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import sympy

from tfacct.algebra.symbols import with_sizes
from tfacct.architecture.transformer import Transformer
from tfacct.base.record import record
from tfacct.ledger.workload import CHUNKS
from tfacct.verify.sizes import Sizes

Counted: TypeAlias = tuple[dict[str, Any], list[str]]
"""Counts in symbols, and what was assumed of these."""


@record
class Traces:
    """Torch's own counts with symbols for all sizes, but for those that are fixed in a run."""

    shape: Transformer
    sizes: Sizes

    def counted(self, layers: Mapping[str, int], *, first: bool) -> Counted:
        """Counts in our symbols of a model with so many blocks in each stack. Where a recurrence runs over the tokens
        or over chunks of them, the `first` time with one number of them more than fix the law."""
        if self.sizes.chunk is not None:
            tried = self.sizes.chunks_tried if first else self.sizes.chunks_tried[:-1]
            return in_chunks(self.sizes.symbols[CHUNKS], [self._chunks(layers, {}, number) for number in tried])
        return self._by_tokens(layers, {}, first=first)

    def at(self, layers: Mapping[str, int], fixed: Mapping[str, int]) -> Counted:
        """Counts with some sizes fixed. Tokens in chunks are in two of them, unless it is fixed how many."""
        if self.sizes.chunk is not None and "T" not in fixed:
            return self._chunks(layers, fixed, fixed[CHUNKS])
        return self._by_tokens(layers, fixed, first=False)

    def _chunks(self, layers: Mapping[str, int], fixed: Mapping[str, int], number: int) -> Counted:
        """The last of so many chunks holds any number of tokens, but not all that it can."""
        assert self.sizes.chunk is not None
        before, least = (number - 1) * self.sizes.chunk, 2 if number == 1 else 1
        most = (self.sizes.chunk - 1) // self.sizes.together  # the symbol is of what is taken together
        return self._at_once(layers, fixed, {"T": before} if before else {}, {"T": (least, most)})

    def _by_tokens(self, layers: Mapping[str, int], fixed: Mapping[str, int], *, first: bool) -> Counted:
        if not self.sizes.recurs or "T" in fixed:
            return self._at_once(layers, fixed)
        tried = self.sizes.tokens_tried if first else self.sizes.tokens_tried[:-1]
        runs = [self._at_once(layers, {**fixed, "T": number}) for number in tried]
        return interpolated(self.sizes.symbols["T"], runs, checked=first)

    def _at_once(
        self,
        layers: Mapping[str, int],
        fixed: Mapping[str, int],
        before: Mapping[str, int] | None = None,
        ranges: Mapping[str, tuple[int, int]] | None = None,
    ) -> Counted:
        from tfacct.reference.symbolic import polynomials

        def open_shape(size: Callable[[str], Any]) -> Transformer:
            return with_sizes(
                self.shape, lambda letter: layers[letter] if letter in layers else size(letter), self.sizes.fixed
            )

        whole = {**self.sizes.whole, **{letter: (number,) for letter, number in (before or {}).items()}}
        found = polynomials(open_shape, self.sizes.letters, fixed, self.sizes.factors(fixed), whole, ranges)
        ours = self.sizes.in_ours(found.symbols, fixed, whole)
        counts = {name: sympy.expand(count.subs(ours, simultaneous=True)) for name, count in found.counts.items()}
        return counts, found.guards


def in_chunks(chunks: Any, runs: Sequence[Counted]) -> Counted:
    """Counts for any number of chunks, from runs of one, two … of them: each chunk adds as much. That a third adds what
    the second does is an assumption where it does not."""
    guards = [guard for _, own in runs for guard in own]
    through = {}
    for name, count in runs[0][0].items():
        second, *further = (sympy.expand(after[name] - before[name]) for (before, _), (after, _) in pairwise(runs))
        guards += [f"{name} is linear in {chunks}" for more in further if more != second]
        through[name] = sympy.expand(count + (chunks - 1) * second)
    return through, guards


def interpolated(tokens: Any, runs: Sequence[Counted], *, checked: bool) -> Counted:
    """Counts for any number of new tokens, from runs of one, two … of them: the polynomial through all, by Newton's
    forward differences. A `checked` one goes through all but the last: that this lies on it too is an assumption where
    it does not."""
    guards = [guard for _, own in runs for guard in own]
    degree = len(runs) - (2 if checked else 1)
    through = {}
    for name in runs[0][0]:
        differences = [counts[name] for counts, _ in runs]
        count, steps = differences[0], sympy.Integer(1)
        for power in range(1, degree + 1):
            differences = [sympy.expand(after - before) for before, after in pairwise(differences)]
            steps = steps * (tokens - power) / power
            count += steps * differences[0]
        if checked and sympy.expand(differences[1] - differences[0]) != 0:
            guards.append(f"{name} is of degree {degree} in T")
        through[name] = sympy.expand(count)
    return through, guards
