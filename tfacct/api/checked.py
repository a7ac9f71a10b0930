"""The report of `check`, with the keys of its JSON."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypedDict

from tfacct.api import lines as each
from tfacct.api.answers import _Common


class CheckLine(TypedDict):
    """Elements of a tensor in both, all blocks together: `path` is the config's, `name` the code's."""

    path: str | None
    name: str | None
    code: int
    config: int
    equal: bool


class CheckDifference(TypedDict):
    """A place where code and config part, first of the `blocks` that part there alike, and their counts together."""

    path: str
    name: str | None
    difference: str
    unit: Literal["parameters", "FLOPs", "bytes"]
    code: int
    config: int
    blocks: int


class CheckReport(_Common):
    """A torch module beside a config: tensors, FLOPs, what it returns to keep, and where they part."""

    _line = CheckLine
    _reserved: ClassVar[dict[str, Any]] = {"agrees": bool}

    code: str
    workload: each.Workload
    first_difference: str | None
    code_params: int
    total_params: int
    code_flops: int | None
    total_flops: int | None
    code_kept_bytes: int | None
    total_kept_bytes: int | None
    operators: list[str]
    paired_by: dict[str, int]
    differences: list[CheckDifference]
