"""Documents against the schemas of docs/schema."""

import json
from typing import Any

import pytest

from tfacct.output.report import Report
from tfacct.reports import schema as schemas

jsonschema = pytest.importorskip("jsonschema")


def refused(document: Any, name: str) -> list[str]:
    """Complaints of a schema that takes the listed keys and no others."""
    strict = jsonschema.Draft202012Validator(schemas.schema(name, closed=True))
    return [f"{error.json_path}: {error.message[:300]}" for error in strict.iter_errors(document)]


def check_typed(report: Report, name: str) -> None:
    """A report of one model has its keys as attributes; those with another meaning are in `.models`."""
    kind = schemas.KINDS[name]
    assert type(report) is kind
    assert refused(json.loads(report.to_json()), name) == []
    reserved = {key for base in kind.__mro__ for key in vars(base).get("_reserved", ())}
    for key, value in report.models[0].items() if len(report.models) == 1 else ():
        assert key in reserved or key == "lines" or getattr(report, key) == value
