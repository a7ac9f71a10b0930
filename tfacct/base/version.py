"""The version, which the package's metadata reads here."""

__version__ = "0.2.0"
