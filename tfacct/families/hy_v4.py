"""Hunyuan V4: GLM-5's indexed attention, gated and with sinks, between several streams that nothing mixes."""

from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.blocks import Added, Block, Sublayer, stacks
from tfacct.architecture.parts import Embedding, Head, HyperConnection, HyperHead, LatentAttention
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, UpTo
from tfacct.families._experts import beside_shared, check_first_dense
from tfacct.families._indexed import Indexed
from tfacct.families.deepseek_v4 import OF_STREAMS, STREAM_TENSORS
from tfacct.families.glm_moe_dsa import Kinds, check_first_chooses

RELEASED = "2026-08"


class Config(Indexed):
    """`HYV4Config`, with its class's defaults, sizes too."""

    vocab_size: Count = 120832
    hidden_size: Count = 2816
    intermediate_size: Count = 6912
    moe_intermediate_size: Count = 768
    num_hidden_layers: Layers = 34
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 32
    max_position_embeddings: Count = 262144
    rms_norm_eps: Real = 1e-5
    q_lora_rank: Count = 1536
    qk_nope_head_dim: Count = 192
    v_head_dim: Count = 256
    first_k_dense_replace: UpTo | None = None  # type: ignore[assignment]
    index_n_heads: Count = 16
    indexer_types: Kinds | None = None
    hc_mult: Count = 4
    hc_magnitude: Real = 2.0
    hc_eps: Real = 1e-6

    stems: ClassVar = ("HYV4",)
    in_files: ClassVar = (
        (r"\.hc_pre\.hc_", ".hc_"),
        (r"\.hc_attn_layer\.hc_", ".attn_hc."),
        (r"\.hc_mlp_layer\.hc_", ".ffn_hc."),
        (r"\.hc_head_(fn|base|scale)$", r".hc_\1"),
        (r"\.learnable_sink_param$", ".sinks"),
        (r"\.linear_gate\.", ".gate_proj."),
    )
    fixed: ClassVar = Indexed.fixed | {"Xl", "Xg"}
    uncounted: ClassVar = Indexed.uncounted | {"first_k_dense_replace", "hc_magnitude", "hc_eps"}
    harmless: ClassVar = Indexed.harmless | {"learnable_sink_init", "swiglu_limit", "norm_topk_prob"}
    kept_wide: ClassVar = ("self_attn.indexer.weights_proj", "lm_head")
    hf_paths: ClassVar = {
        **Indexed.hf_paths,
        "blocks.*.attn.gate_proj": "model.layers.*.self_attn.gate_proj",
        **OF_STREAMS,
    }
    hf_tensors: ClassVar = {
        **Indexed.hf_tensors,
        "blocks.*.attn.sinks.weight": "model.layers.*.self_attn.sinks",
        **STREAM_TENSORS,
    }

    def chooses(self) -> list[bool]:
        """Booleans, one for each layer: whether it has an indexer. Raises ConfigError."""
        layers = self.num_hidden_layers
        if self.indexer_types is None:
            return [number == 0 or (number - 1) % 4 == 0 for number in range(layers)]
        return check_first_chooses([kind == "full" for kind in self.indexer_types], layers)

    def routed(self) -> list[bool]:
        """Booleans, one for each layer: whether it has experts. Raises ConfigError."""
        found = [number > 0 for number in range(self.num_hidden_layers)]
        found = found if self.mlp_layer_types is None else super().routed()
        check_first_dense(self.first_k_dense_replace, found)
        return found

    def choosing(self, **own: Any) -> LatentAttention:
        """Latent attention with an indexer, sinks and a gate."""
        made = super().choosing(**own, gated=True, gates="channels", sinks=True, index_last=True)
        assert made.rotary is not None
        return replace(made, rotary=made.rotary._replace(pairs="halves"))

    def architecture(self) -> Transformer:
        """Layers that choose keys, and layers that follow, between several streams and their sum."""
        self.refuse()
        how: dict[str, Any] = {"hidden": self.hidden_size, "streams": self.hc_mult, "eps": self.hc_eps}
        how["norm_eps"] = self.rms_norm_eps
        hyper = HyperConnection(**how, mixes=False, most=self.hc_magnitude)
        attentions = {chooses: self.choosing(follows=not chooses) for chooses in (True, False)}
        experts = beside_shared(self, self.n_routed_experts, self.n_shared_experts)
        networks: dict[bool, Added] = {True: experts, False: self.feed_forward()}
        norm, per_layer = self.norm(), list(zip(self.chooses(), self.routed(), strict=True))
        made = {
            (chooses, routed): Block(
                (Sublayer(attentions[chooses], norm), Sublayer(networks[routed], norm)), hyper=hyper
            )
            for chooses, routed in dict.fromkeys(per_layer)
        }
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=self.hidden_size),
            stacks=stacks([made[layer] for layer in per_layer]),
            hyper=HyperHead(**how),
            final_norm=norm,
            head=Head(hidden=self.hidden_size, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )
