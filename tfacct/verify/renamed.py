"""Counts by our paths as counts by the transformers class's, through the family's path table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tfacct.ledger import paths


def renamed(
    counts: Mapping[str, int], table: Mapping[str, str], tensors: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Counts by our paths as counts by the class's, where there are any: several of ours may be one of theirs.

    `table` maps our module paths to theirs, with `*` for a block's number, or with the number of one block alone; a
    tensor's path ends in its name, but for those that `tensors` maps.
    """
    theirs: Counter[str] = Counter()
    for path, count in counts.items():
        module, tensor = paths.module_of(path), paths.name_of(path)
        name = paths.looked_up(tensors or {}, path)
        if name is None:
            is_tensor = tensor in ("weight", "bias")
            name = paths.looked_up(table, module if is_tensor else path)
            if name is None:
                raise KeyError(path)
            name = f"{name}.{tensor}" if is_tensor else name
        theirs[name] += count
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
