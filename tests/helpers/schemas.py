"""Documents against the schemas of docs/schema."""

from typing import Any

import pytest

from tfacct.reports import schema as schemas

jsonschema = pytest.importorskip("jsonschema")


def refused(document: Any, name: str) -> list[str]:
    """Complaints of a schema that takes the listed keys and no others."""
    strict = jsonschema.Draft202012Validator(schemas.schema(name, closed=True))
    return [f"{error.json_path}: {error.message[:300]}" for error in strict.iter_errors(document)]
