"""What stands in place of attention in a transformers class, by its part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfacct.architecture.parts import Mixer, ShortConvolution
from tfacct.architecture.words import in_words
from tfacct.base.errors import ConfigError
from tfacct.ledger.kept import Run
from tfacct.profiles import plain
from tfacct.profiles.plain_convolutions import short_convolution
from tfacct.profiles.transformers_attention import Attending
from tfacct.profiles.written import Trace, Value

RULES: Mapping[type[Mixer], Callable[[Trace, Value, str, Any], Value]] = {ShortConvolution: short_convolution}


def mixer(at: str, reads: str, part: Mixer, how: Attending) -> Run:
    """The run of a part. Raises ConfigError for one without a rule."""
    rule = RULES.get(type(part))
    if rule is None:
        raise ConfigError(f"{how.name}: no rule for {in_words(part)}")
    ones = frozenset("B") if how.batch == 1 else frozenset[str]()
    return plain.part(reads, lambda t, x: rule(t, x, at, part), ones, full=how.full, apart=how.habits.apart)
