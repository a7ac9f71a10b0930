"""The base of every part: fields with sizes, the axes of those sizes, and lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import ClassVar, Self

from tfacct.base.record import record
from tfacct.ledger.einsum import Size, evaluated
from tfacct.ledger.lines import Line

STATE_BITS = 32
"""Width of the states of a recurrence: the classes compute and keep them in fp32, whatever the model's dtype."""


@record
class Part:
    """A piece of a transformer. Its sizes hold any kind of number: ints, arrays, symbols."""

    name: ClassVar[str] = ""
    """Name in its path, and heading of its counts. A part without a name has neither weights nor products, or is summed
    with others."""
    listed_after: ClassVar[tuple[str, int]] = ("", 0)
    """Heading that its own follows in tables, and its place among those that follow it. Of a part that one family has:
    others are listed in `parts`."""
    at_front: ClassVar[bool] = False
    """Whether the lines of an extra part come before those of the layers."""
    label: ClassVar[str] = ""
    """What messages call it, if not by the words of its class's name."""
    mesh_unsupported: ClassVar[str] = ""
    """What of it no parallel layout supports, in words; empty if its fields decide that."""
    axis_names: ClassVar[dict[str, str]] = {}
    """Field → the axis that it is the size of: the one bridge between names and axes. A field of None has none."""
    legend: ClassVar[dict[str, str]] = {}
    """Meaning of each of the part's axes, explained here and nowhere else."""

    made: ClassVar[dict[str, str]] = {}
    """Axes that are no sizes of their own, and what of others they are made of: N is `K · G`. One that is another axis
    alone stands in specs in which that stands already: formulas do without it, and without one that is a number."""
    cases: ClassVar[frozenset[str]] = frozenset()
    """Axes of which a size of 1 is a case by itself, as MQA is: the proof looks at each of them alone."""
    at_most: ClassVar[dict[str, str]] = {}
    """Axes that are a share of another one, and at most all of it: `Hr` of `H`."""
    cut: ClassVar[frozenset[str]] = frozenset()
    """Shares that are cut off, so that the rest is a size of its own."""
    dealt: ClassVar[str | None] = None
    """The axis that a step's tokens are dealt out to, to each as many."""
    recurs: ClassVar[bool] = False
    """Whether the reference model runs it over new tokens one by one."""
    hf_loop: ClassVar[str] = ""
    """What the transformers class runs in Python for each of many tokens or chunks, and how long that takes."""
    nested: ClassVar[tuple[str, ...]] = ()
    """Fields that hold another part, or None: its lines are among this part's."""

    @property
    def padded_to(self) -> Size | None:
        """Number of tokens to a multiple of which texts are padded; None if they are not."""
        return None

    def sizes(self) -> dict[str, str]:
        """Return field → axis for the sizes that this part has."""
        return {field: axis for field, axis in self.axis_names.items() if getattr(self, field) is not None}

    def with_nested(self) -> Iterator[Part]:
        """The part, then those in its fields."""
        yield self
        yield from (part for field in self.nested if (part := getattr(self, field)) is not None)

    def resized(self, size: Callable[[str, Size], Size]) -> Self:
        """Return the part with `size(axis, old)` for each of its sizes, of nested parts too."""
        own = {field: size(axis, getattr(self, field)) for field, axis in self.sizes().items()}
        nested = {field: part.resized(size) for field in self.nested if (part := getattr(self, field)) is not None}
        return replace(self, **own, **nested)

    def derived(self) -> dict[str, str]:
        """Return axis → what it is made of, for those that this part has."""
        return self.made

    def multiples(self) -> dict[str, int]:
        """Return axis → what its size is a multiple of, where it cannot be any number."""
        return {}

    def axes(self) -> dict[str, Size]:
        """Sizes of the axes of the part and of nested ones, by axis."""
        every = (*self.with_nested(),)
        own = {axis: getattr(part, field) for part in every for field, axis in part.sizes().items()}
        return own | {axis: evaluated(sum_, own) for part in every for axis, sum_ in part.derived().items()}

    def for_context(self, context: int) -> Self:  # noqa: ARG002
        """Return the part with as many rows as a text of so many tokens reads, if those grow with it."""
        return self

    def lines(self, at: str) -> tuple[Line, ...]:
        """Lines of the part, under the path `at`."""
        raise NotImplementedError


class Mixer(Part):
    """A part that mixes tokens in place of attention, and keeps tensors of fixed size between steps. Its name is the
    kind of its blocks."""

    __slots__ = ()
    hidden: Size

    recurrence: ClassVar[str] = ""
    """Its recurrence, as texts call it; empty where it has none."""
    unfused: ClassVar[str] = ""
    """Tensors that its unfused kernels write or read and fused ones do not: a whole sentence."""
