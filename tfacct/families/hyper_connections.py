"""Decoders with several residual streams, mixed by hyper-connections around each sublayer."""

from dataclasses import replace
from typing import Any

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import HyperConnection, HyperHead, HyperMean
from tfacct.families.decoder import DecoderBase
from tfacct.families.fields import PositiveFloat, PositiveInt

PUBLISHED_HYPER_CONNECTIONS = (r"\.hc_(attn|ffn)_(fn|base|scale)$", r".\1_hc.\2")
"""Entries for checkpoint_conversion_mapping: published files have no modules for them."""


def hyper_modules(**sublayers: str) -> dict[str, str]:
    """Modules of the hyper-connections around sublayers."""
    return {f"hc.{sublayer}.weights": module for sublayer, module in sublayers.items()}


def hyper_tensors(**sublayers: str) -> dict[str, str]:
    """Their tensors."""
    names = {"weights.weight": "fn", "base.bias": "base", "factors.weight": "scale"}
    return {
        f"hc.{sublayer}.{tensor}": f"{module}.{name}"
        for sublayer, module in sublayers.items()
        for tensor, name in names.items()
    }


class HyperConnected(DecoderBase):
    """hc_mult residual streams around the sublayers of every layer, joined before the head."""

    hc_eps: PositiveFloat = 1e-6
    hc_mult: PositiveInt = 4

    module_names = {"hc_head.weights": "model.hc_head"}
    tensor_names = {
        f"hc_head.{tensor}": f"model.hc_head.hc_{name}"
        for tensor, name in (("weights.weight", "fn"), ("base.bias", "base"), ("factor.weight", "scale"))
    }
    layer_module_names = hyper_modules(attn="attn_hc", mlp="ffn_hc")
    layer_tensor_names = hyper_tensors(attn="attn_hc", mlp="ffn_hc")

    def streams(self) -> dict[str, Any]:
        """Arguments that hyper-connections and the head of the streams share."""
        sizes = {"hidden": self.hidden_size, "streams": self.hc_mult}
        return {**sizes, "eps": self.hc_eps, "norm_eps": self.rms_norm_eps}

    def hyper_connection(self) -> HyperConnection:
        return HyperConnection(**self.streams(), rounds=self.hc_sinkhorn_iters)

    def hyper_head(self) -> HyperHead | HyperMean:
        return HyperHead(**self.streams())

    def block(self, layer: Any) -> Block:
        return replace(super().block(layer), streams=self.hyper_connection())

    def embeddings_and_head(self) -> dict[str, Any]:
        return {**super().embeddings_and_head(), "join_streams": self.hyper_head()}
