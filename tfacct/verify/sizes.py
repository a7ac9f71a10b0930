"""Sizes that a proof leaves open, and cases that it runs separately; the parts declare both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm
from typing import Any

from tfacct.algebra.symbols import SymbolicModel, layer_axes
from tfacct.architecture.axis_names import Axis
from tfacct.architecture.transformer import Transformer
from tfacct.base.record import record
from tfacct.ledger.lines import CENTRED_KERNEL, CHUNK, FRONT, FURTHER, HALF, LONGEST, RATES, SHARES, WINDOWS
from tfacct.ledger.workload import CHUNKS, ONE_BY_ONE

FIXED = WINDOWS | {CENTRED_KERNEL, CHUNK, FRONT, FURTHER, HALF, LONGEST, *SHARES.values(), *RATES.values()}
"""Axes that stay numbers in every proof."""
WORKLOAD = ("B", "T", "C", "Cw", "J")
"""Axes of a step: sequences, new tokens, cached tokens, cached tokens in a window, and the source. I is none:
the whole source is read, or none of it."""
LAYER_ROWS = "Lp"
"""Layers with their own embedding rows: at least as many as layers in a proof."""
CASES: tuple[dict[str, int], ...] = ({"T": 1}, {"C": 0}, {"B": 1})
"""Steps that a symbol, at least 2, leaves out: one token, an empty cache, one sequence."""
MORE_CASES: tuple[dict[str, int], ...] = ({"B": 1, "C": 0}, {"J": 1}, {"I": 0})
"""Other cases: a plain prefill, a source of one token, a step after the source."""
DEGREES = {"T": 2, "J": 2}
"""The highest power of each size in a count; 1 if it is not here. Each product of the model multiplies each of its
sizes once, and T is twice in attention: as the queries, and in the keys S = C + T; so does the source in its
encoder."""


@record
class Edge:
    """Sizes that are fixed for a run, with a phrase."""

    words: str
    sizes: Mapping[str, int]


class Sizes:
    """The sizes of a model in symbols: those of the step and of the parts. A window is represented by its Cw cached
    tokens."""

    def __init__(self, shape: Transformer, symbolic: SymbolicModel) -> None:
        self.symbols = symbolic.symbols
        self.stacks = layer_axes(shape)
        known = shape.declared_axes().items()
        self.fixed = frozenset(name for name, axis in known if axis.part_axis in FIXED)
        """Axes of the model that stay numbers."""
        self.declared: Mapping[str, Axis] = {
            name: axis for name, axis in known if axis.made is None and axis.part_axis not in FIXED
        }
        lengths = {part.axes()[CHUNK] for part in shape.parts() if CHUNK in part.axes()}
        self.chunk: int | None = max(lengths, default=None)
        """Tokens in a chunk of a recurrence, where one runs in chunks: then T lies in one of them in every trace."""
        self.front: int = next((part.axes()[FRONT] for part in shape.parts() if FRONT in part.axes()), 0)
        """Learned tokens in front of an image's patches: T is so many more than there are patches."""
        self.period = shape.ledger().period
        """Tokens after which as many wait to be compressed as before: T and C are multiples of it, and none wait."""
        taken = (part.axes().get(size, 1) for part in shape.parts() for size in SHARES.values())
        self.together = lcm(self.period, shape.longest or 1, *taken)
        """Tokens that are taken together, patches or those of a window: T is a multiple of it."""
        self.source = (shape.encoder and shape.encoder.longest) or 1
        """Tokens of the windows to which a source is padded: J is a multiple of them, and none are padded."""
        self.recurs = any(part.recurs for part in shape.parts())
        """Whether new tokens are run one by one: then T is a number in every trace."""
        self.tokens_degree = DEGREES["T"] if shape.attentions else 1
        """The highest power of T in a count: without attention, every product multiplies it once."""

    @property
    def axis_names(self) -> list[str]:
        """The sizes that are left open."""
        return [*(axis for axis in WORKLOAD if axis in self.symbols), *self.declared]

    @property
    def tokens_tried(self) -> range:
        """Numbers of new tokens for a recurrence over tokens: one more than determines the polynomial."""
        return range(1, self.tokens_degree + 3)

    @property
    def chunks_tried(self) -> tuple[int, ...]:
        """Numbers of chunks for a recurrence over chunks: one more than determines the line."""
        return 1, 2, 3

    @property
    def once(self) -> dict[str, int]:
        """Fixed sizes if a law is already known: a number of tokens, or of chunks."""
        if self.chunk is not None:
            return {CHUNKS: 1}
        return {"T": self.tokens_tried[1]} if self.recurs else {}

    @property
    def rests(self) -> dict[str, tuple[str | int, ...]]:
        """Axis → the axes, or a number, that are parts of it: the axis is their sum and a remainder. With two kinds of
        layers that split an axis differently, neither is assumed to have the larger part."""
        cut = {axis: (*self._cut(axis),) for axis in self.declared if self._cut(axis)}
        return {**cut, **({"T": (self.front,)} if self.front else {})}

    def edges(self) -> list[Edge]:
        """Cases that a symbol excludes, each in a separate run: the step's cases, sizes whose least value is a case of
        the part, and one run with all other sizes at their least values."""
        step = {*(axis for axis in WORKLOAD if axis in self.symbols), *({"I"} & set(self.symbols))}
        step -= {"T"} if self.recurs else set()
        alone = [self._alone(name) for name, axis in self.declared.items() if axis.case]
        alone += [{"T": self.front + self.together}] if self.front or self.together > 1 else []
        alone += [] if self.chunk is None else [{"T": self.chunk}]
        plain = CASES[1:] if self.together > 1 or self.front > 1 else CASES  # a single token is not
        more = [{"J": self.source} if "J" in case else case for case in MORE_CASES]
        cases = [case for case in (*plain, *alone, *more) if case.keys() <= step | self.declared.keys()]
        return [*(self._edge(case) for case in cases), self._rest()]

    def _edge(self, case: Mapping[str, int]) -> Edge:
        """A case with consistent sizes: an empty cache has no tokens in a window, and fixed tokens are not routed by a
        symbol."""
        sizes = {**case, **({"Cw": 0} if "Cw" in self.symbols and case.get("C") == 0 else {})}
        if "B" in case and (self.recurs or self.chunk is not None):
            dealt = [name for name, axis in self.declared.items() if axis.dealt]
            sizes |= dict.fromkeys([*dealt, *(share for name in dealt for share in self._shares(name))], 1)
        chunks = self._in_chunks(case.get("T"))
        shown = {**sizes, **chunks} if "T" in case else sizes
        return Edge(", ".join(f"{axis} = {size}" for axis, size in shown.items()), {**sizes, **chunks})

    def _alone(self, name: str) -> dict[str, int]:
        """A size at its least value: 1, or what its parts or its factor require."""
        return {name: self._least(name), **{share: self._least(share) for share in self._cut(name)}}

    def _in_chunks(self, tokens: int | None) -> dict[str, int]:
        """Number of chunks: 0 for one token after others, 1 for a full chunk of tokens, 2 for a symbol."""
        if self.chunk is None:
            return {}
        number = 2 if tokens is None else 0 if tokens == 1 else -(-tokens // self.chunk)
        of = {CHUNKS: number, **({ONE_BY_ONE: 1} if tokens == 1 else {})}
        return {axis: size for axis, size in of.items() if axis in self.symbols}

    def _rest(self) -> Edge:
        rest = [name for name, axis in self.declared.items() if not axis.case]
        least = {name: self._least(name) for name in rest}
        least |= {share: self._least(share) for name in rest for share in self._shares(name)}
        return Edge(f"the least {', '.join(rest)}", {**least, **self._in_chunks(None)})

    def _least(self, name: str) -> int:
        """The smallest value of a size: one factor, and at least the sum of its parts."""
        rows = len(self.stacks) if name == LAYER_ROWS else 1  # a layer of each stack reads its own rows
        return max([rows, self.declared[name].multiple, *map(self._least, self._shares(name))])

    def _shares(self, of: str) -> list[str]:
        return [name for name, axis in self.declared.items() if axis.at_most == of]

    def _cut(self, of: str) -> list[str]:
        return [share for share in self._shares(of) if self.declared[share].cut]

    def conditions(self) -> list[str]:
        """Conditions on sizes beyond being at least 2."""
        declared = self.declared.items()
        even = [f"{name} a multiple of {axis.multiple}" for name, axis in declared if axis.multiple > 1]
        tokens = f"T − {self.front}" if self.front else "T"
        even += [f"{tokens} a multiple of {self.together}"] if self.together > 1 else []
        even += [f"J a multiple of {self.source}"] if self.source > 1 else []
        even += [f"C a multiple of {self.period}"] if self.period > 1 else []
        cut = []
        for total, shares in self.rests.items():
            least = 2 + sum(share for share in shares if isinstance(share, int))
            axis_names = (share for share in shares if isinstance(share, str))
            cut.append(f"{total} at least {' + '.join([*axis_names, str(least)])}")
        return [*even, *cut, *(f"B a multiple of {name}" for name, axis in declared if axis.dealt)]

    def factors(self, fixed: Mapping[str, int]) -> dict[str, tuple[int | str, ...]]:
        """Sizes that are multiples of a number or of other axes: those of the parts, and the tokens, which experts
        share evenly."""
        factors: dict[str, tuple[int | str, ...]] = {
            name: (axis.multiple,) for name, axis in self.declared.items() if axis.multiple > 1
        }
        if self.together > 1:
            factors["T"] = (self.together,)
        if self.source > 1:
            factors["J"] = (self.source,)
        if self.period > 1:
            factors["C"] = (self.period,)
        dealt = tuple(name for name, axis in self.declared.items() if axis.dealt)
        for axis in ("T", "J") if "B" in fixed else ("B",):
            if dealt:
                factors[axis] = (*factors.get(axis, ()), *dealt)
        return factors

    def values(self, axis: str) -> list[int]:
        """The smallest values, one more than the degree, which prove a polynomial on a grid."""
        step = self.declared[axis].multiple if axis in self.declared else self._taken(axis)
        largest = [max(self.values(share)) for share in self._shares(axis)]
        first = 0 if axis in ("C", "Cw") else max([step, *largest])
        return [first + step * i for i in range(DEGREES.get(axis, 1) + 1)]

    def _taken(self, axis: str) -> int:
        """Groups of tokens: new ones, and those in the cache."""
        return {"T": self.together, "C": self.period, "J": self.source}.get(axis, 1)

    def in_ledger_symbols(
        self,
        traced: Mapping[str, Any],
        fixed: Mapping[str, int],
        rests: Mapping[str, Sequence[str | int]] | None = None,
    ) -> dict[Any, Any]:
        """The trace's symbols in terms of the ledger's: the trace has one for the multiple of a factor, and one for the
        remainder of a sum."""
        rests = self.rests if rests is None else rests
        sizes: dict[str, Any] = {**self.symbols, **fixed}
        factors, found = self.factors(fixed), {}
        for axis, symbol in traced.items():
            size = sizes[axis] - sum(one if isinstance(one, int) else sizes[one] for one in rests.get(axis, ()))
            for factor in factors.get(axis, ()):
                size /= factor if isinstance(factor, int) else sizes[factor]
            found[symbol] = size
        return found


def layers_tried(stacks: Sequence[str]) -> list[tuple[int, ...]]:
    """Numbers of layers: one in each stack, then two in each stack by itself, which determine the law; then three in
    all."""
    ones = tuple(1 for _ in stacks)
    twos = [(*ones[:i], 2, *ones[i + 1 :]) for i in range(len(stacks))]
    return [ones, *twos, tuple(3 for _ in stacks)]
