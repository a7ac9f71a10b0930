"""A sequence with lazily computed entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import TypeVar, overload

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """A sequence of known length. Reading an entry computes it and all entries before it, once.

    >>> squares = LazySequence(3, lambda: (n * n for n in range(3)))
    >>> len(squares), squares[1], squares[:2], squares[3:], squares[-1], list(squares)
    (3, 1, [0, 1], [], 4, [0, 1, 4])
    """

    def __init__(self, count: int, work: Callable[[], Iterable[T]]) -> None:
        self._count, self._work, self._known = count, work, list[T]()

    @cached_property
    def _rest(self) -> Iterator[T]:
        return iter(self._work())

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        places = range(self._count)[at]
        end = places + 1 if isinstance(places, int) else max(places, default=-1) + 1
        self._known.extend(islice(self._rest, max(0, end - len(self._known))))
        return self._known[places] if isinstance(places, int) else [self._known[place] for place in places]
