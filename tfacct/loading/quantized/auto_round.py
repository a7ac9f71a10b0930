"""Intel's AutoRound: the packing of GPTQ or AWQ, with different bits or groups for single modules."""

from __future__ import annotations

from typing import Any

from tfacct.base.errors import ConfigError
from tfacct.ledger import formats
from tfacct.ledger.formats import Format
from tfacct.ledger.storage import Storage
from tfacct.loading.model_description import ModelDescription
from tfacct.loading.quantized.compressed import Scheme, by_schemes
from tfacct.loading.quantized.fields import FieldReader
from tfacct.loading.quantized.names import by_name, by_target, patterns

WIDE = 16
"""Bits of a number that is not quantized."""
GPTQ = ("auto_round:auto_gptq", "auto_round:gptq", "auto_round")
INDEXED = ("auto_round:gptqmodel", "auto_round:auto_gptqmodel")
"""Packings that also store the group number of each input."""
AWQ = ("auto_round:auto_awq", "auto_round:awq")
IGNORED_FIELDS = """
    amp autoround_version batch_size dataset desc_act enable_minmax_tuning enable_norm_bias_tuning enable_quanted_input
    gradient_accumulate_steps iters low_gpu_mem_usage lr minmax_lr model_free nblocks nsamples scale_dtype
    provider seqlen supported_types sym enable_alg_ext damp_percent true_sequential backend
"""
"""Fields on how the numbers were computed."""
ACTIVATIONS = "act_group_size act_sym act_data_type act_dynamic"


def storage_of(model: ModelDescription, read: FieldReader) -> Storage:
    """Storage of an AutoRound checkpoint. Raises ConfigError."""
    packing = read.choice("packing_format", (*GPTQ, *INDEXED, *AWQ), GPTQ[0])
    if "awq" in str(read.get("backend")) and not read.has("packing_format"):
        raise read.unsupported("backend", "expected a backend with a packing_format")
    bits, group = read.bits((2, 3, 4, 8)), read.group()
    if packing in AWQ and bits != 4:
        raise read.unsupported("bits", "expected 4, as AWQ packs")
    rules = _rules(read.inner("extra_config"), packing, (bits, group))
    head = rules.get("lm_head") is not None
    if read.boolean("quant_lm_head") and not head:
        raise read.unsupported("quant_lm_head", "expected lm_head in extra_config")
    check_integers(read)
    check_blocks(read)
    read.require_off("modules_in_block_to_quantize")
    read.check_all_read(f"{IGNORED_FIELDS} {ACTIVATIONS}")
    schemes = [Scheme(by_name(name), weight_format) for name, weight_format in rules.items()]
    every = Scheme(by_target(["Linear"]), _packed(packing, bits, group))
    return by_schemes(model, [*schemes, every], by_target([] if head else ["lm_head"]), layers_only=True)


def _rules(rules: FieldReader | None, packing: str, given: tuple[int, int | None]) -> dict[str, Format | None]:
    """Formats of single modules by name or pattern; None for one that is not quantized."""
    found: dict[str, Format | None] = {}
    if rules is None:
        return found
    for name in rules.fields:
        rule = rules.inner(name)
        if rule is None:
            raise ConfigError(f"{rules.path(name)} is not an object with fields")
        patterns(rules.where, [name])
        bits = rule.integer_choice("bits", (2, 3, 4, 8, WIDE, 2 * WIDE), given[0])
        group = rule.group() if rule.has("group_size") else given[1]
        if bits >= WIDE:
            rule.get("data_type")
        else:
            check_integers(rule)
        rule.check_all_read(f"sym {ACTIVATIONS} act_bits super_bits super_group_size")
        found[name] = None if bits >= WIDE else _packed(packing, bits, group)
    return found


def _packed(packing: str, bits: int, group: int | None) -> Format:
    if packing in AWQ:
        return formats.awq(bits, group)
    return formats.gptq(bits, group, indexed=packing in INDEXED)


def check_integers(read: FieldReader) -> None:
    """Check for integer weights and unquantized activations. Raises ConfigError."""
    read.choice("data_type", ("int",), "int")
    read.require_off("super_bits", "super_group_size", "rotation_config", "rotation_configs", "transform_config")
    if read.integer("act_bits", WIDE) < WIDE:
        raise read.unsupported("act_bits", f"expected {WIDE}")


def check_blocks(read: FieldReader) -> None:
    """Check that a list of blocks has all layers of the language model. Raises ConfigError."""
    for field in ("block_name_to_quantize", "to_quant_block_names", "quant_block_list"):
        named: Any = read.get(field)
        if named is None:
            continue
        names = _flat(named) if isinstance(named, list) else str(named).split(",")
        if not any(name.strip().endswith(("layers", "blocks", "h")) for name in names):
            raise read.unsupported(field, "expected the name of all layers")


def _flat(named: list[Any]) -> list[str]:
    """Names from nested lists."""
    return [name for one in named for name in (_flat(one) if isinstance(one, list) else [str(one)])]
