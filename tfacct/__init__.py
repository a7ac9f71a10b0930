"""tfacct: an accountant for transformers."""

__version__ = "0.1.0"
