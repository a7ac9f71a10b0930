"""Quantized checkpoints to the byte, compared with the libraries that write them. Kind: oracle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from inspect import signature
from typing import Any

import pytest

from tests.families import TINY
from tests.helpers.classes import causal
from tests.helpers.lazy import lazy
from tests.helpers.models import tiny
from tests.helpers.quantized import EVEN, FIVE, LLAMA, built, weighed
from tfacct.base.errors import TfacctError
from tfacct.loading.quantized import as_published

torch, hf, transformers = lazy("torch"), lazy("tfacct.reference.hf"), lazy("transformers")

finegrained_fp8, auto = lazy("transformers.integrations.finegrained_fp8"), lazy("transformers.quantizers.auto")
quantization_config = lazy("transformers.utils.quantization_config")


def linears(model: torch.nn.Module, *, head: bool = False) -> Iterator[tuple[str, torch.nn.Linear]]:
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and (head or name != "lm_head"):
            yield name, module


def total_bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def written(config: Any) -> dict[str, Any]:
    """A quantization_config as transformers writes it."""
    fields: dict[str, Any] = json.loads(json.dumps(config.to_dict()))
    return fields


def in_format(config: dict[str, Any], bytes_of: Any, *, skips: str = "lm_head") -> int:
    """Bytes of the model with each matrix of its blocks stored as `bytes_of` says."""
    model = built(config)
    rest = total_bytes(model.parameters())
    found = [module for name, module in linears(model, head=True) if skips not in name]
    return rest - total_bytes(module.weight for module in found) + sum(map(bytes_of, found))


@pytest.mark.parametrize("family", FIVE)
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_bitsandbytes_in_4_bits(kind: str, double: bool, family: str) -> None:
    functional = pytest.importorskip("bitsandbytes.functional")

    def stored(module: torch.nn.Linear) -> int:
        weight, state = functional.quantize_4bit(module.weight.data, quant_type=kind, compress_statistics=double)
        inner = [state.state2.absmax, state.state2.code, state.offset] if double else []
        return total_bytes([weight, state.absmax, state.code, *inner])

    quantization = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind}
    assert weighed(FIVE[family], {**quantization, "bnb_4bit_use_double_quant": double}) == in_format(
        FIVE[family], stored
    )


def test_bitsandbytes_in_8_bits() -> None:
    functional = pytest.importorskip("bitsandbytes.functional")

    def stored(module: torch.nn.Linear) -> int:
        weight, scale, _ = functional.int8_vectorwise_quant(module.weight.data.to(torch.float16))
        return total_bytes([weight, scale])

    assert weighed(LLAMA, {"quant_method": "bitsandbytes", "load_in_8bit": True}) == in_format(LLAMA, stored)


@pytest.mark.parametrize("family", FIVE)
@pytest.mark.parametrize("block", [[32, 64], None])
@pytest.mark.parametrize("scheme", ["dynamic", "static"])
def test_fp8_against_the_module_of_transformers(scheme: str, block: list[int] | None, family: str) -> None:
    def stored(module: torch.nn.Linear) -> int:
        other = finegrained_fp8.FP8Linear(module.in_features, module.out_features, block, activation_scheme=scheme)
        return total_bytes(tensor for name, tensor in other.named_parameters() if name != "bias")

    of_class = quantization_config.FineGrainedFP8Config(weight_block_size=block, activation_scheme=scheme)
    assert weighed(FIVE[family], written(of_class)) == in_format(FIVE[family], stored)


def test_awq_as_transformers_writes_it() -> None:
    """Its class inherits GPTQ's fields. A word of 32 bits holds 8 outputs; a group of 8 inputs has 16-bit scales and
    packed zero points. Another packing is refused."""
    config = {**LLAMA, "head_dim": 16, "num_attention_heads": 4}

    def stored(module: torch.nn.Linear) -> int:
        words, groups = module.out_features // 8, module.in_features // 8
        return 4 * module.in_features * words + groups * (2 * module.out_features + 4 * words)

    assert weighed(config, written(quantization_config.AwqConfig(group_size=8))) == in_format(config, stored)
    with pytest.raises(TfacctError, match='version = "gemv" is not supported'):
        weighed(config, written(quantization_config.AwqConfig(group_size=8, version="gemv")))


def test_mxfp8_as_transformers_writes_it() -> None:
    """One byte for each number, and one for the scale of 32 inputs."""

    def stored(module: torch.nn.Linear) -> int:
        return module.out_features * (module.in_features + -(-module.in_features // 32))

    of_class = quantization_config.FineGrainedFP8Config(
        quant_method="mxfp8", weight_block_size=[1, 32], scale_fmt="ue8m0"
    )
    config = {**LLAMA, "hidden_size": 96, "head_dim": 16, "intermediate_size": 160}
    assert weighed(config, written(of_class)) == in_format(config, stored)


@pytest.mark.parametrize("experts", ["fp4", "fp8"])
def test_deepseek_v4_in_fp8_with_experts_of_their_own(experts: str) -> None:
    """The class with its modules replaced, on meta. Key compression stays; weights of its streams are no module."""
    config = {**TINY["deepseek_v4"], "hidden_size": 64, "moe_intermediate_size": 96, "dtype": "bfloat16"}
    with torch.device("meta"):
        model = causal(config).to(torch.bfloat16)
    quantizer = quantization_config.FineGrainedFP8Config(
        weight_block_size=(16, 16), scale_fmt="ue8m0", expert_dtype=experts
    )
    auto.AutoHfQuantizer.from_config(quantizer, pre_quantized=True)._process_model_before_weight_loading(model)
    fp8 = {"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0", "weight_block_size": [16, 16]}
    assert weighed({**config, "expert_dtype": experts}, fp8) == total_bytes(model.parameters())
    assert weighed(config, {**fp8, "expert_dtype": experts}) == total_bytes(model.parameters())
    with pytest.raises(TfacctError, match='expert_dtype = "int3" is not supported'):
        weighed({**config, "expert_dtype": "int3"}, fp8)


OUTSIDE = "albert bert electra gemma3n_text gemma4_text mamba mobilebert roberta siglip_vision_model vit".split()


@pytest.mark.parametrize("family", OUTSIDE)
def test_linear_modules_outside_the_layers_are_quantized(family: str) -> None:
    """Projections of an embedding, poolers and transforms of a head, where transformers replaces all but the named
    modules. It creates biases in fp32, and files have them in bf16."""
    ours = tiny(family, dtype="bfloat16")
    model = hf.build(ours.of_class, ours.config.task_head.auto).to(torch.bfloat16)
    head = model.get_output_embeddings()
    skips = ["dt_proj", *(name for name, module in model.named_modules() if module is head)]
    quantizer = quantization_config.FineGrainedFP8Config(weight_block_size=(16, 16), modules_to_not_convert=skips)
    auto.AutoHfQuantizer.from_config(quantizer, pre_quantized=True)._process_model_before_weight_loading(model)
    stored = (
        tensor.numel() * (2 if name.endswith("bias") else tensor.element_size())
        for name, tensor in model.named_parameters()
    )
    fp8 = {"quant_method": "fp8", "weight_block_size": [16, 16], "modules_to_not_convert": skips}
    assert weighed(dict(ours.raw), fp8) == sum(stored)


@pytest.mark.parametrize("method", ["gptq", "awq", "auto-round"])
def test_methods_that_go_by_layer_leave_the_other_modules_wide(method: str) -> None:
    """Such as the projection of Gemma 4's embeddings per layer."""
    quantization = {"quant_method": method, "bits": 4, "group_size": 32}
    ours = tiny("gemma4_text", dtype="bfloat16", quantization_config=quantization)
    dtypes = {one.path: as_published(ours).dtype(one.stored) for one in ours.ledger.tensors()}
    assert dtypes["per_layer.project.weight"] == "bf16" != dtypes["blocks.*.mlp.up_proj.weight"]


@pytest.mark.parametrize(
    "family", ["deepseek_v32", "deepseek_v4", "glm_moe_dsa", "llama", "mt5", "qwen3_moe", "t5", "umt5"]
)
def test_unquantized_modules_of_a_family_are_those_of_its_class(family: str) -> None:
    ours = tiny(family)
    built = hf.build(ours.of_class, ours.config.task_head.auto)
    assert set(ours.config.keep_in_fp32_modules) == set(built._keep_in_fp32_modules or [])


def test_an_absent_field_of_hqq_is_that_of_its_config() -> None:
    """Wider weights of every known width take more bytes."""

    def hqq(**weights: Any) -> int:
        quantization = {"quant_method": "hqq", "quant_config": {"weight_quant_params": weights}}
        return weighed({**LLAMA, **EVEN}, quantization)

    absent = signature(transformers.HqqConfig).parameters
    assert hqq() == hqq(nbits=absent["nbits"].default) == hqq(group_size=absent["group_size"].default, axis=1)
    of_each = [hqq(nbits=bits) for bits in (1, 2, 3, 4, 8)]
    assert of_each == sorted({*of_each}) and hqq(group_size=32) > hqq()
