"""NVIDIA's Model Optimizer: one format for every matrix, or one for each module that its config lists."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tfacct.base.errors import ConfigError
from tfacct.families._base import shown
from tfacct.ledger import formats
from tfacct.ledger.formats import Format
from tfacct.ledger.storage import Storage
from tfacct.loading.model import LoadedModel
from tfacct.loading.quantized.compressed import TAKES, Scheme, by_schemes, nvfp4
from tfacct.loading.quantized.fields import Read
from tfacct.loading.quantized.names import LONGEST, Modules, by_wildcard, patterns

MIXED, LISTED = "MIXED_PRECISION", "quantized_layers"
FORMATS: Mapping[str, Format] = {
    "NVFP4": nvfp4(extra=2),
    "W4A16_NVFP4": nvfp4(extra=1),  # no scale of activations
    "FP8": formats.fp8(None, static=True),
}
MOST = 500_000
"""Modules of a list that are read: it may name every expert of every layer."""
BESIDE = re.compile(r"(^|\.)(mtp|visual|vision\w*|audio\w*)\.")
"""Names in a list that are no module of a language model: its further layers, and what stands in front of it."""


def storage_of(subject: LoadedModel, read: Read) -> Storage:
    """Storage of a checkpoint of Model Optimizer. Raises ConfigError."""
    inner = read.inner("quantization") or read
    name = inner.one("quant_algo", (*FORMATS, MIXED), "")
    if not name:
        raise inner.refuse("quant_algo", f"{' or '.join(FORMATS)} is")
    schemes = _listed(subject, inner) if name == MIXED else [Scheme(lambda _: True, FORMATS[name])]
    field = "exclude_modules" if inner.has("exclude_modules") else "ignore"
    ignored = patterns(field, inner.get(field))
    if inner.has("group_size"):
        inner.number("group_size", (16,), 16)
    inner.done("config_groups producer kv_cache_quant_algo kv_cache_scheme quant_library")
    if inner is not read:
        read.done("producer quant_algo")
    return by_schemes(subject, schemes, by_wildcard(ignored))


def _listed(subject: LoadedModel, inner: Read) -> list[Scheme]:
    """A scheme for each format that modules are listed with. Raises ConfigError where one is no module here: it would
    be counted as it is."""
    listed = inner.inner(LISTED)
    if listed is None or not listed.said:
        raise ConfigError(f"quant_algo = {MIXED} without {LISTED} does not say which modules are stored how")
    if len(listed.said) > MOST or any(len(name) > LONGEST for name in listed.said):
        raise ConfigError(f"quantization_config.{LISTED} is too long to be a list of modules")
    named = _by_first_expert({name: _algorithm(listed, name) for name in listed.said})
    modules, found = Modules(subject), set[str]()
    for tensor in subject.ledger.tensors(unfolded=True):
        if tensor.stored.role in TAKES:
            found |= {one for path in modules.spelled(tensor.path, tensor.stored.role) for one in _ahead(path)}
    lost = next((name for name in named if name not in found and not BESIDE.search(name)), None)
    if lost is not None:
        raise ConfigError(f"quantization_config.{LISTED} names {shown(lost)}, which is no matrix of this model")
    return [_scheme(named, name) for name in dict.fromkeys(named.values())]


def _scheme(named: Mapping[str, str], name: str) -> Scheme:
    return Scheme(lambda path: next((named[one] for one in _ahead(path) if one in named), "") == name, FORMATS[name])


def _algorithm(listed: Read, name: str) -> str:
    """Format of one module."""
    entry = listed.inner(name) or Read({}, f"{listed.where}.{name}")
    algorithm = entry.needed("quant_algo").one("quant_algo", tuple(FORMATS), "")
    if entry.has("group_size") and algorithm != "FP8":
        entry.number("group_size", (16,), 16)
    entry.done("group_size")
    return algorithm


def _by_first_expert(named: Mapping[str, str]) -> dict[str, str]:
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
            raise ConfigError(f"quantization_config.{LISTED} stores the experts {front}*{back} in different ways")
        rest[f"{front}0{back}"] = experts[0]
    return rest


def _ahead(path: str) -> list[str]:
    """A path, and those of the modules that it stands in, the nearest first."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
