"""A model with its sizes left open: every part's sizes replaced by whatever stands for their letters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tfacct.architecture import Transformer
from tfacct.notation import Size
from tfacct.parts import Part


def with_sizes(shape: Transformer, size: Callable[[str], Size], layers: Size) -> Transformer:
    """The same model, biases and ties as they are, with `size(letter)` for each size and `layers` blocks a stack."""

    def opened(part: Part) -> Any:
        return replace(part, **{field: size(letter) for field, letter in part.letters.items()})

    return shape.mapped(opened, lambda _: layers)
