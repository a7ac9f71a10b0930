"""NVIDIA's Model Optimizer: one format for every matrix, or one for each module that its config lists."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.ledger import formats, paths
from tfacct.ledger.formats import Format
from tfacct.ledger.storage import Storage, storage
from tfacct.loading.model_description import ModelDescription
from tfacct.loading.quantized.compressed import TAKES, Scheme, by_schemes, nvfp4
from tfacct.loading.quantized.fields import Read
from tfacct.loading.quantized.names import LONGEST, Modules, by_wildcard, patterns, rest

MIXED, LISTED = "MIXED_PRECISION", "quantized_layers"
FORMATS: Mapping[str, Format] = {
    "NVFP4": nvfp4(extra=2),
    "W4A16_NVFP4": nvfp4(extra=1),  # no scale of activations
    "FP8": formats.fp8(None, static=True),
    "MXFP8": formats.MX[8],
    "FP8_PB_WO": formats.fp8(),
    "FP8_PER_CHANNEL_PER_TOKEN": formats.rows8("fp8-row"),
}
SPELLED = {"fp8_pb_wo": "FP8_PB_WO"}
"""As its export writes one where it lists modules."""
GROUPS: Mapping[str, tuple[int, ...]] = {"NVFP4": (16,), "W4A16_NVFP4": (16,), "MXFP8": (32,), "FP8_PB_WO": (128,)}
"""Sizes of a block that a config may say; others have none."""
EXPERTS = re.compile(r"(?:model\.)?layers\.(\d{1,6})\.(?:ffn|mlp)\.experts")
MOST = 500_000
"""Modules of a list that are read: it may name every expert of every layer."""
OTHER_PARTS = re.compile(r"(^|\.)(mtp|visual|vision\w*|audio\w*)\.")
"""Names in a list that are no module of a language model: its further layers, and what stands in front of it."""


def storage_of(model: ModelDescription, read: Read) -> Storage:
    """Storage of a checkpoint of Model Optimizer. Raises ConfigError."""
    inner = read.inner("quantization") or read
    if inner.has("quant_algo") and inner.get("quant_algo") is None and not inner.has(LISTED):
        name = ""  # its cache alone is quantized
    else:
        name = _named(inner.needed("quant_algo"), MIXED)
    schemes = _listed(model, inner) if name == MIXED else [Scheme(lambda _: True, FORMATS[name])] if name else []
    field = "exclude_modules" if inner.has("exclude_modules") else "ignore"
    ignored = patterns(inner.path(field), inner.get(field))
    _check_group(inner, name if name != MIXED else "NVFP4")
    inner.none("has_zero_point", "pre_quant_scale")
    inner.done("config_groups producer kv_cache_quant_algo kv_cache_scheme quant_library")
    if inner is not read:
        read.done("producer quant_algo")
    return by_schemes(model, schemes, by_wildcard(ignored)) if schemes else storage(rest(model))


def _listed(model: ModelDescription, inner: Read) -> list[Scheme]:
    """A scheme for each format that modules are listed with. Raises ConfigError where one is no module here: it would
    be counted as it is."""
    listed = inner.inner(LISTED)
    if listed is None or not listed.fields:
        raise ConfigError(f"quant_algo = {MIXED} without {LISTED} does not say which modules are stored how")
    if len(listed.fields) > MOST or any(len(name) > LONGEST for name in listed.fields):
        raise ConfigError(f"{listed.where} is too long to be a list of modules")
    named = _by_first_expert(listed.where, {name: _algorithm(listed, name) for name in listed.fields})
    modules, found = Modules(model), set[str]()
    for tensor in model.ledger.tensors(unfolded=True):
        if tensor.stored.role in TAKES:
            found |= {one for path in modules.spelled(tensor.path, tensor.stored.role) for one in _ahead(path)}
    lost = next((name for name in named if name not in found and not OTHER_PARTS.search(name)), None)
    if lost is not None:
        raise ConfigError(f"{listed.where} names {format_value(lost)}, which is no matrix of this model")
    return [_scheme(named, name) for name in dict.fromkeys(named.values())]


def _scheme(named: Mapping[str, str], name: str) -> Scheme:
    return Scheme(lambda path: next((named[one] for one in _ahead(path) if one in named), "") == name, FORMATS[name])


def _algorithm(listed: Read, name: str) -> str:
    """Format of one module."""
    entry = listed.inner(name) or Read({}, listed.path(name))
    algorithm = _named(entry.needed("quant_algo"))
    _check_group(entry, algorithm)
    entry.done("group_size")
    return algorithm


def _named(read: Read, *more: str) -> str:
    """The algorithm that an object of fields names."""
    algorithm = read.get("quant_algo")
    return SPELLED[algorithm] if algorithm in tuple(SPELLED) else read.one("quant_algo", (*FORMATS, *more), "")


def _check_group(read: Read, algorithm: str) -> None:
    """Refuse blocks of another size than the algorithm's. Raises ConfigError."""
    if read.fields.get("group_size") is None:
        read.get("group_size")
    elif algorithm in GROUPS:
        read.number("group_size", GROUPS[algorithm], GROUPS[algorithm][0])


def of_experts(model: ModelDescription, read: Read) -> Format:
    """The format of all experts of a model whose other matrices are in its own fp8, as DeepSeek-V4's in NVFP4.
    Raises ConfigError."""
    algorithm = read.one("moe_quant_algo", ("NVFP4",), "NVFP4")
    read.one("quant_algo", (MIXED,), MIXED)
    _check_group(read, algorithm)
    listed = read.inner(LISTED) or Read({}, read.path(LISTED))
    numbers = set[int]()
    for name in listed.fields:
        found = EXPERTS.fullmatch(name)
        if found is None or _algorithm(listed, name) != algorithm:
            raise ConfigError(f"{listed.where} names {format_value(name)}, which is not all experts of a layer")
        numbers.add(int(found[1]))
    tensors = (tensor for tensor in model.ledger.tensors(unfolded=True) if tensor.stored.role == "expert")
    if not numbers.issuperset(int(paths.parse(tensor.path).number) for tensor in tensors):
        raise ConfigError(f"{listed.where} does not name the experts of every layer")
    for field in ("ignore", "config_groups", "producer", "kv_cache_quant_algo"):
        read.get(field)  # what is not in this format stays in fp8
    return FORMATS[algorithm]


def _by_first_expert(where: str, named: Mapping[str, str]) -> dict[str, str]:
    """The same, where a layer's experts are all alike and the first stands for them. Raises ConfigError where they are
    not."""
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


def _ahead(path: str) -> list[str]:
    """A path, and those of the modules that it stands in, the nearest first."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
