"""Test configs of custom models: a small one, and variants."""

from tests.families._configs import family

MODEL, GROUPED = {"vocab": 227, "hidden": 48, "context": 29}, {"heads": 6, "kv_heads": 2, "head_dim": 10}
GATED, BANK = {"width": 71, "gated": True}, {"experts": 7, "active": 4, "width": 37}

# fmt: off
family("custom",
    model={**MODEL, "source_context": 31, "positions": "sines"},
    attention={**GROUPED, "bias": True, "scores": "distance"},
    feed_forward={"width": 71, "bias": True, "norm": "layer"},
    norm={"kind": "layer", "order": "post", "shared": True},
    encoder={"layers": 3, "feed_forward": {"called": False}},
    decoder={"layers": 2},
    VARIANTS={
        "windowed": {
            "OF": None, "model": {**MODEL, "positions": "rotary", "tied": True},
            "attention": {**GROUPED, "window": 5, "qk_norm": "layer"}, "feed_forward": {**GATED, "norm": "rms"},
            "norm": {"kind": "rms", "order": "parallel"}, "decoder": {"layers": 3},
        },
        "parallel and idle": {
            "OF": None, "model": {**MODEL, "positions": "alibi", "head_bias": True},
            "attention": {**GROUPED, "out_bias": True}, "feed_forward": {"width": 71, "called": False},
            "norm": {"kind": "layer", "order": "parallel", "shared": True}, "decoder": {"layers": 2},
        },
        "hybrid": {
            "OF": None, "model": {**MODEL, "positions": "rotary", "tied": True}, "attention": GROUPED,
            "feed_forward": GATED, "norm": {"kind": "rms"},
            "decoder": {
                "layers": 4,
                "mamba": {
                    "layers": [0, 2, 3], "inner": 58, "state": 13, "kernel": 5, "rank": 21, "bias": True, "mlp": True,
                },
            },
        },
        "encoder post-norm": {
            "OF": None, "model": {**MODEL, "positions": "relative", "buckets": 23, "tied": True},
            "attention": {**GROUPED, "qk_norm": "rms", "scores": "distance"},
            "experts": {**BANK, "shared": 19, "shared_gate": True, "bias": True},
            "norm": {"kind": "layer", "order": "post", "embedding": True}, "encoder": {"layers": 2},
        },
        "pre-norm and idle": {
            "OF": None, "attention": GROUPED, "feed_forward": GATED,
            "model": {
                **MODEL, "source_vocab": 229, "source_context": 31, "positions": "learned", "scale_embedding": True,
            },
            "norm": {"kind": "rms", "shared": True, "embedding": True}, "encoder": {"layers": 2, "experts": BANK},
            "decoder": {
                "layers": 3, "attention": {"bias": True}, "cross_attention": {"scores": "distance", "bias": False},
                "feed_forward": {"called": False},
            },
        },
        "of two widths": {
            "OF": None, "attention": {**GROUPED, "bias": True}, "feed_forward": GATED,
            "model": {**MODEL, "source_hidden": 36, "source_context": 31, "positions": "rotary", "tied": True},
            "norm": {"kind": "rms", "embedding": True}, "encoder": {"layers": 2, "attention": {"head_dim": 14}},
            "decoder": {"layers": 3},
        },
    },
    LOGITS=None, INSTEAD={"attn.scores": "attn.values"})  # its scores are distances, no product
