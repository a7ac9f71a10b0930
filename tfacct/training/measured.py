"""The measurements in `bounds.toml`: the largest errors of the formula for the peak memory of a training step."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal, NamedTuple, TypeAlias

AttentionKind: TypeAlias = Literal["sdpa", "eager"]

PACKAGES, ANY_FAMILY = ("torch", "transformers"), "any-family"
"""Keys of bounds.toml that are not families: versions, and the largest error of each axis of a layout."""


class Measured(NamedTuple):
    """Largest error in percent, rounded up, and number of configs."""

    percent: float
    configs: int


NOTHING = Measured(0, 0)


@cache
def _lines() -> dict[str, str]:
    """Lines of bounds.toml by key. A command needs those of few families, and parsing all of them takes 10 ms."""
    text = files("tfacct.training").joinpath("bounds.toml").read_text(encoding="utf-8")
    return {line.partition(" = ")[0]: line for line in text.splitlines() if " = " in line and line[0] != "#"}


@cache
def row_of(family: str) -> dict[str, Measured]:
    """Measurements of a family, by group of recipes and axis of a layout; empty without any."""
    line = _lines().get(family)
    return {} if line is None else {name: Measured(*found) for name, found in tomllib.loads(line)[family].items()}


def measured_version(package: str) -> str:
    """The measured version of torch or transformers."""
    return str(tomllib.loads(_lines()[package])[package])


def measured_families() -> list[str]:
    """Families with any measurement."""
    return [name for name in _lines() if name not in (*PACKAGES, ANY_FAMILY)]


def plain_group(row: Mapping[str, Measured]) -> str:
    """The group of a step with only the default attention of the class."""
    return "eager" if "eager" in row and "16-bit" not in row else "16-bit"


def attention_of(family: str) -> AttentionKind:
    """The default attention of a family's class: sdpa, or eager if it has no other."""
    return "eager" if plain_group(row_of(family)) == "eager" else "sdpa"
