"""Test configs of the xlm lineage: a small one of each family, and variants."""

from tests.families._configs import without


class XLM:
    TINY = {
        "model_type": "xlm", "vocab_size": 163, "emb_dim": 60, "n_layers": 2, "n_heads": 6,
        "max_position_embeddings": 43, "n_langs": 3,
    }  # fmt: skip
    PLAIN = {**without(TINY, "n_langs"), "pad_token_id": 2}
    VARIANTS = {"of one language": PLAIN, "of sines": {**PLAIN, "sinusoidal_embeddings": True}}
    LOGITS = {
        "": PLAIN,
        "relu": {**PLAIN, "gelu_activation": False},
    }  # its class adds a language only where it is given
    REQUIRED = {"vocab_size": 37, "emb_dim": 128, "n_layers": 2, "n_heads": 4}
    SILENT = {"bos_index": 3, "summary_activation": "tanh", "embed_init_std": 0.5}


class Flaubert(XLM):
    TINY = {**XLM.TINY, "model_type": "flaubert"}
    PLAIN = {**without(TINY, "n_langs"), "pad_token_id": 2}
    VARIANTS = {"of one language": PLAIN, "norms in front": {**TINY, "pre_norm": True}}
    LOGITS = {"": PLAIN}
    SILENT = {**XLM.SILENT, "layerdrop": 0.3}
