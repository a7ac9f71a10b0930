"""Published configs with other names of fields are read as the same model with a family's names. Kind: law."""

from typing import Any

import pytest

from tests.families import TINY
from tests.families._configs import without
from tests.helpers.multimodal import GLM4V as GLM4V_TEXT
from tests.helpers.multimodal import QWEN_VL, text_of, whole_of
from tests.helpers.published import PUBLISHED
from tfacct import load
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model

Fields = dict[str, Any]
TOWER: Fields = {"vision_config": {"hidden_size": 9}}


def over(family: str, *left_out: str, **fields: Any) -> tuple[Fields, Fields, tuple[str, ...]]:
    """Fields over a small config that change no count."""
    return {**TINY[family], **fields}, TINY[family], left_out


def as_class(family: str, model_type: str, name: str) -> tuple[Fields, Fields, tuple[str, ...]]:
    """A type of several families, of which the class names one."""
    return over(family, model_type=model_type, architectures=[name])


def side_by_side(model_type: str, name: str, *left_out: str) -> tuple[Fields, Fields, tuple[str, ...]]:
    """A full config with the language model's fields at its top level, next to other parts."""
    text = without(TINY["qwen3" if model_type.startswith("Keye") else "phi3"], "head_dim", "partial_rotary_factor")
    parts = {part: {"hidden_size": 9} for part in left_out}
    return {**text, "model_type": model_type, "architectures": [name], **parts}, text, left_out


def inside(whole: str, **fields: Any) -> tuple[Fields, Fields, tuple[str, ...]]:
    """Fields of a text_config that are the default of its class."""
    raw = whole_of(whole, {}, {})
    text = without(raw["text_config"], *fields)
    return {**raw, "text_config": {**text, **fields}}, {**raw, "text_config": text}, ()


LATER = {
    **{"refined-web-7b": "falcon-7b", "refined-web-40b": "falcon-40b", "phi-2": "phi-2", "olmo-7b": "olmo-7b"},
    **{"stable-code-3b": "stablelm-3b-4e1t", "glm-4-9b": "glm-4-9b-chat", "olmo-1b": "olmo-1b", "yi-6b": "yi-6b"},
    **{"internlm-20b": "internlm-20b", "deepseek-moe-16b": "deepseek-moe-16b", "chatglm3-6b": "chatglm3-6b"},
    **{"llada-moe-7b": "llada-moe-7b-a1b", "llada-2-mini": "llada-2.0-mini"},
}
"""Files from before transformers had the class, and presets of files that were converted to its names."""
LAYERS = {family: TINY[family]["num_hidden_layers"] for family in ("glm_moe_dsa", "minimax_m2", "hunyuan_v1_moe")}
LLAVA: Fields = {
    "architectures": ["LlavaLlamaForCausalLM"], "mm_vision_tower": "openai/clip-vit-large-patch14-336",
    "mm_projector_type": "mlp2x_gelu", "mm_hidden_size": 1024, "image_aspect_ratio": "pad",
    "tune_mm_mlp_adapter": False, "use_mm_proj": True,
}  # fmt: skip
LAGUNA = {**TINY["laguna"], "mlp_layer_types": ["dense", "sparse", "sparse"], "gating": "per-head"}
GLM4V: Fields = {
    "model_type": "chatglm", "num_layers": 2, "hidden_size": 24, "num_attention_heads": 4, "kv_channels": 8,
    "ffn_hidden_size": 36, "seq_length": 64, "padded_vocab_size": 96, "multi_query_attention": True,
    "multi_query_group_num": 2, "add_qkv_bias": True,
}  # fmt: skip
OMNI = without(TINY["qwen2"], "model_type", "head_dim", "tie_word_embeddings") | {"hidden_size": 40}
OMNI["num_attention_heads"] = 10
M3 = TINY["minimax_m3_vl_text"]
TOP_3 = {**TINY["hunyuan_v1_moe"], "moe_topk": [3] * LAYERS["hunyuan_v1_moe"]}
WINDOWED = {**TINY["mimo_v2_flash"], "sliding_window_size": 128}
INTERNVL = whole_of("internvl", {"tie_word_embeddings": False}, {})
THINKER = {"text_config": text_of("qwen2_5_omni_thinker"), "audio_config": {"d_model": 9}, **TOWER}
SILENT: Fields = {
    "perceiver_config": {"model_type": "vllama3", "resampler_depth": 6}, "pixel_shuffle_factor": 4,
    "qk_layer_norms": False, "use_resampler": False, "is_composition": True, "_commit_hash": None, "xla_device": None,
    "per_layer_config": {},
}  # fmt: skip
READ_AS: list[tuple[Fields, Fields, tuple[str, ...]]] = [
    *((PUBLISHED[older], load(preset).loaded.raw, ()) for older, preset in LATER.items()),
    *(inside(whole, head_dim=QWEN_VL["head_dim"]) for whole in ("qwen2_vl", "qwen2_5_vl")),
    *(inside(whole, head_dim=GLM4V_TEXT["head_dim"]) for whole in ("glm4v", "glm46v", "glmga")),
    *(inside(whole, sliding_window=5, use_sliding_window=False) for whole in ("qwen3_vl", "qwen3_omni_moe_thinker")),
    *(inside(whole, layer_types=["full_attention"]) for whole in ("qwen3_vl", "qwen3_omni_moe_thinker")),
    # Fields that change no count.
    over("glm_moe_dsa", index_share_for_mtp_iteration=True, moe_router_dtype="float32"),  # GLM-5.2
    over("glm_moe_dsa", layer_types=["deepseek_sparse_attention"] * LAYERS["glm_moe_dsa"]),
    over("minimax_m2", attn_type_list=[1] * LAYERS["minimax_m2"]),
    over("nemotron_h", norm_eps=1e-5),
    over("dots1", v_head_dim=8),
    over("qwen3_moe", dual_chunk_attention_config={"chunk_size": 9, "sparse_attention_enabled": True}),
    over("t5", tie_word_embeddings=None),
    over("gpt2", apply_query_key_layer_scaling=True, normalize_attention_scores=True),  # GPT-SW3
    over("starcoder2", scale_attn_weights=True, mlp_type="default", norm_type="layer_norm"),
    over("qwen3_5_text", output_gate_type="swish"),  # Qwen3.6
    over("ernie4_5_moe", num_nextn_predict_layers=1),
    over("qwen2", attention_bias=True),
    over("minimax_m2", mlp_intermediate_size=8192, layernorm_mlp_beta=1.0, shared_moe_mode="sigmoid"),
    over("llama4_text", attn_temperature_tuning=4),  # the first files of Scout and Maverick
    over("roberta", language="english", name="Roberta"),  # roberta-base-squad2
    over("bart", replacing_rate=0, student_decoder_layers=None, student_encoder_layers=None),
    over("qwen3", classifier_from_token=["no", "yes"], method="from_2_way_softmax"),
    over("hunyuan_v1_moe", use_mla=False, vit_type=None, vit_path=None, use_rotary_pos_emb=True),
    (TOP_3 | {"num_experts_per_tok": 3}, TOP_3, ()),
    (WINDOWED | {"attention_chunk_size": 128, "layernorm_epsilon": 1e-5}, WINDOWED, ()),
    over("deci", num_key_value_heads=TINY["deci"]["num_attention_heads"]),  # DeciLM-7B
    over("ernie4_5", rope_is_neox_style=True, use_3d_rope=True, compression_ratio=1.0),  # PaddleOCR-VL
    over("llama", is_causal=True),
    over("bert", is_causal=False),
    # Laguna-S-2.1's name the dense layers and the gates a second time.
    (LAGUNA | {"decoder_sparse_step": 1, "mlp_only_layers": [0], "gating_types": ["per_head"] * 3}, LAGUNA, ()),
    # The name of a class, of a type of several families or of code in the files.
    as_class("ernie4_5", "ernie4_5", "Ernie4_5_ForCausalLM"),
    as_class("step3p5", "step3p5", "Step3p5ForCausalLM"),
    as_class("minimax_m2", "minimax", "MiniMaxM2ForCausalLM"),
    as_class("minimax_m1", "minimax", "MiniMaxM1ForCausalLM"),
    as_class("hunyuan_v1_moe", "hunyuan", "HunYuanMoEV1ForCausalLM"),
    as_class("hunyuan_v1_dense", "hunyuan", "HunYuanDenseV1ForCausalLM"),
    as_class("bailing_moe_v2_5", "bailing_hybrid", "BailingMoeV2_5ForCausalLM"),  # Ling 2.5, as Ling 3.0
    as_class("deepseek_v4", "deepseek_ref", "DeepseekV4ForCausalLM"),
    # gte-large-en-v1.5; gte-multilingual-base, whose AutoModel builds the first class that it names.
    ({
        **TINY["gte"], "model_type": "new", "architectures": ["NewModel"], "pack_qkv": True, "unpad_inputs": True,
        "use_memory_efficient_attention": True, "logn_attention_scale": False,
    }, {**TINY["gte"], "architectures": ["GteModel"]}, ()),
    ({
        **TINY["gte"], "model_type": "new", "architectures": ["NewModel", "NewForTokenClassification"],
        "position_embedding_type": "rope", "matryoshka_dimensions": [256],
    }, {**TINY["gte"], "architectures": ["GteModel"]}, ("NewForTokenClassification",)),
    # A whole with the language model's fields among its own.
    side_by_side("phi4mm", "Phi4MMForCausalLM", "embd_layer", "img_processor", "audio_processor", "vision_lora"),
    side_by_side("phi3_v", "Phi3VForCausalLM", "embd_layer", "img_processor"),
    side_by_side("Keye", "KeyeForConditionalGeneration", "vision_config"),
    side_by_side("KeyeVL1_5", "KeyeVL1_5ForConditionalGeneration", "vision_config"),
    side_by_side("phi4_multimodal", "Phi4MultimodalForCausalLM", "vision_config", "audio_config"),
    *(over("llama", "mm_vision_tower", "mm_projector_type", **LLAVA, model_type=whole)
      for whole in ("llava", "llava_llama")),
    *(over(family, f"Llava{stem}", model_type=f"llava_{family}", architectures=[f"Llava{stem}ForCausalLM"])
      for family, stem in (("mistral", "Mistral"), ("qwen2", "Qwen"))),
    (GLM4V | TOWER | {"boi_token_id": 95, "eoi_token_id": 94}, GLM4V, ("vision_config",)),
    ({**TINY["ernie4_5_vl_moe_text"], **PUBLISHED["ernie-vl"]}, TINY["ernie4_5_vl_moe_text"], ("vision_config",)),
    # aiconfigurator writes Kimi-K2.5, Step-3.7 and MiniMax-M3 so, with words that the class does not read.
    *(over(family, "vision_config", model_type=whole, architectures=[name], vision_config={"depth": 2},
           tie_word_embeddings=False)
      for family, whole, name in (("deepseek_v3", "kimi_k25", "KimiK25ForConditionalGeneration"),
                                  ("step3p5", "step3p7", "Step3p7FlashForCausalLM"))),
    ({
        **M3, "model_type": "minimax_m3", "architectures": ["MiniMaxM3ForCausalLM"], "first_k_dense_replace": 1,
        "moe_intermediate_size": M3["intermediate_size"], "num_nextn_predict_layers": 1,
    }, M3, ()),
    # The language model inside.
    ({
        "model_type": "kimi_k3", "tie_word_embeddings": False, **TOWER,
        "text_config": {**PUBLISHED["kimi-linear"], "tie_word_embeddings": False},
    }, PUBLISHED["kimi-linear"], ("vision_config",)),
    ({
        "model_type": "kimi_vl", "architectures": ["KimiVLForConditionalGeneration"], **TOWER,
        "text_config": without(TINY["deepseek_v3"], "model_type"), "tie_word_embeddings": False,
    }, TINY["deepseek_v3"], ("vision_config",)),
    # Gemma 4's larger models hear nothing: their audio_config is null.
    ({
        "model_type": "gemma4", "text_config": without(TINY["gemma4_text"], "model_type"), **TOWER,
        "audio_config": None,
    }, TINY["gemma4_text"], ("vision_config",)),
    ({"model_type": "idefics3", "text_config": {**TINY["llama"], **SILENT}, "vision_config": {}}, TINY["llama"],
     ("vision_config",)),
    ({
        "model_type": "deepseek_vl_v2", "language_config": {**TINY["deepseek_v2"], "use_mla": True},
        "architectures": ["DeepseekVLV2ForCausalLM"], "projector_config": {"a": 1},
    }, TINY["deepseek_v2"], ("projector_config",)),
    ({
        "model_type": "embedding_gemma2", "architectures": ["EmbeddingGemma2Model"],
        "text_config": TINY["embedding_gemma2_text"], "vision_config": {"model_type": "gemma4_vision"},
        "audio_config": {"model_type": "gemma4_audio"},
    }, TINY["embedding_gemma2_text"], ("vision_config", "audio_config")),
    # LLaVA-OneVision-1.5.
    ({
        "model_type": "llavaonevision1_5", **TOWER, "text_config": {
            **TINY["qwen3"], "attention_bias": False, "tie_word_embeddings": False,
            "model_type": "LLaVAOneVision1_5_text",
        },
    }, {**TINY["qwen3"], "attention_bias": False, "tie_word_embeddings": False}, ("vision_config",)),
    ({"model_type": "vibevoice", "decoder_config": TINY["qwen2"], "diffusion_head_config": {"hidden_size": 9}},
     TINY["qwen2"], ("diffusion_head_config",)),
    # Its class inherits that of Qwen2.5-VL-3B.
    (PUBLISHED["qwen2.5-vl-3b"] | {
        "matryoshka_dims": [128, 256], "multi_vector_projector_dim": 128, "task_names": ["retrieval"],
        "architectures": ["JinaEmbeddingsV4Model"],
    }, PUBLISHED["qwen2.5-vl-3b"], ("vision_config", "multi_vector_projector")),
    # Nemotron's, published before its class was.
    ({
        "model_type": "nemotron_h_omni", "architectures": ["NemotronH_Omni_Reasoning_V3"],
        "llm_config": text_of("nemotron_h_omni"), "sound_config": {"hidden_size": 9},
    }, text_of("nemotron_h_omni"), ("sound_config",)),
    # Qwen-Omni's hold a thinker, whose language model it is, and a talker.
    ({"model_type": "qwen2_5_omni", "thinker_config": THINKER, "talker_config": {"hidden_size": 9}},
     {"model_type": "qwen2_5_omni_thinker", **THINKER}, ("audio_config", "vision_config", "talker_config")),
    ({
        "model_type": "qwen2_5_omni", "talker_config": {"a": 1}, "thinker_config": {
            "architectures": ["Qwen2OmniNaViTThinkerForConditionalGeneration"],
            "text_config": {**OMNI, "init_std": 0.02},
        },
    }, {**OMNI, "model_type": "qwen2", "tie_word_embeddings": False}, ("talker_config",)),
    # Names of special tokens are no unknown fields.
    (INTERNVL | TOWER | {"image_token_id": 3, "downsample_ratio": 0.5}, INTERNVL, ("vision_config",)),
]  # fmt: skip
"""A config, the same model in a family's fields, and the parts that are left out."""


@pytest.mark.parametrize(("config", "plain", "left_out"), READ_AS)
def test_a_config_is_read_as_the_same_model(config: Fields, plain: Fields, left_out: tuple[str, ...]) -> None:
    if "model_type" not in plain:
        plain = {**plain, "model_type": load_model("config", config).family}
    ours, theirs, at = load_model("config", config), load_model("plain", plain), Workload(11, 7, 3).axes()
    assert (ours.family, ours.unknown, set(ours.left_out)) == (theirs.family, (), {*left_out})
    assert ours.ledger.parameters() == theirs.ledger.parameters()
    assert ours.ledger.flops(at) == theirs.ledger.flops(at) and ours.ledger.states(at) == theirs.ledger.states(at)
