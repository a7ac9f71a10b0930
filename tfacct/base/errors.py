"""Errors shown to users: the problem, the value, and a hint with what works."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, takewhile


class TfacctError(ValueError):
    """An error that the user can fix: printed as a message and a hint, without a traceback.

    Both are one line, without control characters, because names in them may come from files of others.
    """

    kind = "other"
    """The kind of error, a key for programs."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = printable(message)
        self.hint = printable(hint) if hint else None

    def __str__(self) -> str:
        return "\n".join(text for text in (self.message, self.hint) if text is not None)

    def lines(self) -> list[str]:
        """Lines to print: the message, then the hint."""
        return [f"error: {self.message}"] + ([] if self.hint is None else [f"hint: {self.hint}"])


class UsageError(TfacctError):
    """An option or argument that makes no sense."""

    kind = "usage"


class ConfigError(TfacctError):
    """A configuration that is malformed or has a field or value that is not supported."""

    kind = "config"


class ModelTypeError(ConfigError):
    """A configuration of a model type that is unknown or not supported."""

    kind = "model_type"


class NotFoundError(TfacctError):
    """An unknown model, file, device or field."""

    kind = "not_found"


class CheckpointError(TfacctError):
    """A file that is damaged or contains no weights."""

    kind = "checkpoint"


class HubError(TfacctError):
    """A hub that cannot be reached or refuses access."""

    kind = "hub"


class MissingExtraError(TfacctError):
    """A package is missing: one in the project's `extra`, or `others` by name."""

    kind = "missing_package"

    def __init__(self, message: str, extra: str = "", others: str = "") -> None:
        how = [f"pip install '.[{extra}]' in a tfacct checkout"] if extra else []
        super().__init__(message, ", and ".join([*how, *([f"pip install {others}"] if others else [])]) or None)


@contextmanager
def naming(name: str, *kinds: type[TfacctError]) -> Iterator[None]:
    """Adds the name of a model to the message of errors of these kinds."""
    try:
        yield
    except kinds as error:
        error.message = f"{name}: {error.message}"
        raise


def exclusive(one: str, other: str) -> UsageError:
    """The error for two options that do not work together."""
    return UsageError(f"{one} does not work with {other}", "leave one of the two out")


def printable(text: str) -> str:
    """Text with control characters replaced, so that a name cannot change the terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "�" for char in text)


def cut(name: str, most: int = 80) -> str:
    """Text shortened to at most `most` characters for a message."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def listed(names: Collection[str], most: int = 20) -> str:
    """At most `most` names, shortened and separated by commas, then the number of further ones."""
    more = len(names) - most
    words = ", ".join(cut(name) for name in islice(names, most))
    return words if more <= 0 else f"{words} and {more:,} more"


def joined(words: Sequence[str], last: str = "and") -> str:
    """Words with commas, and `and` or another word before the last."""
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Suggestion with the one or two names closest to `name`, or None.

    >>> nearest("gpt2-xxl", ["gpt2", "gpt2-xl", "bert-base"])
    'did you mean gpt2-xl or gpt2?'

    A common prefix counts more than a similar spelling:

    >>> nearest("mistral-7b", ["mixtral-8x7b", "mistral-7b-v0.3"])
    'did you mean mistral-7b-v0.3?'
    """
    from difflib import get_close_matches

    folded: dict[str, str] = {k.lower(): k for k in known}
    alike = beginning_alike(name.lower(), folded)
    close = get_close_matches(name.lower(), alike or folded, n=2, cutoff=0 if alike else 0.6)
    return f"did you mean {' or '.join(folded[c] for c in close)}?" if close else None


def beginning_alike(name: str, known: Iterable[str]) -> list[str]:
    """Known names with the most similar beginning.

    In this order: names that start with `name`; the longest name that `name` starts with, and a close match with that
    prefix; names that share the most leading words, at least two.

    >>> beginning_alike("gpt2-small", ["gpt2", "gpt2-large", "cs336-gpt2-small"])
    ['gpt2']
    >>> beginning_alike("gpt2-medum", ["gpt2", "gpt2-medium", "gpt2-xl"])
    ['gpt2', 'gpt2-medium']
    >>> beginning_alike("gemma-3-27b-it", ["gemma-2-27b", "gemma-3-4b-text", "gemma-3-27b-text"])
    ['gemma-3-27b-text']
    """
    from difflib import get_close_matches

    if longer := [k for k in known if k.startswith(name) and len(name) > 2]:
        return longer
    if shorter := [k for k in known if k and name.startswith((f"{k}-", f"{k}_"))]:
        start = max(shorter, key=len)
        return [start, *get_close_matches(name, [k for k in known if k.startswith(start) and k != start], 1, 0.8)]

    def words(text: str) -> list[str]:
        return text.replace("_", "-").split("-")

    pairs = {k: zip(words(name), words(k), strict=False) for k in known}
    shared = {k: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pair)) for k, pair in pairs.items()}
    most = max([2, *shared.values()])
    return [k for k, count in shared.items() if count == most]
