"""Types that are a family's computation under another name: totals that were published, or by hand; what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.families import TINY
from tfacct import families, load
from tfacct.base.errors import ConfigError, NotFoundError
from tfacct.families import multimodal
from tfacct.families.task_heads import class_ending
from tfacct.families.type_aliases import class_aliases, type_aliases
from tfacct.families.unsupported import unsupported_types
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model

INTERNLM_20B = {
    "architectures": ["InternLMForCausalLM"], "bias": False, "hidden_act": "silu", "hidden_size": 5120,
    "intermediate_size": 13824, "max_position_embeddings": 4096, "model_type": "internlm", "num_attention_heads": 40,
    "num_hidden_layers": 60, "num_key_value_heads": 40, "rms_norm_eps": 1e-06, "rotary": {"base": 10000},
    "tie_word_embeddings": False, "vocab_size": 103168,
}  # fmt: skip
LLADA_100M = {
    "activation_type": "silu", "alibi": False, "architectures": ["LLaDAModelLM"], "attention_layer_norm": False,
    "bias_for_layer_norm": False, "block_type": "llama", "d_model": 448, "embedding_size": 126464,
    "include_bias": False, "include_qkv_bias": False, "input_emb_norm": False, "layer_norm_type": "rms",
    "layer_norm_with_affine": True, "max_sequence_length": 1024, "mlp_hidden_size": 768, "mlp_ratio": 2,
    "model_type": "llada", "multi_query_attention": None, "n_heads": 7, "n_kv_heads": 7, "n_layers": 6,
    "rms_norm_eps": 1e-05, "rope": True, "rope_theta": 10000.0, "scale_logits": False, "vocab_size": 126464,
    "weight_tying": False,
}  # fmt: skip
YI_6B = {
    "architectures": ["YiForCausalLM"], "hidden_size": 4096, "intermediate_size": 11008, "model_type": "Yi",
    "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-05, "rope_theta": 5000000.0, "tie_word_embeddings": False, "vocab_size": 64000,
}  # fmt: skip
PANGU_7B = {
    "architectures": ["PanguEmbeddedForCausalLM"], "bias": True, "hidden_size": 4096, "intermediate_size": 12800,
    "max_position_embeddings": 32768, "model_type": "PanguEmbedded", "num_attention_heads": 32,
    "num_hidden_layers": 34, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "tie_word_embeddings": False,
    "vocab_size": 153376,
}  # fmt: skip
RW = {"architectures": ["RWForCausalLM"], "alibi": False, "bias": False, "parallel_attn": True, "vocab_size": 65024}
RW_7B = {**RW, "model_type": "RefinedWebModel", "hidden_size": 4544, "multi_query": True, "n_head": 71, "n_layer": 32}
RW_40B = {**RW, "model_type": "RefinedWeb", "hidden_size": 8192, "n_head": 128, "n_head_kv": 8, "n_layer": 60}
PHI_2 = {
    "activation_function": "gelu_new", "architectures": ["PhiForCausalLM"], "flash_attn": False, "fused_dense": False,
    "img_processor": None, "layer_norm_epsilon": 1e-05, "model_type": "phi-msft", "n_embd": 2560, "n_head": 32,
    "n_head_kv": None, "n_inner": None, "n_layer": 32, "n_positions": 2048, "rotary_dim": 32,
    "tie_word_embeddings": False, "vocab_size": 51200,
}  # fmt: skip
STABLE_CODE_3B = {
    "architectures": ["StableLMEpochForCausalLM"], "hidden_size": 2560, "intermediate_size": 6912,
    "max_position_embeddings": 16384, "model_type": "stablelm_epoch", "norm_eps": 1e-05, "num_attention_heads": 32,
    "num_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "rope_pct": 0.25,
    "rotary_scaling_factor": 1.0, "tie_word_embeddings": False, "vocab_size": 50304,
}  # fmt: skip
DEEPSEEK_MOE_16B = {
    "architectures": ["DeepseekForCausalLM"], "attention_bias": False, "aux_loss_alpha": 0.001,
    "first_k_dense_replace": 1, "hidden_size": 2048, "intermediate_size": 10944, "max_position_embeddings": 4096,
    "model_type": "deepseek", "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_routed_experts": 64,
    "n_shared_experts": 2, "norm_topk_prob": False, "num_attention_heads": 16, "num_experts_per_tok": 6,
    "num_hidden_layers": 28, "num_key_value_heads": 16, "rms_norm_eps": 1e-06, "scoring_func": "softmax",
    "seq_aux": True, "tie_word_embeddings": False, "vocab_size": 102400,
}  # fmt: skip
LING = {
    "architectures": ["BailingMoeForCausalLM"], "first_k_dense_replace": 0, "hidden_size": 2048,
    "intermediate_size": 5632, "max_position_embeddings": 16384, "model_type": "bailing_moe",
    "moe_intermediate_size": 1408, "norm_head": True, "num_attention_heads": 16, "num_experts": 64,
    "num_experts_per_tok": 6, "num_hidden_layers": 28, "num_key_value_heads": 4, "num_shared_experts": 2,
    "rms_norm_eps": 1e-06, "tie_word_embeddings": False, "use_bias": False, "use_qkv_bias": False,
    "vocab_size": 126464,
}  # fmt: skip
CHATGLM3_6B = {
    "add_bias_linear": False, "add_qkv_bias": True, "apply_query_key_layer_scaling": True,
    "apply_residual_connection_post_layernorm": False, "architectures": ["ChatGLMModel"],
    "attention_softmax_in_fp32": True, "bias_dropout_fusion": True, "ffn_hidden_size": 13696,
    "fp32_residual_connection": False, "hidden_size": 4096, "kv_channels": 128, "layernorm_epsilon": 1e-05,
    "model_type": "chatglm", "multi_query_attention": True, "multi_query_group_num": 2, "num_attention_heads": 32,
    "num_layers": 28, "original_rope": True, "padded_vocab_size": 65024, "post_layer_norm": True,
    "quantization_bit": 0, "rmsnorm": True, "seq_length": 8192, "tie_word_embeddings": False,
}  # fmt: skip
GLM_4_9B = {
    **CHATGLM3_6B, "layernorm_epsilon": 1.5625e-07, "num_hidden_layers": 40, "num_layers": 40,
    "padded_vocab_size": 151552, "rope_ratio": 500, "seq_length": 131072, "vocab_size": 151552,
}  # fmt: skip
ORION_14B = {
    "architectures": ["OrionForCausalLM"], "attention_bias": False, "hidden_size": 5120, "intermediate_size": 15360,
    "max_position_embeddings": 4096, "model_type": "orion", "num_attention_heads": 40, "num_hidden_layers": 40,
    "num_key_value_heads": 40, "rms_norm_eps": 1e-05, "tie_word_embeddings": False, "vocab_size": 84608,
}  # fmt: skip
DREAM_7B = {
    "architectures": ["DreamModel"], "hidden_size": 3584, "intermediate_size": 18944, "mask_token_id": 151666,
    "max_position_embeddings": 131072, "max_window_layers": 28, "model_type": "Dream", "num_attention_heads": 28,
    "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": None, "tie_word_embeddings": False, "use_mrope": False, "use_sliding_window": False,
    "vocab_size": 152064,
}  # fmt: skip
LLADA_MOE_7B = {
    "architectures": ["LLaDAMoEModelLM"], "attention_bias": False, "clip_qkv": None, "dense_intermediate_size": 8192,
    "expert_intermediate_size": 1024, "hidden_size": 2048, "max_position_embeddings": 8192, "model_type": "llada",
    "moe_layer_freq": [1] * 16, "moe_router_enable_expert_bias": False, "moe_router_score_function": "softmax",
    "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16,
    "num_key_value_heads": 16, "partial_rotary_factor": 1, "qk_layernorm": True, "rms_norm_eps": 1e-05,
    "rope_theta": 50000, "routed_scaling_factor": 1.0, "router_num_group": None, "router_topk_group": None,
    "shared_expert_intermediate_size": None, "tie_word_embeddings": False, "vocab_size": 157184,
}  # fmt: skip
LLADA_2_MINI = {
    "architectures": ["LLaDA2MoeModelLM"], "first_k_dense_replace": 1, "head_dim": 128, "hidden_size": 2048,
    "intermediate_size": 5120, "max_position_embeddings": 32768, "model_type": "llada2_moe",
    "moe_intermediate_size": 512, "moe_router_enable_expert_bias": True, "norm_head": False,
    "num_attention_heads": 16, "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 20,
    "num_key_value_heads": 4, "num_shared_experts": 1, "partial_rotary_factor": 0.5, "rotary_dim": 64,
    "sliding_window": 4096, "tie_word_embeddings": False, "use_bias": False, "use_qkv_bias": False,
    "use_rmsnorm": True, "use_sliding_window": False, "vocab_size": 157184,
}  # fmt: skip
SDAR = {
    "architectures": ["SDARForCausalLM"], "attention_bias": False, "block_size": 4, "head_dim": 128,
    "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 32768, "mask_token_id": 151669,
    "model_type": "sdar", "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
    "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
OLMO_7B = {
    "activation_type": "swiglu", "alibi": False, "architectures": ["OLMoForCausalLM"], "attention_layer_norm": False,
    "bias_for_layer_norm": False, "block_type": "sequential", "d_model": 4096, "embedding_size": 50304,
    "include_bias": False, "layer_norm_type": "default", "layer_norm_with_affine": False, "max_sequence_length": 2048,
    "mlp_hidden_size": 22016, "mlp_ratio": 4, "model_type": "hf_olmo", "multi_query_attention": False, "n_heads": 32,
    "n_layers": 32, "rope": True, "scale_logits": False, "vocab_size": 50280, "weight_tying": False,
}  # fmt: skip
OLMO_1B = {
    **OLMO_7B, "d_model": 2048, "mlp_hidden_size": None, "mlp_ratio": 8, "n_heads": 16, "n_layers": 16,
    "weight_tying": True,
}  # fmt: skip


def blocks(hidden: int, kv: int, wide: int, *, bias: bool = False) -> int:
    """Parameters of a block of Llama's shape, `kv` numbers of keys in each token, by hand."""
    attention = 2 * hidden * hidden + 2 * hidden * kv + bias * (2 * hidden + 2 * kv)
    return attention + 3 * hidden * wide + 2 * hidden


@pytest.mark.parametrize(
    ("config", "family", "total"),
    [
        (INTERNLM_20B, "llama", 40_177_428_480 // 2),  # total_size of its index, two bytes each
        # published as 7.36 billion; experts of three matrices, a router, and norms of 128 numbers
        (LLADA_MOE_7B, "qwen3_moe", 2 * 157184 * 2048 + 16 * (blocks(2048, 2048, 64 * 1024) + 64 * 2048 + 256) + 2048),
        (LLADA_100M, "eurobert", 124_327_616),  # of its own class, as a public training log gives it
        (YI_6B, "llama", 2 * 64000 * 4096 + 32 * blocks(4096, 4 * 128, 11008) + 4096),
        (PANGU_7B, "llama", 2 * 153376 * 4096 + 34 * blocks(4096, 8 * 128, 12800, bias=True) + 4096),
        (DEEPSEEK_MOE_16B, "glm4_moe", 16_375_728_128),  # by the metadata of its files
        (CHATGLM3_6B, "glm", 6_243_584_000),  # of its own class, as public logs give it
        (ORION_14B, "stablelm", 2 * 84608 * 5120 + 40 * (blocks(5120, 5120, 15360) + 2 * 5120) + 2 * 5120),
        (
            LING,
            "glm4_moe",
            2 * 126464 * 2048 + 28 * (blocks(2048, 512, 1408) + 65 * 3 * 2048 * 1408 + 64 * 2048) + 2048,
        ),
        ({"model_type": "xverse"}, "llama", 2 * 100278 * 5120 + 40 * blocks(5120, 5120, 13824) + 5120),
        ({"model_type": "internlm"}, "llama", 2 * 103168 * 4096 + 32 * blocks(4096, 4096, 11008, bias=True) + 4096),
    ],
)
def test_totals_of_published_files(config: dict[str, Any], family: str, total: int) -> None:
    ours = load_model("mine", config)
    assert (ours.family, ours.unknown, ours.parameters) == (family, (), total)


@pytest.mark.parametrize(
    ("config", "preset"),
    [
        (RW_7B, "falcon-7b"),
        (RW_40B, "falcon-40b"),
        (PHI_2, "phi-2"),
        (STABLE_CODE_3B, "stablelm-3b-4e1t"),
        (GLM_4_9B, "glm-4-9b-chat"),
        (OLMO_7B, "olmo-7b"),
        (OLMO_1B, "olmo-1b"),
    ],
)
def test_older_files_are_what_the_newer_ones_are(config: dict[str, Any], preset: str) -> None:
    """The same tensors, products and cache: those files were converted to transformers' own names."""
    ours, theirs = load_model("mine", config), load(preset).loaded
    assert (ours.family, ours.unknown) == (theirs.family, ())
    at = Workload(context=64, tokens=64, batch=1).axes()
    assert ours.ledger.parameters() == theirs.ledger.parameters()
    assert ours.ledger.flops(at) == theirs.ledger.flops(at)
    assert ours.ledger.states(at) == theirs.ledger.states(at)


def test_dream_has_the_weights_of_qwen() -> None:
    assert load_model("mine", DREAM_7B).ledger.parameters() == load("qwen2.5-7b").loaded.ledger.parameters()


@pytest.mark.parametrize("config", [LLADA_100M, DREAM_7B])
def test_models_that_fill_masks_see_all_tokens_and_keep_nothing(config: dict[str, Any]) -> None:
    ours = load_model("mine", config)
    assert not ours.has_cache and not any(part.causal for part in ours.architecture.attentions)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({**YI_6B, "head_dim": 64}, "head_dim = 64"),
        ({**YI_6B, "attention_bias": True}, "attention_bias = true"),
        ({**INTERNLM_20B, "num_key_value_heads": 8}, "num_key_value_heads = 8"),
        ({**INTERNLM_20B, "mlp_bias": True}, "mlp_bias = true"),
        ({**LLADA_100M, "block_type": "sequential"}, 'block_type = "sequential"'),
        ({**LLADA_100M, "include_qkv_bias": True}, "include_qkv_bias = true"),
        ({**LLADA_100M, "attention_layer_norm": True}, "attention_layer_norm = true"),
        ({**RW_40B, "new_decoder_architecture": False}, "new_decoder_architecture = false"),
        ({**PHI_2, "num_local_experts": 4}, "num_local_experts = 4"),  # phixtral
        ({**CHATGLM3_6B, "multi_query_attention": False}, "multi_query_attention = false"),
        ({**CHATGLM3_6B, "add_bias_linear": True}, "add_bias_linear = true"),
        ({**DEEPSEEK_MOE_16B, "moe_layer_freq": 2}, "moe_layer_freq = 2"),
        ({**OLMO_7B, "layer_norm_with_affine": True}, "layer_norm_with_affine = true"),
        ({**LING, "use_bias": True}, "use_bias = true"),
        ({**RW_7B, "num_hidden_layers": 9}, "num_hidden_layers = 9 contradicts|contradicts num_hidden_layers = "),
    ],
)
def test_what_their_code_does_otherwise_is_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_model("mine", config)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (YI_6B, None), (LLADA_100M, "block_type"), (LLADA_100M, "d_model"), (RW_40B, "n_head_kv"),
        (PHI_2, "n_layer"), (CHATGLM3_6B, "padded_vocab_size"), (ORION_14B, "vocab_size"),
        (LING, "use_bias"),
    ],
)  # fmt: skip
def test_what_is_not_said_is_known_or_asked_for(config: dict[str, Any], name: str | None) -> None:
    """YiConfig's defaults were read; that of LLaDA's block is another one."""
    fewer = {field: value for field, value in config.items() if field not in (name, "num_key_value_heads")}
    if name is None:
        ours = load_model("mine", fewer)
        assert ours.defaulted["num_key_value_heads"] == 4
        assert ours.parameters == load_model("mine", config).parameters
        return
    with pytest.raises(ConfigError, match="is missing"):
        load_model("mine", fewer)


def test_fields_are_set_under_either_name() -> None:
    for name in ("n_layer", "num_hidden_layers"):
        assert len(load_model("mine", RW_7B, {name: 3}).architecture.blocks()) == 3
    tied = load_model("mine", LLADA_100M, {"weight_tying": True})
    assert tied.parameters == 124_327_616 - 126464 * 448
    with pytest.raises(NotFoundError, match="no field 'n_layers' in falcon"):
        load_model("mine", RW_7B, {"n_layers": 3})


def test_llamas_body_that_sees_all_tokens() -> None:
    """NVIDIA's models of embeddings; those that score pairs have a head that EuroBERT's class has not."""
    sizes = {name: value for name, value in TINY["llama"].items() if not name.endswith("_bias")}
    fields = {**sizes, "model_type": "llama_bidirec", "architectures": ["LlamaBidirectionalModel"], "pooling": "avg"}
    ours, theirs = load_model("mine", fields), load_model("mine", {**sizes, "architectures": ["LlamaModel"]})
    assert ours.ledger.parameters() == theirs.ledger.parameters()
    assert not ours.has_cache and not any(part.causal for part in ours.architecture.attentions)
    with pytest.raises(ConfigError, match="is not a class of llama_bidirec"):
        load_model("mine", {**fields, "architectures": ["LlamaBidirectionalForSequenceClassification"]})


@pytest.mark.parametrize(("family", "named"), [("minimax_m2", "MiniMaxM2"), ("minimax_m1", "MiniMaxM1")])
def test_minimaxs_files_that_say_minimax_mean_a_family_by_their_class(family: str, named: str) -> None:
    ours = load_model("mine", {**TINY[family], "model_type": "minimax", "architectures": [f"{named}ForCausalLM"]})
    assert (ours.family, ours.unknown) == (family, ())


@pytest.mark.parametrize(("config", "like"), [(LLADA_2_MINI, "bailing_moe"), (SDAR, "qwen3")])
def test_blocks_whose_tokens_see_one_another_change_no_product(config: dict[str, Any], like: str) -> None:
    """LLaDA 2.0's smaller model, published as 16 billion, is Ling-mini's; SDAR is Qwen3's."""
    ours, work = load_model("mine", config), Workload(11, 4, 3).axes()
    own = ("architectures", "norm_head", "rotary_dim", "sliding_window")
    theirs = load_model("mine", {**{name: config[name] for name in config if name not in own}, "model_type": like})
    assert (ours.family, ours.unknown, ours.has_cache) == (like, (), True)
    assert ours.ledger.parameters() == theirs.ledger.parameters()
    assert ours.ledger.flops(work) == theirs.ledger.flops(work) != theirs.ledger.flops(work, masked=True)
    assert ours.ledger.states(work) == theirs.ledger.states(work)
    with pytest.raises(ConfigError, match="tokens see all tokens of their block"):
        ours.ledger.flops(work, masked=True)
    if like == "bailing_moe":
        assert ours.parameters == load("ling-mini-2.0").loaded.parameters == 16_255_638_528
        with pytest.raises(ConfigError, match="norm_head = true changes the counts"):
            load_model("mine", {**config, "norm_head": True})


def test_types_that_no_family_comes_near_are_refused_with_the_reason() -> None:
    for model_type, reason in unsupported_types().items():
        with pytest.raises(ConfigError, match=f"model_type '{model_type}' is not supported: [a-z]"):
            load_model("mine", {"model_type": model_type, "hidden_size": 8})
        assert not reason.endswith(".")


ERNIE_VL = {
    "model_type": "ernie4_5_moe_vl", "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"],
    "moe_num_experts": [10, 10], "moe_layer_start_index": [1, 1], "moe_layer_end_index": [9, -1],
    "moe_layer_interval": 1, "rope_3d": True, "moe_use_hard_gate": True, "im_patch_id": 100295,
    "vision_config": {"depth": 2, "embed_dim": 48, "hidden_size": 48, "mlp_ratio": 4, "num_heads": 6, "in_chans": 3},
}  # fmt: skip


def test_ernie_vls_own_files_have_both_sets_of_experts_in_lists() -> None:
    """As Baidu's files of ERNIE-4.5-VL-28B-A3B: fields of the language model in the whole, layers as a range."""
    plain = TINY["ernie4_5_vl_moe_text"]
    whole = {**plain, **ERNIE_VL}
    ours = load_model("mine", whole)
    assert (ours.family, ours.unknown, ours.left_out) == ("ernie4_5_vl_moe_text", (), ("vision_config",))
    assert ours.ledger.parameters() == load_model("mine", plain).ledger.parameters()
    later = load_model("mine", {**whole, "moe_layer_start_index": [2, 2]}).architecture
    assert [stack.count for stack in later.stacks] == [2, 1]
    tower = families.read(whole, part="vision")
    assert (tower.family, tower.config.intermediate_size, tower.unknown) == ("ernie4_5_vl_moe_vision", 192, ())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"moe_num_experts": [10, 5]}, r"moe_num_experts = \[10, 5\] changes the counts"),
        ({"moe_layer_end_index": [2, 1]}, "give experts for text and for images to other layers"),
        ({"moe_layer_start_index": [1, 1, 1]}, "moe_layer_start_index = .* must have a number for text and one for"),
        ({"moe_layer_interval": 0}, "moe_layer_interval must be a whole number from 1, not 0"),
        ({"num_hidden_layers": "3"}, "num_hidden_layers must be a whole number from 1 to 100,000"),
    ],
)
def test_an_ernie_vl_that_no_class_has_is_refused(fields: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_model("mine", {**TINY["ernie4_5_vl_moe_text"], **ERNIE_VL, **fields})


def test_hunyuans_first_files_mean_a_family_by_their_class() -> None:
    for family, named in (("hunyuan_v1_moe", "HunYuanMoEV1"), ("hunyuan_v1_dense", "HunYuanDenseV1")):
        fields = {**TINY[family], "model_type": "hunyuan", "architectures": [f"{named}ForCausalLM"]}
        ours = load_model("mine", fields)
        assert (ours.family, ours.ledger.parameters()) == (family, load_model("mine", TINY[family]).ledger.parameters())
        with pytest.raises(ConfigError, match="unknown model_type 'hunyuan'"):  # Hunyuan-Large shares caches
            load_model("mine", {**fields, "architectures": ["HunYuanForCausalLM"]})


def test_it_is_read_inside_a_whole_too() -> None:
    whole = {"model_type": "internvl_chat", "llm_config": INTERNLM_20B, "vision_config": {"model_type": "intern_vit"}}
    ours = load_model("mine", whole)
    assert (ours.family, ours.parameters, ours.left_out) == ("llama", 40_177_428_480 // 2, ("vision_config",))


def test_another_type_may_be_set_over_it() -> None:
    fields = {**TINY["llama"], "model_type": "xverse"}
    assert load_model("mine", fields, {"model_type": "llama"}).family == "llama"
    plain = {name: value for name, value in fields.items() if name not in ("attention_bias", "mlp_bias", "head_dim")}
    assert load_model("mine", {**plain, "model_type": "llama"}, {"model_type": "Yi"}).family == "llama"


def test_each_is_read_as_a_family_and_no_other_type_has_its_name() -> None:
    known = {*families.names(), *multimodal.composites()}
    assert {alias.family for alias in type_aliases().values()} <= known
    assert not known & {*type_aliases(), *unsupported_types()}
    for model_type, named in class_aliases():  # of a family of this name, they are not classes
        prefixes = families.config_class(model_type).class_prefixes if model_type in known else ()
        assert class_ending(named, prefixes) is None


def test_a_class_of_another_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a class of Yi, which is counted as llama"):
        load_model("mine", {**YI_6B, "architectures": ["YaForCausalLM"]})
    with pytest.raises(ConfigError, match="the head of this class is not supported"):
        load_model("mine", {**YI_6B, "architectures": ["YiForImageClassification"]})


OCR = {
    "model_type": "deepseek_vl_v2", "architectures": ["DeepseekOCRForCausalLM"], "vision_config": {"image_size": 1024},
    "language_config": {
        "architectures": ["DeepseekV2ForCausalLM"], "first_k_dense_replace": 1, "hidden_size": 1280,
        "intermediate_size": 6848, "kv_lora_rank": None, "lm_head": True, "max_position_embeddings": 8192,
        "moe_intermediate_size": 896, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_attention_heads": 10, "num_experts_per_tok": 6, "num_hidden_layers": 12, "num_key_value_heads": 10,
        "q_lora_rank": None, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "rm_head": False, "topk_group": 1,
        "topk_method": "greedy", "use_mla": False, "v_head_dim": 0, "vocab_size": 129280,
    },
}  # fmt: skip


def test_deepseek_ocrs_language_model_has_plain_heads_by_hand() -> None:
    """use_mla = false: DeepSeek-MoE's attention. Its own code gives 2 · 1,280 numbers of norms in each layer."""
    ours = load_model("mine", OCR)
    experts, dense = 66 * 3 * 1280 * 896 + 64 * 1280, 3 * 1280 * 6848
    by_hand = 2 * 129280 * 1280 + 12 * (4 * 1280**2 + 2 * 1280) + 11 * experts + dense + 1280
    assert (ours.family, ours.parameters, ours.left_out) == ("glm4_moe", by_hand, ("vision_config",))
    with pytest.raises(ConfigError, match="kv_lora_rank = 512 changes the counts"):
        load_model("mine", {**OCR, "language_config": {**OCR["language_config"], "kv_lora_rank": 512}})


def test_deepseek_vl2s_language_model_is_deepseek_v2s() -> None:
    whole = {"model_type": "deepseek_vl_v2", "language_config": {**TINY["deepseek_v2"], "use_mla": True}}
    ours = load_model("mine", {**whole, "architectures": ["DeepseekVLV2ForCausalLM"], "projector_config": {"a": 1}})
    assert (ours.family, ours.unknown, ours.left_out) == ("deepseek_v2", (), ("projector_config",))
    assert ours.ledger.parameters() == load_model("mine", TINY["deepseek_v2"]).ledger.parameters()


def test_families_without_a_class_by_hand() -> None:
    """TeleChat's biases are on o and down alone; Jais has three matrices with biases, and no table with ALiBi."""
    sizes = {"vocab_size": 1000, "hidden_size": 64, "n_layer": 3, "n_head": 4}
    chat = {"model_type": "telechat", **sizes, "ffn_hidden_size": 96, "tie_word_embeddings": False}
    layer = 4 * 64 * 64 + 64 + 3 * 64 * 96 + 64 + 2 * 64
    assert (
        load_model("chat", {**chat, "architectures": ["TelechatForCausalLM"]}).parameters == 2000 * 64 + 3 * layer + 64
    )
    for name in ("embed_layernorm", "apply_residual_connection_post_layernorm"):
        with pytest.raises(ConfigError, match=name):
            load_model("chat", {**chat, name: True})
    with pytest.raises(ConfigError, match="tie_word_embeddings"):
        load_model("chat", {key: value for key, value in chat.items() if key != "tie_word_embeddings"})
    jais = {"model_type": "jais", "vocab_size": 1000, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 50}
    jais |= {"n_inner": 96, "architectures": ["JAISLMHeadModel"]}
    attention = 4 * (64 * 64 + 64) + 4 * 64
    both = 1000 * 64 + 3 * attention + 2 * 64
    assert load_model("jais", jais).parameters == both + 50 * 64 + 3 * (2 * 64 * 96 + 96 + 64)
    own = {**jais, "activation_function": "swiglu", "position_embedding_type": "alibi"}
    assert load_model("jais", own).parameters == both + 3 * (3 * 64 * 96 + 2 * 96 + 64)
    by_width = load_model("jais", {**jais, "mup_scale_qk_dot_by_d": True})  # muP: 1 / d in place of 1 / √d
    assert [part.scale for part in by_width.architecture.attentions] == [1 / 16]
    with pytest.raises(ConfigError, match="position_embedding_type"):
        load_model("jais", {**jais, "position_embedding_type": "rotary"})
    btlm = {**own, "model_type": "btlm", "architectures": ["BTLMLMHeadModel"]}
    assert load_model("btlm", btlm).ledger.parameters() == load_model("jais", own).ledger.parameters()
    with pytest.raises(ConfigError, match="is not a class of btlm"):
        load_model("btlm", {**btlm, "architectures": ["GPT2LMHeadModel"]})
