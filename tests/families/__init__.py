"""One room per family: what the tests need to know of it. A file here is a family's; the other tests draw from the
rooms, so that nothing else names it.

A room holds:

- `TINY`: a config with every size its own, heads · head_dim ≠ hidden where the family allows it, G > 1: a swapped
  letter changes a number. `VARIANTS`: other shapes that the family has, by what sets them apart.
- `sized`: a random config of blocks that are all alike, and its sizes by letter, from distinct numbers.
- of a family that has a class: `REQUIRED`, fields that have no default, or none that fits; `drawn`, a random small
  config that the class accepts, each optional field present, absent or null.

It may hold:

- `LOGITS`: configs whose logits are compared with the class's, by what sets them apart; else it is the tiny one.
- `SILENT`: fields that published files carry, and that the class does not read for a size.
- `CONTEXT`: the longest context with the class's defaults, where its config has no field that says it.
- `BY_HEAD`: a config's class keeps q, k and v of one head together in one matrix.
- `RUN_BY`: how the class begins that transformers runs its configs with, where that is another family's.
- `INSTEAD`: what to ask about in place of attention's parts, where it has them not.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from hypothesis import strategies as st

from tests.families._drawing import Draw, Fields
from tests.families._sizes import Distinct


def names() -> list[str]:
    """Every family that has a room here."""
    rooms = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name.replace("__", "-") for name in rooms if not name.startswith("_"))


@cache
def room(family: str) -> ModuleType:
    """What the tests know of one family."""
    return import_module(f"tests.families.{family.replace('-', '__')}")


def named(family: str, what: str, between: str) -> str:
    """A config's name: its family's, and what sets it apart."""
    return f"{family}{between}{what}" if what else family


TINY: dict[str, Fields] = {family: room(family).TINY for family in names()}
VARIANTS: dict[str, Fields] = {
    named(family, what, ", "): config
    for family in names()
    for what, config in getattr(room(family), "VARIANTS", {}).items()
}
SHAPES = {**TINY, **VARIANTS}
LOGITS: dict[str, Fields] = {
    named(family, what, " "): config
    for family in names()
    if hasattr(room(family), "drawn")
    for what, config in getattr(room(family), "LOGITS", {"": TINY[family]}).items()
}


@st.composite
def configs(draw: Draw, family: str) -> Fields:
    """A valid random config of the family."""
    return {"model_type": family, **room(family).drawn(draw)}


def sampled(family: str, seed: int) -> tuple[Fields, dict[str, int]]:
    """A config of the family with all sizes distinct and all its blocks alike, and its sizes by letter."""
    config, sizes = room(family).sized(Distinct(family, seed))
    return {"model_type": family, **config}, sizes
