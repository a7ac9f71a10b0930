"""NVIDIA's Model Optimizer: one format for all matrices, or one per module in a list."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.ledger import formats, paths
from tfacct.ledger.formats import Format
from tfacct.ledger.storage import Storage, storage
from tfacct.loading.model_description import ModelDescription
from tfacct.loading.quantized.compressed import QUANTIZED_ROLES, Scheme, by_schemes, nvfp4
from tfacct.loading.quantized.fields import FieldReader
from tfacct.loading.quantized.names import (
    LONGEST,
    Modules,
    by_wildcard,
    check_matrices,
    patterns,
    unquantized_dtype,
)

MIXED, LISTED = "MIXED_PRECISION", "quantized_layers"
FORMATS: Mapping[str, Format] = {
    "NVFP4": nvfp4(extra=2),
    "W4A16_NVFP4": nvfp4(extra=1),  # no scale for activations
    "FP8": formats.fp8(None, static=True),
    "MXFP8": formats.MX[8],
    "FP8_PB_WO": formats.fp8(),
    "FP8_PER_CHANNEL_PER_TOKEN": formats.rows8("fp8-row"),
}
SPELLED = {"fp8_pb_wo": "FP8_PB_WO"}
"""Names in exports with a list of modules."""
GROUPS: Mapping[str, tuple[int, ...]] = {"NVFP4": (16,), "W4A16_NVFP4": (16,), "MXFP8": (32,), "FP8_PB_WO": (128,)}
"""Block sizes that a config may have; other formats have none."""
EXPERTS = re.compile(r"(?:model\.)?layers\.(\d{1,6})\.(?:ffn|mlp)\.experts")
MOST = 500_000
"""Most modules in a list, which may have every expert of every layer."""


def storage_of(model: ModelDescription, read: FieldReader) -> Storage:
    """Storage of a Model Optimizer checkpoint. Raises ConfigError."""
    inner = read.inner("quantization") or read
    name, schemes = "", list[Scheme]()
    only_cache = inner.has("quant_algo") and inner.get("quant_algo") is None and not inner.has(LISTED)
    if not only_cache:
        name = _quant_algo(inner.needed("quant_algo"), MIXED)
        schemes = _listed(model, inner) if name == MIXED else [Scheme(lambda _: True, FORMATS[name])]
    field = "exclude_modules" if inner.has("exclude_modules") else "ignore"
    ignored = patterns(inner.path(field), inner.get(field))
    _check_group(inner, name if name != MIXED else "NVFP4")
    inner.require_off("has_zero_point", "pre_quant_scale")
    inner.check_all_read("config_groups producer kv_cache_quant_algo kv_cache_scheme quant_library")
    if inner is not read:
        read.check_all_read("producer quant_algo")
    return by_schemes(model, schemes, by_wildcard(ignored)) if schemes else storage(unquantized_dtype(model))


def _listed(model: ModelDescription, inner: FieldReader) -> list[Scheme]:
    """A scheme for each format in the list of modules. Raises ConfigError for an unknown module."""
    listed = inner.inner(LISTED)
    if listed is None or not listed.fields:
        raise ConfigError(f"quant_algo = {MIXED} without {LISTED} does not give the format of each module")
    if len(listed.fields) > MOST or any(len(name) > LONGEST for name in listed.fields):
        raise ConfigError(f"{listed.where} is too long to be a list of modules")
    named = _by_first_expert(listed.where, {name: _algorithm(listed, name) for name in listed.fields})
    modules, found = Modules(model), set[str]()
    for tensor in model.ledger.tensors(unfolded=True):
        if (role := modules.role(tensor)) in QUANTIZED_ROLES:
            found |= {one for path in modules.published_paths(tensor.path, role) for one in _with_parents(path)}
    check_matrices(listed.where, named, found)
    return [_scheme(named, name) for name in dict.fromkeys(named.values())]


def _scheme(named: Mapping[str, str], name: str) -> Scheme:
    return Scheme(
        lambda path: next((named[one] for one in _with_parents(path) if one in named), "") == name, FORMATS[name]
    )


def _algorithm(listed: FieldReader, name: str) -> str:
    entry = listed.inner(name) or FieldReader({}, listed.path(name))
    algorithm = _quant_algo(entry.needed("quant_algo"))
    _check_group(entry, algorithm)
    entry.check_all_read("group_size")
    return algorithm


def _quant_algo(read: FieldReader, *more: str) -> str:
    algorithm = read.get("quant_algo")
    return SPELLED[algorithm] if algorithm in tuple(SPELLED) else read.choice("quant_algo", (*FORMATS, *more), "")


def _check_group(read: FieldReader, algorithm: str) -> None:
    """Check the block size of an algorithm. Raises ConfigError."""
    if read.fields.get("group_size") is None:
        read.get("group_size")
    elif algorithm in GROUPS:
        read.integer_choice("group_size", GROUPS[algorithm], GROUPS[algorithm][0])


def of_experts(model: ModelDescription, read: FieldReader) -> Format:
    """Format of all experts of a model with fp8 for other matrices, such as NVFP4 for DeepSeek-V4. Raises
    ConfigError."""
    algorithm = read.choice("moe_quant_algo", ("NVFP4",), "NVFP4")
    read.choice("quant_algo", (MIXED,), MIXED)
    _check_group(read, algorithm)
    listed = read.inner(LISTED) or FieldReader({}, read.path(LISTED))
    numbers = set[int]()
    for name in listed.fields:
        found = EXPERTS.fullmatch(name)
        if found is None or _algorithm(listed, name) != algorithm:
            raise ConfigError(f"{listed.where} names {format_value(name)}, which does not cover all experts of a layer")
        numbers.add(int(found[1]))
    tensors = (tensor for tensor in model.ledger.tensors(unfolded=True) if tensor.stored.role == "expert")
    if not numbers.issuperset(int(paths.parse(tensor.path).number) for tensor in tensors):
        raise ConfigError(f"{listed.where} does not cover the experts of every layer")
    for field in ("ignore", "config_groups", "producer", "kv_cache_quant_algo"):
        read.get(field)  # other matrices stay in fp8
    return FORMATS[algorithm]


def _by_first_expert(where: str, named: Mapping[str, str]) -> dict[str, str]:
    """Names with only the first expert of each layer. Raises ConfigError if experts of a layer differ."""
    single, rest = dict[tuple[str, str], dict[int, str]](), dict[str, str]()
    for name, algorithm in named.items():
        if found := re.fullmatch(r"(.*experts\.)(\d{1,6})(.*)", name):
            single.setdefault((found[1], found[3]), {})[int(found[2])] = algorithm
        else:
            rest[name] = algorithm
    for (front, back), experts in single.items():
        if set(experts) != set(range(len(experts))) or len(set(experts.values())) > 1:
            raise ConfigError(f"{where} stores the experts {front}*{back} in different ways")
        rest[f"{front}0{back}"] = experts[0]
    return rest


def _with_parents(path: str) -> list[str]:
    """A path and its parent modules, nearest first."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
