"""Several values in one option: `1k..128k` doubles, `1k..8k:1k` counts up, `1,8,64` lists.

Values are counted before they are generated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Sized
from itertools import chain

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import for_each

MOST = 20_000
"""Most values of one option: each takes a separate evaluation. Arrays have no limit."""
FOR_MORE = "`Model.evaluate` in Python takes arrays of any length"
RANGE = re.compile(r"([^.,:]+)\.\.([^.,:]+)(?::([^.,:]+))?")


@record
class Values:
    """Values of one option in the order given."""

    pieces: tuple[Sequence[int], ...]

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def __contains__(self, value: object) -> bool:
        return any(value in piece for piece in self.pieces)

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self.pieces)


def read_values(option: str, text: str) -> Values:
    """Whole numbers in a list or range. Raises UsageError, also for `64,128`, which could be one number or two."""
    check_commas(option, text, several=True)
    is_one = units.is_tokens(text) and (",0" in text or "," not in text)
    parts = [text] if is_one else text.split(",")
    pieces = tuple(_piece(option, part.strip()) for part in parts)
    for piece in pieces:
        if len(piece) and min(piece[0], piece[-1]) < 1:
            raise UsageError(f"{option} must be at least 1, not {min(piece[0], piece[-1]):,}")
    return Values(pieces)


def read_some(option: str, text: str) -> list[int]:
    """One number, or the numbers in a list or range.

    >>> read_some("--batch", "1,8,64"), read_some("--ctx", "1k..4k"), read_some("--ctx", "1,024")
    ([1, 8, 64], [1024, 2048, 4096], [1024])

    Raises UsageError, also for `64,128`.
    """
    several = is_range(text.strip()) or "," in text
    return list(read_values(option, text) if several else _piece(option, text.strip()))


def check_commas(option: str, text: str, *, several: bool = False) -> None:
    """Raise UsageError for `64,128`, which could be one number or two; `1,024` is one, because no value starts with 0.

    `several`: the option lists values here, and not only in other commands; more than two are a list.
    """
    if several and text.count(",") > 1:
        return
    if is_ambiguous(text):
        parts = text.replace(",", ", ")
        raise ambiguous(option, text, f"'{parts}' for several" if several else f"for several, {for_each()}")


def is_ambiguous(text: str) -> bool:
    """True for `64,128`, which could be one number or two."""
    return "," in text and ",0" not in text and units.is_tokens(text)


def ambiguous(option: str, text: str, several: str) -> UsageError:
    """The error about such a text. `several`: how to give several values."""
    problem = f"{option} {text} is ambiguous: one number or several"
    return UsageError(problem, f"{text.replace(',', '')} for one value; {several}")


def limited(what: str, values: Sized) -> None:
    """Check that there are at most MOST values. Raises UsageError."""
    if len(values) > MOST:
        raise UsageError(f"{what} has {len(values):,} values; the maximum is {MOST:,}", FOR_MORE)


def is_range(text: str) -> bool:
    """True if `text` is a range such as `1k..8k`."""
    return RANGE.fullmatch(text) is not None


def _piece(option: str, text: str) -> Sequence[int]:
    match = RANGE.fullmatch(text)
    if match is None:
        if re.fullmatch(r"0\d+.*", text):
            raise UsageError(f"{option}: {text!r} starts with 0", "commas separate values: write 16384 or 16k")
        ends = re.split(r"[:–-]", text)
        if len(ends) == 2 and all(map(units.is_tokens, ends)):
            raise UsageError(f"{option} {text} is neither a number nor a range", f"a range is {'..'.join(ends)}")
        return (units.read_tokens(option, text),)
    first, last = (units.read_tokens(option, end) for end in match.group(1, 2))
    if last < first:
        raise UsageError(
            f"{option} {text} is a descending range", f"write the smaller number first: {match[2]}..{match[1]}"
        )
    if first < 1:
        raise UsageError(f"{option} must be at least 1, not {first:,}")
    if match[3] is not None:
        step = units.read_tokens(option, match[3])
        if step < 1:
            raise UsageError(f"{option} {text}: the step must be at least 1")
        count = (last - first) // step + 1
        if count > MOST:
            raise UsageError(f"{option} {text} makes {count:,} values; the maximum is {MOST:,}", FOR_MORE)
        return range(first, last + 1, step)
    doubled = [first]
    while doubled[-1] * 2 < last:
        doubled.append(doubled[-1] * 2)
    return [*doubled, last] if last > first else doubled


def spans(numbers: Sequence[int]) -> str:
    """Numbers as spans: `0-4,6`.

    >>> spans((0, 1, 2, 5)), spans(()), spans((7,))
    ('0-2,5', '', '7')
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
