"""The format that a model's weights are published in, where its config says it, or a file next to the config.

Model Optimizer writes what it did into a file of its own, and older exports into no other; Ascend's files are described
by theirs alone. The headers of the weights say the dtype of every tensor. A file that says a format whose bytes are not
counted here is named in an error.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tfacct.base.errors import CheckpointError, NotFoundError, TfacctError, UsageError, cut
from tfacct.base.spelling import option, spelled
from tfacct.loading import files

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel

HF_QUANT = "hf_quant_config.json"
"""NVIDIA's Model Optimizer: the words of a `quantization_config`."""
ASCEND = "quant_model_description*.json"
"""Ascend's msModelSlim: a format for each tensor. Older files have the format in their name."""
FIELDS = ("quantization_config", "compression_config", "quantization")
"""Fields of a config that say how its weights are stored; MLX writes the last."""
PLAIN = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
OTHERS = 0.1
"""Share of the bytes from which on tensors in another dtype than a plain one are matrices, not masks or positions."""


class Published(NamedTuple):
    """A plain dtype, and what says so: a config that was `published`, or the weights' `files`."""

    dtype: str
    said_by: str


class Weights(NamedTuple):
    """Bytes of the tensors in a folder, all together and by dtype; by none where only the index could be read."""

    bytes: int
    dtypes: Mapping[str, int]


def quantized(fields: Mapping[str, Any]) -> bool:
    """True if a config says that its weights are stored quantized, of the whole or of a model within it."""
    inside = [value for value in fields.values() if isinstance(value, Mapping)]
    return any(one.get(field) for one in (fields, *inside) for field in FIELDS)


def with_quantization(fields: dict[str, Any], file: Path) -> dict[str, Any]:
    """A config that says nothing of quantization, with what Model Optimizer's file says. Raises ConfigError."""
    said = files.parse_json(str(file), files.read(file))
    return {**fields, "quantization_config": {**said, "quant_method": "modelopt"}}


def published(model: LoadedModel) -> Published | None:
    """The plain dtype of a model that is not quantized; None where nothing says it. Raises UsageError where a file next
    to its config says a format whose bytes are not counted."""
    return model.once(_published)


def weights(model: LoadedModel) -> Weights | None:
    """What is in the folder of its config; None where no weights are."""
    return model.once(_weights)


def _published(model: LoadedModel) -> Published | None:
    if model.folder is not None:
        for file in sorted(model.folder.glob(ASCEND)):
            _check_ascend(model, file)
        found = weights(model)
        dtype = None if found is None else _plain(model, found)
        if dtype is not None:
            return Published(dtype, "files")
    for fields in (model.raw, model.whole or {}):
        named = str(fields.get("dtype") or fields.get("torch_dtype")).removeprefix("torch.")
        if named in PLAIN:
            return Published(PLAIN[named], "published")
    return None


def _check_ascend(model: LoadedModel, file: Path) -> None:
    """Raises UsageError where Ascend's file says that some weights are quantized."""
    try:
        said = files.parse_json(str(file), files.read(file))
    except TfacctError:
        said = {}  # longer than a config may be, or none of Ascend's
    named = said.get("model_quant_type") or next(
        (value for value in said.values() if isinstance(value, str) and value.startswith("W")), None
    )
    if said and named in (None, "FLOAT"):
        return
    what = f" says that the weights are {cut(str(named))}" if named else " says how the weights are stored"
    raise UsageError(f"{model.name}: {file.name}{what}, whose bytes are not counted", _advice(file.parent))


def _plain(model: LoadedModel, found: Weights) -> str | None:
    """The plain dtype that most of the weights are in; None of an index alone. Raises UsageError where others are more
    than masks."""
    others = {name: taken for name, taken in found.dtypes.items() if name not in PLAIN.values() and name != "bool"}
    if sum(others.values()) > OTHERS * found.bytes:
        most = max(others, key=lambda name: others[name])
        share = round(100 * sum(others.values()) / found.bytes)
        said = f"{share} % of the bytes in its files are {most}, and its config does not say in which format"
        assert model.folder is not None
        raise UsageError(f"{model.name}: {said}", _advice(model.folder))
    plain = {name: taken for name, taken in found.dtypes.items() if name in PLAIN.values()}
    return max(plain, key=lambda name: plain[name], default=None)


def _advice(folder: Path) -> str:
    counts = spelled(f"`tfacct checkpoint {folder}` counts the files", "tfacct.checkpoint(folder) counts the files")
    return f"give {option('dtype', 'bf16')} or another format; {counts}"


def _weights(model: LoadedModel) -> Weights | None:
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
    """The same, once for files in the same state: ranks of a model ask again and again."""
    from tfacct.loading import checkpoint

    try:
        found = checkpoint.local(folder)
    except NotFoundError:
        return None
    except CheckpointError:  # some of its files are not here
        total = checkpoint.claimed(folder)
        return None if total is None else Weights(total, {})
    dtypes: Counter[str] = Counter()
    for held in found.tensors:
        dtypes[held.dtype] += held.bytes
    return Weights(sum(dtypes.values()), dtypes)
