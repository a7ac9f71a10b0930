"""Checkpoints of AutoRound and of Model Optimizer's formats, by hand from the libraries' modules. Kind: golden,
refusal.
"""

from typing import Any

import pytest

from tests.families import TINY
from tests.helpers.models import tiny
from tests.helpers.quantized import LLAMA, MIXED, weighed
from tfacct import load
from tfacct.base.errors import TfacctError
from tfacct.ledger import formats

ROUND: dict[str, Any] = {"quant_method": "auto-round", "bits": 4, "group_size": 24, "sym": True}
MATRICES = [(60, 72), (20, 72), (20, 72), (72, 60), (136, 72), (136, 72), (72, 136)]
"""Outputs and inputs of one block of LLAMA, of which it has three."""


def gone(outputs: int, inputs: int, taken: formats.Format) -> int:
    """Bytes that a matrix of bf16 loses in a format."""
    return 2 * outputs * inputs - int(taken.matrix(outputs, inputs))


def test_auto_round_packs_as_gptq_without_groups_of_inputs() -> None:
    """`qweight`, `qzeros` and `scales` of auto_round_extension's `QuantLinear`; `g_idx` where its packing is
    GPTQModel's alone."""
    assert formats.gptq(4, 24, indexed=False).matrix(136, 72) == 4 * 9 * 136 + 3 * (2 * 136 + 4 * 17)
    plain = int(load(LLAMA).memory().models[0]["weights_bytes"])
    for packing, taken in {
        None: formats.gptq(4, 24, indexed=False),
        "auto_round:auto_gptq": formats.gptq(4, 24, indexed=False),
        "auto_round:gptqmodel": formats.gptq(4, 24),
        "auto_round:auto_awq": formats.awq(4, 24),
    }.items():
        said = {
            **ROUND,
            "packing_format": packing,
            "autoround_version": "0.9",
            "block_name_to_quantize": "model.layers",
        }
        assert weighed(LLAMA, said) == plain - 3 * sum(gone(*matrix, taken) for matrix in MATRICES)


def test_optimums_list_of_the_modules_of_a_block_that_are_taken() -> None:
    """As TheBloke's Mixtral-8x7B has it: experts and attention, not the router."""
    model = TINY["mixtral"]
    said = {"quant_method": "gptq", "bits": 4, "group_size": 8, "block_name_to_quantize": "model.layers"}
    experts = [f"block_sparse_moe.experts.{n}.w{part}" for n in range(model["num_local_experts"]) for part in (1, 3, 2)]
    attention = [["self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj"], ["self_attn.o_proj"]]
    every = weighed(model, {**said, "modules_in_block_to_quantize": [*attention, experts]})
    assert every == weighed(model, said)
    plain = int(load(model).memory().models[0]["weights_bytes"])
    assert every < weighed(model, {**said, "modules_in_block_to_quantize": attention}) < plain
    with pytest.raises(TfacctError, match="names single experts"):
        weighed(model, {**said, "modules_in_block_to_quantize": [*attention, experts[3:]]})
    for wrong in ([attention], 5, {"a": 1}):
        with pytest.raises(TfacctError, match="must be a list of names"):
            weighed(model, {**said, "modules_in_block_to_quantize": wrong})


def grouped(*targets: str) -> dict[str, Any]:
    """compressed-tensors' config of eight bits, a scale for each output, of modules that are called so."""
    weights = {"num_bits": 8, "type": "int", "strategy": "channel"}
    return {"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": targets, "weights": weights}}}


def test_names_of_deepseek_v4_in_its_own_files_and_in_vllms() -> None:
    """RedHatAI/DeepSeek-V4-Flash-NVFP4-FP8 was weighed as 530 GiB of bf16: nothing was called as its groups say."""
    model = TINY["deepseek_v4"]
    theirs = grouped("re:.*attn.*(fused_wqa_wkv|wq_b|wo_a|wo_b)$", "re:.*ffn.*(gate|up|down)_proj$")
    ours = grouped(
        r"re:.*self_attn\.(q_a|kv|q_b|o_a|o_b)_proj$", "re:.*indexer.q_b_proj", "re:.*mlp.*(gate|up|down)_proj$"
    )
    plain = int(load(model).memory().models[0]["weights_bytes"])
    assert weighed(model, theirs) == weighed(model, ours) < plain


def test_compressed_tensors_reads_a_missing_strategy_from_the_group_size() -> None:
    """QuantizationArgs.validate_model_after: none means a tensor, -1 a channel, any other size groups."""

    def of(**weights: object) -> int:
        config = grouped("Linear")
        config["config_groups"]["g"]["weights"] = {"num_bits": 8, "type": "int", **weights}
        return weighed(LLAMA, config)

    tensor, channel, group = of(strategy="tensor"), of(strategy="channel"), of(strategy="group", group_size=4)
    assert tensor < channel < group
    assert [of(), of(group_size=-1), of(group_size=4)] == [tensor, channel, group]


def test_packed_weights_have_from_one_to_eight_bits() -> None:
    """Outputs · inputs · bits / 8 bytes of each matrix, the head's 96 · 96 among them: all rows fill whole words."""
    even = {**LLAMA, "hidden_size": 96, "num_attention_heads": 6, "head_dim": 16, "intermediate_size": 160}

    def of(bits: int) -> int:
        config = {**grouped("Linear"), "format": "pack-quantized"}
        config["config_groups"]["g"]["weights"] = {"num_bits": bits, "type": "int", "strategy": "tensor"}
        return weighed(even, config)

    block = 96 * (96 + 2 * 32 + 96) + 3 * 96 * 160
    for bits in (1, 2, 4):
        assert of(8) - of(bits) == (3 * block + 96 * 96) * (8 - bits) // 8


def test_a_group_whose_names_no_matrix_has_is_refused() -> None:
    with pytest.raises(TfacctError, match="no matrix is named"):
        weighed(LLAMA, grouped("re:.*wq_b$"))
    beside = grouped("Linear")
    beside["config_groups"]["v"] = {**grouped("re:.*vision_tower.*")["config_groups"]["g"]}
    assert weighed(LLAMA, beside) == weighed(LLAMA, grouped("Linear"))


def test_the_shared_network_in_lagunas_files_is_called_in_the_singular() -> None:
    model, rest = TINY["laguna"], "lm_head"
    left = {**grouped("Linear"), "ignore": [rest, r"re:.*\.mlp\.shared_expert\.(gate|up|down)_proj$"]}
    assert weighed(model, left) == weighed(model, {**left, "ignore": [rest, "re:.*shared_experts.*"]})
    assert weighed(model, left) > weighed(model, {**left, "ignore": [rest]})


def test_auto_round_by_its_first_name() -> None:
    assert weighed(LLAMA, {**ROUND, "quant_method": "intel/auto-round"}) == weighed(LLAMA, ROUND)
    with pytest.raises(TfacctError, match="expected a backend with a packing_format"):
        weighed(LLAMA, {**ROUND, "backend": "auto_round:awq:gemm"})


def test_fields_of_autofp8_mean_one_scale_for_each_matrix() -> None:
    """`weight_scale` and `input_scale`, of 4 bytes each, as AutoFP8 stores them."""
    said = {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}
    plain = int(load(LLAMA).memory().models[0]["weights_bytes"])
    lost = plain - 3 * sum(outputs * inputs - 8 for outputs, inputs in MATRICES)
    assert weighed(LLAMA, said) == weighed(LLAMA, {**said, "kv_cache_scheme": "static"}) == lost


def test_auto_round_with_modules_of_their_own() -> None:
    plain = int(load(LLAMA).memory().models[0]["weights_bytes"])
    every = weighed(LLAMA, ROUND)
    own: dict[str, Any] = {
        "model.layers.1.mlp.up_proj": {"bits": 16, "data_type": "float"},
        r".*down_proj": {"bits": 8, "group_size": 34},
        "lm_head": {"bits": 4, "group_size": 36, "sym": True, "data_type": "int", "act_bits": None},
        "model.visual.blocks.0.attn.qkv": {"bits": 16, "data_type": "fp"},
    }
    packed, eight = formats.gptq(4, 24, indexed=False), formats.gptq(8, 34, indexed=False)
    more = gone(136, 72, packed) + 3 * (gone(72, 136, packed) - gone(72, 136, eight))
    less = gone(96, 72, formats.gptq(4, 36, indexed=False))
    assert weighed(LLAMA, {**ROUND, "extra_config": own}) == every + more - less < plain


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"group_size": None}, "group_size is missing"),
        ({"packing_format": "auto_round:llm_compressor"}, "auto_round:llm_compressor"),
        ({"packing_format": "auto_round:auto_awq", "bits": 3}, "expected 4, as AWQ packs"),
        ({"data_type": "mx_fp"}, "mx_fp"),
        ({"act_bits": 8}, "expected 16"),
        ({"block_name_to_quantize": "model.layers.0"}, "expected the name of all layers"),
        ({"extra_config": {"lm_head": {"bits": 4, "data_type": "nv_fp"}}}, "nv_fp"),
        ({"extra_config": {"lm_head": 4}}, "lm_head"),
        ({"surprise": 1}, "surprise = 1 is not supported"),
    ],
)
def test_what_auto_round_may_say_and_is_not_counted(said: dict[str, Any], words: str) -> None:
    with pytest.raises(TfacctError) as raised:
        weighed(LLAMA, {**ROUND, **said})
    assert words in f"{raised.value}"


def test_modelopt_in_blocks_of_outputs_and_inputs() -> None:
    """FP8_PB_WO: a byte a number, 4 for each block of 128 × 128; MXFP8: 33 for each 32 inputs; a scale for each output
    in FP8_PER_CHANNEL_PER_TOKEN. Without a quant_method the producer says whose it is, as older files have it."""
    config = {**LLAMA, "hidden_size": 64, "num_attention_heads": 8, "head_dim": 8, "intermediate_size": 160}
    plain = int(load(config).memory().models[0]["weights_bytes"])
    listed = {
        "model.layers.0.self_attn": {"quant_algo": "fp8_pb_wo", "group_size": 128},
        "model.layers.1.mlp": {"quant_algo": "MXFP8", "group_size": 32},
        "lm_head": {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"},
    }
    saved = 2 * (64 * 64 - 4) + 2 * (16 * 64 - 4)  # q and o, k and v: one block each
    saved += 3 * (2 * 64 * 160 - 33 * 64 * 160 // 32) + 96 * 64 - 4 * 96
    assert plain - weighed(config, {**MIXED, "quantized_layers": listed}) == saved
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
    said = {**fp8, **own, "quantized_layers": listed}
    experts = 3 * layers * int(tiny("deepseek_v4").raw["n_routed_experts"])
    # from 17 bytes for 32 inputs to 9 for 16, and 8 more
    assert weighed(config, said) - weighed(config, fp8) == experts * (64 * 96 // 32 + 8)
    for wrong, words in (
        ({"quantized_layers": {**listed, "layers.0.attn.wq_a": nvfp4}}, "which does not cover all experts of a layer"),
        ({"quantized_layers": {"layers.0.ffn.experts": nvfp4}}, "does not cover the experts of every layer"),
        ({"expert_dtype": "fp8"}, "expert_dtype fp4 is also given"),
    ):
        with pytest.raises(TfacctError, match=words):
            weighed(config, {**said, **wrong})


def test_minimax_m3_in_the_names_of_its_files() -> None:
    """Two matrices for the class's joined one, experts and shared networks in block_sparse_moe, the indexer's two."""
    config = {**TINY["minimax_m3_vl_text"], "hidden_size": 64, "intermediate_size": 32, "num_local_experts": 3}
    config |= {"num_experts_per_tok": 2, "shared_intermediate_size": 32}
    front = "language_model.model.layers.1"
    names = {f"block_sparse_moe.experts.{number}.w{one}" for number in range(3) for one in (1, 2, 3)}
    names |= {"block_sparse_moe.shared_experts.gate_proj", "self_attn.index_k_proj"}
    listed = {f"{front}.{name}": {"quant_algo": "MXFP8"} for name in names}
    listed["language_model.model.layers.0.mlp.up_proj"] = {"quant_algo": "MXFP8"}
    plain = int(load(config).memory().models[0]["weights_bytes"])
    numbers = 10 * 64 * 32 + 64 * 14 + 64 * 71
    assert plain - weighed(config, {**MIXED, "quantized_layers": listed}) == 2 * numbers - 33 * numbers // 32


MLX: dict[str, Any] = {"group_size": 64, "bits": 4}


def test_mlx_with_modules_of_their_own() -> None:
    """Routers in 8 bits beside all else in 4, as files of Qwen3's experts have it: a scale and a bias of 2 bytes for
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
    for said, words in (
        ({"model.layers.9.mlp.gate": {"bits": 8}}, "not a matrix of this model"),
        ({"model.layers.0.mlp.gate": {"bits": 7}}, "2, 3, 4, 5, 6, 8"),
        ({"mode": "mxfp4"}, "expected 32"),
        ({"surprise": 1}, "has no quant_method"),
    ):
        with pytest.raises(TfacctError, match=words):
            weighed(config, {**MLX, **said})
    assert weighed(config, {**MLX, "vision_tower.blocks.0": False}) == every
