"""Every command, in the order of the help."""

from tfacct.cli import account, explore, presets, trust
from tfacct.cli.root import app

__all__ = ["account", "app", "explore", "presets", "trust"]
