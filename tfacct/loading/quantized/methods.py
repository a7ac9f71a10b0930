"""The methods of a `quantization_config`, one function each: its checked fields in, the storage of the model out.

Fields that change no byte are named as such; any other is refused. Sources: the config classes of transformers
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
from tfacct.loading.quantized.fields import Read
from tfacct.loading.quantized.names import Modules, Skips, by_part, by_target, by_transformers, patterns, rest

HEAD: frozenset[Role] = frozenset(("head",))
EXPERTS: frozenset[Role] = frozenset(("expert",))
SKIPPED = "modules_to_not_convert"
IN_BLOCK = "modules_in_block_to_quantize"


def storage_of(model: ModelDescription, fields: Mapping[str, Any], where: str) -> Storage:
    """Storage of a model whose config says this of its weights, in what a message calls `where`. Raises ConfigError for
    what is not known."""
    method = _method(fields)
    if fields.get("quant_method") is None and method not in METHODS:
        raise ConfigError(f"{where or 'it'} names no quant_method: its bytes are not guessed")
    if method not in METHODS:
        raise ConfigError(
            f"quant_method = {format_value(method)} is not known: its bytes are not guessed",
            nearest(str(method), METHODS) or f"known methods: {', '.join(METHODS)}",
        )
    return METHODS[method](model, Read(fields, where))


def _method(fields: Mapping[str, Any]) -> str:
    """The method, which bitsandbytes, MLX and Model Optimizer once left out."""
    method = fields.get("quant_method")
    if method is None and any(fields.get(f"load_in_{bits}bit") for bits in (4, 8)):
        return "bitsandbytes"
    if method is None and mlx.is_mlx(fields):
        return "mlx"
    if method == "intel/auto-round":
        return "auto-round"  # as it was first called
    producer = fields.get("producer")
    if method is None and isinstance(producer, Mapping) and producer.get("name") == "modelopt":
        return "modelopt"
    return str(method)


def made(
    model: ModelDescription,
    taken: Format,
    *,
    takes: frozenset[Role] = MATRICES,
    skips: Skips | None = None,
    joined: bool = True,
) -> Storage:
    """Storage in one format: of the tensors of these roles those that a list does not leave as they are."""
    modules = Modules(model)
    left, by_block = modules.left(skips, takes) if skips is not None else (frozenset[str](), False)

    return Storage(
        taken.name,
        lambda tensor: taken if tensor.role in takes and tensor.path not in left else None,
        width(rest(model)),
        takes,
        rounds=True,
        about=taken.about,
        by_block=by_block,
        ahead=modules.ahead() if joined else None,
        left=left,
    )


def _listed(
    model: ModelDescription, read: Read, field: str = SKIPPED, *, adds: bool = False
) -> tuple[Skips | None, frozenset[Role]]:
    """A list of modules that stay as they are, with those that the class adds to any list, and the roles that are
    taken: the head too where a list is given that does not name it, unless the method `adds` it."""
    listed = read.get(field)
    names = [*patterns(read.path(field), listed), *model.config.keep_in_fp32_modules]
    head = frozenset[Role]() if listed is None or adds else HEAD
    return (by_transformers(names) if names else None), MATRICES | head


def _fp8(model: ModelDescription, read: Read) -> Storage:
    # DeepSeek-V4's configs say the dtype of their experts outside; its class moves it here.
    read = Read({"expert_dtype": model.raw.get("expert_dtype"), **read.fields}, read.where)
    # AutoFP8 has one scale for each matrix, and calls fields as transformers does not.
    whole = any(map(read.has, ("weight_block_size", "ignored_layers", "kv_cache_scheme")))
    block = read.pair("weight_block_size", None if whole else (128, 128))
    scheme = read.one("activation_scheme", ("dynamic", "static"), "dynamic")
    scale = {"float": 4, "ue8m0": 1}[read.one("scale_fmt", ("float", "ue8m0"), "float")]
    read.one("fmt", ("e4m3", "float8_e4m3fn"), "e4m3")
    read.one("kv_cache_scheme", ("static",), "static")  # of the cache, not of the weights
    experts = read.one("expert_dtype", ("fp8", "fp4"), "fp8")
    of_experts = modelopt.of_experts(model, read) if read.has("moe_quant_algo") else formats.MXFP4
    skips, takes = _fp8_list(model, read)
    read.done("dequantize packed_modules_mapping")
    if scale == 1 and model.family in ("deepseek_v3", "deepseek_v32"):
        scale = 4  # DeepSeek-V3.1 and V3.2 round their scales to powers of two and store them in 32 bits
    found = made(model, formats.fp8(block, scale=scale, static=scheme == "static"), takes=takes, skips=skips)
    if experts == "fp8":
        if read.has("moe_quant_algo"):
            raise read.refuse("moe_quant_algo", "expert_dtype fp4 is given too")
        return found
    if (scheme, scale) != ("dynamic", 1):
        raise read.refuse("expert_dtype", "fp4 needs scale_fmt ue8m0 and dynamic activations")
    return _experts_in_fp4(found, of_experts)


def _fp8_list(model: ModelDescription, read: Read) -> tuple[Skips | None, frozenset[Role]]:
    """The list of an FP8 checkpoint. AutoFP8, vLLM and MiMo call it `ignored_layers`, and never quantize the head."""
    own = read.has("ignored_layers")
    return _listed(model, read, "ignored_layers" if own else SKIPPED, adds=own)


def _mxfp8(model: ModelDescription, read: Read) -> Storage:
    """MiniMax-M3's MXFP8 files: `weight` in 8-bit floats, and a byte of `weight_scale_inv` for 32 inputs."""
    if read.pair("weight_block_size", (1, 32)) != (1, 32):  # OCP's block, which a config need not name
        raise read.refuse("weight_block_size", "[1, 32] is")
    read.one("activation_scheme", ("dynamic",), "dynamic")
    read.one("scale_fmt", ("ue8m0",), "ue8m0")
    read.one("fmt", ("e4m3", "float8_e4m3fn"), "e4m3")
    skips, takes = _fp8_list(model, read)
    read.done("dequantize packed_modules_mapping")
    return made(model, formats.MX[8], takes=takes, skips=skips)


def _experts_in_fp4(found: Storage, taken: Format) -> Storage:
    """What is stored in fp8, but experts in small blocks. transformers' `FP8Experts`, and Model Optimizer's."""

    def choose(tensor: Stored) -> Format | None:
        in_fp8 = found.choose(tensor)
        return taken if in_fp8 is not None and tensor.role == "expert" else in_fp8

    about = f"{found.about}; experts in 4-bit floats, {taken.about}"
    return replace(found, name=f"{found.name} + {taken.name}", choose=choose, about=about)


def _bits(read: Read, known: tuple[int, ...]) -> int:
    return read.needed("bits").number("bits", known, 0)


def _group(read: Read) -> int | None:
    """Inputs of a group; None for all, which is spelled -1."""
    size = read.needed("group_size").whole("group_size", 0, least=-1)
    if size == 0:
        raise ConfigError(f"{read.path('group_size')} must be above 0, or -1")
    return None if size == -1 else size


def _gptq(model: ModelDescription, read: Read) -> Storage:
    bits, group = _bits(read, (2, 3, 4, 8)), _group(read)
    head = read.switch("lm_head")
    rules = _dynamic(read.inner("dynamic"), (bits, group))
    auto_round.check_blocks(read)
    alone = _in_block(read)
    read.none("hyb_act")
    read.one("pack_dtype", ("int32",), "int32")
    read.done(
        "desc_act sym true_sequential static_groups damp_percent damp_auto_increment model_name_or_path"
        " model_file_base_name checkpoint_format meta is_marlin_format format use_exllama exllama_config backend"
        " act_group_aware dataset tokenizer batch_size model_seqlen pad_token_id max_input_length use_cuda_fp16"
        " module_name_preceding_first_block cache_block_outputs disable_exllama mse offload_to_disk"
    )
    if alone is not None and (rules or head):
        raise read.refuse(IN_BLOCK, "one without dynamic and lm_head is")
    if alone is not None:
        return compressed.by_schemes(model, [compressed.Scheme(alone, formats.gptq(bits, group))], by_target([]))
    if not rules:
        return made(model, formats.gptq(bits, group), takes=MATRICES | (HEAD if head else frozenset()))
    every = compressed.Scheme(by_target(["Linear"]), formats.gptq(bits, group))
    return compressed.by_schemes(model, [*rules, every], by_target([] if head else ["lm_head"]))


def _in_block(read: Read) -> Skips | None:
    """Optimum's list of the modules of a block that are taken, in lists of those that are taken together; None where
    all are."""
    listed = read.get(IN_BLOCK)
    if not listed:
        return None
    nested = isinstance(listed, list) and all(isinstance(names, list) for names in listed)
    flat = [name for names in listed for name in names] if nested else listed
    ends = tuple(f".{name}" for name in patterns(read.path(IN_BLOCK), flat))
    return lambda path: path.endswith(ends)


def _dynamic(rules: Read | None, given: tuple[int, int | None]) -> list[compressed.Scheme]:
    """GPTQModel's rules for modules, the first that matches: `-:` leaves them as they are, others say what differs."""
    found: list[compressed.Scheme] = []
    if rules is None:
        return found
    for rule in rules.fields:
        pattern = rule.removeprefix("-:").removeprefix("+:")
        (matched,) = patterns(rules.where, [f"re:{pattern}"])
        if rule.startswith("-:"):
            found.append(compressed.Scheme(by_target([matched]), None))
            continue
        own = rules.inner(rule) or Read({})
        bits = own.number("bits", (2, 3, 4, 8), given[0])
        group = _group(own) if own.has("group_size") else given[1]
        own.done("desc_act sym damp_percent mse")
        found.append(compressed.Scheme(by_target([matched]), formats.gptq(bits, group)))
    return found


def _awq(model: ModelDescription, read: Read) -> Storage:
    bits, group = _bits(read, (4,)), _group(read)
    if not read.switch("zero_point", default=True):
        raise read.refuse("zero_point", "true is, for awq")
    read.one("version", ("gemm", "GEMM"), "gemm")
    names = patterns(read.path(SKIPPED), read.get(SKIPPED))
    read.done("backend do_fuse fuse_max_seq_len modules_to_fuse exllama_config model_type")
    return made(model, formats.awq(bits, group), skips=by_part(names) if names else None)


def _bitsandbytes(model: ModelDescription, read: Read) -> Storage:
    switches = {bits: [read.switch(f"{way}load_in_{bits}bit") for way in ("", "_")] for bits in (4, 8)}
    four, eight = (any(switches[bits]) for bits in (4, 8))
    skips, takes = _listed(model, read, "llm_int8_skip_modules")
    kind = read.one("bnb_4bit_quant_type", ("nf4", "fp4"), "fp4")
    double = read.switch("bnb_4bit_use_double_quant")
    half = read.switch("llm_int8_has_fp16_weight")
    read.done("bnb_4bit_compute_dtype bnb_4bit_quant_storage llm_int8_threshold llm_int8_enable_fp32_cpu_offload")
    if four == eight or half:
        raise ConfigError("quantization_config of bitsandbytes must load in 4 bits or in 8")
    taken = formats.bnb4(double=double, name=kind) if four else formats.rows8("bnb-int8")
    return made(model, taken, takes=takes, skips=skips)


def _mxfp4(model: ModelDescription, read: Read) -> Storage:
    skips, _ = _listed(model, read)
    read.done("dequantize")
    return made(model, formats.MXFP4, takes=EXPERTS, skips=skips)


def _fbgemm(model: ModelDescription, read: Read) -> Storage:
    skips, takes = _listed(model, read)
    read.done("activation_scale_ub")
    return made(model, formats.rows8("fp8-row"), takes=takes, skips=skips)


def _hqq(model: ModelDescription, read: Read) -> Storage:
    inner = read.inner("quant_config")
    weights = inner.inner("weight_quant_params") if inner is not None else None
    if inner is None or weights is None:
        raise ConfigError(f"{read.path('quant_config.weight_quant_params')} is missing")
    bits, group = weights.number("nbits", (1, 2, 3, 4, 8), 4), weights.whole("group_size", 64)
    axis = weights.number("axis", (0, 1), 1)
    weights.done("channel_wise optimize round_zero view_as_float bitpack")
    inner.none("scale_quant_params", "zero_quant_params")
    inner.done("offload_meta quant_zero quant_scale")
    names = patterns(read.path("skip_modules"), read.get("skip_modules"))
    read.done()
    return made(model, formats.hqq(bits, group, axis), skips=by_transformers(names) if names else None)


def _torchao(model: ModelDescription, read: Read) -> Storage:
    read.none("include_input_output_embeddings", "untie_embedding_weights")
    quant_type = read.get("quant_type")
    if isinstance(quant_type, str):  # as older files name it
        taken = _torchao_format(quant_type, 1, read.inner("quant_type_kwargs") or Read({}, "quant_type_kwargs"))
    else:
        spelled = read.inner("quant_type")
        made_of = spelled.inner("default") if spelled is not None else None
        if spelled is None or made_of is None:
            raise read.refuse("quant_type", "a name, or one `default`, is")
        spelled.done()
        data = made_of.inner("_data") or Read({}, "quant_type._data")
        taken = _torchao_format(str(made_of.get("_type")), made_of.whole("_version", 1), data)
        made_of.done()
    skips, takes = _listed(model, read)
    read.done("quant_type_kwargs")
    return made(model, taken, takes=takes, skips=skips)


def _torchao_format(name: str, version: int, data: Read) -> Format:
    """What a config of torchao stores: groups of 4 bits, in tiles where its first version or its packing says so, or
    8 bits a number."""
    version = data.whole("version", version)
    data.done(
        "group_size set_inductor_config layout version use_hqq zero_point_domain preserve_zero int4_packing_format"
        " int4_choose_qparams_algorithm act_mapping_type weight_only_decode granularity reduce_range"
        " int4_tile_packed_ntile"
    )
    if name in ("int4_weight_only", "Int4WeightOnlyConfig"):
        given = data.get("int4_packing_format") or "plain"
        packing_name = given.get("_data") if isinstance(given, Mapping) else given
        packing = str(packing_name).rpartition(".")[2].lower()
        if packing not in ("plain", "tile_packed_to_4d"):
            raise data.refuse("int4_packing_format", "plain or tile_packed_to_4d is")
        tiles = version == 1 or packing != "plain"
        return formats.int4_groups(data.number("group_size", (32, 64, 128, 256), 128), tiles=tiles)
    if version == 2 and name in ("Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"):
        return formats.rows8("int8-row", scale=5)._replace(about="8-bit numbers, a scale and a zero for each output")
    raise ConfigError(f"torchao's {format_value(name)} of version {version} is not known: its bytes are not guessed")


def _bitnet(model: ModelDescription, read: Read) -> Storage:
    skips, takes = _listed(model, read)
    read.one("linear_class", ("bitlinear", "autobitlinear"), "bitlinear")
    read.one("quantization_mode", ("offline",), "offline")
    read.none("use_rms_norm")
    read.done("rms_norm_eps")
    return made(model, formats.ternary(), takes=takes, skips=skips)


METHODS: Mapping[str, Callable[[ModelDescription, Read], Storage]] = {
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
