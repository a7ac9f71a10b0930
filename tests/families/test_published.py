"""Published configs: fields that change no count are accepted, fields that change counts are refused. Kind: golden,
refusal.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.families import TINY
from tests.helpers.published import PUBLISHED, text_of
from tfacct import load
from tfacct.base.errors import ConfigError, UsageError
from tfacct.loading.model import load_model
from tfacct.loading.quantized.methods import storage_of

FP8 = ("e4m3", "float8_e4m3fn")


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("glm_moe_dsa", {"index_share_for_mtp_iteration": True, "moe_router_dtype": "float32"}),  # GLM-5.2
        ("glm_moe_dsa", {"layer_types": ["deepseek_sparse_attention"] * TINY["glm_moe_dsa"]["num_hidden_layers"]}),
        ("mimo_v2_flash", {"sliding_window_size": 128, "attention_chunk_size": 128, "layernorm_epsilon": 1e-5}),
        ("minimax_m2", {"attn_type_list": [1] * TINY["minimax_m2"]["num_hidden_layers"]}),
        ("nemotron_h", {"norm_eps": 1e-5}),
        ("dots1", {"v_head_dim": 8}),
        ("qwen3_moe", {"dual_chunk_attention_config": {"chunk_size": 9, "sparse_attention_enabled": True}}),
        ("t5", {"tie_word_embeddings": None}),
        ("gpt2", {"apply_query_key_layer_scaling": True, "normalize_attention_scores": True}),  # GPT-SW3
        ("starcoder2", {"scale_attn_weights": True, "mlp_type": "default", "norm_type": "layer_norm"}),
        ("qwen3_5_text", {"output_gate_type": "swish"}),  # Qwen3.6
        ("ernie4_5_moe", {"num_nextn_predict_layers": 1}),
        ("qwen2", {"attention_bias": True}),
        ("minimax_m2", {"mlp_intermediate_size": 8192, "layernorm_mlp_beta": 1.0, "shared_moe_mode": "sigmoid"}),
        ("llama4_text", {"attn_temperature_tuning": 4}),  # as the first files of Scout and Maverick say
        ("roberta", {"language": "english", "name": "Roberta"}),  # roberta-base-squad2
        ("bart", {"replacing_rate": 0, "student_decoder_layers": None, "student_encoder_layers": None}),
        ("qwen3", {"classifier_from_token": ["no", "yes"], "method": "from_2_way_softmax"}),
        ("hunyuan_v1_moe", {"use_mla": False, "vit_type": None, "vit_path": None, "use_rotary_pos_emb": True}),
        ("hunyuan_v1_moe", {"moe_topk": [3] * TINY["hunyuan_v1_moe"]["num_hidden_layers"], "num_experts_per_tok": 3}),
        ("ernie4_5", {"architectures": ["Ernie4_5_ForCausalLM"]}),
        ("deci", {"num_key_value_heads": TINY["deci"]["num_attention_heads"]}),  # DeciLM-7B
        ("ernie4_5", {"rope_is_neox_style": True, "use_3d_rope": True, "compression_ratio": 1.0}),  # PaddleOCR-VL
    ],
)
def test_fields_of_published_files_that_change_no_count_are_read(family: str, fields: dict[str, Any]) -> None:
    plain = load_model("mine", {**TINY[family], **{name: fields[name] for name in fields if "window" in name}})
    ours = load_model("mine", {**TINY[family], **fields})
    assert ours.unknown == ()
    assert ours.ledger.parameters() == plain.ledger.parameters()


def test_a_config_inside_the_language_models_is_not_another_models() -> None:
    """linear_attn_config says which layers have DeltaNet; a model of several keeps it inside its text_config."""
    whole = {"model_type": "kimi_k3", "tie_word_embeddings": False, "vision_config": {"hidden_size": 9}}
    ours = load_model("mine", {**whole, "text_config": {**PUBLISHED["kimi-linear"], "tie_word_embeddings": False}})
    assert ours.left_out == ("vision_config",)
    assert ours.ledger.parameters() == load_model("mine", PUBLISHED["kimi-linear"]).ledger.parameters()


def test_a_tower_that_is_null_is_not_said_to_be_left_out() -> None:
    """Gemma 4's larger models hear nothing: their audio_config is null."""
    text = {name: value for name, value in TINY["gemma4_text"].items() if name != "model_type"}
    whole = {"model_type": "gemma4", "text_config": text, "vision_config": {"hidden_size": 9}, "audio_config": None}
    assert load_model("mine", whole).left_out == ("vision_config",)


def test_the_class_that_published_files_of_qwen2_5_omni_name_inside_is_the_wholes() -> None:
    """Qwen2.5-Omni-7B's thinker_config names Qwen2OmniNaViTThinkerForConditionalGeneration."""
    text = {**text_of("qwen2", "tie_word_embeddings"), "hidden_size": 40, "num_attention_heads": 10, "init_std": 0.02}
    named = {"architectures": ["Qwen2OmniNaViTThinkerForConditionalGeneration"], "text_config": text}
    ours = load_model("mine", {"model_type": "qwen2_5_omni", "thinker_config": named, "talker_config": {"a": 1}})
    assert (ours.family, ours.unknown, ours.left_out) == ("qwen2", (), ("talker_config",))


@pytest.mark.parametrize(
    ("whole", "named", "beside"),
    [
        ("phi4mm", "Phi4MMForCausalLM", ("embd_layer", "img_processor", "audio_processor", "vision_lora")),
        ("phi3_v", "Phi3VForCausalLM", ("embd_layer", "img_processor")),
        ("Keye", "KeyeForConditionalGeneration", ("vision_config",)),
        ("KeyeVL1_5", "KeyeVL1_5ForConditionalGeneration", ("vision_config",)),
        ("phi4_multimodal", "Phi4MultimodalForCausalLM", ("vision_config", "audio_config")),
    ],
)
def test_fields_of_both_together_are_the_language_models_and_name_what_stands_beside(
    whole: str, named: str, beside: tuple[str, ...]
) -> None:
    family = "qwen3" if whole.startswith("Keye") else "phi3"
    text = text_of(family, "partial_rotary_factor")
    fields = {"architectures": [named], **text, **{name: {"hidden_size": 9} for name in beside}}
    ours = load_model("mine", {"model_type": whole, **fields})
    assert (ours.family, ours.unknown, set(ours.left_out)) == (family, (), set(beside))
    assert ours.ledger.parameters() == load_model("mine", {"model_type": family, **text}).ledger.parameters()


def test_what_published_language_models_inside_a_whole_carry_is_known() -> None:
    """SmolVLM's and Idefics3's name a resampler that is not built, Pixtral's its place in a composition."""
    silent = {
        "perceiver_config": {"model_type": "vllama3", "resampler_depth": 6},
        "pixel_shuffle_factor": 4,
        "qk_layer_norms": False,
        "use_resampler": False,
        "is_composition": True,
    }
    text = {"model_type": "llama", **TINY["llama"]}
    ours = load_model("mine", {"model_type": "idefics3", "text_config": {**text, **silent}, "vision_config": {}})
    assert (ours.family, ours.unknown) == ("llama", ())
    with pytest.raises(ConfigError, match="use_resampler = true changes the counts"):
        load_model("mine", {"model_type": "idefics3", "text_config": {**text, "use_resampler": True}})


def test_gte_by_the_name_in_its_own_files() -> None:
    """gte-large-en-v1.5 and gte-multilingual-base have code of their own, which says `new`."""
    silent = {
        "pack_qkv": True,
        "unpad_inputs": True,
        "use_memory_efficient_attention": True,
        "logn_attention_scale": False,
    }
    fields = {**TINY["gte"], "model_type": "new", "architectures": ["NewModel"], **silent}
    ours = load_model("mine", fields)
    plain = load_model("mine", {**TINY["gte"], "architectures": ["GteModel"]})
    assert (ours.family, ours.unknown) == ("gte", ())
    assert ours.ledger.parameters() == plain.ledger.parameters()
    with pytest.raises(ConfigError, match="layer_norm_type"):
        load_model("mine", {**fields, "layer_norm_type": "rms_norm"})


def test_gptq_as_its_newer_files_spell_it_is_stored_alike() -> None:
    """Qwen3's own GPTQ files have hyb_act = false; another order of inputs is not known."""
    stored = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
    sizes = {**TINY["llama"], "hidden_size": 256, "intermediate_size": 256}
    of = [load_model("mine", {**sizes, "quantization_config": {**stored, **more}}) for more in ({}, {"hyb_act": False})]
    first, second = (
        one.ledger.weight_bytes(storage_of(one, one.raw["quantization_config"], "quantization_config")) for one in of
    )
    assert first == second
    with pytest.raises(ConfigError, match="hyb_act = true is not supported"):
        storage_of(of[0], {**stored, "hyb_act": True}, "quantization_config")


def test_fp8_under_torchs_name_for_it_is_stored_alike() -> None:
    """MiniMax-M2's files say float8_e4m3fn where DeepSeek-V3's say e4m3."""
    one = load_model("mine", TINY["minimax_m2"])
    stored = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    first, second = (
        one.ledger.weight_bytes(storage_of(one, {**stored, "fmt": name}, "quantization_config")) for name in FP8
    )
    assert first == second


def test_deepseek_v4_by_the_name_of_its_own_code() -> None:
    """Files that are run by the code of its makers say deepseek_ref, and name transformers' class."""
    ours = load_model(
        "mine", {**TINY["deepseek_v4"], "model_type": "deepseek_ref", "architectures": ["DeepseekV4ForCausalLM"]}
    )
    assert ours.family == "deepseek_v4"
    assert ours.ledger.parameters() == load_model("mine", TINY["deepseek_v4"]).ledger.parameters()


def test_mimo_is_qwen2_by_hand() -> None:
    """MiMo-7B's file: 36 layers of 4,096, 32 heads of 128 over 8, biases on q, k and v; the layer behind them is left
    out."""
    ours = load("mimo-7b")
    attention = 4096 * 4096 + 4096 + 2 * (4096 * 1024 + 1024) + 4096 * 4096
    layer = attention + 3 * 4096 * 11008 + 2 * 4096
    assert ours.params().total == 2 * 151680 * 4096 + 36 * layer + 4096 == 7_622_619_136
    assert ours.loaded.unknown == ()


def test_a_mask_that_the_class_has_may_be_named() -> None:
    for family in ("llama", "deepseek_v3", "gpt2"):
        assert load_model("mine", {**TINY[family], "is_causal": True}).unknown == ()
    assert load_model("mine", {**TINY["bert"], "is_causal": False}).unknown == ()


LLAVA = {
    **{name: value for name, value in TINY["llama"].items() if name != "model_type"},
    "architectures": ["LlavaLlamaForCausalLM"],
    "mm_vision_tower": "openai/clip-vit-large-patch14-336",
    "mm_projector_type": "mlp2x_gelu",
    "mm_hidden_size": 1024,
    "image_aspect_ratio": "pad",
    "tune_mm_mlp_adapter": False,
    "use_mm_proj": True,
}


@pytest.mark.parametrize("whole", ["llava", "llava_llama"])
def test_llavas_own_files_are_its_language_models(whole: str) -> None:
    """LLaVA-1.5's and 1.6's files hold Llama's fields and those of what sees side by side."""
    ours = load_model("mine", {**LLAVA, "model_type": whole})
    assert (ours.family, ours.unknown, ours.left_out) == ("llama", (), ("mm_vision_tower", "mm_projector_type"))
    assert ours.ledger.parameters() == load_model("mine", TINY["llama"]).ledger.parameters()
    with pytest.raises(ConfigError, match="has no vision_config, so it has no vision part to count"):
        ours.of_part("vision")


def test_llavas_other_language_models_by_their_classes() -> None:
    for family, named in (("mistral", "LlavaMistralForCausalLM"), ("qwen2", "LlavaQwenForCausalLM")):
        fields = {**TINY[family], "model_type": f"llava_{family}", "architectures": [named]}
        ours = load_model("mine", fields)
        assert (ours.family, ours.left_out) == (family, (named.removesuffix("ForCausalLM"),))
    with pytest.raises(ConfigError, match="text_config, which is missing"):
        load_model("mine", {**LLAVA, "model_type": "llava", "architectures": ["LlavaMptForCausalLM"]})


def test_a_body_that_a_file_names_before_a_head_is_counted_and_the_head_said_to_be_left_out() -> None:
    """gte-multilingual-base names NewModel and NewForTokenClassification; AutoModel builds the first."""
    both = {**TINY["gte"], "model_type": "new", "architectures": ["NewModel", "NewForTokenClassification"]}
    ours = load_model("mine", {**both, "position_embedding_type": "rope", "matryoshka_dimensions": [256]})
    plain = load_model("mine", {**TINY["gte"], "architectures": ["GteModel"]})
    assert (ours.left_out, ours.unknown, ours.parts) == (("NewForTokenClassification",), (), ())
    assert ours.ledger.parameters() == plain.ledger.parameters()
    with pytest.raises(UsageError, match="has no other parts"):
        ours.of_part("vision")


def test_bart_large_mnli_by_hand() -> None:
    """bart-large's 406,291,456 and 1,024 · 1,024 + 1,024 + 3 · 1,024 + 3 of the head."""
    said = {**load("bart-large").loaded.raw, "architectures": ["BartForSequenceClassification"], "_num_labels": 3}
    ours = load_model("mine", {**said, "id2label": {"0": "contradiction", "1": "neutral", "2": "entailment"}})
    assert ours.parameters == 406_291_456 + 1024 * 1024 + 1024 + 3 * 1024 + 3 == 407_344_131
    assert ours.unknown == ()


@pytest.mark.parametrize(
    ("family", "stem", "word"), [("llama", "Llama", "language model"), ("gte", "Gte", "text encoder")]
)
def test_what_a_body_is_called_whose_file_names_a_head_too(run, tmp_path, family: str, stem: str, word: str) -> None:
    other = "ForCausalLM" if family == "llama" else "ForMaskedLM"
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**TINY[family], "architectures": [f"{stem}Model", f"{stem}{other}"]}))
    said = " ".join(run("params", str(file)).err.split())
    assert f"only the {word} is counted, without {stem}{other}" in said


def test_kimi_vls_language_model_is_deepseek_v3s() -> None:
    """Its text_config says no model_type, and its whole that the head is not tied."""
    text = {name: value for name, value in TINY["deepseek_v3"].items() if name != "model_type"}
    whole = {"model_type": "kimi_vl", "architectures": ["KimiVLForConditionalGeneration"], "vision_config": {"a": 1}}
    ours = load_model("mine", {**whole, "text_config": text, "tie_word_embeddings": False})
    assert (ours.family, ours.unknown, ours.left_out) == ("deepseek_v3", (), ("vision_config",))
    assert ours.ledger.parameters() == load_model("mine", TINY["deepseek_v3"]).ledger.parameters()


def test_grok_1_by_hand() -> None:
    """Its README says 314B parameters, 64 layers, 48 heads over 8, 8 experts of which 2 are used, 131,072 tokens."""
    fields = {"vocab_size": 131072, "hidden_size": 6144, "intermediate_size": 32768, "num_hidden_layers": 64}
    fields |= {"num_attention_heads": 48, "num_key_value_heads": 8, "num_experts": 8, "num_experts_per_tok": 2}
    grok = {"model_type": "grok-1", **fields, "max_position_embeddings": 8192, "tie_word_embeddings": True}
    ours = load_model("grok", {**grok, "architectures": ["Grok1ModelForCausalLM"]})
    layer = 2 * 6144 * 6144 + 2 * 6144 * 1024 + 8 * 6144 + 8 * 3 * 6144 * 32768 + 4 * 6144
    assert ours.parameters == 64 * layer + 131072 * 6144 + 6144 == 315_684_820_992
    with pytest.raises(ConfigError, match="residual_moe"):
        load_model("grok", {**grok, "residual_moe": True})


def test_step_3_5_by_its_own_class() -> None:
    assert load_model("mine", {**TINY["step3p5"], "architectures": ["Step3p5ForCausalLM"]}).family == "step3p5"
