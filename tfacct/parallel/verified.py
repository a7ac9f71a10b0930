"""Checks against transformers classes in parallel layouts: one row per family in `verified.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

Fact: TypeAlias = Literal[
    "torch_plan", "published_plan", "fully_shard", "fp32_routing", "compute_routing", "fp32_router", "norms_last"
]
"""The head of the table explains them."""


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def verified(family: str, fact: Fact) -> bool:
    """True if the row of a family has this fact.

    >>> verified("llama", "torch_plan"), verified("llama", "fp32_routing")
    (True, False)
    """
    return fact in _table()["verified"].get(family, "").split()


def families(*facts: Fact) -> list[str]:
    """Families with any of these facts."""
    return sorted(name for name in _table()["verified"] if any(verified(name, fact) for fact in facts))


def fsdp_unsupported(family: str) -> str | None:
    """The reason why `fully_shard` does not shard the class of a family as counted; None if it does."""
    return _table()["fsdp_unsupported"].get(family)
