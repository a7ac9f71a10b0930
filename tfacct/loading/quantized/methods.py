"""Quantization methods, one function each: from a `quantization_config` to the storage of the model.

Fields that change no bytes are listed; other unknown fields are errors. Sources: the config classes of transformers
(`utils/quantization_config.py`) and, for the bytes, the libraries that `ledger.formats` names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tfacct.base.errors import ConfigError, nearest
from tfacct.base.pydantic_messages import format_value
from tfacct.ledger import formats
from tfacct.ledger.formats import Format
from tfacct.ledger.storage import MATRICES, Role, Storage, Stored, width
from tfacct.loading.model_description import ModelDescription
from tfacct.loading.quantized import auto_round, compressed, mlx, modelopt
from tfacct.loading.quantized.fields import FieldReader
from tfacct.loading.quantized.names import (
    Modules,
    Skips,
    by_part,
    by_target,
    by_transformers,
    patterns,
    unquantized_dtype,
)

HEAD: frozenset[Role] = frozenset(("head",))
EXPERTS: frozenset[Role] = frozenset(("expert",))
SKIPPED = "modules_to_not_convert"
IN_BLOCK = "modules_in_block_to_quantize"
HOW_QUANTIZED = (
    "desc_act sym true_sequential static_groups damp_percent damp_auto_increment model_name_or_path"
    " model_file_base_name meta use_exllama exllama_config backend"
    " act_group_aware dataset tokenizer batch_size model_seqlen pad_token_id max_input_length use_cuda_fp16"
    " module_name_preceding_first_block cache_block_outputs disable_exllama mse offload_to_disk"
)
"""Fields of GPTQ's configs about how to quantize and run, not what is stored. AWQ's have them in transformers 5."""


def storage_of(model: ModelDescription, fields: Mapping[str, Any], where: str) -> Storage:
    """Storage of a model from these fields; `where` is their name in messages. Raises ConfigError if not supported."""
    method = _method(fields)
    if fields.get("quant_method") is None and method not in METHODS:
        raise ConfigError(f"{where or 'it'} has no quant_method, so the bytes are unknown")
    if method not in METHODS:
        raise ConfigError(
            f"quant_method = {format_value(method)} is not supported",
            nearest(str(method), METHODS) or f"known methods: {', '.join(METHODS)}",
        )
    return METHODS[method](model, FieldReader(fields, where))


def _method(fields: Mapping[str, Any]) -> str:
    """Name of the method, which old files of bitsandbytes, MLX and Model Optimizer lack."""
    method = fields.get("quant_method")
    if method is None and any(fields.get(f"load_in_{bits}bit") for bits in (4, 8)):
        return "bitsandbytes"
    if method is None and mlx.is_mlx(fields):
        return "mlx"
    if method == "intel/auto-round":
        return "auto-round"  # its first name
    producer = fields.get("producer")
    if method is None and isinstance(producer, Mapping) and producer.get("name") == "modelopt":
        return "modelopt"
    return str(method)


def uniform_storage(
    model: ModelDescription,
    weight_format: Format,
    *,
    roles: frozenset[Role] = MATRICES,
    skips: Skips | None = None,
    layers_only: bool = False,
) -> Storage:
    """Storage in one format for tensors of these roles that are not skipped. `layers_only`: matrices outside the layers
    are not quantized."""
    modules = Modules(model, layers_only=layers_only)
    left, by_block = modules.skipped(skips, roles) if skips is not None else (frozenset[str](), False)
    outside = modules.outside(roles)

    return Storage(
        weight_format.name,
        lambda tensor: (
            weight_format if (tensor.role in roles or tensor.path in outside) and tensor.path not in left else None
        ),
        width(unquantized_dtype(model)),
        roles,
        rounds=True,
        about=weight_format.about,
        by_block=by_block,
        ahead=modules.offsets(),
        left=left,
    )


def _listed(
    model: ModelDescription, read: FieldReader, field: str = SKIPPED, *, adds: bool = False
) -> tuple[Skips | None, frozenset[Role]]:
    """Skipped modules, including those of the class, and quantized roles.

    The head is quantized if there is a list, unless the method `adds` it to the list.
    """
    listed = read.get(field)
    names = [*patterns(read.path(field), listed), *model.config.keep_in_fp32_modules]
    head = frozenset[Role]() if listed is None or adds else HEAD
    return (by_transformers(names) if names else None), MATRICES | head


def _fp8(model: ModelDescription, read: FieldReader) -> Storage:
    # DeepSeek-V4's configs have expert_dtype at the top level; its class moves it here.
    read = FieldReader({"expert_dtype": model.raw.get("expert_dtype"), **read.fields}, read.where)
    # AutoFP8 has one scale per matrix, and other names of fields than transformers.
    in_blocks = not any(map(read.has, ("weight_block_size", "ignored_layers", "kv_cache_scheme")))
    block = read.pair("weight_block_size", (128, 128) if in_blocks else None)
    scheme = read.choice("activation_scheme", ("dynamic", "static"), "dynamic")
    scale = {"float": 4, "ue8m0": 1}[read.choice("scale_fmt", ("float", "ue8m0"), "float")]
    read.choice("fmt", ("e4m3", "float8_e4m3fn"), "e4m3")
    read.choice("kv_cache_scheme", ("static",), "static")  # for the cache, not the weights
    experts = read.choice("expert_dtype", ("fp8", "fp4"), "fp8")
    of_experts = modelopt.of_experts(model, read) if read.has("moe_quant_algo") else formats.MXFP4
    read.require_off("modules_to_convert")  # embeddings
    skips, roles = _fp8_list(model, read)
    read.check_all_read("dequantize packed_modules_mapping")
    if scale == 1 and model.family in ("deepseek_v3", "deepseek_v32"):
        scale = 4  # DeepSeek-V3.1 and V3.2 round their scales to powers of two and store them in 32 bits
    found = uniform_storage(model, formats.fp8(block, scale=scale, static=scheme == "static"), roles=roles, skips=skips)
    if experts == "fp8":
        if read.has("moe_quant_algo"):
            raise read.unsupported("moe_quant_algo", "expert_dtype fp4 is also given")
        return found
    if (scheme, scale) != ("dynamic", 1):
        raise read.unsupported("expert_dtype", "fp4 needs scale_fmt ue8m0 and dynamic activations")
    return _experts_in_fp4(found, of_experts)


def _fp8_list(model: ModelDescription, read: FieldReader) -> tuple[Skips | None, frozenset[Role]]:
    """Skipped modules of an FP8 checkpoint. AutoFP8, vLLM and MiMo call them `ignored_layers` and never quantize the
    head."""
    ignores = read.has("ignored_layers")
    return _listed(model, read, "ignored_layers" if ignores else SKIPPED, adds=ignores)


def _mxfp8(model: ModelDescription, read: FieldReader) -> Storage:
    """MiniMax-M3's MXFP8 files: `weight` in 8-bit floats, and one byte of `weight_scale_inv` per 32 inputs."""
    if read.pair("weight_block_size", (1, 32)) != (1, 32):  # OCP's block, optional in a config
        raise read.unsupported("weight_block_size", "expected [1, 32]")
    read.choice("activation_scheme", ("dynamic",), "dynamic")
    read.choice("scale_fmt", ("ue8m0",), "ue8m0")
    read.choice("fmt", ("e4m3", "float8_e4m3fn"), "e4m3")
    read.choice("expert_dtype", ("fp8",), "fp8")
    read.require_off("modules_to_convert")
    skips, roles = _fp8_list(model, read)
    read.check_all_read("dequantize packed_modules_mapping")
    return uniform_storage(model, formats.MX[8], roles=roles, skips=skips)


def _experts_in_fp4(found: Storage, weight_format: Format) -> Storage:
    """FP8 storage with experts in a block format. transformers' `FP8Experts`, and Model Optimizer's."""

    def choose(tensor: Stored) -> Format | None:
        in_fp8 = found.choose(tensor)
        return weight_format if in_fp8 is not None and tensor.role == "expert" else in_fp8

    about = f"{found.about}; experts in 4-bit floats, {weight_format.about}"
    return replace(found, name=f"{found.name} + {weight_format.name}", choose=choose, about=about)


def _gptq(model: ModelDescription, read: FieldReader) -> Storage:
    bits, group = read.bits((2, 3, 4, 8)), read.group()
    head = read.boolean("lm_head")
    rules = _dynamic(read.inner("dynamic"), (bits, group))
    auto_round.check_blocks(read)
    auto_round.check_integers(read)
    alone = _in_block(read)
    read.require_off("hyb_act", "is_marlin_format", "quant_lm_head")
    for field in ("checkpoint_format", "format"):
        read.choice(field, ("gptq", "gptq_v2"), "gptq")
    read.choice("pack_dtype", ("int32",), "int32")
    read.check_all_read(f"{HOW_QUANTIZED} {auto_round.IGNORED_FIELDS}")
    if alone is not None and (rules or head):
        raise read.unsupported(IN_BLOCK, "expected a config without dynamic and lm_head")
    if alone is not None:
        scheme = compressed.Scheme(alone, formats.gptq(bits, group))
        return compressed.by_schemes(model, [scheme], by_target([]), layers_only=True)
    if not rules:
        roles = MATRICES | (HEAD if head else frozenset())
        return uniform_storage(model, formats.gptq(bits, group), roles=roles, layers_only=True)
    every = compressed.Scheme(by_target(["Linear"]), formats.gptq(bits, group))
    return compressed.by_schemes(model, [*rules, every], by_target([] if head else ["lm_head"]), layers_only=True)


def _in_block(read: FieldReader) -> Skips | None:
    """Optimum's nested list of the quantized modules of a layer; None for all."""
    listed = read.get(IN_BLOCK)
    if not listed:
        return None
    nested = isinstance(listed, list) and all(isinstance(names, list) for names in listed)
    flat = [name for names in listed for name in names] if nested else listed
    ends = tuple(f".{name}" for name in patterns(read.path(IN_BLOCK), flat))
    return lambda path: path.endswith(ends)


def _dynamic(rules: FieldReader | None, given: tuple[int, int | None]) -> list[compressed.Scheme]:
    """GPTQModel's rules for modules; the first match applies. `-:` skips modules, others change bits or groups."""
    found: list[compressed.Scheme] = []
    if rules is None:
        return found
    for rule in rules.fields:
        pattern = rule.removeprefix("-:").removeprefix("+:")
        (matched,) = patterns(rules.where, [f"re:{pattern}"])
        if rule.startswith("-:"):
            found.append(compressed.Scheme(by_target([matched]), None))
            continue
        fields = rules.inner(rule) or FieldReader({})
        bits = fields.integer_choice("bits", (2, 3, 4, 8), given[0])
        group = fields.group() if fields.has("group_size") else given[1]
        fields.check_all_read("desc_act sym damp_percent mse")
        found.append(compressed.Scheme(by_target([matched]), formats.gptq(bits, group)))
    return found


def _awq(model: ModelDescription, read: FieldReader) -> Storage:
    bits, group = read.bits((4,)), read.group()
    if not read.boolean("zero_point", default=True):
        raise read.unsupported("zero_point", "expected true, for awq")
    for field in ("version", "format", "checkpoint_format"):
        read.choice(field, ("gemm", "GEMM"), "gemm")
    read.choice("pack_dtype", ("int32",), "int32")
    read.require_off("lm_head", "dynamic", IN_BLOCK, "is_marlin_format", "quant_lm_head")
    auto_round.check_blocks(read)
    auto_round.check_integers(read)
    names = patterns(read.path(SKIPPED), read.get(SKIPPED))
    read.check_all_read(
        f"{HOW_QUANTIZED} {auto_round.IGNORED_FIELDS} do_fuse fuse_max_seq_len modules_to_fuse model_type"
    )
    return uniform_storage(model, formats.awq(bits, group), skips=by_part(names) if names else None, layers_only=True)


def _bitsandbytes(model: ModelDescription, read: FieldReader) -> Storage:
    switches = {bits: [read.boolean(f"{way}load_in_{bits}bit") for way in ("", "_")] for bits in (4, 8)}
    four, eight = (any(switches[bits]) for bits in (4, 8))
    skips, roles = _listed(model, read, "llm_int8_skip_modules")
    kind = read.choice("bnb_4bit_quant_type", ("nf4", "fp4"), "fp4")
    double = read.boolean("bnb_4bit_use_double_quant")
    half = read.boolean("llm_int8_has_fp16_weight")
    read.check_all_read(
        "bnb_4bit_compute_dtype bnb_4bit_quant_storage llm_int8_threshold llm_int8_enable_fp32_cpu_offload"
    )
    if four == eight or half:
        raise ConfigError("quantization_config of bitsandbytes must load in 4 bits or in 8")
    weight_format = formats.bnb4(double=double, name=kind) if four else formats.rows8("bnb-int8")
    return uniform_storage(model, weight_format, roles=roles, skips=skips)


def _mxfp4(model: ModelDescription, read: FieldReader) -> Storage:
    skips, _ = _listed(model, read)
    read.check_all_read("dequantize")
    return uniform_storage(model, formats.MXFP4, roles=EXPERTS, skips=skips)


def _fbgemm(model: ModelDescription, read: FieldReader) -> Storage:
    skips, roles = _listed(model, read)
    read.check_all_read("activation_scale_ub")
    return uniform_storage(model, formats.rows8("fp8-row"), roles=roles, skips=skips)


def _hqq(model: ModelDescription, read: FieldReader) -> Storage:
    inner = read.inner("quant_config")
    weights = inner.inner("weight_quant_params") if inner is not None else None
    if inner is None or weights is None:
        raise ConfigError(f"{read.path('quant_config.weight_quant_params')} is missing")
    bits, group = weights.integer_choice("nbits", (1, 2, 3, 4, 8), 4), weights.integer("group_size", 64)
    axis = weights.integer_choice("axis", (0, 1), 1)
    weights.check_all_read("channel_wise optimize round_zero view_as_float bitpack")
    inner.require_off("scale_quant_params", "zero_quant_params")
    inner.check_all_read("offload_meta quant_zero quant_scale")
    names = patterns(read.path("skip_modules"), read.get("skip_modules"))
    read.check_all_read()
    return uniform_storage(model, formats.hqq(bits, group, axis), skips=by_transformers(names) if names else None)


def _torchao(model: ModelDescription, read: FieldReader) -> Storage:
    read.require_off("include_input_output_embeddings", "untie_embedding_weights")
    quant_type = read.get("quant_type")
    if isinstance(quant_type, str):  # older files
        weight_format = _torchao_format(
            quant_type, 1, read.inner("quant_type_kwargs") or FieldReader({}, "quant_type_kwargs")
        )
    else:
        config = read.inner("quant_type")
        made_of = config.inner("default") if config is not None else None
        if config is None or made_of is None:
            raise read.unsupported("quant_type", "expected a name, or an object with `default`")
        config.check_all_read()
        data = made_of.inner("_data") or FieldReader({}, "quant_type._data")
        weight_format = _torchao_format(str(made_of.get("_type")), made_of.integer("_version", 1), data)
        made_of.check_all_read()
    skips, roles = _listed(model, read)
    read.check_all_read("quant_type_kwargs")
    return uniform_storage(model, weight_format, roles=roles, skips=skips)


def _torchao_format(name: str, version: int, data: FieldReader) -> Format:
    """Format of a torchao config: 4 bits in groups, in tiles for version 1 or by packing, or 8 bits per number."""
    version = data.integer("version", version)
    data.check_all_read(
        "group_size set_inductor_config layout version use_hqq zero_point_domain preserve_zero int4_packing_format"
        " int4_choose_qparams_algorithm act_mapping_type weight_only_decode granularity reduce_range"
        " int4_tile_packed_ntile"
    )
    if name in ("int4_weight_only", "Int4WeightOnlyConfig"):
        given = data.get("int4_packing_format") or "plain"
        packing_name = given.get("_data") if isinstance(given, Mapping) else given
        packing = str(packing_name).rpartition(".")[2].lower()
        if packing not in ("plain", "tile_packed_to_4d"):
            raise data.unsupported("int4_packing_format", "expected plain or tile_packed_to_4d")
        tiles = version == 1 or packing != "plain"
        return formats.int4_groups(data.integer_choice("group_size", (32, 64, 128, 256), 128), tiles=tiles)
    if version == 2 and name in ("Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"):
        return formats.rows8("int8-row", scale=5)._replace(
            about="8-bit numbers, with a scale and a zero point per output"
        )
    raise ConfigError(f"torchao's {format_value(name)} of version {version} is not supported")


def _bitnet(model: ModelDescription, read: FieldReader) -> Storage:
    skips, roles = _listed(model, read)
    read.choice("linear_class", ("bitlinear", "autobitlinear"), "bitlinear")
    read.choice("quantization_mode", ("offline",), "offline")
    read.require_off("use_rms_norm")
    read.check_all_read("rms_norm_eps")
    return uniform_storage(model, formats.ternary(), roles=roles, skips=skips)


METHODS: Mapping[str, Callable[[ModelDescription, FieldReader], Storage]] = {
    "fp8": _fp8,
    "gptq": _gptq,
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
    "mxfp8": _mxfp8,
    "compressed-tensors": compressed.storage_of,
    "modelopt": modelopt.storage_of,
    "auto-round": auto_round.storage_of,
    "fbgemm_fp8": _fbgemm,
    "hqq": _hqq,
    "torchao": _torchao,
    "mlx": mlx.storage_of,
    "bitnet": _bitnet,
}
