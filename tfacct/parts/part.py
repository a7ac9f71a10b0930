"""What every part is: fields that hold sizes, the letters those sizes have in a spec, and lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tfacct.lines import Line
from tfacct.notation import Size


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a transformer. Its sizes hold any kind of number: ints, arrays, symbols."""

    letters: ClassVar[dict[str, str]] = {}
    """Field → the axis it is the size of: the one bridge between names and letters. None: no such axis."""
    legend: ClassVar[dict[str, str]] = {}
    """What each of the part's axes means, explained here and nowhere else."""

    same: ClassVar[frozenset[str]] = frozenset()
    """Axes that are another one by another name, for specs in which that stands already: formulas do without them."""

    def sizes(self) -> dict[str, str]:
        """Field → axis, for the sizes that this part has."""
        return {field: letter for field, letter in self.letters.items() if getattr(self, field) is not None}

    def axes(self) -> dict[str, Size]:
        """The sizes of the part's axes."""
        values = ((letter, getattr(self, field)) for field, letter in self.letters.items())
        return {letter: value for letter, value in values if value is not None}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The part's lines, under the path `at`."""
        raise NotImplementedError
