from tests.families._configs import ABSENT, family

# fmt: off
# The class adds a language only where it is given.
XLM = family("xlm", vocab_size=163, emb_dim=60, n_layers=2, n_heads=6, max_position_embeddings=43, n_langs=3,
    VARIANTS={
        "of one language": {"pad_token_id": 2, "n_langs": ABSENT},
        "of sines": {"pad_token_id": 2, "sinusoidal_embeddings": True, "n_langs": ABSENT},
    }, LOGITS={"": {"pad_token_id": 2, "n_langs": ABSENT}, "relu": {"gelu_activation": False}},
    REQUIRED={"vocab_size": 37, "emb_dim": 128, "n_layers": 2, "n_heads": 4})
family("flaubert", XLM,
    VARIANTS={"of one language": {"pad_token_id": 2, "n_langs": ABSENT}, "norms in front": {"pre_norm": True}},
    LOGITS={"": {"pad_token_id": 2, "n_langs": ABSENT}})
