"""K-EXAONE: EXAONE 4's attention between norms in front; dense layers, then experts beside a shared network."""

from typing import ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Experts, FeedForward, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families import exaone4
from tfacct.families._base import Count, UpTo
from tfacct.families._endings import DECODER
from tfacct.families._experts import BESIDE_PATHS, ROUTED_TENSORS, LayerNetworks, beside_shared, dense_or_sparse
from tfacct.families._layers import windows
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2025-12"


class Config(exaone4.Config):
    """`ExaoneMoeConfig`, with its class's defaults, sizes too."""

    sliding_window: Window = 4096
    moe_intermediate_size: Count = 1024
    num_experts: Count = 64
    num_experts_per_tok: Count = 8
    num_shared_experts: Count = 1
    first_k_dense_replace: UpTo = 1
    mlp_layer_types: LayerNetworks | None = None

    stems: ClassVar = ("ExaoneMoe",)
    aliases: ClassVar = {"num_local_experts": "num_experts"}
    harmless: ClassVar = frozenset("n_group topk_group routed_scaling_factor scoring_func topk_method".split())
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **BESIDE_PATHS,
        **QK_NORM_PATHS,
    }
    hf_tensors: ClassVar = ROUTED_TENSORS

    def architecture(self) -> Transformer:
        """Windows by layer_types, dense layers by mlp_layer_types; full layers beside windowed ones are not rotated."""
        layers, norm = self.num_hidden_layers, QKNorm(self.rms_norm_eps)
        per_layer = windows(self.layer_types, layers, self.sliding_window, self.slides)
        first = ["dense" if number < self.first_k_dense_replace else "sparse" for number in range(layers)]
        sparse = dense_or_sparse(self.mlp_layer_types or first, layers)
        networks: dict[bool, FeedForward | Experts] = {
            False: self.feed_forward(),
            True: beside_shared(self, self.num_experts, self.num_shared_experts),
        }
        kinds: dict[tuple[int | None, bool], Block] = {
            (window, routed): self.block(
                self.attention(qk_norm=norm, window=window, **({} if window else {"rotary": None})), networks[routed]
            )
            for window, routed in dict.fromkeys(zip(per_layer, sparse, strict=True))
        }
        return self.decoder([kinds[kind] for kind in zip(per_layer, sparse, strict=True)])
