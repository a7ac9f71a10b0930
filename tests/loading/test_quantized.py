"""Quantized checkpoints by their `quantization_config`, to the byte, by hand from the libraries' modules.

Kind: golden, refusal.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.families import TINY
from tests.helpers.cli import Run
from tests.helpers.models import by_kind, kind_of_preset
from tests.helpers.quantized import EVEN, LLAMA, MIXED, W4, weighed
from tests.helpers.weight_files import folder
from tfacct import load
from tfacct.base.errors import TfacctError
from tfacct.ledger import formats
from tfacct.loading import presets
from tfacct.loading.quantized.gguf import more_bits

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 24}
ROUND: dict[str, Any] = {"quant_method": "auto-round", "bits": 4, "group_size": 24, "sym": True}
MATRICES = [(60, 72), (20, 72), (20, 72), (72, 60), (136, 72), (136, 72), (72, 136)]
"""Outputs and inputs of one block of LLAMA, of which it has three."""


def plain(config: dict[str, Any] = LLAMA) -> int:
    """Bytes of the weights in bf16."""
    return int(load(config).memory().models[0]["weights_bytes"])


def reduction(outputs: int, inputs: int, taken: formats.Format) -> int:
    """Bytes that a format saves on a bf16 matrix."""
    return 2 * outputs * inputs - int(taken.matrix(outputs, inputs))


def test_rotations_of_weights_take_no_bytes() -> None:
    """As in Laguna's files: weights are multiplied by a Hadamard matrix. A rotation of inputs is a matmul of its own,
    and may be stored."""
    group = {"targets": ["Linear"], "weights": W4}
    quantization = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group},
        "format": "pack-quantized",
    }

    def rotated(*places: str) -> dict[str, Any]:
        applied = [{"targets": ["re:.*o_proj$"], "location": place, "inverse": False} for place in places]
        return {**quantization, "transform_config": {"config_groups": {"R1": {"type": "hadamard", "apply": applied}}}}

    assert weighed(LLAMA, rotated("weight_output", "weight_input")) == weighed(LLAMA, quantization)
    for no_pattern in ("re:(", "re:[", "(", "*"):
        assert weighed(LLAMA, {**quantization, "ignore": [no_pattern]}) == weighed(LLAMA, quantization)
    with pytest.raises(TfacctError, match=r"config_groups.R1.apply = .* expected weight transforms only"):
        weighed(LLAMA, rotated("weight_output", "input"))


def test_configs_as_published() -> None:
    """Fields that these tools write and no test above has; sizes as their pages give them, or by hand, in 10 MB."""
    bnb = {"_load_in_4bit": True, "_load_in_8bit": False, "load_in_4bit": True, "load_in_8bit": False}
    bnb |= {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "quant_method": "bitsandbytes"}
    bnb |= {"llm_int8_skip_modules": ["lm_head", "multi_modal_projector"], "llm_int8_threshold": 6.0}
    packing = {"_data": "PLAIN", "_type": "Int4PackingFormat"}
    data = {"group_size": 128, "int4_packing_format": packing}
    made = {"_type": "Int4WeightOnlyConfig", "_version": 2, "_data": data}
    torchao = {"quant_method": "torchao", "quant_type": {"default": made}, "modules_to_not_convert": ["lm_head"]}
    tiles = {**torchao, "quant_type": {"default": {**made, "_version": 1, "_data": {"group_size": 128}}}}
    group = {"targets": ["Linear"], "weights": {**W4, "group_size": 32}, "input_activations": None}
    ignore = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]
    packed = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": group}}
    for name, quantization, hundredths in (
        ("llama-3.1-8b", bnb, 570),
        ("llama-3.1-8b", torchao, 581),  # 6.98 G numbers · (1/2 + 4/128) bytes, and 2.10 GB of table and head
        # 24 · (11,776 outputs · 1,024 inputs + 896 · 5,120) numbers of 17/32 bytes in tiles, and 272 MB of table
        ("qwen2.5-0.5b", tiles, 48),
        ("kimi-k2", {**packed, "ignore": ignore}, 59_421),  # Kimi-K2-Thinking: 594 GB
    ):
        assert round(weighed(dict(load(name).loaded.raw), quantization) / 10**7) == hundredths


def test_a_list_without_the_head_quantizes_it(run, tmp_path: Path) -> None:
    """As in transformers: a list replaces the modules that stay unquantized by default."""
    config, left = tmp_path / "config.json", {"quant_method": "fp8", "modules_to_not_convert": ["lm_head"]}
    config.write_text(json.dumps({**LLAMA, "quantization_config": left}))
    printed = run("memory", str(config)).out_line
    assert "the weight matrices of the layers, in 8-bit numbers" in printed and "except" not in printed
    quantization = {"quant_method": "fp8", "weight_block_size": [8, 8], "modules_to_not_convert": ["mlp.down_proj"]}
    head = formats.fp8((8, 8)).matrix(96, 72)
    without_head = weighed(LLAMA, {**quantization, "modules_to_not_convert": ["mlp.down_proj", "lm_head"]})
    assert weighed(LLAMA, quantization) == without_head - 2 * 96 * 72 + head


def test_names_of_single_blocks_and_of_older_files() -> None:
    """Layers 0 and 2 stay in bf16."""
    every = {"quant_method": "fp8", "weight_block_size": [8, 8]}
    names = [*(f"model.layers.{number}" for number in (0, 2)), "lm_head"]
    more = 2 * sum(reduction(*matrix, formats.fp8((8, 8))) for matrix in MATRICES)
    assert weighed(LLAMA, {**every, "modules_to_not_convert": names}) == weighed(LLAMA, every) + more
    # Mixtral's files have `block_sparse_moe`, and single experts.
    mixtral = {**TINY["mixtral"]}
    quantization = {"quant_method": "awq", "bits": 4, "group_size": 8, "zero_point": True, "version": "gemm"}
    every = weighed(mixtral, quantization)
    of = {tensor.path.split(".")[-2]: tensor.stored for tensor in load(mixtral).loaded.ledger.tensors()}

    def more(*names: str) -> int:
        taken = formats.awq(4, 8).matrix
        return 2 * sum(
            of[name].copies * int(2 * of[name].elements - taken(of[name].outputs, of[name].inputs)) for name in names
        )  # in 2 blocks

    assert weighed(mixtral, {**quantization, "modules_to_not_convert": ["w2"]}) == every + more("down_proj")
    experts = weighed(mixtral, {**quantization, "modules_to_not_convert": ["block_sparse_moe.experts"]})
    assert experts == every + more("down_proj", "up_proj", "gate_proj")
    assert weighed(mixtral, {**quantization, "modules_to_not_convert": ["visual", "gate"]}) == every


def test_q4_k_m_by_hand() -> None:
    """32 blocks: the first 4, the last 4, and 6, 9, … 27 between: 8 of the 24."""
    assert [block for block in range(32) if more_bits(block, 32)] == [0, 1, 2, 3, *range(6, 28, 3), 28, 29, 30, 31]
    # 2 blocks of 288 × 512, which 256 divides in down_proj alone: its first block has no eighth (2 // 8 = 0), so 7
    # · 2 // 8 = 1: block 1 gets more bits, and block 0 not ((0 − 0) % 3 = 0).
    config = {**LLAMA, "hidden_size": 288, "head_dim": 32, "num_attention_heads": 8, "num_hidden_layers": 2}
    config |= {"intermediate_size": 512, "vocab_size": 64, "num_key_value_heads": 4}
    config |= {"attention_bias": False, "mlp_bias": False}
    rows = {"Q4_K": 144, "Q6_K": 210}
    down = 288 * 2 * (rows["Q4_K"] + rows["Q6_K"])  # 512 inputs: 2 blocks of 256
    attn_o = 2 * 288 * 144  # 256 inputs: one block
    # 288 inputs: 9 blocks of 32; Q4_K falls back to Q5_0 (22 bytes), Q6_K to Q8_0 (34)
    wide = 9 * (2 * (256 + 128 + 512 + 512) * 22 + 128 * (22 + 34))
    table, head, norms = 64 * 9 * 22, 64 * 9 * 34, 4 * 5 * 288
    assert load(config).memory(dtype="q4_k_m").models[0]["weights_bytes"] == down + attn_o + wide + table + head + norms


LLAMA_CPP = {
    **{("llama-2-7b", mix): size for mix, size in {"q4_0": 356, "q4_k_s": 359, "q4_k_m": 380, "q3_k_m": 307}.items()},
    **{("llama-2-7b", mix): size for mix, size in {"q5_k_m": 445, "q6_k": 515, "q8_0": 667}.items()},
    **{("llama-3.1-8b", "q4_k_m"): 458, ("llama-3.1-8b", "q8_0"): 795, ("qwen2.5-7b", "q4_k_m"): 436},
    **{("gemma-2-9b", "q4_k_m"): 536, ("mistral-7b-v0.3", "q4_k_m"): 407},  # the first has a tied table: Q6_K
    **{("phi-4", "q8_0"): 1451, ("qwen3.5-9b", "q8_0"): 886},  # one type for a fused q, k and v too
    ("lfm2-1.2b", "q4_k_m"): 68,  # 694.76 MiB
    **{
        ("gpt-oss-20b", "q8_0"): 1127,
        ("gpt-oss-20b", "q4_k_m"): 1081,
        ("gpt-oss-120b", "q8_0"): 5902,
    },  # with experts in MXFP4, as published
    **{("llama-3.1-70b", "q4_k_m"): 3959, ("mixtral-8x7b", "q4_k_m"): 2649},  # with rules of their own
}
"""Hundredths of GiB: "model size" as llama.cpp prints it when it loads these files."""
WITH_A_RANGE = {
    **{"phi-4": 843, "phi-3-mini-4k": 223, "phi-4-mini": 231, "qwen3.5-9b": 523, "qwen3.5-27b": 1539},
    **{"qwen3-next-80b-a3b": 4508, "deepseek-v2-lite": 965, "deepseek-v3": 37665},
}
"""The same of models in q4_k_m whose fused tensors have another type in other versions."""


@pytest.mark.parametrize(("model", "mix"), LLAMA_CPP)
def test_llama_cpp_mixtures(model: str, mix: str) -> None:
    stored = load(model).memory(dtype=mix).models[0]["weights_bytes"]
    assert round(100 * stored / 2**30) == LLAMA_CPP[model, mix]


@pytest.mark.parametrize("model", WITH_A_RANGE)
def test_llama_cpp_mixtures_with_a_range(model: str) -> None:
    facts = load(model).memory(dtype="q4_k_m", ctx=1).models[0]
    low, high = (facts[f"weights_{end}_bytes"] for end in ("low", "high"))
    assert round(100 * low / 2**30) <= WITH_A_RANGE[model] <= round(100 * high / 2**30)
    assert low < high == facts["weights_bytes"] and high - low < 0.004 * high
    assert facts["total_high_bytes"] - facts["total_low_bytes"] == high - low
    assert "versions of llama.cpp differ" in facts["range_reason"]


def test_ranges_of_fused_tensors_by_hand() -> None:
    """2 blocks of 256 numbers, heads 4 and 2 of 64: fused, 512 rows of one block of 256. By its own name in all blocks
    Q5_K (176 bytes); as values are, Q4_K (144) in block 0 and Q6_K (210) in block 1, which is more."""
    config = {**TINY["phi3"], "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
    config |= {"head_dim": 64, "intermediate_size": 512, "vocab_size": 96, "num_hidden_layers": 2}
    config |= {"tie_word_embeddings": False, "partial_rotary_factor": 0.5}
    facts = load(config).memory(dtype="q4_k_m", ctx=1).models[0]
    rest = 2 * 256 * 144 + 2 * 1024 * 144 + 256 * 2 * (144 + 210)  # o_proj, gate_up; down_proj of 512 inputs
    rest += 96 * 144 + 96 * 210 + 4 * 5 * 256  # embedding, head, norms
    assert facts["weights_low_bytes"] == rest + 2 * 512 * 176
    assert facts["weights_high_bytes"] == facts["weights_bytes"] == rest + 512 * (144 + 210)
    exact = load(config).memory(dtype="q8_0", ctx=1).models[0]
    matrices = 2 * 256 * (512 + 256 + 3 * 512) + 2 * 96 * 256
    assert exact["weights_bytes"] == matrices // 32 * 34 + 4 * 5 * 256 and exact["weights_low_bytes"] is None
    # minicpm3: kv_b of 64 inputs as one tensor, or its keys' part with rows of 32 numbers: blocks of 32 in all of
    # them, so a range comes of a whole kv_b that has the type of values alone.
    config = {**TINY["minicpm3"], "num_hidden_layers": 2, "kv_lora_rank": 256, "qk_nope_head_dim": 32, "v_head_dim": 64}
    heads = config["num_attention_heads"]
    facts = load(config).memory(dtype="q4_k_m", ctx=1).models[0]
    keys, values = heads * 32, heads * 64  # rows of kv_b
    split = 2 * (keys * 256 // 32 * 22 + values * 144)  # transposed keys: rows of 32, Q5_0; values: Q4_K
    whole, as_values = 2 * (keys + values) * 144, (keys + values) * (144 + 210)
    ends = sorted([split, whole, as_values])
    assert facts["weights_high_bytes"] - facts["weights_low_bytes"] == ends[-1] - ends[0]


def test_matrices_that_llama_cpp_stores_otherwise() -> None:
    """gemma-3n-e4b: AltUp, Laurel and the projection of inputs per layer. llama.cpp prints 6.84 GiB and 6.87 B: its
    file also has keys and values of 15 blocks that read those of others, 2 heads of 256 for 2,048 numbers."""
    model = load("gemma-3n-e4b-text")
    further = 15 * 2 * 2048 * 2 * 256
    assert round((model.params().models[0]["total_params"] + further) / 10**7) == 687
    assert round(100 * (model.memory(dtype="q8_0", ctx=1).weights_bytes + further // 32 * 34) / 2**30) == 684
    # gpt2: 50,257 · 768 numbers again.
    facts = load("gpt2").memory(dtype="q8_0", ctx=1).models[0]
    assert facts["weights_high_bytes"] - facts["weights_low_bytes"] == 50_257 * 768 // 32 * 34
    # Falcon's published files have the head twice too, in 10 MB.
    for name, dtype, published in (
        ("7b", "q8_0", 767),
        ("7b", "q4_0", 421),
        ("40b", "q8_0", 4446),
        ("40b", "q4_0", 2381),
    ):
        assert (
            round(load(f"falcon-{name}").memory(dtype=dtype, ctx=1).models[0]["weights_high_bytes"] / 10**7)
            == published
        )


@pytest.mark.parametrize("name", by_kind((one for one in presets.names() if "gpt-oss" not in one), kind_of_preset))
def test_every_decoder_is_counted_in_one_type(name: str) -> None:
    """34 bytes for 32 numbers of a matrix, 4 bytes of all else: above 1.0625 bytes a parameter, and less than 1.11 even
    where much is no matrix, as the positions of small models."""
    ours = presets.load(name)
    if ours.architecture.encoder is None and ours.architecture.head is not None and ours.has_cache:
        size = sum(ours.ledger.weight_bytes(ours.storage("q8_0")).values())
        copied = 0 if ours.storage("q8_0").least is None else ours.ledger.parameters()["embed.weight"] * 34 // 32
        assert 1.0625 <= (size - copied) / ours.parameters < 1.11
    else:
        with pytest.raises(TfacctError, match="for decoders with"):
            ours.storage("q8_0")


def test_verdicts_take_the_upper_end() -> None:
    facts = load("phi-4").memory(dtype="q4_k_m", ctx=1).models[0]
    memory = facts["weights_high_bytes"] + 1000 * facts["kv_bytes_per_token"]
    assert load("phi-4").memory(dtype="q4_k_m", ctx=1, on=memory).models[0]["fit"]["largest_context"] == 1000
    fitting = load("phi-4").fit(on="t4", dtype="q4_k_m", ctx=1).models[0]
    assert fitting["weights_bytes"] == facts["weights_high_bytes"]
    assert fitting["weights_low_bytes"] == facts["weights_low_bytes"]


def test_types_by_block_are_not_divided(run: Run) -> None:
    pytest.importorskip("numpy")
    with pytest.raises(TfacctError, match="row length"):
        load("llama-3.1-8b").evaluate("weights_bytes", dtype="q8_0", F=[4096, 14_336])
    ran = run("memory", *"llama-3.1-8b --dtype q4_k_m --pp 2".split())
    assert (ran.code, ran.out) == (2, "") and "q4_k_m" in ran.err
    assert run("memory", *"llama-3.1-8b --dtype q8_0 --pp 2".split()).code == 0


@pytest.mark.parametrize("dtype", ["q8_0", "q4_k_m"])
def test_other_models_than_decoders_are_refused(dtype: str) -> None:
    for family in ("bert", "t5"):
        with pytest.raises(TfacctError, match="for decoders with"):
            load(TINY[family]).memory(dtype=dtype)


def test_gptq_and_awq_by_hand() -> None:
    """72 inputs, 136 outputs: 9 words of 8 inputs for each output; 3 groups of 24; 17 words of 8 outputs."""
    assert formats.gptq(4, 24).matrix(136, 72) == 4 * 9 * 136 + 3 * (2 * 136 + 4 * 17) + 4 * 72
    assert formats.gptq(4, None).matrix(136, 72) == 4 * 9 * 136 + (2 * 136 + 4 * 17) + 4 * 72
    assert formats.awq(4, 24).matrix(136, 72) == 4 * 72 * 17 + 3 * (2 * 136 + 4 * 17)
    assert formats.gptq(3, 32).matrix(64, 96) == 96 // 32 * 3 * 64 * 4 + 3 * (2 * 64 + 4 * 6) + 4 * 96
    rest = plain() - 3 * sum(reduction(*matrix, formats.gptq(4, 24)) for matrix in MATRICES)
    assert weighed(LLAMA, GPTQ) == rest
    assert weighed(LLAMA, {**GPTQ, "lm_head": True}) == rest - 2 * 96 * 72 + formats.gptq(4, 24).matrix(96, 72)


def test_gptq_with_rules_for_modules(run, tmp_path: Path) -> None:
    """As Qwen3.5's published files have them: the first rule that matches counts, and an empty one changes nothing."""
    unquantized = {"lm_head": {}, "-:.*attn.*": {}, "-:.*mtp.*": {}, "-:.*visual.*": {}}
    rest = plain() - 3 * sum(reduction(*matrix, formats.gptq(4, 24)) for matrix in MATRICES[-3:])
    assert weighed(LLAMA, {**GPTQ, "dynamic": unquantized}) == rest
    own = {r"+:.*\.down_proj": {"bits": 8, "group_size": 34}, "-:.*down_proj": {}, **unquantized}
    wider = 3 * (formats.gptq(8, 34).matrix(72, 136) - formats.gptq(4, 24).matrix(72, 136))
    assert weighed(LLAMA, {**GPTQ, "dynamic": own}) == rest + wider
    first = {r"-:model\.layers\.0\..*": {}}
    assert plain() - weighed(LLAMA, {**GPTQ, "dynamic": first}) == 2 * (plain() - weighed(LLAMA, GPTQ)) // 3
    config = folder(tmp_path, {**LLAMA, "quantization_config": {**GPTQ, "dynamic": unquantized}}) / "config.json"
    printed = run("memory", str(config)).out_line
    assert "the weight matrices of the layers, except those that the config names" in printed


def test_modelopt_with_a_format_for_each_module_it_lists() -> None:
    """llama of 3 layers, hidden 64, 8 heads of 8 over 2, MLPs of 96, 96 tokens; modules not listed stay in bf16.

    FP8: 1 byte a number and two scales of 4; NVFP4: half a byte, 1 for each 16 of a row, two scales of 4.
    """
    config = {**LLAMA, "hidden_size": 64, "num_attention_heads": 8, "head_dim": 8, "intermediate_size": 96}
    nvfp4 = {"quant_algo": "NVFP4", "group_size": 16}
    listed = {
        "model.language_model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.language_model.layers.2.mlp": nvfp4,
        "lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
        "mtp.layers.0.mlp.up_proj": {"quant_algo": "FP8"},
        "model.visual.blocks.0.mlp.up_proj": {"quant_algo": "FP8"},
    }
    saved = (2 * 64 * 64 - (64 * 64 + 8)) + 3 * (2 * 64 * 96 - (64 * 96 // 2 + 64 * 96 // 16 + 8))
    saved += 2 * 64 * 96 - (64 * 96 // 2 + 64 * 96 // 16 + 4)
    quantization = {**MIXED, "quantized_layers": listed, "kv_cache_scheme": None, "ignore": ["mtp*"]}
    assert weighed(config, quantization) == plain(config) - saved
    inside = {"quantization": {**quantization, "quant_method": None}, "producer": {"name": "modelopt"}}
    assert weighed(config, {"quant_method": "modelopt", **inside}) == plain(config) - saved


def test_modelopt_that_lists_every_expert_or_all_at_once() -> None:
    config = {**TINY["qwen3_moe"], "hidden_size": 64, "moe_intermediate_size": 96}
    config |= {"decoder_sparse_step": 1, "mlp_only_layers": []}
    one, experts = {"quant_algo": "NVFP4"}, int(config["num_experts"])
    layers = range(int(config["num_hidden_layers"]))
    at = "model.layers.{}.mlp.experts"
    every = {
        f"{at.format(n)}.{e}.{m}_proj": one for n in layers for e in range(experts) for m in ("gate", "up", "down")
    }
    whole = {at.format(layer): one for layer in layers}
    assert weighed(config, {**MIXED, "quantized_layers": every}) == weighed(
        config, {**MIXED, "quantized_layers": whole}
    )
    one_matrix = 2 * 64 * 96 - (64 * 96 // 2 + 64 * 96 // 16 + 8)
    assert (
        plain(config) - weighed(config, {**MIXED, "quantized_layers": whole}) == 3 * len(layers) * experts * one_matrix
    )
    uneven = {**every, "model.layers.0.mlp.experts.1.up_proj": {"quant_algo": "FP8"}}
    with pytest.raises(TfacctError, match="in different ways"):
        weighed(config, {**MIXED, "quantized_layers": uneven})


BASES = {
    **{"": {}, "gptq": GPTQ, "mixed": MIXED, "auto-round": ROUND},
    **{name: {"quant_method": name} for name in ("fp8", "compressed-tensors", "torchao")},
}
REFUSED = json.loads(Path(__file__).with_name("quantized_refusals.json").read_text(encoding="utf-8"))
REFUSED.append(["fp8", {"modules_to_not_convert": ["x" * 10_000]}, "too long"])
"""Each: a method's config or none, fields over it, and words of the error."""


@pytest.mark.parametrize(("of", "quantization", "words"), REFUSED)
def test_unknown_formats_are_refused_by_name(of: str, quantization: Any, words: str) -> None:
    quantization = {**BASES[of], **quantization} if isinstance(quantization, dict) else quantization
    with pytest.raises(TfacctError) as raised:
        load({**LLAMA, "quantization_config": quantization}).memory()
    message = f"{raised.value}"
    assert words in message and "give dtype" in message
    assert load({**LLAMA, "quantization_config": quantization}).memory(dtype="bf16").models[0]["weights_bytes"]
    layers = LLAMA["num_hidden_layers"]
    differences = load({**LLAMA, "quantization_config": quantization}, num_hidden_layers=layers + 1).compare(
        load({**LLAMA, "quantization_config": quantization}), by="line", ctx=8
    )
    assert f"KV cache −{100 / (layers + 1):.1f}%, total FLOPs −" in differences.answer  # the bytes that are known


WITH_ENCODERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "llava": lambda text: {"text_config": text, "vision_config": {"model_type": "clip_vision_model"}},
    "qwen2_5_omni": lambda text: {
        "thinker_config": {"text_config": {**text, "model_type": "qwen2_5_omni_text"}, "audio_config": {}}
    },
}


@pytest.mark.parametrize("model_type", WITH_ENCODERS)
@pytest.mark.parametrize("field", ["quantization_config", "compression_config", "quantization"])
def test_a_format_next_to_the_language_models_config(field: str, model_type: str) -> None:
    """MLX writes `quantization`. Qwen's Omni models have it outside thinker_config, and `thinker.` before names."""
    text = {**TINY["qwen2"], "hidden_size": 64, "head_dim": 8, "num_attention_heads": 8, "num_key_value_heads": 2}
    text |= {"intermediate_size": 96, "tie_word_embeddings": False, "vocab_size": 96, "num_hidden_layers": 2}
    whole = {"model_type": model_type, **WITH_ENCODERS[model_type](text)}
    front = "thinker." if model_type != "llava" else "language_model."
    # 4 bits, and a scale and a bias of 2 bytes for each 32 inputs
    matrices = 2 * 64 * 64 + 2 * 16 * 64 + 3 * 64 * 96
    saved = (2 * matrices + 2 * 96 * 64) * (2 - 20 / 32)
    assert plain(whole) - plain({**whole, field: {"bits": 4, "group_size": 32}}) == saved
    listed = {"quant_method": "fp8", "modules_to_not_convert": [f"{front}lm_head", f"{front}model.layers.1"]}
    assert plain(whole) - plain({**whole, field: listed}) == matrices - 7 * 4  # a block for each matrix of layer 0


def test_every_command_that_counts_bytes_of_weights_takes_it(run, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    quantization = {
        "quant_method": "fp8",
        "weight_block_size": [8, 8],
        "modules_to_not_convert": ["model.layers.1", "lm_head"],
    }
    file.write_text(json.dumps({**LLAMA, "quantization_config": quantization}))
    memory = run("memory", str(file), "--json").models[0]
    assert memory["workload"]["dtype"] == "fp8-block" and memory["weights_bytes"] < 2 * memory["total_params"]
    moved = run("flops", str(file), "--bytes", "--decode", "--json").models[0]
    plain = run("flops", str(file), "--bytes", "--decode", "--dtype", "bf16", "--json").models[0]
    assert moved["total_read_bytes"] < plain["total_read_bytes"]
    swept = run("sweep", str(file), "--ctx", "64", "--metric", "weights_bytes", "--json").models[0]
    assert swept["lines"][0]["weights_bytes"] == memory["weights_bytes"]
    assert "except those that the config names" in run("memory", str(file)).out_line
    assert run("memory", str(file), "--on", "1MiB").code == 0
    assert "no single formula" in run("memory", str(file), "--explain").err_line


def test_auto_round_packs_as_gptq_without_groups_of_inputs() -> None:
    """`qweight`, `qzeros` and `scales` of auto_round_extension's `QuantLinear`; `g_idx` where its packing is
    GPTQModel's alone."""
    assert formats.gptq(4, 24, indexed=False).matrix(136, 72) == 4 * 9 * 136 + 3 * (2 * 136 + 4 * 17)
    for packing, taken in {
        None: formats.gptq(4, 24, indexed=False),
        "auto_round:auto_gptq": formats.gptq(4, 24, indexed=False),
        "auto_round:gptqmodel": formats.gptq(4, 24),
        "auto_round:auto_awq": formats.awq(4, 24),
    }.items():
        quantization = {**ROUND, "packing_format": packing, "block_name_to_quantize": "model.layers"}
        quantization |= {"autoround_version": "0.9", "quant_method": "intel/auto-round"}  # its first name
        assert weighed(LLAMA, quantization) == plain() - 3 * sum(reduction(*matrix, taken) for matrix in MATRICES)
    tuning = {"autoround_version": "0.4.5", "data_type": "int", "iters": 1000, "nsamples": 512, "quant_lm_head": False}
    for exported, taken in (GPTQ, formats.gptq(4, 24)), ({**GPTQ, "quant_method": "awq"}, formats.awq(4, 24)):
        assert weighed(LLAMA, {**exported, **tuning}) == plain() - 3 * sum(reduction(*one, taken) for one in MATRICES)
    every = weighed(LLAMA, ROUND)
    own: dict[str, Any] = {
        "model.layers.1.mlp.up_proj": {"bits": 16, "data_type": "float"},
        r".*down_proj": {"bits": 8, "group_size": 34},
        "lm_head": {"bits": 4, "group_size": 36, "sym": True, "data_type": "int", "act_bits": None},
        "model.visual.blocks.0.attn.qkv": {"bits": 16, "data_type": "fp"},
    }
    packed, eight = formats.gptq(4, 24, indexed=False), formats.gptq(8, 34, indexed=False)
    more = reduction(136, 72, packed) + 3 * (reduction(72, 136, packed) - reduction(72, 136, eight))
    less = reduction(96, 72, formats.gptq(4, 36, indexed=False))
    assert weighed(LLAMA, {**ROUND, "extra_config": own}) == every + more - less < plain()


def test_optimums_list_of_quantized_modules() -> None:
    """As TheBloke's Mixtral-8x7B has it: experts and attention, not the router."""
    model = TINY["mixtral"]
    quantization = {"quant_method": "gptq", "bits": 4, "group_size": 8, "block_name_to_quantize": "model.layers"}
    experts = [f"block_sparse_moe.experts.{n}.w{part}" for n in range(model["num_local_experts"]) for part in (1, 3, 2)]
    attention = [["self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj"], ["self_attn.o_proj"]]
    every = weighed(model, {**quantization, "modules_in_block_to_quantize": [*attention, experts]})
    assert every == weighed(model, quantization)
    assert every < weighed(model, {**quantization, "modules_in_block_to_quantize": attention}) < plain(model)
    with pytest.raises(TfacctError, match="names single experts"):
        weighed(model, {**quantization, "modules_in_block_to_quantize": [*attention, experts[3:]]})
    for wrong in ([attention], 5, {"a": 1}):
        with pytest.raises(TfacctError, match="must be a list of names"):
            weighed(model, {**quantization, "modules_in_block_to_quantize": wrong})


def grouped(*targets: str) -> dict[str, Any]:
    """compressed-tensors' config of eight bits, a scale for each output, of modules that are called so."""
    weights = {"num_bits": 8, "type": "int", "strategy": "channel"}
    return {"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": targets, "weights": weights}}}


def test_strategies_and_bits_of_compressed_tensors() -> None:
    """QuantizationArgs.validate_model_after: none means a tensor, -1 a channel, any other size groups."""

    def of(model: dict[str, Any] = LLAMA, /, **weights: object) -> int:
        config = {**grouped("Linear"), "format": "pack-quantized"}
        config["config_groups"]["g"]["weights"] = {"num_bits": 8, "type": "int", **weights}
        return weighed(model, config)

    tensor, channel, group = of(strategy="tensor"), of(strategy="channel"), of(strategy="group", group_size=4)
    assert tensor < channel < group
    assert [of(), of(group_size=-1), of(group_size=4)] == [tensor, channel, group]
    # Some orders store the group of each input in 32 bits. ActivationOrdering: aliases, and true in older files.
    indices = 4 * (3 * (5 * 72 + 60 + 136) + 72)
    for order, more in {"group": indices, "dynamic": indices, True: indices, "weight": 0, "static": 0}.items():
        assert of(group_size=4, actorder=order) - group == more
    # Outputs · inputs · bits / 8 bytes of each matrix, the head's 96 · 96 among them: all rows fill whole words.
    even = {**LLAMA, "hidden_size": 96, "num_attention_heads": 6, "head_dim": 16, "intermediate_size": 160}

    block = 96 * (96 + 2 * 32 + 96) + 3 * 96 * 160
    for bits in (1, 2, 4):
        assert of(even) - of(even, num_bits=bits) == (3 * block + 96 * 96) * (8 - bits) // 8


def test_names_in_groups_of_compressed_tensors() -> None:
    with pytest.raises(TfacctError, match="no matrix is named"):
        weighed(LLAMA, grouped("re:.*wq_b$"))
    both = grouped("Linear")
    of_others = {"targets": ["re:.*vision_tower.*"], "weights": {"num_bits": 4, "type": "int", "strategy": "channel"}}
    both["config_groups"]["v"] = of_others
    assert weighed(LLAMA, both) == weighed(LLAMA, grouped("Linear"))
    (facts,) = load({**LLAMA, "quantization_config": both}).memory().models
    assert facts["published_dtype"] == "w8"  # no 4-bit matrix is counted
    model, rest = TINY["laguna"], "lm_head"
    left = {**grouped("Linear"), "ignore": [rest, r"re:.*\.mlp\.shared_expert\.(gate|up|down)_proj$"]}
    assert weighed(model, left) == weighed(model, {**left, "ignore": [rest, "re:.*shared_experts.*"]})
    assert weighed(model, left) > weighed(model, {**left, "ignore": [rest]})
    # RedHatAI/DeepSeek-V4-Flash-NVFP4-FP8 was weighed as 530 GiB of bf16: nothing was called as its groups say.
    model = TINY["deepseek_v4"]
    theirs = grouped("re:.*attn.*(fused_wqa_wkv|wq_b|wo_a|wo_b)$", "re:.*ffn.*(gate|up|down)_proj$")
    ours = grouped(
        r"re:.*self_attn\.(q_a|kv|q_b|o_a|o_b)_proj$", "re:.*indexer.q_b_proj", "re:.*mlp.*(gate|up|down)_proj$"
    )
    assert weighed(model, theirs) == weighed(model, ours) < plain(model)
    # Its class moves expert_dtype there, from its own fields.
    assert weighed({**model, "expert_dtype": "fp4"}, {**ours, "expert_dtype": "fp4"}) == weighed(model, ours)


def test_formats_as_other_files_spell_them() -> None:
    """`weight_scale` and `input_scale`, of 4 bytes each, as AutoFP8 stores them."""
    quantization = {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}
    lost = plain() - 3 * sum(outputs * inputs - 8 for outputs, inputs in MATRICES)
    assert weighed(LLAMA, quantization) == weighed(LLAMA, {**quantization, "kv_cache_scheme": "static"}) == lost
    # Qwen3's own GPTQ files have hyb_act = false; MiniMax-M2's say float8_e4m3fn where DeepSeek-V3's say e4m3.
    assert weighed(LLAMA, {**GPTQ, "desc_act": False, "sym": True, "hyb_act": False}) == weighed(LLAMA, GPTQ)
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    assert weighed(LLAMA, {**fp8, "fmt": "e4m3"}) == weighed(LLAMA, {**fp8, "fmt": "float8_e4m3fn"})
    wide = weighed({**LLAMA, "torch_dtype": "float32"}, GPTQ) - weighed(LLAMA, GPTQ)
    biases = 3 * (60 + 20 + 20 + 72 + 136 + 136 + 72)
    assert wide == 2 * (2 * 96 * 72 + 7 * 72 + biases)  # table, head and 7 norms too


def test_modelopt_in_blocks_of_outputs_and_inputs() -> None:
    """FP8_PB_WO: a byte a number, 4 for each block of 128 × 128; MXFP8: 33 for each 32 inputs; a scale for each output
    in FP8_PER_CHANNEL_PER_TOKEN. Without a quant_method the producer says whose it is, as older files have it."""
    config = {**LLAMA, "hidden_size": 64, "num_attention_heads": 8, "head_dim": 8, "intermediate_size": 160}
    listed = {
        "model.layers.0.self_attn": {"quant_algo": "fp8_pb_wo", "group_size": 128},
        "model.layers.1.mlp": {"quant_algo": "MXFP8", "group_size": 32},
        "lm_head": {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"},
    }
    saved = 2 * (64 * 64 - 4) + 2 * (16 * 64 - 4)  # q and o, k and v: one block each
    saved += 3 * (2 * 64 * 160 - 33 * 64 * 160 // 32) + 96 * 64 - 4 * 96
    assert plain(config) - weighed(config, {**MIXED, "quantized_layers": listed}) == saved
    every = {"producer": {"name": "modelopt", "version": "0.31.0"}, "ignore": ["lm_head"]}
    by_block = weighed(config, {**every, "quant_algo": "FP8_PB_WO"})
    assert by_block == weighed(config, {"quant_method": "fp8"})
    with pytest.raises(TfacctError, match="group_size = 64 is not supported: expected 128"):
        weighed(config, {**every, "quant_algo": "FP8_PB_WO", "group_size": 64})


def test_deepseek_v4_with_experts_of_model_optimizer() -> None:
    """As NVIDIA's files: all experts in NVFP4, each matrix with two scales of 4 bytes; the rest in the model's fp8."""
    config = {**TINY["deepseek_v4"], "hidden_size": 64, "moe_intermediate_size": 96, "dtype": "bfloat16"}
    config |= {"expert_dtype": "fp4"}
    fp8 = {"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0", "weight_block_size": [16, 16]}
    layers = int(config["num_hidden_layers"])
    nvfp4 = {"quant_algo": "NVFP4", "group_size": 16}
    listed = {f"layers.{number}.ffn.experts": nvfp4 for number in range(layers)}
    own = {"moe_quant_algo": "NVFP4", "quant_algo": "MIXED_PRECISION", "ignore": ["*.attn.*", "head"]}
    quantization = {**fp8, **own, "quantized_layers": listed}
    experts = 3 * layers * int(config["n_routed_experts"])
    # from 17 bytes for 32 inputs to 9 for 16, and 8 more
    assert weighed(config, quantization) - weighed(config, fp8) == experts * (64 * 96 // 32 + 8)
    for wrong, words in (
        ({"quantized_layers": {**listed, "layers.0.attn.wq_a": nvfp4}}, "which does not cover all experts of a layer"),
        ({"quantized_layers": {"layers.0.ffn.experts": nvfp4}}, "does not cover the experts of every layer"),
        ({"expert_dtype": "fp8"}, "expert_dtype fp4 is also given"),
    ):
        with pytest.raises(TfacctError, match=words):
            weighed(config, {**quantization, **wrong})


def test_minimax_m3_in_the_names_of_its_files() -> None:
    """Two matrices for the class's joined one, experts and shared experts in block_sparse_moe, the indexer's two."""
    config = {**TINY["minimax_m3_vl_text"], "hidden_size": 64, "intermediate_size": 32, "num_local_experts": 3}
    config |= {"num_experts_per_tok": 2, "shared_intermediate_size": 32}
    front = "language_model.model.layers.1"
    names = {f"block_sparse_moe.experts.{number}.w{one}" for number in range(3) for one in (1, 2, 3)}
    names |= {"block_sparse_moe.shared_experts.gate_proj", "self_attn.index_k_proj"}
    listed = {f"{front}.{name}": {"quant_algo": "MXFP8"} for name in names}
    listed["language_model.model.layers.0.mlp.up_proj"] = {"quant_algo": "MXFP8"}
    numbers = 10 * 64 * 32 + 64 * 14 + 64 * 71
    assert plain(config) - weighed(config, {**MIXED, "quantized_layers": listed}) == 2 * numbers - 33 * numbers // 32


MLX: dict[str, Any] = {"group_size": 64, "bits": 4}


def test_mlx_with_modules_of_their_own() -> None:
    """Routers in 8 bits and all else in 4, as files of Qwen3's experts have it: a scale and a bias of 2 bytes for
    each 64 inputs."""
    config = {**TINY["qwen3_moe"], "hidden_size": 64, "moe_intermediate_size": 64, "decoder_sparse_step": 1}
    config |= {"mlp_only_layers": [], "head_dim": 64, "num_hidden_layers": 3}
    layers, experts = 3, int(config["num_experts"])
    every = weighed(config, MLX)
    routers = {f"model.layers.{layer}.mlp.gate": {"group_size": 64, "bits": 8} for layer in range(layers)}
    saved = 2 * 64 * experts - (64 * experts + 4 * experts)
    assert every - weighed(config, {**MLX, **routers}) == layers * saved
    wider = {"model.layers.1.mlp.switch_mlp.up_proj": {"bits": 8}, "lm_head": False}
    more = experts * 64 * 64 // 2
    head = 0 if config.get("tie_word_embeddings") else int(config["vocab_size"]) * (2 * 64 - 32 - 4)
    assert weighed(config, {**MLX, **wider}) - every == more + head
    assert weighed(config, {"bits": 4, "group_size": 32, "mode": "mxfp4"}) < every
    for quantization, words in (
        ({"model.layers.9.mlp.gate": {"bits": 8}}, "not a matrix of this model"),
        ({"model.layers.0.mlp.gate": {"bits": 7}}, "2, 3, 4, 5, 6, 8"),
        ({"mode": "mxfp4"}, "expected 32"),
        ({"surprise": 1}, "has no quant_method"),
    ):
        with pytest.raises(TfacctError, match=words):
            weighed(config, {**MLX, **quantization})
    assert weighed(config, {**MLX, "vision_tower.blocks.0": False}) == every


def test_what_mlx_leaves_to_its_defaults() -> None:
    """`quantize_model` of mlx-lm leaves rows that are no multiple of the group; a module's fields do not inherit the
    format of the others: 8 bits in groups of 64 next to mxfp4, as files of gpt-oss have them."""
    config = {**LLAMA, "hidden_size": 64, "num_attention_heads": 8, "head_dim": 8, "intermediate_size": 96}
    attention, mlp, ends = 2 * 64 * 64 + 2 * 16 * 64, 64 * 96, 2 * 96 * 64  # down_proj has rows of 96
    assert plain(config) - weighed(config, MLX) == (3 * (attention + 2 * mlp) + ends) * (2 - 36 / 64)
    module = {f"model.layers.{layer}.mlp.up_proj": {"bits": 8} for layer in range(3)}
    for every, size in (
        ({"group_size": 32, "bits": 4}, 20 / 32),
        ({"mode": "mxfp4", "bits": 4, "group_size": 32}, 17 / 32),
    ):
        saved = (3 * (attention + 2 * mlp) + ends) * (2 - size) + 3 * mlp * (2 - 68 / 64)
        assert plain(config) - weighed(config, {**every, **module}) == saved


_HQQ: dict[str, Any] = {"nbits": 4, "group_size": 24, "axis": 1}
_TORCHAO: dict[str, Any] = {"_type": "Int4WeightOnlyConfig", "_version": 1, "_data": {"group_size": 32}}
KNOWN: dict[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8"},
    "gptq": {**GPTQ, "dynamic": {"+:.*down.*": {"bits": 8}}},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 8},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    "mxfp4": {"quant_method": "mxfp4"},
    "fbgemm": {"quant_method": "fbgemm_fp8"},
    "hqq": {"quant_method": "hqq", "quant_config": {"weight_quant_params": _HQQ}},
    "torchao": {"quant_method": "torchao", "quant_type": {"default": _TORCHAO}},
    "torchao, as older files name it": {
        **{"quant_method": "torchao", "quant_type": "int4_weight_only"},
        "quant_type_kwargs": {"group_size": 32},
    },
    "bitnet": {"quant_method": "bitnet"},
    "auto-round": {
        **{"quant_method": "auto-round", "bits": 4, "group_size": 24},
        "extra_config": {"model.layers.0.mlp.up_proj": {"bits": 8}},
    },
    "compressed-tensors": {
        **{"quant_method": "compressed-tensors", "format": "pack-quantized"},
        "config_groups": {"a": {"targets": ["Linear"], "weights": W4}},
    },
    "modelopt": {"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}},
    "modelopt, module by module": {**MIXED, "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "FP8"}}},
    "mlx": {"group_size": 32, "bits": 4, "model.layers.0.mlp.up_proj": {"group_size": 32, "bits": 8}},
}
"""A config of each method; those whose modules differ have an object of fields for one of them."""
TAKEN_WHOLE = {"quantized_layers", "extra_config", "config_groups", "dynamic"}
"""Objects whose keys are names of modules or groups, so any key is allowed."""


def _objects(quantization: dict[str, Any], of: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of the objects in a config."""
    if not of or of[-1] not in TAKEN_WHOLE:
        yield of
    for name, value in quantization.items():
        if isinstance(value, dict):
            yield from _objects(value, (*of, name))


def _with(quantization: dict[str, Any], of: tuple[str, ...], **more: Any) -> dict[str, Any]:
    """The config with more fields in the object at a path."""
    return {**quantization, of[0]: _with(quantization[of[0]], of[1:], **more)} if of else {**quantization, **more}


@pytest.mark.parametrize(
    ("method", "of"), [(name, of) for name, quantization in KNOWN.items() for of in _objects(quantization)]
)
def test_a_field_that_no_method_asks_for_is_refused_in_every_object(method: str, of: tuple[str, ...]) -> None:
    """It may change bytes. The config without it is read, so nothing else is wrong with it. A mistaken name of MLX's is
    no module's."""
    config = {**LLAMA, **EVEN}
    assert weighed(config, KNOWN[method]) > 0
    refused = "has no quant_method" if method == "mlx" and not of else "surprise = 1 is not supported"
    with pytest.raises(TfacctError, match=refused):
        weighed(config, _with(KNOWN[method], of, surprise=1))


BLOCKS, UP, VOCABULARY = 3 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 192 * 128), 192 * 128, 96 * 128
WIDTHS: dict[str, tuple[set[int], int, Callable[[int], dict[str, Any]]]] = {
    "gptq": ({2, 3, 4, 8}, BLOCKS * 33 // 32, lambda bits: {**GPTQ, "group_size": 32, "bits": bits}),
    "auto-round": ({2, 3, 4, 8}, BLOCKS * 33 // 32, lambda bits: {**ROUND, "group_size": 32, "bits": bits}),
    "auto-round, one module": (
        {2, 3, 4, 8},
        UP * 33 // 32,
        lambda bits: {**ROUND, "group_size": 32, "extra_config": {"model.layers.0.mlp.up_proj": {"bits": bits}}},
    ),
    "compressed-tensors": (
        {*range(1, 9)},
        BLOCKS + VOCABULARY,
        lambda bits: with_weights({**W4, "group_size": 32, "num_bits": bits}),
    ),
    "mlx": ({2, 3, 4, 5, 6, 8}, BLOCKS + 2 * VOCABULARY, lambda bits: {"group_size": 32, "bits": bits}),
}
"""By method: the widths that it has, the weights that have them (and zero points of groups of 32), and its config."""


def with_weights(weights: dict[str, Any]) -> dict[str, Any]:
    groups = {"a": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups}


@pytest.mark.parametrize("method", WIDTHS)
def test_a_bit_more_is_an_eighth_of_a_byte_for_each_weight(method: str) -> None:
    widths, weights, quantization = WIDTHS[method]
    config = {**LLAMA, "hidden_size": 128, "num_attention_heads": 4, "head_dim": 32, "intermediate_size": 192}
    least = weighed(config, quantization(2))
    for bits in range(1, 10):
        if bits in widths:
            assert weighed(config, quantization(bits)) - least == (bits - 2) * weights // 8
        else:
            with pytest.raises(TfacctError, match="bits"):
                weighed(config, quantization(bits))
