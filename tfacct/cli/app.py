"""The entry point."""

from tfacct.cli.root import app

__all__ = ["app"]
