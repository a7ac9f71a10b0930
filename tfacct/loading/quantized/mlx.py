"""MLX: groups of inputs with a scale and a bias, or block floats; also for embedding and head, with exceptions per
module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tfacct.ledger import formats, paths
from tfacct.ledger.formats import Format
from tfacct.ledger.storage import MATRICES, Role, Storage, Stored, width
from tfacct.loading.model_description import ModelDescription
from tfacct.loading.quantized.fields import FieldReader
from tfacct.loading.quantized.names import Modules, among, check_matrices, unquantized_dtype

QUANTIZED_ROLES: frozenset[Role] = MATRICES | {"head", "embedding"}
FORMAT_FIELDS = ("bits", "group_size", "mode")
"""Fields of the format; all others are names of modules."""
BITS = (2, 3, 4, 5, 6, 8)
GROUP = 64
"""Inputs per group by default. Matrices whose inputs are no multiple of the group size stay unquantized."""
FLOATS: Mapping[str, tuple[int, int, Format]] = {
    "mxfp4": (4, 32, formats.MXFP4),
    "mxfp8": (8, 32, formats.MX[8]),
    "nvfp4": (4, 16, formats.blocks("nvfp4", 16, 9, "blocks of 16 with an 8-bit scale")),
}
"""Float modes: bits per number, inputs per block, and format. None has a scale per tensor."""


def is_mlx(fields: Mapping[str, object]) -> bool:
    """True if a config without a method is MLX's: bits, groups, and exceptions per module."""
    others = (value for name, value in fields.items() if name not in (*FORMAT_FIELDS, "quant_method"))
    return {"bits", "group_size"} <= fields.keys() and all(isinstance(value, (Mapping, bool)) for value in others)


def storage_of(model: ModelDescription, read: FieldReader) -> Storage:
    """Storage of an MLX checkpoint. Raises ConfigError."""
    every, mode = _format(read), str(read.get("mode"))
    size = FLOATS[mode][1] if mode in FLOATS else read.integer("group_size", GROUP)
    named: dict[str, Format | None] = {}
    for name, value in read.fields.items():
        if name in (*FORMAT_FIELDS, "quant_method"):
            continue
        rule = read.inner(name) if isinstance(value, Mapping) else None
        if rule is not None:
            named[name] = _format(rule, inner=True)
        else:
            named[name] = None if value is False else every
    found = _found(model, named)
    stars: dict[str, set[str]] = {}
    for path, name in found.items():
        stars.setdefault(paths.starred(path), set()).add(str(named[name]))
    mixed = any(len(formats_of) > 1 for formats_of in stars.values()) or _in_some_layers(model, found)
    by_path = {path if mixed else paths.starred(path): named[name] for path, name in found.items()}
    matrices = (tensor.stored for tensor in model.ledger.tensors() if tensor.stored.role in QUANTIZED_ROLES)
    unfit = frozenset(one.path for one in matrices if one.inputs % size)

    def choose(tensor: Stored) -> Format | None:
        if tensor.path in by_path:
            weight_format = by_path[tensor.path]
            return (
                weight_format if weight_format is None or tensor.role in QUANTIZED_ROLES else _of_router(weight_format)
            )
        return every if tensor.role in QUANTIZED_ROLES and paths.starred(tensor.path) not in unfit else None

    kinds = [every, *(weight_format for weight_format in by_path.values() if weight_format is not None)]
    return Storage(
        " + ".join(dict.fromkeys(kind.name for kind in kinds)),
        choose,
        width(unquantized_dtype(model)),
        QUANTIZED_ROLES,
        rounds=True,
        about="; ".join(dict.fromkeys(kind.about for kind in kinds)),
        by_block=mixed,
        ahead=Modules(model).offsets(),
        left=frozenset(path for path, weight_format in by_path.items() if weight_format is None) | unfit,
    )


def _format(read: FieldReader, *, inner: bool = False) -> Format:
    """Format from these fields, those of a module if `inner`, where MLX has defaults. Raises ConfigError."""
    mode = read.choice("mode", ("affine", *FLOATS), "affine")
    if mode in FLOATS:
        bits, group, weight_format = FLOATS[mode]
        read.integer_choice("bits", (bits,), bits)
        read.integer_choice("group_size", (group,), group)
    else:
        bits = read.integer_choice("bits", BITS, 4) if inner else read.bits(BITS)
        weight_format = formats.affine(bits, read.integer_choice("group_size", (32, 64, 128), GROUP))
    if inner:
        read.check_all_read()
    return weight_format


def _found(model: ModelDescription, named: Mapping[str, Format | None]) -> dict[str, str]:
    """Tensors with exceptions → name of the module in the config. Raises ConfigError for an unknown name."""
    modules, found = Modules(model), dict[str, str]()
    for tensor in model.ledger.tensors(unfolded=True) if named else ():
        if paths.name_of(tensor.path) != "weight":
            continue
        for spelled in modules.published_paths(tensor.path, tensor.stored.role):
            name = re.sub(r"\.experts\.0\.", ".switch_mlp.", spelled)
            if name in named:
                found[tensor.path] = name
    check_matrices("quantization_config", named, found.values())
    return found


def _in_some_layers(model: ModelDescription, found: Mapping[str, str]) -> bool:
    """True if a matrix has an exception in some layers only."""
    stars = {paths.starred(path) for path in found}
    every = (tensor.path for tensor in model.ledger.tensors(unfolded=True) if tensor.path not in found)
    return any(among(path, frozenset(stars)) for path in every)


def _of_router(weight_format: Format) -> Format:
    """Format of a router's weight, with inputs that are a multiple of the group size, as MLX requires."""
    each = 128 * 32  # a multiple of all group sizes and words
    return weight_format._replace(
        matrix=lambda outputs, inputs: outputs * inputs * weight_format.matrix(1, each) // each
    )
