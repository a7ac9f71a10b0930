"""JinaBERT: no class stands behind it; scores by the distance to both sides, gated networks, norms of queries."""

from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "jina_bert", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 71, "max_position_embeddings": 37, "type_vocab_size": 3, "feed_forward_type": "geglu",
    "position_embedding_type": "alibi",
}  # fmt: skip
VARIANTS = {"normed": {**TINY, "query_key_norm": True, "position_embedding_type": "absolute"}}
SILENT = {"emb_pooler": "mean", "attn_implementation": "torch"}


def sized(of: Distinct) -> Sized:
    names = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
    own = {"feed_forward_type": "reglu", "position_embedding_type": "alibi", "query_key_norm": of.on[0]}
    config, sizes = of_heads(of, names, max_position_embeddings=of.P, type_vocab_size=of.J, **own)
    return config, {**sizes, "Dt": sizes["D"], "T": of.S, "Vs": of.J}
