"""Test configs of families that have parts of their own."""

from tests.families._configs import GROUPED, LAYERS, SIZES, Fields, without
from tests.families.bert import Bert, Roberta
from tests.families.gemma import Gemma3Text


class Zaya:
    KINDS = ("hybrid", "hybrid_sliding")
    TURNED = {"rope_type": "default", "rope_theta": 1e4}
    HALF = {**TURNED, "partial_rotary_factor": 0.48}
    TINY = {
        "model_type": "zaya", "vocab_size": 127, "hidden_size": 46, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 26, "moe_intermediate_size": 31, "num_experts": 15,
        "router_hidden_size": 22, "cca_time0": 5, "cca_time1": 11, "max_position_embeddings": 63, "sliding_window": 7,
        "layer_types": ["hybrid", "hybrid_sliding", "hybrid"],
        "rope_parameters": {"hybrid": HALF, "hybrid_sliding": HALF},
    }  # fmt: skip
    ALONE = {**TINY, "num_experts": 1}
    LOGITS = {
        "": ALONE,
        "biased": {**ALONE, "attention_bias": True, "lm_head_bias": True, "tie_word_embeddings": False},
    }
    REQUIRED: Fields = {}


class MobileBert:
    TINY = {
        **SIZES, "model_type": "mobilebert", "vocab_size": 181, "hidden_size": 47, "max_position_embeddings": 37,
        "type_vocab_size": 3, "embedding_size": 19, "intra_bottleneck_size": 30, "num_feedforward_networks": 3,
        "classifier_activation": False,
    }  # fmt: skip
    LOGITS = {"": TINY, "of one network": {**TINY, "num_feedforward_networks": 1, "hidden_act": "gelu"}}


class XLNet:
    TINY = {
        "model_type": "xlnet", "vocab_size": 181, "d_model": 60, "n_layer": 2, "n_head": 12, "d_inner": 71,
    }  # fmt: skip
    LOGITS = {"": TINY, "relu": {**TINY, "ff_activation": "relu", "layer_norm_eps": 1e-3}}
    SILENT = {"reuse_len": 5, "same_length": True, "untie_r": True}
    CONTEXT = 512
    REQUIRED = {"vocab_size": 37, "d_model": 128, "n_layer": 2, "n_head": 4}


class Rwkv:
    TINY = {
        "model_type": "rwkv", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2,
        "intermediate_size": 71, "context_length": 103,
    }  # fmt: skip
    LOGITS = {
        "": TINY,
        "tied": {**TINY, "tie_word_embeddings": True, "intermediate_size": None},
    }
    SILENT = {"rescale_every": 6}
    INSTEAD = {
        "attn_scores_values": "time_mix.k_proj",
        "attn.scores": "time_mix.o_proj",
        "share.attn": "share.time_mix.r_proj",
        ".mlp": ".channel_mix",
    }
    REQUIRED = {"hidden_size": 128, "num_hidden_layers": 2, "vocab_size": 37}


class RecurrentGemma:
    TINY = {
        "model_type": "recurrent_gemma", "vocab_size": 211, "hidden_size": 36, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "intermediate_size": 74, "lru_width": 102,
        "conv1d_width": 8, "attention_window_size": 5, "block_types": ["recurrent", "attention"],
    }  # fmt: skip
    # the class keeps √hidden_size in bf16, so it is whole here
    LOGITS = {
        "": TINY,
        "as published": {**TINY, "attention_bias": True, "block_types": ["recurrent", "recurrent", "attention"]},
    }
    SILENT = {"w_init_variance_scale": 0.5, "embeddings_scale_by_sqrt_dim": True}
    CONTEXT = 8192
    REQUIRED = {"num_hidden_layers": 3, "num_attention_heads": 8, "hidden_size": 128}


class Zamba:
    TINY = {
        "model_type": "zamba", "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 103, "n_mamba_heads": 4,
        "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba", "hybrid"], "mamba_d_state": 7, "mamba_d_conv": 5,
        "mamba_expand": 3, "mamba_dt_rank": 11, "mamba_proj_bias": True,
    }  # fmt: skip
    LOGITS = {
        "": TINY,
        "by period": {**TINY, "layers_block_type": None, "attn_layer_period": 2, "attn_layer_offset": 1},
    }
    SILENT = {"use_mamba_kernels": False, "num_logits_to_keep": 1, "attention_hidden_size": 96}
    REQUIRED = {"num_hidden_layers": 8}  # two call the block; every size has a default


class Longformer(Roberta):
    TINY = {**Roberta.TINY, "model_type": "longformer", "vocab_size": 191, "attention_window": 14}
    TWO = {**TINY, "num_hidden_layers": 3, "attention_window": [4, 12, 4]}
    LOGITS = {"": TINY, "windows of two sizes": TWO, "one window": {**TINY, "attention_window": 18}}
    SILENT = {"attention_mode": "longformer", "ignore_attention_mask": False}
    CONTEXT = 510


class LED:
    TINY = {
        "model_type": "led", "vocab_size": 193, "d_model": 60, "encoder_layers": 2, "decoder_layers": 3,
        "encoder_attention_heads": 12, "decoder_attention_heads": 10, "encoder_ffn_dim": 71, "decoder_ffn_dim": 67,
        "max_encoder_position_embeddings": 41, "max_decoder_position_embeddings": 37, "attention_window": 14,
    }  # fmt: skip
    TWO = {**TINY, "encoder_layers": 3, "attention_window": [4, 12, 4]}
    LOGITS = {"": TINY, "windows of two sizes": TWO, "one window": {**TINY, "attention_window": 18}}
    SILENT = {"save_step": 5}
    CONTEXT = 1024
    REQUIRED = {"d_model": 48, "encoder_layers": 2, "decoder_layers": 3}


class JetMoe:
    TINY = {
        "model_type": "jetmoe", "vocab_size": 127, "hidden_size": 48, "num_hidden_layers": 2, "num_key_value_heads": 4,
        "kv_channels": 10, "intermediate_size": 37, "max_position_embeddings": 63, "num_local_experts": 7,
        "num_experts_per_tok": 3,
    }  # fmt: skip
    LOGITS = {"of every expert": {**TINY, "num_experts_per_tok": 7}}  # the reference's routing is fixed
    SILENT = {"aux_loss_coef": 0.5}


class DiffLlama:
    TINY = {
        **GROUPED, "model_type": "diffllama", "vocab_size": 127, "num_hidden_layers": 3, "num_attention_heads": 12,
        "num_key_value_heads": 4, "max_position_embeddings": 63, "attention_bias": True,
    }  # fmt: skip
    LOGITS = {"": TINY, "ungrouped": {**TINY, "num_key_value_heads": 12, "attention_bias": False}}
    SILENT = {"lambda_std_dev": 0.3}


class NVEmbed:
    TINY = {
        **GROUPED, "model_type": "nvembed", "vocab_size": 127, "hidden_size": 50, "max_position_embeddings": 64,
        "num_latents_value": 13, "num_cross_heads": 3, "cross_dim_head": 11, "latent_dim": 50, "hidden_dim": 50,
    }  # fmt: skip
    LOGITS = {}
    SILENT = {"add_eos": True, "padding_side": "right", "output_normalize": True}


class T5Gemma2:
    DECODER = {**without(Gemma3Text.TINY, "model_type"), "num_hidden_layers": 3}
    READS = {**DECODER, "num_hidden_layers": 4, "intermediate_size": 67, "num_key_value_heads": 3, "sliding_window": 8}
    TINY = {
        "model_type": "t5gemma2", "vocab_size": 127, "encoder": {"text_config": READS}, "decoder": DECODER,
        "pad_token_id": 0,
    }  # fmt: skip
    VARIANTS = {"untied": {**TINY, "tie_word_embeddings": False}}
    LOGITS = {
        "": TINY,
        "bounded, untied": {**VARIANTS["untied"], "decoder": {**DECODER, "final_logit_softcapping": 3.0}},
    }
    SILENT = {"initializer_range": 0.3, "image_token_index": 3}
    CONTEXT = 131072
    REQUIRED: Fields = {}


class RoCBert:
    TINY = {
        **Bert.TINY, "model_type": "roc_bert", "vocab_size": 569, "shape_vocab_size": 53, "shape_embed_dim": 22,
        "pronunciation_vocab_size": 31, "pronunciation_embed_dim": 17,
    }  # fmt: skip


class LayoutLM:
    TINY = {**Bert.TINY, "model_type": "layoutlm", "vocab_size": 557, "max_2d_position_embeddings": 43}


class Ernie:
    TINY = {**Bert.TINY, "model_type": "ernie", "vocab_size": 523, "use_task_id": True, "task_type_vocab_size": 5}


class RoFormer:
    TINY = {
        "model_type": "roformer", "vocab_size": 151, "embedding_size": 31, "hidden_size": 84, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 83, "max_position_embeddings": 49, "type_vocab_size": 3,
    }  # fmt: skip
    VARIANTS = {"of wide tables": {**TINY, "embedding_size": None}}
    LOGITS = {"": TINY, "of wide tables": {**VARIANTS["of wide tables"], "hidden_act": "relu"}}
    REQUIRED = {**LAYERS, "num_attention_heads": 4}


class BigBird:
    TINY = {**Bert.TINY, "model_type": "big_bird", "vocab_size": 563, "attention_type": "original_full"}
    LOGITS = {"": TINY, "scaled": {**TINY, "use_bias": False, "rescale_embeddings": True, "hidden_act": "relu"}}
    SILENT = {"block_size": 16, "num_random_blocks": 2}
    REQUIRED = {"num_hidden_layers": 2, "attention_type": "original_full"}
