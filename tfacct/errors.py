"""What a user can do wrong, and how it is said: what was wrong, its value, what would work."""

from __future__ import annotations

from collections.abc import Iterable


class TfacctError(ValueError):
    """A mistake the user can mend: shown as one message, never as a traceback."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"

    def lines(self) -> list[str]:
        """What to print: the message, then the hint, without characters that would steer a terminal."""
        texts = [f"error: {self.message}"] + ([f"hint: {self.hint}"] if self.hint else [])
        return [printable(text) for text in texts]


class UsageError(TfacctError):
    """An option or argument that makes no sense."""


class ConfigError(TfacctError):
    """A configuration that is malformed, or holds something that is not understood."""


class NotFoundError(TfacctError):
    """A model, file, field or unit that does not exist."""


class HubError(TfacctError):
    """A hub that cannot be reached, or does not give what it has."""


class MissingExtraError(TfacctError):
    """A command that needs a package which is not installed."""

    MEASURE = "pip install 'tfacct[measure]', or '.[measure]' in a checkout"
    ARRAYS = "pip install 'tfacct[arrays]', or '.[arrays]' in a checkout"
    HUB = "pip install 'tfacct[hub]', or '.[hub]' in a checkout"
    PLOT = "pip install 'tfacct[plot]', or '.[plot]' in a checkout"


def printable(text: str) -> str:
    """The text without control characters: a field's name must not steer the terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "�" for char in text)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """`did you mean gpt2-xl?` for the one or two names most like `name`, or None."""
    from difflib import get_close_matches

    folded: dict[str, str] = {k.lower(): k for k in known}
    close = get_close_matches(name.lower(), folded, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(folded[c] for c in close)}?" if close else None
