"""Validation errors of pydantic, reworded for users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfacct.base.errors import cut


def describe_error(error: Mapping[str, Any]) -> str:
    """Predicate of an error message, to follow the name of the field or option.

    >>> describe_error({"type": "int_parsing", "input": "x"})
    'must be a whole number, not "x"'
    >>> describe_error({"type": "less_than", "ctx": {"lt": 1}, "input": 1.5})
    'must be below 1, not 1.5'
    """
    bound = error.get("ctx", {})
    wanted = {
        "int_type": "be a whole number",
        "int_from_float": "be a whole number",
        "int_parsing": "be a whole number",
        "int_parsing_size": "be a whole number",
        "float_type": "be a number",
        "float_parsing": "be a number",
        "finite_number": "be a finite number",
        "bool_type": "be true or false",
        "bool_parsing": "be true or false",
        "string_type": "be text",
        "dict_type": "be an object with fields",
        "mapping_type": "be an object with fields",
        "model_type": "be an object with fields",
        "list_type": "be a list",
        "tuple_type": "be a list",
        "set_type": "be a list",
        "literal_error": f"be one of {bound.get('expected')}",
        "greater_than": f"be above {_number(bound.get('gt'))}",
        "greater_than_equal": f"be at least {_number(bound.get('ge'))}",
        "less_than": f"be below {_number(bound.get('lt'))}",
        "less_than_equal": f"be at most {_number(bound.get('le'))}",
        "too_short": f"have at least {bound.get('min_length')} entries",
        "too_long": f"have at most {bound.get('max_length')} entries",
    }.get(error["type"])
    message = error.get("msg", "Input")  # a family's own message: those of pydantic begin with "Input"
    wanted = f"must {wanted}" if wanted else None if message.startswith("Input") else message
    return f"{wanted}, not {format_value(error['input'])}" if wanted else f"cannot be {format_value(error['input'])}"


def format_value(value: object) -> str:
    """Value as JSON, shortened to 60 characters for a message."""
    import json

    return cut(json.dumps(value, default=repr), 60)


def _number(bound: object) -> str:
    integral = isinstance(bound, float) and bound.is_integer()
    return f"{int(bound) if integral else bound:,}" if isinstance(bound, (int, float)) else str(bound)
