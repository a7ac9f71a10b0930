"""Trinity (AFMoE): gated attention, norms around every sublayer; windowed layers alone are rotated; experts."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, Embedding, Experts, FeedForward, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch, UpTo
from tfacct.families._endings import DECODER
from tfacct.families._experts import BESIDE_PATHS, CHOICE, ROUTED_TENSORS, beside_shared
from tfacct.families._layers import LayerTypes, windows
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2025-12"


class Config(LlamaLike):
    """`AfmoeConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 200192
    hidden_size: Count = 2048
    intermediate_size: Count = 6144
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 16
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    head_dim: Count = 128
    max_position_embeddings: Count = 16384
    rms_norm_eps: Real = 1e-5
    attention_bias: Switch = False
    moe_intermediate_size: Count = 1408
    num_experts: Count = 64
    num_experts_per_tok: Count = 6
    num_shared_experts: UpTo = 2
    num_dense_layers: UpTo = 1
    sliding_window: Window | None = 1024
    global_attn_every_n_layers: Count = 4
    layer_types: LayerTypes | None = None
    mup_enabled: Switch = False

    stems: ClassVar = ("Afmoe",)
    uncounted: ClassVar = LlamaLike.uncounted | {"mup_enabled"}
    harmless: ClassVar = frozenset(
        """
        route_scale route_norm score_func n_group topk_group num_expert_groups num_limited_groups load_balance_coeff
        use_grouped_mm
        """.split()
    )
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **BESIDE_PATHS,
        "blocks.*.mlp.router": "model.layers.*.mlp.router.gate",
        **QK_NORM_PATHS,
        "blocks.*.attn.gate_proj": "model.layers.*.self_attn.gate_proj",
        "blocks.*.attn_post_norm": "model.layers.*.post_attention_layernorm",
        "blocks.*.mlp_norm": "model.layers.*.pre_mlp_layernorm",
        "blocks.*.mlp_post_norm": "model.layers.*.post_mlp_layernorm",
    }
    hf_tensors: ClassVar = {**ROUTED_TENSORS, CHOICE: "model.layers.*.mlp.expert_bias"}

    def of_window(self, window: int | None) -> Attention:
        """Attention of a layer with this window; without one it is not rotated."""
        biased, norm = self.attention_bias, QKNorm(self.rms_norm_eps)
        turned = {} if window is not None else {"rotary": None}
        return self.attention(
            qkv_bias=biased, out_bias=biased, qk_norm=norm, window=window, gated=True, gate_bias=False, **turned
        )

    def around(self, attention: Attention, network: FeedForward | Experts) -> Block:
        """Norms before and behind attention and network."""
        norm = self.norm()
        return Block.of(attention, network, norm=norm, post_norm=norm)

    def architecture(self) -> Transformer:
        """Dense layers in front, experts behind; windows in all layers but every few."""
        experts = beside_shared(self, self.num_experts, self.num_shared_experts, choice_bias=True)
        slides = windows(
            self.layer_types,
            self.num_hidden_layers,
            self.sliding_window,
            lambda number: (number + 1) % self.global_attn_every_n_layers != 0,
        )
        per_layer = [(window, number >= self.num_dense_layers) for number, window in enumerate(slides)]
        kinds = {
            (window, routed): self.around(self.of_window(window), experts if routed else self.feed_forward())
            for window, routed in dict.fromkeys(per_layer)
        }
        embed = Embedding(vocab=self.vocab_size, hidden=self.hidden_size, scaled=self.mup_enabled)
        return self.decoder([kinds[kind] for kind in per_layer], embed=embed)
