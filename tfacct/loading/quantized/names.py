"""Matching of module names in a config, as in the published files, with paths of the ledger."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.ledger import paths
from tfacct.ledger.evaluated import Tensor
from tfacct.ledger.storage import Role
from tfacct.loading.model_description import ModelDescription
from tfacct.loading.published import is_float8, plain_dtype

LONGEST, MOST = 300, 20_000
"""Most characters of a pattern, and most patterns of a list."""
OUTER = (
    *("", "model.", "language_model.", "model.language_model.", "language_model.model.", "backbone."),
    *("thinker.", "thinker.model."),
)
"""Prefixes of a language model's paths in published files."""
COMPOSITE_PREFIXES = ("", "model.")
"""Prefixes of an encoder's paths in published files."""
PROJECTOR = "projector."
NO_MODULES = frozenset(
    (
        *("projector.mm_input_projection", "merger.join", *(f"pooler.{name}_proj" for name in "qkvo")),
        *("hc_head.weights", "encoder.stem.conv1", "encoder.stem.conv2", "classifier"),
    )
)
"""Matrices outside the layers that are parameters or convolutions in their class, because methods only quantize linear
modules; and the head with classes, which they leave out as they do a language model's head."""
LINEAR_PATCHES = frozenset(("gemma4_vision", "siglip2_vision_model", "ernie4_5_vl_moe_vision", "llama4_vision_model"))
"""Encoders with a linear module for patches."""
_W = (
    (".mlp.", ".block_sparse_moe."),
    (".gate_proj", ".w1"),
    (".up_proj", ".w3"),
    (".down_proj", ".w2"),
)
_M3 = (
    *((f".mlp.experts.0{now}", f".block_sparse_moe.experts.0{then}") for now, then in _W[1:]),
    (".mlp.shared_experts.", ".block_sparse_moe.shared_experts."),
    (".indexer.", ".index_"),
)
_V4 = (
    (".self_attn.compressor.indexer.q_b_proj", ".attn.indexer.wq_b"),
    (".self_attn.", ".attn."),
    *((f".attn.{now}_proj", f".attn.{then}") for now, then in (("q_b", "wq_b"), ("o_a", "wo_a"), ("o_b", "wo_b"))),
    *((f".attn.{now}_proj", ".attn.fused_wqa_wkv") for now in ("q_a", "kv")),  # fused as in vLLM
    (".mlp.", ".ffn."),
)
OLDER: Mapping[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(("mixtral", "phimoe", "minimax_m2"), _W),
    "minimax_m3_vl_text": _M3,
    "deepseek_v4": _V4,
    "laguna": ((".shared_experts.", ".shared_expert."),),
}
"""Families with different module names in published files: (name in the class, name in the files)."""
BOTH = frozenset({"deepseek_v4", "laguna"})
"""Families of these with both names in files."""
JOINED = "gate_up_proj"
"""Fused matrix of a class that may be two matrices in the files."""

OTHER_PARTS = re.compile(r"(^|\.)(mtp|visual|vision\w*|audio\w*|\w*projector)\.")
"""Pattern for modules in a list outside the language model: MTP layers, encoders and their projectors."""

Skips = Callable[[str], bool]


class Modules:
    """Matrices of a model by possible module paths in its published files. `layers_only`: the method leaves those
    outside the layers of a language model."""

    def __init__(self, model: ModelDescription, *, layers_only: bool = False) -> None:
        self.model, self.layers_only = model, layers_only and model.encodes is None
        self.table: Mapping[str, str] = model.config.hf_module_paths()
        self.tensor_names: Mapping[str, str] = model.config.hf_tensor_names()

    def published_paths(self, path: str, role: str) -> Iterator[str]:
        """Possible paths in files of the module of a tensor."""
        module = paths.module_of(path)
        if self.model.encodes is not None and self.model.composite is not None:
            yield from self._of_encoder(module, self.model.composite)
            return
        weight = paths.looked_up(self.tensor_names, path) or ""
        named = weight.removesuffix(".weight")
        if role == "expert" or named == weight:
            named = paths.looked_up(self.table, module) or ""
        if not named:
            return
        if role == "expert":
            named = f"{named.removesuffix('.experts')}.experts.0.{module.rpartition('.')[2]}"
        front, _, last = named.rpartition(".")
        apart = [f"{front}.{module.rpartition('.')[2]}"] if last == JOINED else []
        for each in (*apart, named):
            then = each
            for old in OLDER.get(self.model.family, ()):
                then = then.replace(*old)
            for one in (then, each) if self.model.family in BOTH else (then,):
                inner = re.sub(r"^(model|transformer)\.", "", one)
                yield from (f"{outer}{inner}" for outer in OUTER)
                yield one

    def _of_encoder(self, module: str, composite: Mapping[str, Any]) -> Iterator[str]:
        """Possible paths in files of a module of an encoder or its projector."""
        from tfacct.families.multimodal import modules_of

        found = modules_of(composite.get("model_type"), self.model.encodes or "vision")
        if found is None:
            return
        encoder, projector = found
        if module.startswith(PROJECTOR):
            ends = [f"{projector}.{module.removeprefix(PROJECTOR)}"]
        else:
            named = paths.looked_up(self.table, module)
            ends = [] if named is None else [f"{encoder}.{named}", f"{encoder}.vision_model.{named}"]
        yield from (f"{outer}{end}" for outer in COMPOSITE_PREFIXES for end in ends)

    def role(self, tensor: Tensor) -> Role:
        """Role of a tensor for a method, where linear modules outside the layers count as matrices."""
        role, module = tensor.stored.role, paths.module_of(tensor.path)
        linear = not self.layers_only and bool(tensor.parameter.inputs) and module not in NO_MODULES
        return "matrix" if linear and role == "other" and self._linear(module) else role

    def _linear(self, module: str) -> bool:
        """True for a linear module. An encoder's module for patches or frames is a convolution in most classes."""
        convolution = self.model.encodes is not None and module.startswith("embed.")
        return not convolution or self.model.family in LINEAR_PATCHES

    def outside(self, roles: Iterable[str]) -> frozenset[str]:
        """Paths of the matrices outside the layers, for a method that quantizes `roles`."""
        tensors = self.model.ledger.tensors() if "matrix" in roles else ()
        return frozenset(one.path for one in tensors if one.stored.role == "other" and self.role(one) == "matrix")

    def skipped(self, skips: Skips, roles: Iterable[str]) -> tuple[frozenset[str], bool]:
        """Paths of matrices that match, and whether they differ between layers.

        If they do not differ, paths have `*` for the layer.
        """
        roles, left, there = frozenset(roles), set[str](), dict[str, list[str]]()
        for tensor in self.model.ledger.tensors(unfolded=True):
            role = self.role(tensor)
            if role in roles:
                there.setdefault(paths.starred(tensor.path), []).append(tensor.path)
                if any(map(skips, self.published_paths(tensor.path, role))):
                    left.add(tensor.path)
        mixed = any(0 < sum(path in left for path in each) < len(each) for each in there.values())
        return (frozenset(left), True) if mixed else (frozenset(map(paths.starred, left)), False)

    def offsets(self) -> dict[tuple[str, int, int], int]:
        """Outputs before a matrix's own, if the files fuse several matrices of the ledger, such as q, k and v."""
        ahead = dict[tuple[str, int, int], int]()
        before: dict[tuple[str, int], int] = {}
        for tensor in self.model.ledger.tensors():
            stored, module = tensor.stored, paths.module_of(tensor.path)
            if stored.role not in ("matrix", "dense") or paths.name_of(tensor.path) != "weight":
                continue
            fused_name = self.tensor_names.get(tensor.path) or self.table.get(module)
            if fused_name is None:
                continue
            key = fused_name, id(tensor.axes)
            if key in before:
                ahead[tensor.path, int(stored.elements), int(stored.inputs)] = before[key]
            before[key] = before.get(key, 0) + int(stored.outputs)
        return ahead


def unquantized_dtype(model: ModelDescription) -> str:
    """Dtype of tensors that are not quantized: from the config, bf16 by default. Raises ConfigError."""
    for fields in (model.raw, model.composite or {}):
        if any(is_float8(fields.get(field)) for field in ("dtype", "torch_dtype")):
            return "bf16"  # fp8 is for the quantized matrices
        if (named := plain_dtype(fields)) is not None:
            return named
    return "bf16"


def among(path: str, named: frozenset[str]) -> bool:
    """True if a path or its `*` form is in `named`."""
    return path in named or paths.starred(path) in named


def patterns(where: str, names: object) -> list[str]:
    """List of module names or patterns; `where` is its name in messages. Raises ConfigError."""
    if names is None:
        return []
    if not isinstance(names, Sequence) or isinstance(names, str) or not all(isinstance(each, str) for each in names):
        raise ConfigError(f"{where} must be a list of names")
    if len(names) > MOST or any(len(each) > LONGEST for each in names):
        raise ConfigError(f"{where} is too long to be a list of modules")
    single = next((each for each in names if re.search(r"experts\.\d", each)), None)
    if single is not None and not _every_expert(names):
        raise ConfigError(f"{where} names single experts: {single}")
    return list(names)


def _every_expert(names: Sequence[str]) -> bool:
    """True if a list with single experts has all experts of a layer."""
    numbers: dict[str, set[str]] = {}
    for each in names:
        if found := re.fullmatch(r"(.*experts\.)(\d+)(.*)", each):
            numbers.setdefault(found[1] + found[3], set()).add(found[2])
    sets = list(numbers.values())
    return all("0" in each and len(each) == max(map(int, each)) + 1 for each in sets)


@lru_cache(4096)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return None


def by_transformers(names: Sequence[str]) -> Skips:
    """Matching as in transformers: a module, its parents, a pattern up to the end of a module, or a suffix."""
    ends = tuple(names)
    found = [one for name in names if (one := _compiled(rf"(?:{name})(?:(?<=\.)|(?=\.|$))")) is not None]
    return lambda path: path.endswith(ends) or any(one.match(path) for one in found)


def by_part(names: Sequence[str]) -> Skips:
    """Matching as in AutoAWQ: a name is in the path."""
    return lambda path: any(name in path for name in names)


def check_matrices(where: str, named: Iterable[str], found: Collection[str]) -> None:
    """Raises ConfigError for a module of the language model in a list that is not `found` among the matrices."""
    lost = next((name for name in named if name not in found and not OTHER_PARTS.search(name)), None)
    if lost is not None:
        raise ConfigError(f"{where} names {format_value(lost)}, which is not a matrix of this model")


def by_target(names: Sequence[str]) -> Skips:
    """Matching as in compressed-tensors: the path, `re:` and a pattern from its start, or the class `Linear`."""
    exact = frozenset(name for name in names if not name.startswith("re:"))
    found = [one for name in names if name.startswith("re:") and (one := _compiled(name[3:])) is not None]
    return lambda path: "Linear" in exact or path in exact or any(one.match(path) for one in found)


def by_name(name: str) -> Skips:
    """Matching as in AutoRound: the path, or a pattern for the full path."""
    found = _compiled(name)
    return lambda path: path == name or (found is not None and found.fullmatch(path) is not None)


def by_wildcard(names: Sequence[str]) -> Skips:
    """Matching as in NVIDIA's Model Optimizer: the path or a parent module, with `*` as a wildcard."""
    found = [re.compile(".*".join(map(re.escape, name.split("*")))) for name in names]
    return lambda path: any(
        one.fullmatch(path) or path.startswith(f"{name}.") for one, name in zip(found, names, strict=True)
    )
