"""A cache of what follows from lines alone, for all layers, sizes and ranks that have the same lines."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, TypeVar

from tfacct.ledger.lines import Line, Matmul, Parameter

T = TypeVar("T")


class Lines(tuple[Line, ...]):
    """The lines of a group: a stage's group, or a rank's, has the same ones as the model's."""

    @cached_property
    def _known(self) -> dict[Hashable, Any]:
        return {}

    def once(self, key: Hashable, work: Callable[[], T]) -> T:
        """What others work out of these lines and of nothing else than the key: the first time, or with arrays among
        the sizes of the key each time."""
        try:
            there = key in self._known
        except TypeError:
            return work()
        if not there:
            self._known[key] = work()
        found: T = self._known[key]
        return found

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Their parameters, in their order."""
        return tuple([parameter for line in self for parameter in line.parameters()])

    @cached_property
    def has_experts(self) -> bool:
        """True if there are products of experts among them."""
        return any(isinstance(line, Matmul) and line.expert_axis for line in self)
