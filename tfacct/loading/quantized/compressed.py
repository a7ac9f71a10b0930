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
from tfacct.loading.quantized.fields import Read
from tfacct.loading.quantized.names import Modules, Skips, among, by_target, patterns, rest

TAKES: frozenset[Role] = MATRICES | {"head"}
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
"""Places of transforms that were multiplied into the weights before these were stored."""
SHAPE = 2 * 8
"""Bytes of `weight_shape`, two numbers of 64 bits."""
OTHER_PARTS = re.compile(r"mtp|visual|vision|audio|projector")
"""In names of modules that are no language model's."""
GLOBAL = 4
"""Bytes of a global scale."""


class Scheme(NamedTuple):
    """How the modules that `targets` finds are stored."""

    targets: Skips
    taken: Format | None
    named: Sequence[str] = ()
    """Their names in the config, one of which a matrix must have."""


def storage_of(model: ModelDescription, read: Read) -> Storage:
    """Storage of a checkpoint of compressed-tensors. Raises ConfigError."""
    whole = read.one("format", FORMATS, "")
    groups = read.inner("config_groups")
    if groups is None or not groups.fields:
        raise ConfigError(f"{read.path('config_groups')} is missing")
    wide = rest(model)
    schemes = [_scheme(group, whole, wide) for group in _groups(groups)]
    ignored = patterns(read.path("ignore"), read.get("ignore"))
    sparse = read.inner("sparsity_config")
    if sparse is not None and sparse.get("format") not in (None, "dense"):
        raise sparse.refuse("format", "dense is")
    read.none("moe_sparsity_config")
    _check_transforms(read)
    read.done(
        "kv_cache_scheme quantization_status global_compression_ratio version run_compressed sparsity_config"
        " dequantize use_optimized_inference"
    )
    return by_schemes(model, schemes, by_target(ignored))


def _check_transforms(read: Read) -> None:
    """Rotations of weights are within the stored weights and add nothing; those that run beside the pass are refused.
    compressed-tensors' TransformLocation. Raises ConfigError."""
    transforms = read.inner("transform_config")
    groups = None if transforms is None else transforms.inner("config_groups")
    for group in () if groups is None else _groups(groups):
        applied = group.get("apply")
        places = [each.get("location") if isinstance(each, dict) else None for each in applied or ()]
        if not all(place in OFFLINE for place in places):
            raise group.refuse("apply", f"only transforms of weights ({' or '.join(OFFLINE)}) are")


def _groups(groups: Read) -> Iterator[Read]:
    for name in groups.fields:
        group = groups.inner(name)
        if group is None:
            raise groups.refuse(name, "an object of fields is")
        yield group


def _scheme(group: Read, whole: str, wide: str) -> Scheme:
    """One group of `config_groups`."""
    named = patterns(group.path("targets"), group.get("targets"))
    form = group.one("format", FORMATS, whole)
    weights, inputs, outputs = (group.inner(name) for name in ("weights", "input_activations", "output_activations"))
    group.done()
    if outputs is not None:
        raise group.refuse("output_activations", "nothing but null is")
    return Scheme(by_target(named), None if weights is None else _format(weights, inputs, form, wide), named)


def _format(weights: Read, inputs: Read | None, form: str, wide: str) -> Format:
    """The format of a group's weights, with the scale of its activations where that is stored."""
    bits, kind = weights.number("num_bits", (1, 2, 3, 4, 5, 6, 7, 8), 8), weights.one("type", ("int", "float"), "int")
    strategy = weights.one(
        "strategy", ("tensor", "channel", "group", "block", "tensor_group"), _default_strategy(weights)
    )
    group, block = weights.whole("group_size", 0, least=-1), weights.pair("block_structure", None)
    symmetric = weights.switch("symmetric", default=True)
    indexed = weights.get("actorder") == "group"
    weights.done("dynamic observer observer_kwargs actorder zp_dtype scale_dtype")
    if kind == "float" and (bits in (4, 6) or form == "mxfp8-quantized"):
        return _in_small_blocks(weights, (bits, strategy, group), inputs)
    weights.none("scale_dtype", "zp_dtype") if symmetric else weights.none("scale_dtype")
    scale = width(wide).bits // 8
    extra = _static(inputs, scale)
    packed = form == "pack-quantized" or (form == "mixed-precision" and bits < 8) or (form == "" and bits < 8)
    if strategy == "group" and group < 1:
        raise weights.refuse("group_size", "a whole number above 0 is, for groups")
    if strategy == "block" and block is None:
        raise weights.refuse("block_structure", "two sizes are, for blocks")
    return formats.scaled(
        f"{'fp' if kind == 'float' else 'w'}{bits}{'' if strategy == 'channel' else f'-{strategy}'}",
        bits,
        packed=packed,
        scale=scale,
        group=group if strategy == "group" else None,
        block=block if strategy == "block" else None,
        whole=strategy == "tensor",
        zero=None if symmetric else bits,
        tensor=extra + (SHAPE if packed else 0),
        indexed=indexed,
    )


def _default_strategy(weights: Read) -> str:
    """The strategy where none is said: groups where their size is, else one scale for the tensor."""
    size = weights.fields.get("group_size")
    return "tensor" if size is None else "channel" if size == -1 else "group"


def _in_small_blocks(weights: Read, kind: tuple[int, str, int], inputs: Read | None) -> Format:
    """NVFP4, or one of OCP's MX formats. Their scales have eight bits, which a config may say."""
    if kind == (4, "tensor_group", 16):
        weights.one("scale_dtype", ("torch.float8_e4m3fn",), "")
        return nvfp4(extra=1 + (inputs is not None and inputs.fields.get("dynamic") is not True))
    bits, *of_groups = kind
    if of_groups == ["group", 32]:
        weights.one("scale_dtype", ("torch.uint8",), "")
        return formats.MX[bits]
    raise weights.refuse("group_size", "16 (nvfp4) or 32 (mxfp4, mxfp6, mxfp8) is, for floats in small blocks")


def nvfp4(extra: int) -> Format:
    """NVFP4 with this many global scales: of the weights, and of the activations where they are quantized too."""
    about = "blocks of 16 with an 8-bit scale, and 32-bit scales for each tensor"
    return formats.blocks("nvfp4", 16, 9, about, tensor=GLOBAL * extra)


def _static(inputs: Read | None, scale: int) -> int:
    """Bytes of the activations' scale, and of their zero point, where they are stored."""
    if inputs is None:
        return 0
    dynamic = inputs.get("dynamic")
    if dynamic:
        return 0
    if inputs.one("strategy", ("tensor",), "tensor") != "tensor":
        raise inputs.refuse("strategy", "tensor is, for activations that are not dynamic")
    return scale + (0 if inputs.switch("symmetric", default=True) else 1)


def by_schemes(model: ModelDescription, schemes: list[Scheme], ignored: Skips) -> Storage:
    """Storage by the first group that names a tensor's module."""
    modules = Modules(model)
    untouched, mixed = modules.left(ignored, TAKES)
    found = [modules.left(scheme.targets, TAKES) for scheme in schemes]
    for scheme, (taken, _) in zip(schemes, found, strict=True):
        if scheme.named and not taken and not any(map(OTHER_PARTS.search, scheme.named)):
            raise ConfigError(
                f"quantization_config.config_groups.targets: no matrix is called {format_value(scheme.named)}"
            )
    by_block = mixed or any(block for _, block in found)
    left = set(untouched)
    for number, scheme in enumerate(schemes):
        if scheme.taken is None:
            left |= found[number][0].difference(*(named for named, _ in found[:number]))

    def choose(tensor: Stored) -> Format | None:
        if tensor.role not in TAKES or among(tensor.path, untouched):
            return None
        return next(
            (one.taken for one, (named, _) in zip(schemes, found, strict=True) if among(tensor.path, named)), None
        )

    kinds = [scheme.taken for scheme in schemes if scheme.taken is not None]
    name = " + ".join(dict.fromkeys(kind.name for kind in kinds))
    about = "; ".join(dict.fromkeys(kind.about for kind in kinds))
    return Storage(
        name or "compressed-tensors",
        choose,
        width(rest(model)),
        TAKES,
        rounds=True,
        about=about,
        by_block=by_block,
        ahead=modules.ahead(),
        left=frozenset(left),
    )
