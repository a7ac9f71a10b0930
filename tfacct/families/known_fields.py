"""Fields that any config may have: fields that do not change counts, and fields that change counts in some families."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tfacct.base.errors import ConfigError

IGNORED_FIELDS = frozenset(
    """
    model_type transformers_version torch_dtype dtype _name_or_path name_or_path bos_token_id
    eos_token_id pad_token_id unk_token_id sep_token_id decoder_start_token_id forced_bos_token_id
    forced_eos_token_id bad_words_ids suppress_tokens begin_suppress_tokens use_cache use_return_dict
    return_dict output_attentions output_hidden_states output_scores torchscript return_dict_in_generate
    is_decoder use_bfloat16 tie_encoder_decoder initializer_range hidden_act activation_function
    rms_norm_eps layer_norm_epsilon layer_norm_eps rope_theta rope_scaling rope_parameters rope_interleaved
    max_window_layers original_max_position_embeddings pretraining_tp gradient_checkpointing
    _attn_implementation _attn_implementation_autoset attn_implementation finetuning_task task_specific_params
    problem_type label2id prefix tokenizer_class max_length min_length do_sample
    early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p
    repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size num_return_sequences
    exponential_decay_length_penalty remove_invalid_values chunk_size_feed_forward quantization_config
    quantization compression_config max_sequence_length output_past predict_special_tokens n_special
    is_llama_config neftune_noise_alpha unsloth_version unsloth_fixed model_max_length tf_legacy_loss
    partial_rotary_factor cache_implementation renormalize_logits _num_labels _flash_attn_2_enabled
    output_router_logits router_aux_loss_coef router_jitter_noise norm_topk_prob auto_map
    transformers.js_config sentence_transformers ff_factor seq_length max_seq_len
    init_std language name is_causal classifier_from_token method is_original_qwen3_reranker
    replacing_rate student_decoder_layers student_encoder_layers is_composition matryoshka_dimensions
    perceiver_config pixel_shuffle_factor sbert_ce_default_activation_function _commit_hash xla_device
    """.split()
)
"""Fields that change no parameter, matmul or cached byte. (Those of quantization change stored bytes, which `memory`
reads.)"""

CHANGES_COUNTS = frozenset(
    """
    sliding_window use_sliding_window layer_types sliding_window_pattern attention_chunk_size local_attention
    window_size num_experts num_local_experts n_routed_experts n_shared_experts num_experts_per_tok
    moe_intermediate_size shared_expert_intermediate_size moe_layers num_shared_experts first_k_dense_replace
    decoder_sparse_step mlp_only_layers q_lora_rank kv_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim
    add_cross_attention cross_attention_hidden_size encoder_layers
    decoder_layers num_hidden_layers_encoder pruned_heads qk_norm use_qk_norm qk_layernorm attention_bias
    qkv_bias mlp_bias lm_head_bias use_bias bias head_dim num_key_value_heads num_kv_heads multi_query
    parallel_attn parallel_residual use_parallel_residual intermediate_size ffn_dim n_inner hidden_size
    num_hidden_layers num_attention_heads n_embd n_layer n_head n_positions word_embed_proj_dim embedding_size
    altup_num_inputs num_kv_shared_layers vision_config audio_config text_config use_mrope
    dual_chunk_attention_config state_size conv_kernel attn_layer_period kv_sharing
    cross_decoder_layers tie_word_embeddings is_encoder_decoder use_bidirectional_attention
    full_attention_interval full_attn_idxs global_attn_every_n_layers attention_types no_rope_layers mlp_layer_types
    layers_block_type block_types hybrid_override_pattern attn_layer_offset attn_layer_indices attn_layer_idx
    attn_cfg attn_config ffn_config ssm_cfg d_intermediate ssm_state_size lru_width conv_L_cache
    expert_layer_period expert_layer_offset interleave_moe_layer_step intermediate_size_mlp dense_intermediate_size
    shared_intermediate_size moe_num_experts moe_num_shared_experts moe_k moe_topk moe_top_k moe_layer_start_index
    moe_layer_end_index moe_layer_interval moe_latent_size moe_shared_expert_intermediate_size num_dense_layers
    zero_expert_num qk_norm_type
    attn_output_gate use_attention_gate attention_out_bias use_qkv_bias use_post_norm use_sandwich_norm
    hidden_size_per_layer_input vocab_size_per_layer_input laurel_rank global_head_dim
    num_global_key_value_heads attention_k_eq_v use_double_wide_mlp compress_ratios compress_rates o_lora_rank
    o_groups num_hash_layers swa_head_dim swa_num_attention_heads swa_num_key_value_heads
    num_attention_heads_per_layer num_key_value_heads_per_layer block_configs n_head_kv kv_n_heads
    clip_qkv cross_attention_layers adapter_rank use_cla img_processor vision_tower mm_vision_tower
    mla_use_output_gate routed_expert_hidden_size attn_res_block_size qk_layer_norms use_resampler moe_config
    use_mla vit_type vit_path sparse_config mixer_types alibi_starting_size multi_gate per_layer_config
    """.split()
)
"""Fields that change counts in some architecture: an error if on in a family that does not read them."""

MTP_LAYERS = (
    "num_nextn_predict_layers",
    "num_mtp_layers",
    "mtp_num_hidden_layers",
    "mtp_num_layers",
    "num_mtp_modules",
    "n_mtp_layers",
)
"""Names of the number of multi-token prediction (MTP) layers."""
MTP_FIELDS = frozenset(
    (
        *MTP_LAYERS,
        *"use_mtp mtp_transformer_layers mtp_layer_types mtp_mlp_layer_types mtp_layers_block_type".split(),
        *"mtp_hybrid_override_pattern mtp_loss_scaling_factor mtp_use_dedicated_embeddings mtp_share_layers".split(),
        "_num_mtp_layers",
        *"dspark_block_size dspark_noise_token_id dspark_target_layer_ids dspark_markov_rank".split(),
    )
)
"""Fields only about these layers, or about a DSpark draft. Such layers are not counted, except with the field `mtp` of
a family that has it; `params` and `memory` name them."""

NO_NULLS: Mapping[str, frozenset[str]] = {
    "head_dim": frozenset(
        """
        apertus bamba bitnet cohere cohere2 cohere_compass_text dots1 ernie4_5_moe ernie4_5_vl_moe_text exaone4
        exaone_moe falcon_h1 flex_olmo glm4_moe glm4v_moe_text glm_ocr_text granite granite_swa granitemoe
        granitemoe_swa granitemoehybrid granitemoeshared gte jamba jina_embeddings_v3 lfm2 lfm2_moe mimo nanochat olmo
        olmo2 olmo3 olmo_hybrid olmoe phi3 phimoe qwen2 qwen2_5_omni_text qwen2_moe qwen3_moe qwen3_omni_moe_text
        smollm3
        """.split()
    ),
    "layer_types": frozenset("nemotron_h paddleocr_vl_text qwen3_vl_moe_text qwen3_vl_text".split()),
}
"""Fields that may be absent but not null: the model types whose class in transformers 5.23 then fails."""

OFF: tuple[object, ...] = (None, False, 0, [], {})
"""Values of a field that mean off."""

OTHER_LAYER_PREFIXES = ("mamba_", "linear_", "index_", "indexer_", "hc_")
"""Prefixes of sizes of other kinds of layers: state spaces, linear attention, indexers, hyper-connections."""

DROPOUT_WORDS = ("dropout", "pdrop")
"""Words in the name of a dropout rate: never a size."""

OF_WEIGHTS = frozenset(
    """
    adapter adapters bias biases conv cross embed embedding embeddings engram expert experts gate gated gates head heads
    kv layernorm lora memory mla mlp moe mtp norm norms pooler proj projection projector qkv resampler router sink sinks
    """.split()
)
"""Words in the name of a switch that may add weights …"""
OF_RUNNING = frozenset(
    "checkpointing clip flash fp16 fp32 bf16 fused kernel kernels loss output parallel scale scaled scaling".split()
)
"""… unless it contains one of these, which only change how weights are run."""
SIZES = frozenset("dim dims r rank size width".split())
"""Words at the end of the name of a size: it may add weights …"""
OF_BLOCKS = frozenset("batch block buffer cache capacity chunk group local max page pool window".split())
"""… unless it contains one of these, which only bound or divide what is computed."""

OF_DRAFTS = re.compile(r"draft|eagle|medusa|dflash|speculator", re.IGNORECASE)
"""Words in the fields and classes of draft models: small models that propose tokens for another model and have
additional weights that connect them to it."""
DRAFT = "draft models have additional weights, which are not supported"
OF_TARGETS = frozenset("num_target_layers target_hidden_size target_layer_ids num_aux_hidden_states".split())
"""Fields of a draft model about its target model."""

SPELLINGS = (
    frozenset(("hidden_size", "n_embd", "n_embed", "d_model")),
    frozenset(("num_hidden_layers", "n_layer", "n_layers", "num_layers")),
    frozenset(("num_attention_heads", "n_head", "n_heads", "num_heads")),
    frozenset(("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads")),
    frozenset(("intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner", "d_inner", "d_ff", "hidden_dim")),
    frozenset(("max_position_embeddings", "n_positions")),
)
"""Names of one size: converted files keep the old name next to the one that the class reads."""
OTHER_WORDS = tuple(
    frozenset(words.split())
    for words in (
        "hidden_size n_embd d_model hidden dim model_dim embed_dim emb_dim embedding_dim width",
        "num_hidden_layers n_layer n_layers num_layers depth num_blocks n_blocks blocks",
        "num_attention_heads n_head n_heads num_heads attention_heads heads num_query_heads n_query_heads",
        "num_key_value_heads num_kv_heads n_kv_heads kv_heads num_query_groups n_query_groups",
        "intermediate_size ffn_dim n_inner d_ff d_mlp ff_dim mlp_dim ffn ff intermediate dim_feedforward",
        "head_dim d_kv head_size d_head dim_head size_per_head kv_channels",
        "vocab_size vocab n_vocab padded_vocab_size vocabulary",
        "num_experts num_local_experts n_routed_experts moe_num_experts experts n_experts num_moe_experts",
        "num_experts_per_tok moe_k moe_topk moe_top_k top_k_experts top_k topk experts_per_token num_experts_per_token"
        " active_experts num_active_experts moe_router_topk num_selected_experts",
        "sliding_window window window_size sliding_window_size",
    )
)
"""Names of one size in papers and other libraries, for hints alone."""
CONTEXTS = frozenset(
    """
    max_position_embeddings n_positions max_seq_len seq_length context_length max_context_length model_max_length
    max_target_positions max_decoder_position_embeddings
    """.split()
)
"""Names of the longest context in the classes."""
OTHER_CONTEXTS = frozenset("n_ctx block_size seq_len max_seq_length max_sequence_length context_window".split())
"""Its names in training code and older configs; some classes give them to other sizes."""


def check_nulls(fields: Mapping[str, Any], model_type: object) -> None:
    """Raises ConfigError for a null that the class of this model type does not accept."""
    for name, types in NO_NULLS.items():
        if name in fields and fields[name] is None and model_type in types:
            raise ConfigError(
                f"{name} is null, which the class of {model_type} does not accept", f"remove {name}, or give its value"
            )


def is_ignored_field(name: str) -> bool:
    """True if a field does not change counts in any family."""
    return name in IGNORED_FIELDS or any(rate in name for rate in DROPOUT_WORDS)


def same_size(name: str, fields: Iterable[str]) -> str | None:
    """The field among these with the same size as `name`."""
    same = next((names for names in SPELLINGS if name in names), frozenset[str]())
    return next((field for field in fields if field in same), None)


def meant_field(name: str, fields: Iterable[str]) -> str | None:
    """The field among these that a user means by `name`, another name of its size or of the longest context."""
    fields = tuple(fields)
    context = next((field for field in fields if field in CONTEXTS), None)
    named = name in CONTEXTS or name in OTHER_CONTEXTS
    other = next((field for field in fields if field in common_words(name)), None)
    return same_size(name, fields) or same_size(f"num_{name}", fields) or other or (context if named else None)


def common_words(name: str) -> frozenset[str]:
    """The names of the size that `name` means in papers or other libraries; none for another name."""
    return next((words for words in OTHER_WORDS if name in words), frozenset())


def changes_counts(name: str) -> bool:
    """True if a field changes counts in some architecture."""
    return name in CHANGES_COUNTS or name.startswith(OTHER_LAYER_PREFIXES)


def may_add_weights(name: str, value: object) -> bool:
    """True for an unknown switch that is on, or an unknown size above 0, with a name that suggests weights."""
    words = name.lower().split("_")
    if not OF_WEIGHTS.intersection(words) or OF_RUNNING.intersection(words):
        return False
    if value is True or not isinstance(value, int):
        return value is True
    counts = words[0] in ("num", "n") and words[-1] in OF_WEIGHTS
    return value > 0 and (counts or words[-1] in SIZES) and not OF_BLOCKS.intersection(words)


def of_draft(name: str) -> bool:
    """True if a field, or a class, belongs to a draft model."""
    return name in OF_TARGETS or OF_DRAFTS.search(name) is not None


def is_draft(fields: Mapping[str, Any], classes: Iterable[str]) -> bool:
    """True if a config's classes, or fields that are on, are those of a draft model."""
    return any(map(of_draft, classes)) or any(of_draft(name) for name, value in fields.items() if value not in OFF)
