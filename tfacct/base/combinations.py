"""Unsupported combinations of features, one row each, and their error messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from tfacct.base.record import record
from tfacct.base.spelling import option


class Unsupported(NamedTuple):
    """Features that do not work together, and the alternative to suggest; without one, the nearest supported step.
    Templates: `{cp}` is the option's spelling, `{of[odd_heads]}` a feature's value."""

    features: str
    reason: str
    instead: str = ""


def together(features: str, what: str, instead: str) -> Unsupported:
    """Row for features that are supported separately but not together."""
    return Unsupported(features, f"{what} is not supported", instead)


class Features(dict[str, Any]):
    """Values of features, computed when first read; false if the feature is not used."""

    def __init__(self, known: Mapping[str, tuple[str, Callable[..., object]]], *about: object) -> None:
        super().__init__()
        self.known, self.about = known, about

    def __missing__(self, name: str) -> Any:
        self[name] = self.known[name][1](*self.about)
        return self[name]


class Options(dict[str, Any]):
    """Spellings of options in a message: `cp`, `attention=eager`."""

    def __missing__(self, key: str) -> str:
        name, _, value = key.partition("=")
        return option(name, True if value == "True" else value or None)


_names = cache(str.split)


def matching(rows: Sequence[Unsupported], found: Features) -> Iterator[Unsupported]:
    """Rows that apply, with their templates filled in."""
    words = Options(of=found)
    for row in rows:
        if all(map(found.__getitem__, _names(row.features))):
            yield Unsupported(row.features, row.reason.format_map(words), row.instead.format_map(words))


@record
class Label:
    """A label that replaces a value in a template and ignores format specs and indices."""

    words: str

    def __format__(self, _: str) -> str:
        return self.words

    def __getitem__(self, _: object) -> Label:
        return self


def matrix(rows: Sequence[Unsupported], known: Mapping[str, tuple[str, Callable[..., object]]]) -> list[dict[str, str]]:
    """Rows for the documentation: features in words, reason and alternative."""
    labels = {name: Label(label.format_map(Options())) for name, (label, _) in known.items()}
    words = Options(of=labels)
    return [
        {
            "features": " + ".join(labels[name].words for name in _names(row.features)),
            "reason": row.reason.format_map(words),
            "instead": row.instead.format_map(words),
        }
        for row in rows
    ]
