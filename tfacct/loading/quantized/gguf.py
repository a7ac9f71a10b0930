"""llama.cpp's weight types: `Q8_0` is one type for all matrices, `Q4_K_M` a mixture with a type per tensor by name and
layer.

Source: `llama_tensor_get_type_impl`, `tensor_allows_quantization` and `tensor_type_fallback` of llama.cpp
(`src/llama-quant.cpp`), without an importance matrix; block sizes of `ggml-common.h`. Only tensors are counted, not the
file's header with its vocabulary.

Versions of llama.cpp differ in a few tensors, so a mixture may have a range: the storage is that of the version with
the most bytes, and `least` that of the version with the fewest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from typing import NamedTuple

from tfacct.architecture.parts import Attention, Experts, LatentAttention
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger import formats, paths
from tfacct.ledger.einsum import Size
from tfacct.ledger.formats import GGML, Format
from tfacct.ledger.storage import MATRICES, Role, Storage, Stored, width
from tfacct.loading.model_description import ModelDescription

FALLBACK = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
"""Fallback types for rows that are no multiple of 256."""
MIXES = {
    "q2_k": "Q2_K",
    "q3_k_s": "Q3_K",
    "q3_k_m": "Q3_K",
    "q3_k_l": "Q3_K",
    "q4_0": "Q4_0",
    "q4_1": "Q4_1",
    "q4_k_s": "Q4_K",
    "q4_k_m": "Q4_K",
    "q5_0": "Q5_0",
    "q5_1": "Q5_1",
    "q5_k_s": "Q5_K",
    "q5_k_m": "Q5_K",
    "q6_k": "Q6_K",
    "q8_0": "Q8_0",
}
"""Mixtures → the type of most tensors."""
QKV = {"q3_k_m": "Q4_K", "q3_k_l": "Q4_K", "q4_k_m": "Q5_K", "q5_k_m": "Q6_K"}
"""Types of fused q, k and v in versions with a rule for that name."""
UNIFORM = "blocks of llama.cpp's types with their scales"
BY_BLOCK = frozenset({"q3_k_m", "q4_k_s", "q4_k_m", "q5_k_m"})
"""Mixtures with different types in different layers."""
EIGHT_EXPERTS, SEVENTY = 8, 80
"""Experts of Mixtral, and layers of a Llama or Qwen2 of 70B, which have special rules."""
TOKENS = ("embed", "per_layer")
"""Token embeddings; position embeddings stay in 32 bits."""
NOT_QUANTIZED = ("altup.", "laurel.", "per_layer.project.", "streams.", "merged.")
"""Parts with small matrices that stay in 16 bits."""


class Version(NamedTuple):
    """Differences between versions of llama.cpp and their files.

    `as_values`: fused q, k and v, and an unsplit `kv_b`, have the type of values; else fused q, k and v have a type
    from QKV, and `kv_b` the default type. `splits_kv_b`: `kv_b` of latent attention is stored as two tensors.
    `splits_qkvz`: DeltaNet's `in_proj_qkvz` is stored as fused q, k and v, and the gate. `copies_head`: a tied head is
    stored as a separate tensor. `blocks`: number of layers, with or without those for multi-token prediction.
    """

    as_values: bool
    splits_kv_b: bool
    splits_qkvz: bool
    copies_head: bool
    blocks: int


DIFFERENCES = {
    "as_values": "the type of a fused q, k and v",
    "splits_kv_b": "the type of kv_b",
    "splits_qkvz": "the type of in_proj_qkvz",
    "copies_head": "whether a tied head is stored a second time",
    "blocks": "the type of down_proj where files hold MTP layers",
}
"""Fields of a version → what they change in a file."""
COPYING = frozenset({"gpt2", "mpt", "bloom", "falcon"})
"""Families with a tied head that was stored as a copy of the embedding."""


class Model(NamedTuple):
    """Facts of a model for the rules. `group`: query heads per key/value head, as in llama.cpp. `mxfp4`: the experts
    are published in MXFP4, which llama.cpp keeps, because it does not quantize quantized tensors again."""

    mix: str
    experts: int
    group: int
    tied: bool
    seventy: bool
    falcon: bool
    mxfp4: bool


class Place(NamedTuple):
    """Index of a tensor among the `total` tensors of its category."""

    number: int
    total: int


def more_bits(index: int, count: int) -> bool:
    """True for the first and last eighth of the layers, and for every third layer between them."""
    eighth = count // 8
    return index < eighth or index >= 7 * count // 8 or (index - eighth) % 3 == 2


def _of_values(model: Model, at: Place) -> str | None:
    found = {
        "q2_k": "Q4_K" if model.group >= 4 else "Q3_K",
        "q3_k_m": "Q5_K" if at.number < 2 else "Q4_K",
        "q3_k_l": "Q5_K",
        "q4_k_s": "Q5_K" if at.number < 4 else None,
        "q4_k_m": "Q6_K" if more_bits(*at) else None,
        "q5_k_m": "Q6_K" if more_bits(*at) else None,
    }.get(model.mix)
    if model.seventy and (found or MIXES[model.mix]) in ("Q3_K", "Q4_K"):
        found = "Q5_K"
    return "Q8_0" if model.experts == EIGHT_EXPERTS else found


def _of_keys(model: Model, _: Place) -> str | None:
    return "Q8_0" if model.experts == EIGHT_EXPERTS else None


def _of_output(model: Model, _: Place) -> str | None:
    if model.falcon:
        return {"q3_k_l": "Q4_K"}.get(model.mix)
    if model.experts == EIGHT_EXPERTS:
        return "Q5_K" if model.mix in ("q2_k", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m") else None
    return {"q2_k": "Q3_K", "q3_k_m": "Q4_K", "q3_k_l": "Q5_K"}.get(model.mix)


def _of_down(model: Model, at: Place) -> str | None:
    first, more = at.number < at.total // 16, more_bits(*at)
    if model.falcon:
        return {
            "q2_k": "Q3_K",
            "q3_k_m": "Q5_K" if first else "Q4_K" if more else "Q3_K",
            "q3_k_l": "Q4_K",
            "q4_k_m": "Q6_K" if first else "Q5_K" if more else "Q4_K",
            "q5_k_m": "Q6_K" if more else None,
        }.get(model.mix)
    return {
        "q2_k": "Q3_K",
        "q3_k_m": "Q5_K" if first else "Q4_K",
        "q3_k_l": "Q5_K",
        "q4_k_s": "Q5_K" if at.number < at.total // 8 else None,
        "q4_k_m": "Q6_K" if more else None,
        "q5_k_m": "Q6_K" if more else None,
    }.get(model.mix)


RULES: dict[str, Callable[[Model, Place], str | None]] = {
    "values": _of_values,
    "keys": _of_keys,
    "output": _of_output,
    "down": _of_down,
}
"""Categories of tensors → function for their type, None for the default type."""
ATTENTION = {"q_proj": "", "k_proj": "keys", "v_proj": "values", "o_proj": "output", "out_proj": "output"}
"""Matrices of attention → category."""


class _Tensors:
    """Tensors of a model by category in llama.cpp's files."""

    def __init__(self, model: ModelDescription) -> None:
        self.names, self.modules = model.config.hf_tensor_names(), model.config.hf_module_paths()
        self.every = model.ledger.tensors(unfolded=True)
        shape = model.architecture
        self.blocks = sum(stack.count for stack in shape.stacks)
        self.experts = max((part.experts for part in shape.parts() if isinstance(part, Experts)), default=1)
        self.nope_dim = next((part.nope_dim for part in shape.parts() if isinstance(part, LatentAttention)), 0)
        self.fused: dict[str, set[str]] = {}
        """Names in the published files → matrices of the ledger."""
        for tensor in self.every:
            if tensor.stored.role != "other" and (name := self._named(tensor.path)) is not None:
                self.fused.setdefault(name, set()).add(paths.module_of(tensor.path).rpartition(".")[2])
        self._categories: dict[str, str] = {}

    def _named(self, path: str) -> str | None:
        """Name in the published files of this tensor or its module."""
        path = paths.starred(path)
        return self.names.get(path) or self.modules.get(paths.module_of(path))

    def category(self, path: str) -> str:
        """Category of a tensor; empty for the default type."""
        path = paths.starred(path)
        if path not in self._categories:
            self._categories[path] = self._category(path)
        return self._categories[path]

    def _category(self, path: str) -> str:
        part, _, leaf = paths.module_of(path).rpartition(".")
        owner, name = part.rpartition(".")[2], self._named(path) or ""
        if leaf in ("k_b_proj", "v_b_proj"):
            return leaf
        if leaf == "down_proj":
            return "down" if owner in ("mlp", "experts", "shared") else ""
        if {"q_proj", "v_proj"} <= self.fused.get(name, set()):
            if owner == "delta" and "gate_proj" in self.fused[name]:
                return "" if leaf == "gate_proj" else "qkvz"
            return "qkv"
        named_alike = owner in ("delta", "lightning") and ".self_attn." in name
        return ATTENTION.get(leaf, "") if owner in ("attn", "cross") or named_alike else ""

    def places(self, version: Version) -> dict[str, Place]:
        """Places of the tensors with types that depend on them.

        A version with separate types for fused matrices includes them in the total of values, but only values have an
        index.
        """
        fused = [*(("qkvz",) if version.splits_qkvz else ()), "qkv"]
        fused += [] if version.splits_kv_b else ["k_b_proj", "v_b_proj"]
        numbers: dict[str, dict[str, int]] = {"values": {}, "down": {}}
        every = set[int]()
        for tensor in self.every:
            category = self.category(tensor.path)
            kind = "values" if category in fused else category
            if kind in numbers and paths.name_of(tensor.path) == "weight":
                if kind == "values":
                    every.add(self._number(tensor.path))
                if category == kind or version.as_values:
                    numbers[kind][tensor.path] = self._number(tensor.path)
        found = dict[str, Place]()
        for kind, count in (("values", len(every)), ("down", version.blocks)):
            order = {number: index for index, number in enumerate(sorted(set(numbers[kind].values())))}
            by_number = kind == "down" and self.experts > 1
            found |= {
                path: Place(number if by_number else order[number], count) for path, number in numbers[kind].items()
            }
        return found

    def _number(self, path: str) -> int:
        """Layer number of a tensor. Layers for multi-token prediction come last."""
        at = paths.parse(path)
        return (int(at.number) if at.number.isdigit() else 0) + (self.blocks if at.stack == paths.MTP else 0)

    def versions(self, model: ModelDescription) -> Iterator[Version]:
        """Versions that differ for this model."""
        found = {self.category(tensor.path) for tensor in self.every}
        shape, missing = model.architecture, model.not_included
        more = 0 if shape.mtp is None else int(shape.mtp.count)
        if missing is not None and missing.kind == "MTP":
            more += missing.layers
        either, one = (True, False), (True,)
        copies = model.family in COPYING and shape.head is not None and shape.head.tied
        for fields in product(
            either if found & {"qkv", "qkvz", "k_b_proj"} else one,
            either if "k_b_proj" in found else one,
            either if "qkvz" in found else one,
            either if copies else (False,),
            (self.blocks, self.blocks + more) if more > 0 else (self.blocks,),
        ):
            yield Version(*fields)


@cache
def mix(name: str) -> Callable[[ModelDescription], Storage]:
    """Function from a model to its storage in one of llama.cpp's types or mixtures, for `once`.

    It raises UsageError for a model that is not a decoder.
    """

    def found(model: ModelDescription) -> Storage:
        shape = model.architecture
        if shape.encoder is not None or shape.head is None or not model.has_cache:
            raise UsageError(
                f"{model.name}: {name} is a llama.cpp format, for decoders with a language modeling head only",
                f"another {option('dtype')}",
            )
        tensors, sizes = _Tensors(model), dict[Version, int]()
        stored = {version: _storage(model, name, tensors, version) for version in tensors.versions(model)}
        for version, how in stored.items():
            sizes[version] = sum(tensor.count * how.bytes(tensor.stored) for tensor in tensors.every)
        most, least = max(sizes, key=sizes.__getitem__), min(sizes, key=sizes.__getitem__)
        if sizes[most] == sizes[least]:
            return stored[most]
        fused = any(tensors.category(tensor.path).startswith("qkv") for tensor in tensors.every)
        named = DIFFERENCES if fused else {**DIFFERENCES, "as_values": DIFFERENCES["splits_kv_b"]}
        why = dict.fromkeys(named[field] for field in _differing(sizes))
        sentence = f"versions of llama.cpp differ in {' and '.join(why)}"
        return replace(stored[most], least=stored[least], differs=sentence)

    return found


def _differing(sizes: Mapping[Version, int]) -> Iterator[str]:
    """Fields that change the bytes if all other fields are equal."""
    for index, field in enumerate(Version._fields):
        rest = {version: (*version[:index], *version[index + 1 :]) for version in sizes}
        if any(rest[one] == rest[other] and sizes[one] != sizes[other] for one in sizes for other in sizes):
            yield field


def _storage(model: ModelDescription, name: str, tensors: _Tensors, version: Version) -> Storage:
    """Storage in one version."""
    mixed, usual = _model(model, name, tensors), MIXES[name]
    places = tensors.places(version) if name in BY_BLOCK else {}

    def type_of(path: str) -> str | None:
        category = tensors.category(path)
        at = places.get(path, Place(0, version.blocks))
        if category in ("qkv", "qkvz"):
            if category == "qkvz" and not version.splits_qkvz:
                return None
            return _of_values(mixed, at) if version.as_values else QKV.get(name)
        if category in ("k_b_proj", "v_b_proj"):
            return _of_values(mixed, at) if version.as_values and not version.splits_kv_b else None
        rule = RULES.get(category)
        return rule(mixed, at) if rule else None

    def choose(tensor: Stored) -> Format | None:
        module = paths.module_of(tensor.path)
        if any(f".{part}" in f".{module}." for part in NOT_QUANTIZED) and tensor.inputs != 1:
            return _type("F16", tensor.inputs)
        if tensor.role == "other" or (tensor.role == "embedding" and module not in TOKENS):
            return None
        if tensor.role == "expert" and mixed.mxfp4:
            return _type("MXFP4", tensor.inputs)
        if tensor.role == "head" or (tensor.role == "embedding" and mixed.tied):
            fits = _type(usual, tensor.inputs).name == usual and not mixed.falcon
            head = _type("Q8_0" if not fits or usual == "Q8_0" else "Q6_K", tensor.inputs)
            return formats.both(_type(usual, tensor.inputs), head) if version.copies_head else head
        transposed = version.splits_kv_b and tensors.category(tensor.path) == "k_b_proj"
        return _type(type_of(tensor.path) or usual, tensors.nope_dim if transposed else tensor.inputs)

    about = "llama.cpp's mixture of types, without an importance matrix" if "_k" in name else UNIFORM
    everything: frozenset[Role] = MATRICES | {"head", "embedding"}
    return Storage(
        name,
        choose,
        width("fp32"),
        everything,
        rounds=True,
        about=about,
        scaled=about == UNIFORM,
        by_block=name in BY_BLOCK,
    )


def _type(name: str, row: Size) -> Format:
    """Format of a type, or of its fallback for this row length. Raises UsageError for an array or a symbol."""
    if not isinstance(row, int):
        raise UsageError(
            "llama.cpp chooses tensor types by row length, which is not supported for arrays or symbols",
            f"one size at a time, or another {option('dtype')}",
        )
    for one in (name, FALLBACK.get(name, name)):
        numbers, size = GGML.get(one.lower(), (1, 2))
        if row % numbers == 0:
            return formats.blocks(one, numbers, size, "")
    return formats.blocks("F16", 1, 2, "")


def _model(model: ModelDescription, name: str, tensors: _Tensors) -> Model:
    shape = model.architecture
    attention = next((one for one in shape.attentions if isinstance(one, Attention)), None)
    group = 1 if attention is None else attention.heads // attention.kv_heads
    seventy = tensors.blocks == SEVENTY and (model.family == "qwen2" or (model.family == "llama" and group > 1))
    if shape.stacks[0].block.attention is None and not model.family.startswith("qwen3"):
        group = 0  # their files have heads per layer, and llama.cpp uses those of the first
    tied = shape.head is not None and shape.head.tied
    published = model.raw.get("quantization_config")
    mxfp4 = isinstance(published, Mapping) and published.get("quant_method") == "mxfp4"
    return Model(name, tensors.experts, group, tied, seventy, model.family == "falcon", mxfp4)
