"""Intel's AutoRound: the packing of GPTQ or of AWQ, and for single modules bits or groups of their own."""

from __future__ import annotations

from typing import Any

from tfacct.base.errors import ConfigError
from tfacct.ledger import formats
from tfacct.ledger.formats import Format
from tfacct.ledger.storage import Storage
from tfacct.loading.model_description import ModelDescription
from tfacct.loading.quantized.compressed import Scheme, by_schemes
from tfacct.loading.quantized.fields import Read
from tfacct.loading.quantized.names import by_name, by_target, patterns

WIDE = 16
"""Bits of a number that is not quantized."""
GPTQ = ("auto_round:auto_gptq", "auto_round:gptq", "auto_round")
INDEXED = ("auto_round:gptqmodel", "auto_round:auto_gptqmodel")
"""Packings that hold the number of each input's group, too."""
AWQ = ("auto_round:auto_awq", "auto_round:awq")
HARMLESS = """
    amp autoround_version batch_size dataset desc_act enable_minmax_tuning enable_norm_bias_tuning enable_quanted_input
    gradient_accumulate_steps iters low_gpu_mem_usage lr minmax_lr model_free nblocks nsamples quant_lm_head scale_dtype
    seqlen supported_types sym enable_alg_ext damp_percent true_sequential backend
"""
"""Fields of how the numbers were found."""
ACTIVATIONS = "act_group_size act_sym act_data_type act_dynamic"


def storage_of(model: ModelDescription, read: Read) -> Storage:
    """Storage of a checkpoint of AutoRound. Raises ConfigError."""
    packing = read.one("packing_format", (*GPTQ, *INDEXED, *AWQ), GPTQ[0])
    if "awq" in str(read.get("backend")) and not read.has("packing_format"):
        raise read.refuse("backend", "one with a packing_format is")
    bits, group = read.needed("bits").number("bits", (2, 3, 4, 8), 0), _group(read, None)
    if packing in AWQ and bits != 4:
        raise read.refuse("bits", "4 is, as AWQ packs them")
    rules = _rules(read.inner("extra_config"), packing, (bits, group))
    _check(read)
    check_blocks(read)
    read.none("modules_in_block_to_quantize")
    read.done(f"{HARMLESS} {ACTIVATIONS}")
    schemes = [Scheme(by_name(name), taken) for name, taken in rules.items()]
    head = rules.get("lm_head") is not None
    every = Scheme(by_target(["Linear"]), _packed(packing, bits, group))
    return by_schemes(model, [*schemes, every], by_target([] if head else ["lm_head"]))


def _rules(own: Read | None, packing: str, given: tuple[int, int | None]) -> dict[str, Format | None]:
    """The format of each module that has its own, by its name or a pattern; None for one that stays as it is."""
    found: dict[str, Format | None] = {}
    if own is None:
        return found
    for name in own.fields:
        rule = own.inner(name)
        if rule is None:
            raise ConfigError(f"{own.path(name)} is no object of fields")
        patterns(own.where, [name])
        bits = rule.number("bits", (2, 3, 4, 8, WIDE, 2 * WIDE), given[0])
        group = _group(rule, given[1]) if rule.has("group_size") else given[1]
        if bits >= WIDE:
            rule.get("data_type")
        else:
            _check(rule)
        rule.done(f"sym {ACTIVATIONS} act_bits super_bits super_group_size")
        found[name] = None if bits >= WIDE else _packed(packing, bits, group)
    return found


def _packed(packing: str, bits: int, group: int | None) -> Format:
    if packing in AWQ:
        return formats.awq(bits, group)
    return formats.gptq(bits, group, indexed=packing in INDEXED)


def _group(read: Read, given: int | None) -> int | None:
    """Inputs of a group; None for all, which is spelled -1. Raises ConfigError."""
    size = read.needed("group_size").whole("group_size", given or -1, least=-1)
    if size == 0:
        raise ConfigError(f"{read.path('group_size')} must be above 0, or -1")
    return None if size == -1 else size


def _check(read: Read) -> None:
    """Refuse what is not whole numbers beside activations as they are. Raises ConfigError."""
    read.one("data_type", ("int",), "int")
    read.none("super_bits", "super_group_size", "rotation_config", "rotation_configs", "transform_config")
    if read.whole("act_bits", WIDE) < WIDE:
        raise read.refuse("act_bits", f"{WIDE} is")


def check_blocks(read: Read) -> None:
    """Refuse a list of blocks that are not all the layers of a language model. Raises ConfigError."""
    for field in ("block_name_to_quantize", "to_quant_block_names", "quant_block_list"):
        named: Any = read.get(field)
        if named is None:
            continue
        names = _flat(named) if isinstance(named, list) else str(named).split(",")
        if not any(name.strip().endswith(("layers", "blocks", "h")) for name in names):
            raise read.refuse(field, "a name of all layers is")


def _flat(named: list[Any]) -> list[str]:
    """Names, out of a list of lists."""
    return [name for one in named for name in (_flat(one) if isinstance(one, list) else [str(one)])]
