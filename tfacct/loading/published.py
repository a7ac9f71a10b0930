"""Format of a model's published weights, from its config or a file next to it.

Model Optimizer writes a separate file, in older exports only there; Ascend has only a separate file. The headers of the
weights have the dtype of every tensor. Unsupported formats raise an error with the name of the file.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from tfacct.base.errors import CheckpointError, ConfigError, NotFoundError, TfacctError, UsageError, cut
from tfacct.base.spelling import option, spelled
from tfacct.ledger.storage import Storage
from tfacct.loading import files
from tfacct.loading.model_description import FORMAT_FIELDS, ModelDescription

HF_QUANT = "hf_quant_config.json"
"""File of NVIDIA's Model Optimizer with the fields of a `quantization_config`."""
ASCEND = "quant_model_description*.json"
"""File of Ascend's msModelSlim with a format for each tensor. Older files have the format in their name."""
PLAIN = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
PLAIN_NAMES = {**PLAIN, "float": "fp32", "half": "fp16", **{name: name for name in PLAIN.values()}}
"""Plain dtypes by all names in configs."""
OTHERS = 0.1
"""Largest share of bytes in other dtypes that may be masks or positions; with a larger share, an index contradicts the
config's format."""


class Published(NamedTuple):
    """A plain dtype and its source: the config (`published`) or the weights' `files`."""

    dtype: str
    stated_by: str


class Weights(NamedTuple):
    """Bytes of the tensors in a folder, in total and by dtype; without dtypes if only the index is readable."""

    bytes: int
    dtypes: Mapping[str, int]


def quantized(fields: Mapping[str, Any]) -> bool:
    """True if the config, or that of a model inside it, has quantized weights."""
    inside = [value for value in fields.values() if isinstance(value, Mapping)]
    return any(one.get(field) for one in (fields, *inside) for field in FORMAT_FIELDS)


def with_quantization(fields: dict[str, Any], file: Path) -> dict[str, Any]:
    """Config with the contents of Model Optimizer's file as quantization_config. Raises ConfigError."""
    quantization = files.parse_json(str(file), files.read(file))
    return {**fields, "quantization_config": {**quantization, "quant_method": "modelopt"}}


def cache_format(model: ModelDescription) -> str | None:
    """Format of the KV cache in a checkpoint's config, such as `fp8` or `nvfp4`; None if not given."""
    for field in FORMAT_FIELDS:
        value = model.raw.get(field)
        inner = value.get("quantization") if isinstance(value, Mapping) else None
        for fields in (value, inner):  # Model Optimizer's file has a nested object
            if not isinstance(fields, Mapping):
                continue
            algorithm, scheme = fields.get("kv_cache_quant_algo"), fields.get("kv_cache_scheme")
            if isinstance(algorithm, str) and algorithm:
                return algorithm.lower()
            if isinstance(scheme, Mapping) and scheme.get("num_bits") == 8:
                return "int8" if scheme.get("type") == "int" else "fp8"
            if scheme == "static":  # as AutoFP8 names it
                return "fp8"
    return None


def published(model: ModelDescription) -> Published | None:
    """Plain dtype of a model that is not quantized; None if unknown. Raises UsageError if a file next to its config has
    an unsupported format."""
    return model.once(_published)


def weights(model: ModelDescription) -> Weights | None:
    """Weights in the folder of its config; None if there are none."""
    return model.once(_weights)


def _published(model: ModelDescription) -> Published | None:
    if model.folder is not None:
        for file in sorted(model.folder.glob(ASCEND)):
            _check_ascend(model, file)
        found = weights(model)
        dtype = None if found is None else _plain(model, found)
        if dtype is not None:
            return Published(dtype, "files")
    for fields in (model.raw, model.composite or {}):
        try:
            named = plain_dtype(fields)
        except ConfigError as error:
            raise UsageError(f"{model.name}: {error.message}", error.hint or _advice(model.folder)) from None
        if named is not None:
            return Published(named, "published")
    return None


def plain_dtype(fields: Mapping[str, Any]) -> str | None:
    """Plain dtype in a config; None if there is none. Raises ConfigError for other values."""
    field = "torch_dtype" if fields.get("dtype") is None else "dtype"
    dtype = fields.get(field)
    if dtype in (None, "auto"):
        return None
    name = str(dtype).removeprefix("torch.")
    if name in PLAIN_NAMES:
        return PLAIN_NAMES[name]
    named = f"{field} = {cut(json.dumps(dtype, default=str))}"
    if is_float8(dtype):
        hint = f"give {option('dtype', 'fp8')}, {option('dtype', 'fp8-block')} or another format"
        raise ConfigError(f"{named} without a quantization_config does not specify how scales are stored", hint)
    raise ConfigError(f"{named} is not a supported weight dtype")


def is_float8(dtype: object) -> bool:
    """True for a name of torch's 8-bit floats."""
    return isinstance(dtype, str) and dtype.removeprefix("torch.").startswith("float8_")


def difference(model: ModelDescription, found: Weights, how: Storage) -> int:
    """Bytes in the files minus bytes of the model in this storage. The files may have a tied head twice."""
    ledger, head = model.ledger, model.architecture.head
    more = found.bytes - int(sum(ledger.weight_bytes(how).values()))
    table = max((int(how.bytes(tensor.stored)) for tensor in ledger.tensors() if tensor.embedding), default=0)
    return more - table if head is not None and head.tied and abs(more - table) < abs(more) else more


def _check_ascend(model: ModelDescription, file: Path) -> None:
    """Raise UsageError if weights are quantized according to Ascend's file."""
    try:
        description = files.parse_json(str(file), files.read(file))
    except TfacctError:
        description = {}  # too long, or not Ascend's
    named = description.get("model_quant_type") or next(
        (value for value in description.values() if isinstance(value, str) and value.startswith("W")), None
    )
    if description and named in (None, "FLOAT"):
        return
    what = f" gives the format of the weights as {cut(str(named))}" if named else " gives the format of the weights"
    raise UsageError(f"{model.name}: {file.name}{what}, which is not supported", _advice(file.parent))


def _plain(model: ModelDescription, found: Weights) -> str | None:
    """Plain dtype of most weights; None with only an index. Raises UsageError if other dtypes are more than masks."""
    others = {name: taken for name, taken in found.dtypes.items() if name not in PLAIN.values() and name != "bool"}
    if sum(others.values()) > OTHERS * found.bytes:
        most = max(others, key=lambda name: others[name])
        share = round(100 * sum(others.values()) / found.bytes)
        problem = f"{share}% of the bytes in its files are {most}, but its config does not give their format"
        raise UsageError(f"{model.name}: {problem}", _advice(model.folder))
    plain = {name: taken for name, taken in found.dtypes.items() if name in PLAIN.values()}
    return max(plain, key=lambda name: plain[name], default=None)


def _advice(folder: Path | None) -> str:
    """Hint: another format, or the files if there are any."""
    if folder is None or not any(folder.glob("*.safetensors")):
        return f"give {option('dtype', 'bf16')} or another format"
    counts = spelled(
        f"`tfacct check {folder}` counts the bytes in the files",
        "tfacct.checkpoint(folder) counts the bytes in the files",
    )
    return f"give {option('dtype', 'bf16')} or another format; {counts}"


def _weights(model: ModelDescription) -> Weights | None:
    if model.folder is None:
        return None
    try:
        with os.scandir(model.folder) as entries:
            states = ((entry.name, entry.stat()) for entry in entries if ".safetensors" in entry.name)
            state = sorted((name, one.st_mtime_ns, one.st_size) for name, one in states)
    except OSError:
        return None
    return _weights_in(model.folder, tuple(state))


@lru_cache(8)
def _weights_in(folder: Path, _state: tuple[tuple[str, int, int], ...]) -> Weights | None:
    """Weights in a folder, cached for files in the same state."""
    from tfacct.loading import checkpoint

    try:
        found = checkpoint.local(folder)
    except NotFoundError:
        return None
    except CheckpointError:  # some files are missing
        found = None
    if found is None or not found.tensors:
        total = checkpoint.claimed(folder)
        return None if total is None else Weights(total, {})
    dtypes: Counter[str] = Counter()
    for tensor in found.tensors:
        dtypes[tensor.dtype] += tensor.bytes
    return Weights(sum(dtypes.values()), dtypes)
