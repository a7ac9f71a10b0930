"""What stands in place of attention in a transformers class, by its part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from tfacct.architecture.parts import DeltaNet, Mixer, ShortConvolution
from tfacct.architecture.words import in_words
from tfacct.base.errors import ConfigError
from tfacct.ledger.kept import Run
from tfacct.profiles import plain
from tfacct.profiles.plain_convolutions import short_convolution
from tfacct.profiles.plain_delta import GatedDeltaNet
from tfacct.profiles.plain_delta_rule import chunked, lengths
from tfacct.profiles.transformers_attention import Attending
from tfacct.profiles.written import Trace, Value

Rule: TypeAlias = Callable[[str, Any, Attending], Callable[[Trace, Value], Value]]
RULES: Mapping[type[Mixer], Rule] = {
    ShortConvolution: lambda at, _part, _how: partial(short_convolution, at=at),
    DeltaNet: lambda at, part, how: GatedDeltaNet(at, part, how.tokens, grouped=how.habits.grouped_products).block,
}
"""What writes a part out, by its name, itself, and how its class runs."""


def mixer(at: str, reads: str, part: Mixer, how: Attending) -> Run:
    """The run of a part. Raises ConfigError for one without a rule."""
    rule = RULES.get(type(part))
    if rule is None:
        raise ConfigError(f"{how.name}: no rule for {in_words(part)}")
    sizes = {"B": how.batch, **part.axes(), **(lengths(part, how.tokens) if isinstance(part, DeltaNet) else {})}
    ones = frozenset(axis for axis, size in sizes.items() if size == 1)
    laid = chunked(part, how.tokens) if isinstance(part, DeltaNet) else ()
    key = at, repr(part), how.habits, laid
    return plain.part(reads, rule(at, part, how), ones, key, full=how.full, apart=how.habits.apart)
