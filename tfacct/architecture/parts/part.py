"""Base class of parts: fields with sizes, axes of these sizes, and lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

from tfacct.base.record import record
from tfacct.ledger.einsum import Size, evaluated
from tfacct.ledger.lines import Line

STATE_BITS = 32
"""Bits of recurrent states: transformers classes compute and cache them in fp32 for every dtype."""


@record
class Part:
    """A component of a transformer. Sizes may be ints, arrays or symbols."""

    name: ClassVar[str] = ""
    """Name in paths, and heading of its counts. A part without a name has no weights or matmuls, or is counted with
    others."""
    listed_after: ClassVar[tuple[str, int]] = ("", 0)
    """Heading before it in tables, and its order after that heading. Only for family-specific parts; others are listed
    in `parts`."""
    at_front: ClassVar[bool] = False
    """True if an extra part comes before the layers."""
    label: ClassVar[str] = ""
    """Name in messages; empty to use the words of the class name."""
    mesh_unsupported: ClassVar[str] = ""
    """Feature of it that no parallel layout supports, in words; empty if the fields decide that."""
    axis_names: ClassVar[dict[str, str]] = {}
    """Field with a size → its axis. A field that is None has none."""
    legend: ClassVar[dict[str, str]] = {}
    """Meaning of each axis of the part."""

    made: ClassVar[dict[str, str]] = {}
    """Derived axes with their formulas: N is `K · G`. Formulas replace axes that equal another axis or a number; such
    an axis exists because a spec cannot have an axis twice."""
    cases: ClassVar[frozenset[str]] = frozenset()
    """Axes for which size 1 is a special case, as in MQA; the proof checks each separately."""
    at_most: ClassVar[dict[str, str]] = {}
    """Axes that are part of another axis, and at most equal to it: `Hr` of `H`."""
    cut: ClassVar[frozenset[str]] = frozenset()
    """Axes of `at_most` for which the rest is also used as a size."""
    dealt: ClassVar[str | None] = None
    """Axis over which the tokens of a step are distributed evenly."""
    recurs: ClassVar[bool] = False
    """True if the reference model processes new tokens one by one."""
    hf_loop: ClassVar[str] = ""
    """Loop of the transformers class in Python over tokens or chunks, with its duration."""
    nested: ClassVar[tuple[str, ...]] = ()
    """Fields with another part, or None; its lines belong to this part."""

    @classmethod
    def of(cls, plain: Any, **more: Any) -> Self:
        """The part with the fields of `plain`, a part of a base class, and more."""
        return cls(**{field.name: getattr(plain, field.name) for field in fields(plain)}, **more)

    @property
    def padded_to(self) -> Size | None:
        """Number of tokens that inputs are padded to a multiple of; None without padding."""
        return None

    def sizes(self) -> dict[str, str]:
        """Return field → axis for sizes that are not None."""
        return {field: axis for field, axis in self.axis_names.items() if getattr(self, field) is not None}

    def with_nested(self) -> Iterator[Part]:
        """The part and its nested parts."""
        yield self
        yield from self._nested_parts().values()

    def _nested_parts(self) -> dict[str, Part]:
        """Nested parts by field."""
        parts = {field: getattr(self, field) for field in self.nested}
        return {field: part for field, part in parts.items() if part is not None}

    def resized(self, size: Callable[[str, Size], Size]) -> Self:
        """Return the part with each size replaced by `size(axis, old)`, also in nested parts."""
        sizes = {field: size(axis, getattr(self, field)) for field, axis in self.sizes().items()}
        nested = {field: part.resized(size) for field, part in self._nested_parts().items()}
        return replace(self, **sizes, **nested)

    def derived(self) -> dict[str, str]:
        """Return derived axis → formula."""
        return self.made

    def multiples(self) -> dict[str, int]:
        """Return axis → number that its size must be a multiple of."""
        return {}

    def axes(self) -> dict[str, Size]:
        """Sizes by axis, including nested parts and derived axes."""
        every = (*self.with_nested(),)
        sizes = {axis: getattr(part, field) for part in every for field, axis in part.sizes().items()}
        return sizes | {axis: evaluated(sum_, sizes) for part in every for axis, sum_ in part.derived().items()}

    def for_context(self, context: int) -> Self:  # noqa: ARG002
        """Return the part with enough rows for this context, if rows depend on it."""
        return self

    def lines(self, at: str) -> Iterator[Line]:
        """Lines of the part at path `at`."""
        raise NotImplementedError


class Mixer(Part):
    """A part that mixes tokens instead of attention and caches tensors of fixed size. Its name is the kind of its
    layers."""

    __slots__ = ()
    hidden: Size

    recurrence: ClassVar[str] = ""
    """Name of its recurrence in messages; empty without one."""
    tp_heads: ClassVar[str] = ""
    """Field with the number of heads, or of groups of heads, whose weights and states `tp` shards."""
