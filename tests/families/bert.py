from tests.families._configs import ABSENT, HEADS, SIZES, family

# fmt: off
BERT = family("bert", SIZES, vocab_size=181, hidden_size=42, max_position_embeddings=37, type_vocab_size=3,
    REQUIRED=HEADS)
ELECTRA = family("electra", BERT, vocab_size=151, embedding_size=31, hidden_size=102, intermediate_size=83,
    max_position_embeddings=49, COMPARED={"of wide tables": {"embedding_size": 102}})
family("distilbert", vocab_size=163, dim=60, n_layers=2, n_heads=6, hidden_dim=77, max_position_embeddings=43,
    REQUIRED={"vocab_size": 37, "dim": 128, "n_layers": 2, "n_heads": 4},
    SILENT={"intermediate_size": 77})
family("albert", BERT, vocab_size=149, embedding_size=29, hidden_size=114, num_hidden_layers=3, intermediate_size=89,
    max_position_embeddings=53, type_vocab_size=4,
    LOGITS={"of wide tables": {"embedding_size": 114}})
family("bert-generation", SIZES, vocab_size=181, hidden_size=42, max_position_embeddings=37, is_decoder=True,
    COMPARED={"as an encoder": {"is_decoder": False}})
family("chinese_clip_text_model", BERT, projection_dim=29,
    VARIANTS={"projected": {"architectures": ["ChineseCLIPTextModelWithProjection"]}})
# Without a projection, the class returns one vector, not the residual stream.
family("dpr", BERT.TINY, vocab_size=491, projection_dim=29,
    COMPARED={"of passages": {"architectures": ["DPRContextEncoder"]}},
    VARIANTS={"without a product": {"projection_dim": 0}})
family("megatron-bert", BERT, vocab_size=479, REQUIRED={"num_hidden_layers": 2})
# The class reads 32 buckets with any config.
family("mpnet", SIZES, vocab_size=157, hidden_size=90, intermediate_size=79, max_position_embeddings=47,
    relative_attention_num_buckets=14, CONTEXT=510,
    LOGITS={"": {"relative_attention_num_buckets": 32, "pad_token_id": 1}}, REQUIRED=HEADS)
family("rembert", ELECTRA, input_embedding_size=31, output_embedding_size=37, embedding_size=ABSENT)
family("splinter", BERT, vocab_size=173)
ROBERTA = family("roberta", BERT, vocab_size=179, hidden_size=84, intermediate_size=73, max_position_embeddings=41,
    pad_token_id=4, CONTEXT=510,
    LOGITS={"of one segment": {"type_vocab_size": 1, "pad_token_id": 1}})
family("roberta-prelayernorm", ROBERTA, vocab_size=487)
family("xlm-roberta", ROBERTA, vocab_size=173)
family("xlm-roberta-xl", ROBERTA, vocab_size=491, CONTEXT=512, REQUIRED={"num_hidden_layers": 2})
family("camembert", ROBERTA, vocab_size=167)
family("data2vec-text", ROBERTA, vocab_size=401)
family("altclip_text_model", ROBERTA, project_dim=29, projection_dim=31, CONTEXT=512,
    VARIANTS={"projected": {"architectures": ["AltCLIPTextModelWithProjection"]}}, REQUIRED={"num_hidden_layers": 2})
