"""What tests know of each family: one module per lineage, one call of `family` per `model_type`.

- Its own fields make `TINY`: a config with every size its own, heads · head_dim ≠ hidden where the family allows it,
  G > 1: a swapped axis changes a number. `VARIANTS`: other shapes of the family, by what sets them apart.
- `LOGITS`: configs whose logits are compared with the class's, next to `TINY` unless "" says otherwise. None if
  transformers has no class. `COMPARED`: shapes that are both.

Where the class weighs experts by sigmoids, `LOGITS` have dense layers only; elsewhere each token goes to every expert,
because the reference's routing is fixed. It may have:

- `REQUIRED`: fields that have no default, or none that fits, where these are more than a few layers.
- `SILENT`: fields of published files that the class reads for no size, and that are not among `ignored_fields`.
- `CONTEXT`: the longest context with the class's defaults, if no field of its config says it.
- `BY_HEAD`: a config's class stores q, k and v of one head together in one matrix. `BY_KEY_HEAD`: of one key head.
- `RUN_BY`: how the class begins that runs its configs in transformers, if it is another family's.
- `INSTEAD`: what to ask about in place of parts of attention that it does not have.

Tables next to them: refusals.json has configs that are refused, test_read_as.py files that say a family in other words,
by_hand.toml published models by hand.
"""

import re
from collections import UserDict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from tests.families._configs import FACTS, Fields
from tests.families._drawing import changed
from tfacct.loading import presets

for _path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    if not _path.stem.startswith("test_"):
        import_module(f"tests.families.{_path.stem}")


def names() -> list[str]:
    """Every family that tests know."""
    return sorted(FACTS)


ASKED: set[str] = set()
"""Families that `--family` names; none of them if all are asked for."""


def family_of(name: str) -> str:
    """The family of a config's name."""
    return re.split("[ ,]", name, maxsplit=1)[0]


def is_asked(name: str) -> bool:
    """True of a family that tests are run of, and of its configs."""
    return not ASKED or family_of(name) in ASKED


@cache
def families_of_presets() -> dict[str, str]:
    """The family of each preset."""
    return {each.name: each.family for each in presets.list_all()}


def presets_asked() -> list[str]:
    """Presets: all, or with `--family` those of that family."""
    return _presets_of(frozenset(ASKED)) if ASKED else presets.names()


@cache
def _presets_of(families: frozenset[str]) -> list[str]:
    return [name for name in presets.names() if families_of_presets()[name] in families]


class Configs(UserDict[str, Fields]):
    """Configs by name. Any can be looked up; with `--family`, those of that family are listed."""

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.data if is_asked(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def named(family: str, what: str, between: str) -> str:
    """A config's name: its family's, and what sets it apart."""
    return f"{family}{between}{what}" if what else family


TINY = Configs({name: FACTS[name].TINY for name in names()})
VARIANTS = Configs(
    {named(name, what, ", "): config for name in names() for what, config in FACTS[name].VARIANTS.items()}
)
SHAPES = Configs({**TINY, **VARIANTS})
LOGITS = Configs({named(name, what, " "): config for name in names() for what, config in FACTS[name].LOGITS.items()})


def random_config(family: str, seed: int) -> Fields:
    """A valid random config of a family that transformers has a class of."""
    return changed([TINY[family], *FACTS[family].LOGITS.values()], Random(f"{family} {seed}"))


def configs(family: str) -> st.SearchStrategy[Fields]:
    """Valid random configs of a family that transformers has a class of."""
    return st.integers(0, 2**32).map(lambda seed: random_config(family, seed))
