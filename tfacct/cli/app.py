"""Every command, in the order of the help."""

from tfacct.cli import account, training, explore, presets, trust  # isort: skip
from tfacct.cli.root import app

__all__ = ["account", "app", "explore", "presets", "training", "trust"]
