"""Models that a comparison does not include, and why."""

from __future__ import annotations

from collections.abc import Sequence

from tfacct.base.record import record
from tfacct.base.spelling import spelled
from tfacct.loading.model import LoadedModel

SHOWN = 12
"""Names of models that are left out on one line of the terminal."""


@record
class Skipped:
    """Models that a comparison goes without, and why. `advice`: what would take them in."""

    models: tuple[str, ...]
    why: str
    advice: str = ""

    @property
    def hint(self) -> str:
        """For the person at the terminal."""
        few, more = self.models[:SHOWN], len(self.models) - SHOWN
        others = f" and {more:,} more, which {spelled('--json', 'models_left_out')} names" if more > 0 else ""
        sentence = f"left out: {', '.join(few)}{others} ({self.why})"
        return f"warning: {sentence}; {self.advice}" if self.advice else f"hint: {sentence}"

    @staticmethod
    def of(models: Sequence[LoadedModel], why: str, advice: str = "") -> list[Skipped]:
        """These models, where there are any."""
        return [Skipped(tuple(model.name for model in models), why, advice)] if models else []
