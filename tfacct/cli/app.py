"""The program."""

from tfacct.cli.root import app

__all__ = ["app"]
