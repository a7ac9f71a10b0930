"""Every command, in the order of the help."""

from tfacct.cli import account, training, plan, estimates, explore, page, presets, trust, check  # isort: skip
from tfacct.cli.root import app

__all__ = ["account", "app", "check", "estimates", "explore", "page", "plan", "presets", "training", "trust"]
