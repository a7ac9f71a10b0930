"""Models that are not included in a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from tfacct.base.record import record
from tfacct.base.spelling import spelled
from tfacct.loading.model import LoadedModel

SHOWN = 12
"""Most names of models in a hint."""


@record
class Skipped:
    """Models that are not included in a comparison, with the reason. `advice`: how to include them."""

    models: tuple[str, ...]
    why: str
    advice: str = ""

    @property
    def hint(self) -> str:
        """Hint for the command line."""
        few, more = self.models[:SHOWN], len(self.models) - SHOWN
        others = f" and {more:,} more, listed in {spelled('--json', 'models_skipped')}" if more > 0 else ""
        sentence = f"not included: {', '.join(few)}{others} ({self.why})"
        return f"warning: {sentence}; {self.advice}" if self.advice else f"hint: {sentence}"

    @staticmethod
    def of(models: Sequence[LoadedModel], why: str, advice: str = "") -> list[Skipped]:
        """A list with one entry for these models, or an empty list."""
        return [Skipped(tuple(model.name for model in models), why, advice)] if models else []
