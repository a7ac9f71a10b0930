"""Every command, in the order of the help."""

from tfacct.cli import account, training, estimates, explore, presets, trust  # isort: skip
from tfacct.cli.root import app

__all__ = ["account", "app", "estimates", "explore", "presets", "training", "trust"]
