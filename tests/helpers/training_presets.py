"""Presets whose training step is counted."""

from tests.families import presets_asked
from tfacct.loading import presets
from tfacct.training.recipe import Recipe
from tfacct.training.unsupported import refusal

TRAINED = [name for name in presets_asked() if refusal(presets.load(name), Recipe()) is None]
"""Presets whose training step is counted."""
