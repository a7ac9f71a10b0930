"""Every command, in the order of the help."""

from tfacct.cli import account, training, plan, estimates, explore, presets, trust, check  # isort: skip
from tfacct.cli.root import app

__all__ = ["account", "app", "check", "estimates", "explore", "plan", "presets", "training", "trust"]
