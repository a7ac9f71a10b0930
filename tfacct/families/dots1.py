"""dots.llm1: Qwen3's attention, windows in the last layers; dense layers, then experts beside a shared network."""

from typing import ClassVar

from tfacct.architecture.parts import Attention, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Switch, UpTo
from tfacct.families._endings import DECODER
from tfacct.families._experts import BESIDE_PATHS, ROUTED_TENSORS, beside_shared
from tfacct.families._layers import LayerTypes, windows
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2025-06"


class Config(LlamaLike):
    """`Dots1Config`, with its class's defaults, sizes too. The class has numbers of experts in no default."""

    vocab_size: Count = 152064
    hidden_size: Count = 4608
    intermediate_size: Count = 10944
    num_hidden_layers: Layers = 62
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 32
    max_position_embeddings: Count = 2048
    attention_bias: Switch = False
    moe_intermediate_size: Count = 1408
    n_routed_experts: Count
    n_shared_experts: Count
    num_experts_per_tok: Count
    first_k_dense_replace: UpTo = 0
    sliding_window: Window | None = 4096
    max_window_layers: UpTo = 62
    layer_types: LayerTypes | None = None
    v_head_dim: Count | None = None

    stems: ClassVar = ("Dots1",)
    uncounted: ClassVar = LlamaLike.uncounted | {"v_head_dim"}
    nulls: ClassVar = {"num_key_value_heads": "num_attention_heads"}
    aliases: ClassVar = {"num_local_experts": "n_routed_experts"}
    harmless: ClassVar = frozenset(
        "n_group topk_group routed_scaling_factor scoring_func topk_method aux_loss_alpha seq_aux ep_size".split()
    )
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **BESIDE_PATHS,
        **QK_NORM_PATHS,
    }
    hf_tensors: ClassVar = ROUTED_TENSORS

    def of_window(self, window: int | None) -> Attention:
        """Attention of a layer with this window."""
        biased, norm = self.attention_bias, QKNorm(self.rms_norm_eps)
        return self.attention(qkv_bias=biased, out_bias=biased, qk_norm=norm, window=window)

    def architecture(self) -> Transformer:
        """Dense layers in front, experts behind; windows in the last. Raises ConfigError."""
        if self.v_head_dim not in (None, self.head_dim):
            raise self.refused("v_head_dim", self.v_head_dim)
        experts, dense = beside_shared(self, self.n_routed_experts, self.n_shared_experts), self.feed_forward()
        first = self.max_window_layers
        slides = windows(
            self.layer_types,
            self.num_hidden_layers,
            self.sliding_window,
            lambda number: self.sliding_window is not None and number >= first,
        )
        per_layer = [(window, number >= self.first_k_dense_replace) for number, window in enumerate(slides)]
        kinds = {
            (window, routed): self.block(self.of_window(window), experts if routed else dense)
            for window, routed in dict.fromkeys(per_layer)
        }
        return self.decoder([kinds[kind] for kind in per_layer])
