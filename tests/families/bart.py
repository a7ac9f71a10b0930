"""Test configs of the bart lineage: a small one of each family, and variants."""


class Bart:
    TINY = {
        "model_type": "bart", "vocab_size": 193, "d_model": 60, "encoder_layers": 2, "decoder_layers": 3,
        "encoder_attention_heads": 6, "decoder_attention_heads": 10, "encoder_ffn_dim": 71, "decoder_ffn_dim": 67,
        "max_position_embeddings": 37,
    }  # fmt: skip
    LOGITS = {"": TINY, "scaled": {**TINY, "scale_embedding": True, "activation_function": "relu"}}
    SILENT = {"extra_pos_embeddings": 0, "save_step": 5}
    REQUIRED = {"vocab_size": 37, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3}


class PLBart(Bart):
    TINY = {**Bart.TINY, "model_type": "plbart", "vocab_size": 541}
    REQUIRED = {"encoder_layers": 2, "decoder_layers": 3}  # every size has a default


class Mvp(Bart):
    TINY = {**Bart.TINY, "model_type": "mvp", "vocab_size": 547}
    SILENT = {"prompt_length": 7, "prompt_mid_dim": 9}
    REQUIRED = {"encoder_layers": 2, "decoder_layers": 3}  # every size has a default


class MBart:
    TINY = {
        "model_type": "mbart", "vocab_size": 193, "d_model": 60, "encoder_layers": 2, "decoder_layers": 3,
        "encoder_attention_heads": 6, "decoder_attention_heads": 10, "encoder_ffn_dim": 71, "decoder_ffn_dim": 67,
        "max_position_embeddings": 37, "scale_embedding": True,
    }  # fmt: skip
    SILENT = {"extra_pos_embeddings": 2, "normalize_before": True, "add_final_layer_norm": True}
    REQUIRED = {"vocab_size": 37, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3}


class Pegasus:
    TINY = {
        "model_type": "pegasus", "vocab_size": 193, "d_model": 60, "encoder_layers": 2, "decoder_layers": 3,
        "encoder_attention_heads": 6, "decoder_attention_heads": 10, "encoder_ffn_dim": 71, "decoder_ffn_dim": 67,
        "max_position_embeddings": 37, "scale_embedding": True, "activation_function": "relu", "pad_token_id": 0,
    }  # fmt: skip
    SILENT = {"extra_pos_embeddings": 1, "static_position_embeddings": True, "normalize_embedding": False}
    REQUIRED = {"vocab_size": 37, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3}


class Blenderbot:
    TINY = {**MBart.TINY, "model_type": "blenderbot", "vocab_size": 503}
    REQUIRED = {"vocab_size": 37, "d_model": 64, "encoder_layers": 2, "decoder_layers": 3}


class BlenderbotSmall:
    TINY = {**Bart.TINY, "model_type": "blenderbot-small", "vocab_size": 503}
    LOGITS = {"": TINY, "scaled": {**TINY, "scale_embedding": True, "activation_function": "relu"}}
    SILENT = {"normalize_before": False, "add_final_layer_norm": False, "do_blenderbot_90_layernorm": True}
    REQUIRED = {"vocab_size": 37, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3}


class FSMT:
    TINY = {
        "model_type": "fsmt", "src_vocab_size": 197, "tgt_vocab_size": 199, "d_model": 66, "encoder_layers": 2,
        "decoder_layers": 3, "encoder_attention_heads": 6, "decoder_attention_heads": 22, "encoder_ffn_dim": 71,
        "decoder_ffn_dim": 73, "max_position_embeddings": 41, "pad_token_id": 1, "langs": ["en", "de"],
    }  # fmt: skip
    VARIANTS = {"one table": {**TINY, "src_vocab_size": 199, "tie_word_embeddings": True, "scale_embedding": False}}
    LOGITS = {"": TINY, **VARIANTS}
    SILENT = {"langs": ["ru", "en"], "decoder": {"model_type": "fsmt_decoder", "vocab_size": 199}}
    REQUIRED = {"encoder_layers": 2, "decoder_layers": 3}  # every size has a default


class M2M100:
    TINY = {
        "model_type": "m2m_100", "vocab_size": 193, "d_model": 60, "encoder_layers": 2, "decoder_layers": 3,
        "encoder_attention_heads": 6, "decoder_attention_heads": 10, "encoder_ffn_dim": 71, "decoder_ffn_dim": 67,
        "max_position_embeddings": 37, "pad_token_id": 1,
    }  # fmt: skip
    ODD = {**TINY, "d_model": 45, "encoder_attention_heads": 9, "decoder_attention_heads": 5, "scale_embedding": False}
    LOGITS = {"": TINY, "of odd width": ODD}
    SILENT = {"num_hidden_layers": 2, "max_length": 200}
    REQUIRED = {"vocab_size": 37, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3}


class Marian:
    TINY = {
        "model_type": "marian", "vocab_size": 197, "d_model": 66, "encoder_layers": 2, "decoder_layers": 3,
        "encoder_attention_heads": 6, "decoder_attention_heads": 22, "encoder_ffn_dim": 71, "decoder_ffn_dim": 73,
        "max_position_embeddings": 41, "pad_token_id": 0, "decoder_start_token_id": 0, "scale_embedding": True,
    }  # fmt: skip
    VARIANTS = {
        "a table on each side": {**TINY, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 199},
    }
    LOGITS = {"": TINY, **VARIANTS}
    SILENT = {"extra_pos_embeddings": 58100}
    REQUIRED = {"vocab_size": 37, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3, "pad_token_id": 0}


class Whisper:
    TINY = {
        "model_type": "whisper", "vocab_size": 193, "num_mel_bins": 11, "d_model": 60, "encoder_layers": 2,
        "decoder_layers": 3, "encoder_attention_heads": 6, "decoder_attention_heads": 10, "encoder_ffn_dim": 71,
        "decoder_ffn_dim": 67, "max_source_positions": 19, "max_target_positions": 37, "pad_token_id": 0,
    }  # fmt: skip
    VARIANTS = {"untied": {**TINY, "tie_word_embeddings": False}}
    LOGITS = {"": TINY, "untied": VARIANTS["untied"]}
    SILENT = {"scale_embedding": True, "median_filter_width": 9, "mask_time_length": 12, "classifier_proj_size": 300}
    CONTEXT = 448
    REQUIRED = {"pad_token_id": 0}
