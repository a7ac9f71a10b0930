"""The types of config fields: what they accept of JSON, and what they refuse. Kind: law."""

from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from tfacct import families
from tfacct.families import fields
from tfacct.families.fields import LARGEST, MOST_LAYERS

NAN, INF = float("nan"), float("inf")
VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "PositiveInt": ([1, LARGEST], [0, -1, LARGEST + 1, 2.0, "2", True, None]),
    "NonNegativeInt": ([0, LARGEST], [-1, LARGEST + 1, 2.0, "2", True, None]),
    "LayerCount": ([1, MOST_LAYERS], [0, MOST_LAYERS + 1, 2.0, "2", True, None]),
    "PositiveIntOrList": ([1, [1, 2]], [0, [0], [2.0], ["2"], "2", None]),
    "StrictBool": ([True, False], [0, 1, "true", None]),
    "PositiveFloat": ([0.5, 2], [0, -0.5, INF, NAN, "0.5", True, None]),
    "NonNegativeFloat": ([0, 0.5, 2], [-0.5, INF, NAN, "0.5", True, None]),
    "Fraction": ([0.5, 1], [0, 1.5, NAN, "0.5", True, None]),
    "StrictStr": (["", "a"], [1, True, None]),
    "JsonDict": ([{}, {"a": None}], [[], "a", {1: 2}, None]),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_field_takes_values_of_its_type_alone(name: str) -> None:
    adapter, (accepted, refused) = TypeAdapter(getattr(fields, name)), VALUES[name]
    assert [adapter.validate_python(value) for value in accepted] == accepted
    for value in refused:
        with pytest.raises(ValidationError):
            adapter.validate_python(value)


def test_every_number_of_layers_has_the_limit_of_layers() -> None:
    """Each layer is built, so a search over other whole numbers would not end."""
    names = "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers depth"
    for family in families.names():
        fields_of = families.config_class(family).model_fields
        for name in (name for name in names.split() if name in fields_of):
            about = fields_of[name]
            kind: Any = Annotated[(about.annotation, *about.metadata)] if about.metadata else about.annotation
            if (family, name) != ("longcat_flash", "num_hidden_layers"):  # not read: compared with num_layers
                with pytest.raises(ValidationError):
                    TypeAdapter(kind).validate_python(MOST_LAYERS + 1)
