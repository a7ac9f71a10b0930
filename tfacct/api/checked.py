"""The reports of `check` and `checkpoint`, what somebody else made against a config, with the keys of their JSON."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypedDict

from tfacct.api import lines as each
from tfacct.api.answers import _Common


class CheckLine(TypedDict):
    """Elements of a tensor in both, all blocks together: `path` is the config's, `name` the code's."""

    path: str | None
    name: str | None
    in_code: int
    in_config: int
    equal: bool


class CheckDifference(TypedDict):
    """A place where code and config part, first of the `blocks` that part there alike, and their counts together."""

    path: str
    name: str | None
    difference: str
    unit: Literal["parameters", "FLOPs", "bytes"]
    in_code: int
    in_config: int
    block_count: int


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
    code_fvcore_flops: int | None
    fvcore_why_not: str | None
    code_kept_bytes: int | None
    total_kept_bytes: int | None
    code_saved_bytes: int | None
    total_saved_bytes: int | None
    operators: list[str]
    paired_by: dict[str, int]
    differences: list[CheckDifference]


class CheckpointReport(_Common):
    """What the files of a checkpoint hold, and whether that is what a config says."""

    _line = each.CheckpointLine
    _reserved: ClassVar[dict[str, Any]] = {"family": str | None, "agrees": bool | None}

    files: list[each.CheckpointFile]
    file_bytes: int
    tensor_bytes: int
    tensors: int
    elements: int
    dtypes: dict[str, int]
    compared_with: str | None
    config_bytes: int | None
    ledger_bytes: int | None
    equal_tensors: int | None
    differences: list[each.CheckpointDifference]
    not_stored: list[each.NotStored]
    not_compared: dict[str, int]
