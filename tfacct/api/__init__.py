"""The Python interface: `load("gpt2-xl").flops(ctx=16384).total`. Its methods are the commands' functions."""

from tfacct.api.model import Model, load

__all__ = ["Model", "load"]
