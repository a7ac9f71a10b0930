"""Test configs of the xlm lineage: a small one of each family, variants, random ones, distinct sizes."""

from hypothesis import strategies as st

from tests.families._drawing import ON, VOCAB, Draw, Fields, of_whole_heads, some, without
from tests.families._sizes import Distinct, Sized, of_heads


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

    def sized(of: Distinct) -> Sized:
        config, sizes = of_heads(of, "vocab_size emb_dim n_layers n_heads", max_position_embeddings=of.P, n_langs=of.J)
        return config, {**sizes, "F": 4 * sizes["D"], "T": of.S, "P": of.P, "Vs": of.J}


class Flaubert:
    TINY = {**XLM.TINY, "model_type": "flaubert"}
    PLAIN = {**without(TINY, "n_langs"), "pad_token_id": 2}
    VARIANTS = {"of one language": PLAIN, "norms in front": {**TINY, "pre_norm": True}}
    LOGITS = {"": PLAIN}
    REQUIRED, drawn, sized = XLM.REQUIRED, XLM.drawn, XLM.sized
    SILENT = {**XLM.SILENT, "layerdrop": 0.3}
