"""The base of the modules that run a part of a layer: how a layer builds and calls them."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Self, TypeAlias

from torch import nn

from tfacct.architecture import parts
from tfacct.base.record import record
from tfacct.reference.rotary import Angles

FAMILIES = "tfacct.families."
Shapes: TypeAlias = tuple[tuple[int, ...], ...]
"""Shapes of tensors in the cache, in the order of a module's `caches`."""


@record
class Past:
    """Cache contents before a step: `tokens` visible tokens per sequence, of `old` tokens in total, and `source`
    tokens, if an earlier step read the source."""

    batch: int
    tokens: int
    source: int
    old: int


class PartModule(nn.Module):
    """A module that runs a part of a layer on tokens of shape (batch, tokens, hidden).

    A layer also passes the arguments in `takes`, in that order: `step`, shared by all layers of a forward pass; `past`,
    the module's cached tensors, or None without a cache; `source`, the encoder's result. A module with `caches` returns
    a tuple: its result, then its cached tensors at the end of the step.
    """

    takes: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    has_activation: bool = False
    """True if the module contains its activation, whichever the config names."""

    @classmethod
    def built(cls, part: Any, angles: Angles | None, *, fused: bool, keep_all: bool) -> Self:  # noqa: ARG003
        """The module of a part; most need only the part."""
        make: Any = cls
        return make(part)

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:  # noqa: ARG003
        """Shapes of its cached tensors before a step."""
        return ()


def family_module(part: parts.Part) -> Any:
    """Module class of a part that a family module defines: the class of the same name in `<the module>_reference`. None
    for any other part."""
    kind = type(part)
    if not kind.__module__.startswith(FAMILIES):
        return None
    return getattr(import_module(f"{kind.__module__}_reference"), kind.__name__)


def built(part: parts.Part | None) -> Any:
    """Module of a part that a family module defines. None for any other part."""
    module_of_family = None if part is None else family_module(part)
    return None if module_of_family is None else module_of_family(part)
