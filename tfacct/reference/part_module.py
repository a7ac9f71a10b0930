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
    """What a step finds in the cache: `tokens` of each sequence that are still seen, of `old` tokens in all, and
    `source` tokens, if a step before it read the source."""

    batch: int
    tokens: int
    source: int
    old: int


class PartModule(nn.Module):
    """A module that runs a part of a block on tokens of shape (batch, tokens, hidden).

    A block also passes what the module `takes`, in that order: `step`, what all blocks of a forward pass share; `past`,
    the module's own tensors in the cache, or None without a past; `source`, the encoder's result. A module with
    `caches` returns a tuple: its result, then these tensors at the end of the step.
    """

    takes: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    own_activation: bool = False
    """Whether its activation is one of its own, whatever the name."""

    @classmethod
    def built(cls, part: Any, angles: Angles | None, *, fused: bool, keep_all: bool) -> Self:  # noqa: ARG003
        """Return the module of a part; most need nothing but the part."""
        make: Any = cls
        return make(part)  # type: ignore[no-any-return]

    @classmethod
    def cache_shapes(cls, part: Any, past: Past) -> Shapes:  # noqa: ARG003
        """Shapes of its tensors in the cache before a step."""
        return ()


def family_module(part: parts.Part) -> Any:
    """Module class of a part that a family's module defines: of the same name, in `<the module>_reference`. None of any
    other part."""
    kind = type(part)
    if not kind.__module__.startswith(FAMILIES):
        return None
    return getattr(import_module(f"{kind.__module__}_reference"), kind.__name__)


def built(part: parts.Part | None) -> Any:
    """Module of a part that a family's module defines. None of any other part."""
    own = None if part is None else family_module(part)
    return None if own is None else own(part)
