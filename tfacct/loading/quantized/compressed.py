"""compressed-tensors: schemes for groups of modules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.ledger import formats
from tfacct.ledger.formats import Format
from tfacct.ledger.storage import MATRICES, Role, Storage, Stored, width
from tfacct.loading.model_description import ModelDescription
from tfacct.loading.quantized.fields import FieldReader
from tfacct.loading.quantized.names import Modules, Skips, among, by_target, patterns, unquantized_dtype

QUANTIZED_ROLES: frozenset[Role] = MATRICES | {"head"}
FORMATS = (
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp6-pack-quantized",
    "mxfp8-quantized",
    "mixed-precision",
)
OFFLINE = ("weight_input", "weight_output")
"""Locations of transforms that are merged into the stored weights."""
SHAPE = 2 * 8
"""Bytes of `weight_shape`: two 64-bit numbers."""
OTHER_PARTS = re.compile(r"mtp|visual|vision|audio|projector")
"""Pattern for modules outside the language model."""
GLOBAL = 4
"""Bytes of a global scale."""
INDEXED = ("group", "dynamic", "true")
"""Orders of inputs whose group numbers are stored: compressed-tensors' `ActivationOrdering.GROUP` and its aliases."""


class Scheme(NamedTuple):
    """Storage of the modules that match `targets`."""

    targets: Skips
    weight_format: Format | None
    named: Sequence[str] = ()
    """Names in the config, of which at least one must match a matrix."""


def storage_of(model: ModelDescription, read: FieldReader) -> Storage:
    """Storage of a compressed-tensors checkpoint. Raises ConfigError."""
    default = read.choice("format", FORMATS, "")
    groups = read.inner("config_groups")
    if groups is None or not groups.fields:
        raise ConfigError(f"{read.path('config_groups')} is missing")
    wide = unquantized_dtype(model)
    schemes = [_scheme(group, default, wide) for group in _groups(groups)]
    ignored = patterns(read.path("ignore"), read.get("ignore"))
    sparse = read.inner("sparsity_config")
    if sparse is not None and sparse.get("format") not in (None, "dense"):
        raise sparse.unsupported("format", "expected dense")
    read.require_off("moe_sparsity_config")
    _check_transforms(read)
    read.check_all_read(
        "kv_cache_scheme quantization_status global_compression_ratio version run_compressed sparsity_config"
        " dequantize use_optimized_inference expert_dtype"  # the last: moved there by DeepSeek-V4's class
    )
    return by_schemes(model, schemes, by_target(ignored))


def _check_transforms(read: FieldReader) -> None:
    """Check that transforms are merged into the weights; those at run time are not supported. Raises ConfigError.

    Locations: compressed-tensors' TransformLocation.
    """
    transforms = read.inner("transform_config")
    groups = None if transforms is None else transforms.inner("config_groups")
    for group in () if groups is None else _groups(groups):
        applied = group.get("apply") or []
        every = applied if isinstance(applied, list) else [applied]
        places = [each.get("location") if isinstance(each, dict) else None for each in every]
        if not all(place in OFFLINE for place in places):
            raise group.unsupported("apply", f"expected weight transforms only ({' or '.join(OFFLINE)})")


def _groups(groups: FieldReader) -> Iterator[FieldReader]:
    for name in groups.fields:
        group = groups.inner(name)
        if group is None:
            raise groups.unsupported(name, "expected an object with fields")
        yield group


def _scheme(group: FieldReader, default: str, wide: str) -> Scheme:
    """Scheme of one group in `config_groups`."""
    named = patterns(group.path("targets"), group.get("targets"))
    form = group.choice("format", FORMATS, default)
    weights, inputs, outputs = (group.inner(name) for name in ("weights", "input_activations", "output_activations"))
    group.check_all_read()
    if outputs is not None:
        raise group.unsupported("output_activations", "expected null")
    return Scheme(by_target(named), None if weights is None else _format(weights, inputs, form, wide), named)


def _format(weights: FieldReader, inputs: FieldReader | None, form: str, wide: str) -> Format:
    """Format of a group's weights, with the scale of its activations if stored."""
    bits, kind = (
        weights.integer_choice("num_bits", (1, 2, 3, 4, 5, 6, 7, 8), 8),
        weights.choice("type", ("int", "float"), "int"),
    )
    strategy = weights.choice(
        "strategy", ("tensor", "channel", "group", "block", "tensor_group"), _default_strategy(weights)
    )
    group, block = weights.integer("group_size", 0, least=-1), weights.pair("block_structure", None)
    symmetric = weights.boolean("symmetric", default=True)
    indexed = str(weights.get("actorder")).lower() in INDEXED
    weights.check_all_read("dynamic observer observer_kwargs actorder zp_dtype scale_dtype")
    if kind == "float" and (bits in (4, 6) or form == "mxfp8-quantized"):
        return _in_small_blocks(weights, (bits, strategy, group), inputs)
    weights.require_off("scale_dtype", "zp_dtype") if symmetric else weights.require_off("scale_dtype")
    scale = width(wide).bits // 8
    extra = _static(inputs, scale)
    packed = form == "pack-quantized" or (form == "mixed-precision" and bits < 8) or (form == "" and bits < 8)
    if strategy == "group" and group < 1:
        raise weights.unsupported("group_size", "expected a whole number above 0, for groups")
    if strategy == "block" and block is None:
        raise weights.unsupported("block_structure", "expected two sizes, for blocks")
    return formats.scaled(
        f"{'fp' if kind == 'float' else 'w'}{bits}{'' if strategy == 'channel' else f'-{strategy}'}",
        bits,
        packed=packed,
        scale=scale,
        group=group if strategy == "group" else None,
        block=block if strategy == "block" else None,
        per_tensor=strategy == "tensor",
        zero=None if symmetric else bits,
        tensor=extra + (SHAPE if packed else 0),
        indexed=indexed,
    )


def _default_strategy(weights: FieldReader) -> str:
    """Default strategy: groups if the group size is given, else one scale per tensor."""
    size = weights.fields.get("group_size")
    return "tensor" if size is None else "channel" if size == -1 else "group"


def _in_small_blocks(weights: FieldReader, kind: tuple[int, str, int], inputs: FieldReader | None) -> Format:
    """NVFP4 or one of OCP's MX formats. Their scales have 8 bits, which a config may state."""
    if kind == (4, "tensor_group", 16):
        weights.choice("scale_dtype", ("torch.float8_e4m3fn",), "")
        scales_inputs = inputs is not None and inputs.fields.get("dynamic") is not True
        return nvfp4(extra=2 if scales_inputs else 1)
    bits, *of_groups = kind
    if of_groups == ["group", 32]:
        weights.choice("scale_dtype", ("torch.uint8",), "")
        return formats.MX[bits]
    raise weights.unsupported("group_size", "expected 16 (nvfp4) or 32 (mxfp4, mxfp6, mxfp8)")


def nvfp4(extra: int) -> Format:
    """NVFP4 with this number of global scales: for weights, and for quantized activations."""
    about = "blocks of 16 with an 8-bit scale, and 32-bit scales for each tensor"
    return formats.blocks("nvfp4", 16, 9, about, tensor=GLOBAL * extra)


def _static(inputs: FieldReader | None, scale: int) -> int:
    """Bytes of the stored scale and zero point of activations."""
    if inputs is None:
        return 0
    dynamic = inputs.get("dynamic")
    if dynamic:
        return 0
    if inputs.choice("strategy", ("tensor",), "tensor") != "tensor":
        raise inputs.unsupported("strategy", "expected tensor, for static activations")
    return scale + (0 if inputs.boolean("symmetric", default=True) else 1)


def by_schemes(model: ModelDescription, schemes: list[Scheme], ignored: Skips, *, layers_only: bool = False) -> Storage:
    """Storage with the first scheme that matches a tensor's module. `layers_only`: none matches outside the layers."""
    modules = Modules(model, layers_only=layers_only)
    untouched, mixed = modules.skipped(ignored, QUANTIZED_ROLES)
    found = [modules.skipped(scheme.targets, QUANTIZED_ROLES) for scheme in schemes]
    for scheme, (weight_format, _) in zip(schemes, found, strict=True):
        if scheme.named and not weight_format and not any(map(OTHER_PARTS.search, scheme.named)):
            raise ConfigError(
                f"quantization_config.config_groups.targets: no matrix is named {format_value(scheme.named)}"
            )
    by_block = mixed or any(block for _, block in found)
    left = set(untouched)
    for number, scheme in enumerate(schemes):
        if scheme.weight_format is None:
            left |= found[number][0].difference(*(named for named, _ in found[:number]))

    def choose(tensor: Stored) -> Format | None:
        if among(tensor.path, untouched):
            return None
        return next(
            (one.weight_format for one, (named, _) in zip(schemes, found, strict=True) if among(tensor.path, named)),
            None,
        )

    used = (scheme.weight_format for scheme, (named, _) in zip(schemes, found, strict=True) if named)
    kinds = [kind for kind in used if kind is not None]
    name = " + ".join(dict.fromkeys(kind.name for kind in kinds))
    about = "; ".join(dict.fromkeys(kind.about for kind in kinds))
    return Storage(
        name or "compressed-tensors",
        choose,
        width(unquantized_dtype(model)),
        QUANTIZED_ROLES,
        rounds=True,
        about=about,
        by_block=by_block,
        ahead=modules.offsets(),
        left=frozenset(left),
    )
