"""Unsupported combinations of features: rows, and the error message of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tfacct.base.record import record
from tfacct.base.spelling import option


class Unsupported(NamedTuple):
    """Features that do not work together, and what to do instead, if not the nearest step that is supported. `{cp}`
    stands for the option, `{of[odd_heads]}` for the value of a feature."""

    features: str
    reason: str
    instead: str = ""


def together(features: str, what: str, instead: str) -> Unsupported:
    """A row of features that are supported one by one."""
    return Unsupported(features, f"{what} is not supported", instead)


class Features(dict[str, Any]):
    """Values of features, false where there is none, each computed when it is read."""

    def __init__(self, known: Mapping[str, tuple[str, Callable[..., object]]], *about: object) -> None:
        super().__init__()
        self.known, self.about = known, about

    def __missing__(self, name: str) -> Any:
        self[name] = self.known[name][1](*self.about)
        return self[name]


class Options(dict[str, Any]):
    """Options as a message spells them: `cp`, `attention=eager`."""

    def __missing__(self, key: str) -> str:
        name, _, value = key.partition("=")
        return option(name, True if value == "True" else value or None)


def matching(rows: Sequence[Unsupported], found: Features) -> Iterator[Unsupported]:
    """Rows that apply, with their reasons written out."""
    words = Options(of=found)
    for row in rows:
        if all(found[name] for name in row.features.split()):
            yield Unsupported(row.features, row.reason.format_map(words), row.instead.format_map(words))


@record
class Label:
    """A label in a sentence instead of a value, whatever its format and its parts."""

    words: str

    def __format__(self, _: str) -> str:
        return self.words

    def __getitem__(self, _: object) -> Label:
        return self


def matrix(rows: Sequence[Unsupported], known: Mapping[str, tuple[str, Callable[..., object]]]) -> list[dict[str, str]]:
    """Rows for the documentation: their features in words, the reason, and what to do instead."""
    labels = {name: Label(label.format_map(Options())) for name, (label, _) in known.items()}
    words = Options(of=labels)
    return [
        {
            "features": " + ".join(labels[name].words for name in row.features.split()),
            "reason": row.reason.format_map(words),
            "instead": row.instead.format_map(words),
        }
        for row in rows
    ]
