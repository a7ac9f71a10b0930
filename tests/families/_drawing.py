"""Random configs of a family: one of those whose logits are compared, with a few fields changed."""

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.families._configs import Fields, without
from tfacct.base.errors import TfacctError
from tfacct.loading.model import load_model

ABSENT = object()
NOT_OF_THE_CLASS = {"model_type", "latent_attention"}
"""Fields that are no choice of the class: how a serving engine runs latent attention is this program's."""
SUMMED = ("mamba_d_state", "ssm_state_size", "state_size")
"""Sizes of a state: over one number, the classes run no matrix product."""
MOST_PARAMETERS = 300_000
"""Of a random model, so that it runs at once."""


def changed(shapes: Sequence[Fields], random: Random) -> Fields:
    """One of the shapes with up to twelve fields changed: each absent, null, of another size, or as in another shape.

    A change that this program refuses is left out: heads that do not divide, a list of another number of layers.
    """
    fields = without(random.choice(shapes), "latent_attention")
    config = load_model("random", fields).config
    private = {field: name for name, field in config.attribute_map.items() if name.startswith("_")}
    own_names = {private.get(name, name) for name in type(config).model_fields}
    names = sorted({*own_names, *fields} - NOT_OF_THE_CLASS)
    for _ in range(random.randint(1, 12)):
        name = random.choice(names)
        own = fields.get(name, getattr(config, name.removeprefix("_"), None))
        elsewhere = [shape.get(name, ABSENT) for shape in shapes]
        values = [ABSENT, ABSENT, *elsewhere]
        if not isinstance(own, (str, float, type(None))) or name in config.counted():
            values += [None, *[_another(own, random) for _ in range(4)]]
        value = random.choice(values)
        other = without(fields, name) if value is ABSENT else {**fields, name: value}
        if _is_accepted(other) or _is_accepted(other := _with_lists_as_long(other, own, value)):
            fields = other
    return fields


def _another(value: Any, random: Random) -> Any:
    """Another value of this type: a smaller or larger size, another order, one entry changed."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice((value + 1, max(value - 1, 0), 2 * value, 3 * value, value // 2, random.randint(1, 6)))
    if isinstance(value, float):
        return random.choice((value / 2, 2 * value, 1.0))
    if isinstance(value, str):
        return "".join(random.sample(value, len(value)))
    if isinstance(value, list) and value:
        return random.choices(value, k=len(value))
    if isinstance(value, dict) and value:
        name = random.choice(sorted(value))
        return value if isinstance(value[name], str) else {**value, name: _another(value[name], random)}
    return value


def _with_lists_as_long(fields: Fields, old: Any, new: Any) -> Fields:
    """Where a number of layers changed: the lists that have an entry for each, repeated or cut."""
    if not isinstance(old, int) or not isinstance(new, int) or not 0 < new < 10:
        return fields
    return {
        name: [value[number % old] for number in range(new)] if isinstance(value, list) and len(value) == old else value
        for name, value in fields.items()
    }


def _is_accepted(fields: Fields) -> bool:
    if any(fields.get(name) == 1 for name in SUMMED):
        return False
    try:
        ours = load_model("random", fields)
    except TfacctError:
        return False
    return ours.config.hf_unsupported() is None and ours.parameters <= MOST_PARAMETERS
