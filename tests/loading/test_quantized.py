"""Quantized checkpoints by their `quantization_config`, to the byte, by hand. Kind: golden, refusal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.families import TINY
from tests.helpers.cli import Ran
from tests.helpers.models import by_kind, kind_of_preset
from tests.helpers.quantized import (
    EVEN,
    LLAMA,
    MIXED,
    W4,
    weighed,
)
from tfacct import load
from tfacct.base.errors import TfacctError
from tfacct.ledger import formats
from tfacct.ledger.formats import GGML
from tfacct.loading import presets
from tfacct.loading.quantized.gguf import more_bits


def test_rotations_of_weights_are_within_them() -> None:
    """As in Laguna's files, which a Hadamard matrix was multiplied into. One that turns what a product reads runs
    beside it, and may be stored."""
    group = {"targets": ["Linear"], "weights": W4}
    said = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "format": "pack-quantized"}

    def turned(*places: str) -> dict[str, Any]:
        applied = [{"targets": ["re:.*o_proj$"], "location": place, "inverse": False} for place in places]
        return {**said, "transform_config": {"config_groups": {"R1": {"type": "hadamard", "apply": applied}}}}

    assert weighed(LLAMA, turned("weight_output", "weight_input")) == weighed(LLAMA, said)
    with pytest.raises(TfacctError, match=r"config_groups.R1.apply = .* expected weight transforms only"):
        weighed(LLAMA, turned("weight_output", "input"))


def test_configs_as_published() -> None:
    """Two of the fields that these tools write and no test above has; sizes as their pages give them, in GB."""
    bnb = {"_load_in_4bit": True, "_load_in_8bit": False, "load_in_4bit": True, "load_in_8bit": False}
    bnb |= {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "quant_method": "bitsandbytes"}
    bnb |= {"llm_int8_skip_modules": ["lm_head", "multi_modal_projector"], "llm_int8_threshold": 6.0}
    packing = {"_data": "PLAIN", "_type": "Int4PackingFormat"}
    made = {
        "_type": "Int4WeightOnlyConfig",
        "_version": 2,
        "_data": {"group_size": 128, "int4_packing_format": packing},
    }
    torchao = {"quant_method": "torchao", "quant_type": {"default": made}, "modules_to_not_convert": ["lm_head"]}
    group = {"targets": ["Linear"], "weights": {**W4, "group_size": 32}, "input_activations": None}
    ignore = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]
    packed = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": group}}
    for name, said, hundredths in (
        ("llama-3.1-8b", bnb, 570),
        ("llama-3.1-8b", torchao, 581),  # 6.98 G numbers · (1/2 + 4/128) bytes, and 2.10 GB of table and head
        ("kimi-k2", {**packed, "ignore": ignore}, 59_421),  # Kimi-K2-Thinking: 594 GB
    ):
        assert round(weighed(dict(load(name).loaded.raw), said) / 10**7) == hundredths


def test_a_list_without_the_head_takes_it() -> None:
    """As transformers reads it: a list replaces the modules that it would leave by itself."""
    said = {"quant_method": "fp8", "weight_block_size": [8, 8], "modules_to_not_convert": ["mlp.down_proj"]}
    head = formats.fp8((8, 8)).matrix(96, 72)
    kept = weighed(LLAMA, {**said, "modules_to_not_convert": ["mlp.down_proj", "lm_head"]})
    assert weighed(LLAMA, said) == kept - 2 * 96 * 72 + head


def test_a_head_that_a_list_leaves_is_not_among_what_is_taken(run, tmp_path: Path) -> None:
    config, said = tmp_path / "config.json", {"quant_method": "fp8", "modules_to_not_convert": ["lm_head"]}
    config.write_text(json.dumps({**LLAMA, "quantization_config": said}))
    told = " ".join(run("memory", str(config)).out.split())
    assert "the weight matrices of the layers, in 8-bit numbers" in told and "Also unquantized: lm_head." in told


def test_single_blocks_by_name() -> None:
    """Blocks 0 and 2 stay as they are: 2 bytes for each of their numbers."""
    every = {"quant_method": "fp8", "weight_block_size": [8, 8]}
    names = [*(f"model.layers.{number}" for number in (0, 2)), "lm_head"]
    matrices = [(60, 72), (20, 72), (20, 72), (72, 60), (136, 72), (136, 72), (72, 136)]
    more = 2 * sum(2 * out * into - formats.fp8((8, 8)).matrix(out, into) for out, into in matrices)
    assert weighed(LLAMA, {**every, "modules_to_not_convert": names}) == weighed(LLAMA, every) + more


def test_published_lists_of_older_names() -> None:
    """Mixtral's files have `block_sparse_moe`, and single experts."""
    mixtral = {**TINY["mixtral"]}
    said = {"quant_method": "awq", "bits": 4, "group_size": 8, "zero_point": True, "version": "gemm"}
    every = weighed(mixtral, said)
    of = {tensor.path.split(".")[-2]: tensor.stored for tensor in load(mixtral).loaded.ledger.tensors()}

    def more(*names: str) -> int:
        taken = formats.awq(4, 8).matrix
        return 2 * sum(
            of[name].copies * int(2 * of[name].elements - taken(of[name].outputs, of[name].inputs)) for name in names
        )  # in 2 blocks

    assert weighed(mixtral, {**said, "modules_to_not_convert": ["w2"]}) == every + more("down_proj")
    experts = weighed(mixtral, {**said, "modules_to_not_convert": ["block_sparse_moe.experts"]})
    assert experts == every + more("down_proj", "up_proj", "gate_proj")
    assert weighed(mixtral, {**said, "modules_to_not_convert": ["visual", "gate"]}) == every


def test_gguf_blocks_are_those_of_the_library() -> None:
    gguf = pytest.importorskip("gguf")
    sizes = {kind.name.lower(): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {name: sizes[name] for name in GGML} == GGML


def test_the_blocks_that_get_more_bits() -> None:
    """32 blocks: the first 4, the last 4, and 6, 9, … 27 between: 8 of the 24."""
    assert [block for block in range(32) if more_bits(block, 32)] == [0, 1, 2, 3, *range(6, 28, 3), 28, 29, 30, 31]


@pytest.mark.parametrize(
    ("model", "mix", "hundredths"),
    [
        # "model size" as llama.cpp prints it when it loads these files, in GiB
        ("llama-2-7b", "q4_0", 356),
        ("llama-2-7b", "q4_k_s", 359),
        ("llama-2-7b", "q4_k_m", 380),
        ("llama-2-7b", "q3_k_m", 307),
        ("llama-2-7b", "q5_k_m", 445),
        ("llama-2-7b", "q6_k", 515),
        ("llama-2-7b", "q8_0", 667),
        ("llama-3.1-8b", "q4_k_m", 458),
        ("llama-3.1-8b", "q8_0", 795),
        ("qwen2.5-7b", "q4_k_m", 436),
        ("gemma-2-9b", "q4_k_m", 536),  # a tied table: Q6_K
        ("mistral-7b-v0.3", "q4_k_m", 407),
        ("phi-4", "q8_0", 1451),  # one type for a fused q, k and v too
        ("qwen3.5-9b", "q8_0", 886),
        ("lfm2-1.2b", "q4_k_m", 68),  # 694.76 MiB
    ],
)
def test_llama_cpp_mixtures(model: str, mix: str, hundredths: int) -> None:
    assert round(100 * load(model).memory(dtype=mix).models[0]["weights_bytes"] / 2**30) == hundredths


@pytest.mark.parametrize(
    ("model", "mix", "hundredths"),
    [
        # the same of models whose fused tensors have another type in other versions
        ("phi-4", "q4_k_m", 843),
        ("phi-3-mini-4k", "q4_k_m", 223),
        ("phi-4-mini", "q4_k_m", 231),
        ("qwen3.5-9b", "q4_k_m", 523),
        ("qwen3.5-27b", "q4_k_m", 1539),
        ("qwen3-next-80b-a3b", "q4_k_m", 4508),
        ("deepseek-v2-lite", "q4_k_m", 965),
        ("deepseek-v3", "q4_k_m", 37665),
    ],
)
def test_llama_cpp_mixtures_with_a_range(model: str, mix: str, hundredths: int) -> None:
    facts = load(model).memory(dtype=mix, ctx=1).models[0]
    low, high = (facts[f"weights_{end}_bytes"] for end in ("low", "high"))
    assert round(100 * low / 2**30) <= hundredths <= round(100 * high / 2**30)
    assert low < high == facts["weights_bytes"] and high - low < 0.004 * high
    assert facts["total_high_bytes"] - facts["total_low_bytes"] == high - low
    assert "versions of llama.cpp differ" in facts["range_reason"]


def test_the_range_of_a_fused_qkv_by_hand(run: Callable[..., Ran]) -> None:
    """2 blocks of 256 numbers, heads 4 and 2 of 64: fused, 512 rows of one block of 256. By its own name in all blocks
    Q5_K (176 bytes); as values are, Q4_K (144) in block 0 and Q6_K (210) in block 1, which is more."""
    config = {**TINY["phi3"], "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
    config |= {
        "head_dim": 64,
        "intermediate_size": 512,
        "vocab_size": 96,
        "num_hidden_layers": 2,
        "tie_word_embeddings": False,
    }
    config |= {"partial_rotary_factor": 0.5}
    facts = load(config).memory(dtype="q4_k_m", ctx=1).models[0]
    rest = 2 * 256 * 144 + 2 * 1024 * 144 + 256 * 2 * (144 + 210)  # o_proj, gate_up; down_proj of 512 inputs
    rest += 96 * 144 + 96 * 210 + 4 * 5 * 256  # embedding, head, norms
    assert facts["weights_low_bytes"] == rest + 2 * 512 * 176
    assert facts["weights_high_bytes"] == facts["weights_bytes"] == rest + 512 * (144 + 210)
    exact = load(config).memory(dtype="q8_0", ctx=1).models[0]
    matrices = 2 * 256 * (512 + 256 + 3 * 512) + 2 * 96 * 256
    assert exact["weights_bytes"] == matrices // 32 * 34 + 4 * 5 * 256 and exact["weights_low_bytes"] is None


def test_the_range_of_a_latent_by_hand() -> None:
    """minicpm3: kv_b of 64 inputs as one tensor, or its keys' part with rows of 32 numbers: blocks of 32 in all of
    them, so a range comes of a whole kv_b that has the type of values alone."""
    config = {**TINY["minicpm3"], "num_hidden_layers": 2, "kv_lora_rank": 256, "qk_nope_head_dim": 32, "v_head_dim": 64}
    heads = config["num_attention_heads"]
    facts = load(config).memory(dtype="q4_k_m", ctx=1).models[0]
    keys, values = heads * 32, heads * 64  # rows of kv_b
    split = 2 * (keys * 256 // 32 * 22 + values * 144)  # keys turned: rows of 32, Q5_0; values: Q4_K
    whole, as_values = 2 * (keys + values) * 144, (keys + values) * (144 + 210)
    ends = sorted([split, whole, as_values])
    assert facts["weights_high_bytes"] - facts["weights_low_bytes"] == ends[-1] - ends[0]


def test_small_matrices_stay_in_16_bits() -> None:
    """gemma-3n-e4b: AltUp, Laurel and the projection of inputs per layer. llama.cpp prints 6.84 GiB and 6.87 B: its
    file also has keys and values of 15 blocks that read those of others, 2 heads of 256 for 2,048 numbers."""
    model = load("gemma-3n-e4b-text")
    further = 15 * 2 * 2048 * 2 * 256
    assert round((model.params().models[0]["total_params"] + further) / 10**7) == 687
    assert round(100 * (model.memory(dtype="q8_0", ctx=1).weights_bytes + further // 32 * 34) / 2**30) == 684


@pytest.mark.parametrize("name", by_kind(presets.names(), kind_of_preset))
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


def test_a_tied_head_that_some_files_hold_twice() -> None:
    """gpt2: 50,257 · 768 numbers again."""
    facts = load("gpt2").memory(dtype="q8_0", ctx=1).models[0]
    assert facts["weights_high_bytes"] - facts["weights_low_bytes"] == 50_257 * 768 // 32 * 34


def test_verdicts_take_the_upper_end() -> None:
    facts = load("phi-4").memory(dtype="q4_k_m", ctx=1).models[0]
    room = facts["weights_high_bytes"] + 1000 * facts["kv_bytes_per_token"]
    assert load("phi-4").memory(dtype="q4_k_m", ctx=1, on=room).models[0]["fit"]["largest_context"] == 1000
    fitting = load("phi-4").fit(on="t4", dtype="q4_k_m", ctx=1).models[0]
    assert (fitting["weights_bytes"], fitting["weights_low_bytes"]) == (
        facts["weights_high_bytes"],
        facts["weights_low_bytes"],
    )


def test_sizes_that_vary_are_refused() -> None:
    pytest.importorskip("numpy")
    with pytest.raises(TfacctError, match="row length"):
        load("llama-3.1-8b").evaluate("weights_bytes", dtype="q8_0", F=[4096, 14_336])


def test_stages_do_not_divide_types_by_block(run: Callable[..., Ran]) -> None:
    ran = run("memory", *"llama-3.1-8b --dtype q4_k_m --pp 2".split())
    assert (ran.code, ran.out) == (2, "") and "q4_k_m" in ran.err
    assert run("memory", *"llama-3.1-8b --dtype q8_0 --pp 2".split()).code == 0


def test_q4_k_m_by_hand() -> None:
    """2 blocks of 288 × 512, which 256 divides in down_proj alone: its first block has no eighth (2 // 8 = 0), so
    7 · 2 // 8 = 1: block 1 gets more bits, and block 0 not ((0 − 0) % 3 = 0)."""
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


@pytest.mark.parametrize("dtype", ["q8_0", "q4_k_m"])
def test_what_is_no_decoder_is_refused(dtype: str) -> None:
    for family in ("bert", "t5"):
        with pytest.raises(TfacctError, match="for decoders with"):
            load(TINY[family]).memory(dtype=dtype)


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 24}


def test_gptq_and_awq_by_hand() -> None:
    """72 inputs, 136 outputs: 9 words of 8 inputs for each output; 3 groups of 24; 17 words of 8 outputs."""
    assert formats.gptq(4, 24).matrix(136, 72) == 4 * 9 * 136 + 3 * (2 * 136 + 4 * 17) + 4 * 72
    assert formats.gptq(4, None).matrix(136, 72) == 4 * 9 * 136 + (2 * 136 + 4 * 17) + 4 * 72
    assert formats.awq(4, 24).matrix(136, 72) == 4 * 72 * 17 + 3 * (2 * 136 + 4 * 17)
    assert formats.gptq(3, 32).matrix(64, 96) == 96 // 32 * 3 * 64 * 4 + 3 * (2 * 64 + 4 * 6) + 4 * 96
    matrices = [(60, 72), (20, 72), (20, 72), (72, 60), (136, 72), (136, 72), (72, 136)]
    gone = 3 * sum(2 * out * into - formats.gptq(4, 24).matrix(out, into) for out, into in matrices)
    plain = load(LLAMA).memory().models[0]["weights_bytes"]
    assert weighed(LLAMA, GPTQ) == plain - gone
    assert weighed(LLAMA, {**GPTQ, "lm_head": True}) == plain - gone - 2 * 96 * 72 + formats.gptq(4, 24).matrix(96, 72)


def test_gptq_with_rules_for_modules(run, tmp_path: Path) -> None:
    """As Qwen3.5's published files have them: the first rule that matches counts, and an empty one changes nothing."""
    kept = {"lm_head": {}, "-:.*attn.*": {}, "-:.*mtp.*": {}, "-:.*visual.*": {}}
    network = [(136, 72), (136, 72), (72, 136)]
    plain = load(LLAMA).memory().models[0]["weights_bytes"]
    gone = 3 * sum(2 * out * into - formats.gptq(4, 24).matrix(out, into) for out, into in network)
    assert weighed(LLAMA, {**GPTQ, "dynamic": kept}) == plain - gone
    own = {r"+:.*\.down_proj": {"bits": 8, "group_size": 34}, "-:.*down_proj": {}, **kept}
    wider = 3 * (formats.gptq(8, 34).matrix(72, 136) - formats.gptq(4, 24).matrix(72, 136))
    assert weighed(LLAMA, {**GPTQ, "dynamic": own}) == plain - gone + wider
    first = {r"-:model\.layers\.0\..*": {}}
    assert plain - weighed(LLAMA, {**GPTQ, "dynamic": first}) == 2 * (plain - weighed(LLAMA, GPTQ)) // 3
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**LLAMA, "quantization_config": {**GPTQ, "dynamic": kept}}))
    told = " ".join(run("memory", str(config)).out.split())
    assert "Also unquantized: attn.k_proj, attn.o_proj, attn.q_proj, attn.v_proj and 1 more." in told


def test_the_rest_is_in_the_dtype_of_the_config() -> None:
    wide = weighed({**LLAMA, "torch_dtype": "float32"}, GPTQ) - weighed(LLAMA, GPTQ)
    biases = 3 * (60 + 20 + 20 + 72 + 136 + 136 + 72)
    assert wide == 2 * (2 * 96 * 72 + 7 * 72 + biases)  # table, head and 7 norms too


def test_modelopt_with_a_format_for_each_module_it_lists() -> None:
    """llama of 3 layers, hidden 64, 8 heads of 8 over 2, networks of 96, 96 tokens; what is not listed stays in bf16.

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
    said = {**MIXED, "quantized_layers": listed, "kv_cache_scheme": None, "ignore": ["mtp*"]}
    plain = int(load(config).memory().models[0]["weights_bytes"])
    assert weighed(config, said) == plain - saved
    inside = {
        "quant_method": "modelopt",
        "quantization": {**said, "quant_method": None},
        "producer": {"name": "modelopt"},
    }
    assert weighed(config, inside) == plain - saved


def test_modelopt_that_lists_every_expert_or_all_at_once() -> None:
    config = {**TINY["qwen3_moe"], "hidden_size": 64, "moe_intermediate_size": 96}
    config |= {"decoder_sparse_step": 1, "mlp_only_layers": []}
    one, experts = {"quant_algo": "NVFP4"}, int(config["num_experts"])
    layers = range(int(config["num_hidden_layers"]))
    every = {
        f"model.layers.{layer}.mlp.experts.{number}.{name}_proj": one
        for layer in layers
        for number in range(experts)
        for name in ("gate", "up", "down")
    }
    whole = {f"model.layers.{layer}.mlp.experts": one for layer in layers}
    assert weighed(config, {**MIXED, "quantized_layers": every}) == weighed(
        config, {**MIXED, "quantized_layers": whole}
    )
    one_matrix = 2 * 64 * 96 - (64 * 96 // 2 + 64 * 96 // 16 + 8)
    plain = int(load(config).memory().models[0]["weights_bytes"])
    assert plain - weighed(config, {**MIXED, "quantized_layers": whole}) == 3 * len(layers) * experts * one_matrix
    uneven = {**every, "model.layers.0.mlp.experts.1.up_proj": {"quant_algo": "FP8"}}
    with pytest.raises(TfacctError, match="in different ways"):
        weighed(config, {**MIXED, "quantized_layers": uneven})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"quant_method": "vptq"}, '"vptq" is not supported'),
        ({"quant_method": "gptq4"}, "did you mean gptq"),
        ({"quant_method": ["gptq"]}, "is not supported"),
        ({"bits": 4}, "has no quant_method"),
        ({**GPTQ, "bits": "4"}, "bits"),
        ({**GPTQ, "bits": 5}, "2, 3, 4, 8"),
        ({**GPTQ, "bits": True}, "bits"),
        ({**GPTQ, "group_size": 0}, "group_size"),
        ({**GPTQ, "group_size": 10**30}, "group_size"),
        ({"quant_method": "gptq", "bits": 4}, "group_size is missing"),
        ({**GPTQ, "dynamic": {".*": {"bits": 5}}}, "2, 3, 4, 8"),
        ({**GPTQ, "dynamic": {".*": {"adapter": {}}}}, "adapter"),
        ({**GPTQ, "dynamic": ["-:.*"]}, "dynamic"),
        ({**GPTQ, "surprise": 1}, "surprise = 1 is not supported"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
        ({"quant_method": "fp8", "modules_to_not_convert": "lm_head"}, "list of names"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["x" * 10_000]}, "too long"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp.experts.3.up_proj"]}, "single experts"),
        ({"quant_method": "fp8", "expert_dtype": "fp4"}, "expert_dtype"),
        ({"quant_method": "bitsandbytes"}, "4 bits or in 8"),
        ({"quant_method": "compressed-tensors"}, "config_groups is missing"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": 3}}, "config_groups.a"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "MIXED_PRECISION"),
        ({**MIXED, "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "W4A8_AWQ"}}}, "W4A8_AWQ"),
        (
            {**MIXED, "quantized_layers": {"model.layers.9.mlp.up_proj": {"quant_algo": "FP8"}}},
            "not a matrix of this model",
        ),
        ({**MIXED, "quantized_layers": {"lm_head": {}}}, "quant_algo is missing"),
        ({"quant_method": "torchao", "quant_type": "autoquant"}, "autoquant"),
        ("fp8", "object with fields"),
        ([1], "object with fields"),
    ],
)
def test_what_is_not_known_is_refused_by_name(said: Any, words: str) -> None:
    with pytest.raises(TfacctError) as raised:
        load({**LLAMA, "quantization_config": said}).memory()
    told = f"{raised.value}"
    assert words in told and "give dtype" in told
    assert load({**LLAMA, "quantization_config": said}).memory(dtype="bf16").models[0]["weights_bytes"]


def test_patterns_that_are_no_patterns_do_no_harm() -> None:
    for pattern in ("re:(", "re:[", "(", "*"):
        group = {"targets": ["Linear"], "weights": W4}
        said = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"a": group}}
        assert weighed(LLAMA, {**said, "ignore": [pattern]}) == weighed(LLAMA, said)


def test_every_command_that_weighs_takes_it(run, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    said = {"quant_method": "fp8", "weight_block_size": [8, 8], "modules_to_not_convert": ["model.layers.1", "lm_head"]}
    file.write_text(json.dumps({**LLAMA, "quantization_config": said}))
    memory = json.loads(run("memory", str(file), "--json").out)["models"][0]
    assert memory["workload"]["dtype"] == "fp8-block" and memory["weights_bytes"] < 2 * memory["total_params"]
    moved = json.loads(run("flops", str(file), "--bytes", "--decode", "--json").out)["models"][0]
    plain = json.loads(run("flops", str(file), "--bytes", "--decode", "--dtype", "bf16", "--json").out)["models"][0]
    assert moved["total_read_bytes"] < plain["total_read_bytes"]
    swept = json.loads(run("sweep", str(file), "--ctx", "64", "--metric", "weights_bytes", "--json").out)["models"][0]
    assert swept["lines"][0]["weights_bytes"] == memory["weights_bytes"]
    assert "in some layers: attn.k_proj" in " ".join(run("memory", str(file)).out.split())
    assert run("memory", str(file), "--on", "1MiB").code == 0
    assert "no single formula" in " ".join(run("memory", str(file), "--explain").err.split())


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
"""Objects whose names are those of modules or groups, of which any may be said."""


def _objects(said: dict[str, Any], of: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where the objects of fields in a config are."""
    if not of or of[-1] not in TAKEN_WHOLE:
        yield of
    for name, value in said.items():
        if isinstance(value, dict):
            yield from _objects(value, (*of, name))


def _with(said: dict[str, Any], of: tuple[str, ...], **more: Any) -> dict[str, Any]:
    """The config with more fields in one of its objects."""
    return {**said, of[0]: _with(said[of[0]], of[1:], **more)} if of else {**said, **more}


@pytest.mark.parametrize(("method", "of"), [(name, of) for name, said in KNOWN.items() for of in _objects(said)])
def test_a_field_that_no_method_asks_for_is_refused_in_every_object(method: str, of: tuple[str, ...]) -> None:
    """It may change bytes. The config without it is read, so nothing else is wrong with it. A mistaken name of MLX's is
    no module's."""
    config = {**LLAMA, **EVEN}
    assert weighed(config, KNOWN[method]) > 0
    refused = "has no quant_method" if method == "mlx" and not of else "surprise = 1 is not supported"
    with pytest.raises(TfacctError, match=refused):
        weighed(config, _with(KNOWN[method], of, surprise=1))
