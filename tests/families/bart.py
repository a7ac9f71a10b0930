from tests.families._configs import ABSENT, family

# fmt: off
BART = family("bart", vocab_size=193, d_model=60, encoder_layers=2, decoder_layers=3, encoder_attention_heads=6,
    decoder_attention_heads=10, encoder_ffn_dim=71, decoder_ffn_dim=67, max_position_embeddings=37,
    LOGITS={"scaled": {"scale_embedding": True, "activation_function": "relu"}},
    REQUIRED={"vocab_size": 37, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3})
family("plbart", BART, vocab_size=541, REQUIRED={"encoder_layers": 2, "decoder_layers": 3})
MVP = family("mvp", BART, vocab_size=547, REQUIRED={"encoder_layers": 2, "decoder_layers": 3},
    SILENT={"prompt_length": 7, "prompt_mid_dim": 9})
MBART = family("mbart", BART, scale_embedding=True,
    SILENT={"normalize_before": True, "add_final_layer_norm": True})
family("pegasus", MBART, activation_function="relu", pad_token_id=0,
    SILENT={"static_position_embeddings": True, "normalize_embedding": False})
family("blenderbot", MBART.TINY, vocab_size=503,
    REQUIRED={"vocab_size": 37, "d_model": 64, "encoder_layers": 2, "decoder_layers": 3})
family("blenderbot-small", BART, vocab_size=503,
    LOGITS={"scaled": {"scale_embedding": True, "activation_function": "relu"}},
    SILENT={"normalize_before": False, "add_final_layer_norm": False, "do_blenderbot_90_layernorm": True})
family("fsmt", MVP, src_vocab_size=197, tgt_vocab_size=199, d_model=66, decoder_attention_heads=22, decoder_ffn_dim=73,
    max_position_embeddings=41, pad_token_id=1, langs=["en", "de"], vocab_size=ABSENT,
    COMPARED={"one table": {"src_vocab_size": 199, "tie_word_embeddings": True, "scale_embedding": False}}, SILENT={})
family("m2m_100", BART, pad_token_id=1,
    LOGITS={
        "of odd width": {
            "d_model": 45, "encoder_attention_heads": 9, "decoder_attention_heads": 5, "scale_embedding": False,
        },
    }, SILENT={"num_hidden_layers": 2, "max_length": 200})
family("marian", MBART, vocab_size=197, d_model=66, decoder_attention_heads=22, decoder_ffn_dim=73,
    max_position_embeddings=41, pad_token_id=0, decoder_start_token_id=0,
    COMPARED={"a table on each side": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 199}},
    REQUIRED={"vocab_size": 37, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3, "pad_token_id": 0}, SILENT={})
family("whisper", BART, num_mel_bins=11, max_source_positions=19, max_target_positions=37, pad_token_id=0,
    max_position_embeddings=ABSENT, CONTEXT=448, COMPARED={"untied": {"tie_word_embeddings": False}},
    REQUIRED={"pad_token_id": 0})
