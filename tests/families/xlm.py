"""Test configs of the xlm lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import ON, VOCAB, Draw, Fields, of_whole_heads, some, without


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

    def drawn(draw: Draw) -> Fields:
        drawn = without(of_whole_heads(draw), "tie_word_embeddings")
        names = {"hidden_size": "emb_dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
        fields = {names.get(name, name) if draw(st.booleans()) else name: value for name, value in drawn.items()}
        sizes = {"max_position_embeddings": st.integers(25, 40), "n_langs": st.integers(1, 4), "vocab_size": VOCAB}
        return some(draw, fields, use_lang_emb=ON, gelu_activation=ON, sinusoidal_embeddings=ON, **sizes)


class Flaubert(XLM):
    TINY = {**XLM.TINY, "model_type": "flaubert"}
    PLAIN = {**without(TINY, "n_langs"), "pad_token_id": 2}
    VARIANTS = {"of one language": PLAIN, "norms in front": {**TINY, "pre_norm": True}}
    LOGITS = {"": PLAIN}
    SILENT = {**XLM.SILENT, "layerdrop": 0.3}
