"""Names of hyper-connections, which mix several residual streams around each sublayer."""

SUBLAYERS = {"attn": "attn_hc", "mlp": "ffn_hc"}
HYPER_MODULES = {f"hc.{ours}.weights": theirs for ours, theirs in SUBLAYERS.items()}
HYPER_TENSORS = {
    f"hc.{ours}.{tensor}": f"{theirs}.{name}"
    for ours, theirs in SUBLAYERS.items()
    for tensor, name in (("weights.weight", "fn"), ("base.bias", "base"), ("factors.weight", "scale"))
}
HYPER_HEAD_MODULES = {"hc_head.weights": "model.hc_head"}
HYPER_HEAD_TENSORS = {
    f"hc_head.{tensor}": f"model.hc_head.hc_{name}"
    for tensor, name in (("weights.weight", "fn"), ("base.bias", "base"), ("factor.weight", "scale"))
}
