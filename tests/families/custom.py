"""Test configs of custom models: a small one of each family, and variants."""


class Custom:
    TINY = {
        "model": {"vocab": 227, "hidden": 48, "context": 29, "source_context": 31, "positions": "sines"},
        "attention": {"heads": 6, "kv_heads": 2, "head_dim": 10, "bias": True, "scores": "distance"},
        "feed_forward": {"width": 71, "bias": True, "norm": "layer"},
        "norm": {"kind": "layer", "order": "post", "shared": True},
        "encoder": {"layers": 3, "feed_forward": {"called": False}},
        "decoder": {"layers": 2},
    }  # fmt: skip
    LOGITS = {}
    VARIANTS = {
        "windowed": {
            "model": {"vocab": 227, "hidden": 48, "context": 29, "positions": "rotary", "tied": True},
            "attention": {"heads": 6, "kv_heads": 2, "head_dim": 10, "window": 5, "qk_norm": "layer"},
            "feed_forward": {"width": 71, "gated": True, "norm": "rms"},
            "norm": {"kind": "rms", "order": "parallel"},
            "decoder": {"layers": 3},
        },
        "parallel and idle": {
            "model": {"vocab": 227, "hidden": 48, "context": 29, "positions": "alibi", "head_bias": True},
            "attention": {"heads": 6, "kv_heads": 2, "head_dim": 10, "out_bias": True},
            "feed_forward": {"width": 71, "called": False},
            "norm": {"kind": "layer", "order": "parallel", "shared": True},
            "decoder": {"layers": 2},
        },
        "hybrid": {
            "model": {"vocab": 227, "hidden": 48, "context": 29, "positions": "rotary", "tied": True},
            "attention": {"heads": 6, "kv_heads": 2, "head_dim": 10},
            "feed_forward": {"width": 71, "gated": True},
            "norm": {"kind": "rms"},
            "decoder": {
                "layers": 4,
                "mamba": {
                    "layers": [0, 2, 3], "inner": 58, "state": 13, "kernel": 5, "rank": 21, "bias": True,
                    "mlp": True,
                },
            },
        },
        "encoder post-norm": {
            "model": {"vocab": 227, "hidden": 48, "context": 29, "positions": "relative", "buckets": 23, "tied": True},
            "attention": {"heads": 6, "kv_heads": 2, "head_dim": 10, "qk_norm": "rms", "scores": "distance"},
            "experts": {"experts": 7, "active": 4, "width": 37, "shared": 19, "shared_gate": True, "bias": True},
            "norm": {"kind": "layer", "order": "post", "embedding": True},
            "encoder": {"layers": 2},
        },
        "pre-norm and idle": {
            "model": {
                "vocab": 227, "source_vocab": 229, "hidden": 48, "context": 29, "source_context": 31,
                "positions": "learned", "scale_embedding": True,
            },
            "attention": {"heads": 6, "kv_heads": 2, "head_dim": 10},
            "feed_forward": {"width": 71, "gated": True},
            "norm": {"kind": "rms", "shared": True, "embedding": True},
            "encoder": {"layers": 2, "experts": {"experts": 7, "active": 4, "width": 37}},
            "decoder": {
                "layers": 3, "attention": {"bias": True}, "cross_attention": {"scores": "distance", "bias": False},
                "feed_forward": {"called": False},
            },
        },
        "of two widths": {
            "model": {
                "vocab": 227, "source_hidden": 36, "hidden": 48, "context": 29, "source_context": 31,
                "positions": "rotary", "tied": True,
            },
            "attention": {"heads": 6, "kv_heads": 2, "head_dim": 10, "bias": True},
            "feed_forward": {"width": 71, "gated": True},
            "norm": {"kind": "rms", "embedding": True},
            "encoder": {"layers": 2, "attention": {"head_dim": 14}},
            "decoder": {"layers": 3},
        },
    }  # fmt: skip
    INSTEAD = {"attn.scores": "attn.values"}  # its scores are distances, no product
