"""The Python face: `load("gpt2-xl").flops(ctx=16384).total`. Its rooms are those of the command line."""

from tfacct.api.model import Model, load

__all__ = ["Model", "load"]
