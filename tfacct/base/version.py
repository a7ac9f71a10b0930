"""The version, read by the package's metadata."""

__version__ = "0.2.0"
