"""Counts by our paths as counts by the transformers class's, through the family's path table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tfacct.ledger import paths


def renamed(
    counts: Mapping[str, int], table: Mapping[str, str], tensors: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Counts by our paths as counts by the class's, where there are any: several of ours may be one of theirs.

    `table` maps our module paths to theirs, with `*` for a block's number; a tensor's path ends in its name, but for
    those that `tensors` maps.
    """
    theirs: Counter[str] = Counter()
    for path, count in counts.items():
        starred, number = paths.starred(path), paths.parse(path).number
        module, tensor = paths.module_of(starred), paths.name_of(starred)
        if tensors and starred in tensors:
            name = tensors[starred]
        elif tensor in ("weight", "bias"):
            name = f"{table[module]}.{tensor}"
        else:
            name = table[starred]
        theirs[paths.numbered(name, number)] += count
    return {name: count for name, count in theirs.items() if count}


def kept(states: Mapping[str, int]) -> dict[str, int]:
    """Cached elements by our paths, as the class's: the first, the second, … thing that each block keeps."""
    found: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for path, count in states.items():
        at = paths.parse(path)
        block = f"{at.stack}.{at.number}"
        found[f"{block}.{seen[block]}"] = count
        seen[block] += 1
    return found
