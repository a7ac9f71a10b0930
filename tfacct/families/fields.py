"""Types of config fields, with pydantic's names, and readers of sizes in a config.

All are strict: `"32"`, `true` and `1.5` are not whole numbers.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeGuard

from pydantic_core import core_schema

from tfacct.architecture.parts import Rotary
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.ledger.einsum import divisors
from tfacct.ledger.workload import LARGEST


class CoreSchema:
    """The pydantic-core schema of a field, built once: families have dozens of such fields, and pydantic would build a
    new `Field` for each."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> Any:
        return dict(self.schema)  # pydantic writes into it


def int_between(least: int, most: int = LARGEST) -> CoreSchema:
    """A whole number in these bounds."""
    return CoreSchema(core_schema.int_schema(strict=True, ge=least, le=most))


PositiveInt = Annotated[int, int_between(1)]
"""A size in a config."""
NonNegativeInt = Annotated[int, int_between(0)]
MOST_LAYERS = 4096
LayerCount = Annotated[int, int_between(1, MOST_LAYERS)]
"""A number of layers. Each layer is built separately, so the limit is lower than for other sizes."""
PositiveIntOrList = Annotated[
    int | list[int],
    CoreSchema(
        core_schema.union_schema(
            [int_between(1).schema, core_schema.list_schema(int_between(1).schema, strict=True, min_length=1)],
            custom_error_type="count_or_list",
            custom_error_message="must be a whole number from 1, or a list of them",
        )
    ),
]
"""A size, or a list of sizes, one per layer."""
StrictBool = Annotated[bool, CoreSchema(core_schema.bool_schema(strict=True))]
PositiveFloat = Annotated[float, CoreSchema(core_schema.float_schema(strict=True, gt=0, allow_inf_nan=False))]
NonNegativeFloat = Annotated[float, CoreSchema(core_schema.float_schema(strict=True, ge=0, allow_inf_nan=False))]
Fraction = Annotated[float, CoreSchema(core_schema.float_schema(strict=True, gt=0, le=1))]
StrictStr = Annotated[str, CoreSchema(core_schema.str_schema(strict=True))]
JsonDict = Annotated[dict[str, Any], CoreSchema(core_schema.dict_schema(core_schema.str_schema(), strict=True))]


def is_size(value: object) -> TypeGuard[int]:
    """True for whole numbers from 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_positive(value: object) -> TypeGuard[float]:
    """True for numbers above 0."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def require_even(rotary_dim: int, what: str = "head_dim") -> int:
    """A size that a rotary embedding can rotate in pairs. Raises ConfigError."""
    if rotary_dim % 2 or rotary_dim == 0:
        raise ConfigError(f"{what} {rotary_dim:,} must be even, because the rotary embedding rotates elements in pairs")
    return rotary_dim


def read_partial_rotary_factor(given: float, parameters: Mapping[str, Any] | None) -> float:
    """The share of a head with rotary embedding, in rope_parameters in transformers 5. Raises ConfigError."""
    part = (parameters or {}).get("partial_rotary_factor", given)
    if not is_positive(part) or part > 1:
        raise ConfigError(
            f"rope_parameters.partial_rotary_factor must be above 0 and at most 1, not {format_value(part)}"
        )
    return float(part)


def read_rope(theta: float | None, scaling: Mapping[str, Any] | None, parameters: Mapping[str, Any] | None) -> Rotary:
    """The rotary embedding, in the format of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters)."""
    spelled = parameters or scaling
    return Rotary((spelled or {}).get("rope_theta") or theta or 10_000.0, spelled)


def divide_exactly(total: int, parts: int, what: str, hint: str | None = None) -> int:
    """`total / parts`, for fields named `TOTAL by PARTS`. Raises ConfigError, with the nearest divisors, if it is not a
    whole number."""
    if total % parts == 0:
        return total // parts
    of, _, by = what.partition(" by ")
    if not by:
        raise ConfigError(f"{of}={total:,} must be a multiple of {parts:,}", hint)
    message = f"{by}={parts:,} must divide {of}={total:,}"
    raise ConfigError(message if hint else f"{message} (try {_nearest_divisors(total, parts)})", hint)


def _nearest_divisors(total: int, parts: int) -> str:
    """The nearest divisors below and above.

    >>> _nearest_divisors(32, 5), _nearest_divisors(6, 12)
    ('4 or 8', '6')
    """
    below = max(size for size in divisors([total]) if size <= parts)
    above = next((size for size in divisors([total]) if size >= parts), None)
    return f"{below:,}" if above is None else f"{below:,} or {above:,}"
