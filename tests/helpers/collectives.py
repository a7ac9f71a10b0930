"""Watches what ranks send: torch's operations, whatever runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def watching(kinds: Mapping[str, str], sent: Callable[[str, str, int], None]) -> Any:
    """The mode that `verify --shard` watches in; torch is not imported before it is wanted."""
    from tfacct.reference import ranks

    return ranks.watching(kinds, sent)
