"""Caches of what follows from a ledger, or from lines alone: for all layers, sizes and ranks with the same lines."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, TypeVar

from tfacct.ledger.lines import Line, Matmul, Parameter

T = TypeVar("T")


class Known:
    """An object with a cache of results that are derived from it."""

    @cached_property
    def known(self) -> dict[Hashable, Any]:
        """Results by name and further arguments."""
        return {}

    def once(self, key: Hashable, work: Callable[[], T]) -> T:
        """Result of `work`, cached under `key`; computed each time if the key has arrays.

        `work` may depend only on this object and the key.
        """
        try:
            there = key in self.known
        except TypeError:
            return work()
        if not there:
            self.known[key] = work()
        found: T = self.known[key]
        return found


class Lines(Known, tuple[Line, ...]):
    """The lines of a group. Groups of a pipeline stage or a rank share the model's object."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Lines, (tuple(self),)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters in the order of the lines."""
        return tuple([parameter for line in self for parameter in line.parameters()])

    @cached_property
    def has_experts(self) -> bool:
        """True if a line is a matmul of experts."""
        return any(isinstance(line, Matmul) and line.expert_axis for line in self)
