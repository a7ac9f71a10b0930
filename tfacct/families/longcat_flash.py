"""LongCat-Flash: two blocks of DeepSeek-V3's latent attention in each layer, and experts beside the first, whose result
joins the stream behind the second."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Experts
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Layers, Real, Switch, UpTo, Word
from tfacct.families._endings import DECODER
from tfacct.families._experts import check_active
from tfacct.families._latent_like import LatentLike

RELEASED = "2025-08"

ATTENTION = {
    **{f"attn.{name}": name for name in ("q_a_proj", "q_b_proj", "o_proj")},
    "attn.q_a_norm": "q_a_layernorm",
    "attn.kv_a_proj": "kv_a_proj_with_mqa",
    "attn.kv_a_norm": "kv_a_layernorm",
    "attn.k_b_proj": "kv_b_proj",
    "attn.v_b_proj": "kv_b_proj",
}
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def _of_block(number: int) -> dict[str, str]:
    """Our modules of one block → the class's, of which each layer holds two."""
    at, which = f"model.layers.{number // 2}", number % 2
    network = "mlp" if which else "mlp.shared"
    return {
        "attn_norm": f"{at}.input_layernorm.{which}",
        **{ours: f"{at}.self_attn.{which}.{theirs}" for ours, theirs in ATTENTION.items()},
        **{f"attn.{name}": f"{at}.self_attn.{which}" for name in ("scores", "values")},
        "mlp_norm": f"{at}.post_attention_layernorm.{which}",
        **{f"{network}.{name}": f"{at}.mlps.{which}.{name}" for name in PROJECTIONS},
        **({} if which else {"mlp.router": f"{at}.mlp.router"}),
        **({} if which else {f"mlp.experts.{name}": f"{at}.mlp.experts" for name in PROJECTIONS}),
    }


class Config(LatentLike):
    """`LongcatFlashConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 131072
    hidden_size: Count = 6144
    intermediate_size: Count = 12288
    num_layers: Layers = 28
    num_hidden_layers: Count | None = None  # type: ignore[assignment]  # the class reads num_layers, and twice
    num_attention_heads: Count = 64
    max_position_embeddings: Count = 131072
    rms_norm_eps: Real = 1e-5
    rope_theta: Real | None = 10_000_000.0
    q_lora_rank: Count = 1536
    moe_intermediate_size: Count = 2048
    n_routed_experts: Count = 512
    num_experts_per_tok: Count = 12
    zero_expert_num: UpTo | None = 256
    zero_expert_type: Word = "identity"
    router_bias: Switch = False
    mla_scale_q_lora: Switch = True
    mla_scale_kv_lora: Switch = True

    understood: ClassVar[Mapping[str, object]] = {
        **{"zero_expert_type": "identity", "router_bias": False, "tie_word_embeddings": False},
        **{"mla_scale_q_lora": True, "mla_scale_kv_lora": True},
    }
    uncounted: ClassVar = LatentLike.uncounted | {"num_hidden_layers", *understood}
    stems: ClassVar = ("LongcatFlash",)
    heads: ClassVar = {name: DECODER[name] for name in ("ForCausalLM", "Model")}
    aliases: ClassVar = {
        "ffn_hidden_size": "intermediate_size",
        "expert_ffn_hidden_size": "moe_intermediate_size",
        "moe_topk": "num_experts_per_tok",
        "num_local_experts": "n_routed_experts",
        "num_experts": "n_routed_experts",
    }
    harmless: ClassVar = LatentLike.harmless | frozenset({"routed_scaling_factor", "attention_method", "router_dtype"})

    @property
    def count(self) -> int:
        """Choices of the router that are no networks."""
        return self.zero_expert_num or 0

    def class_paths(self) -> Mapping[str, str]:
        """Block by block, for each layer of the class holds two."""
        blocks = {
            f"blocks.{n}.{ours}": their for n in range(2 * self.num_layers) for ours, their in _of_block(n).items()
        }
        return {"embed": "model.embed_tokens", **blocks, "final_norm": "model.norm", "lm_head": "lm_head"}

    def tensors(self) -> dict[str, str]:
        """Banks of experts, and the router's matrix, in every other block."""
        found = {}
        for layer in range(self.num_layers):
            ours, theirs = f"blocks.{2 * layer}.mlp", f"model.layers.{layer}.mlp"
            found[f"{ours}.router.weight"] = f"{theirs}.router.classifier.weight"
            for name in ("gate_proj", "up_proj"):
                found[f"{ours}.experts.{name}.weight"] = f"{theirs}.experts.gate_up_proj"
            found[f"{ours}.experts.down_proj.weight"] = f"{theirs}.experts.down_proj"
        return self.ending.renamed(found, self.body)

    def class_cannot(self) -> str | None:
        """It stores matrices for choices that are no networks, and runs on real numbers alone."""
        if self.count:
            return "it stores a matrix for each of the zero_expert_num choices that are no networks"
        return "its experts look for the tokens that are sent to each, and on the meta device there are none"

    def architecture(self) -> Transformer:
        """Two blocks in each layer, the first with experts beside its network. Raises ConfigError."""
        for name, understood in self.understood.items():
            if getattr(self, name) != understood:
                raise self.refused(name, getattr(self, name))
        if self.num_hidden_layers not in (None, self.num_layers, 2 * self.num_layers):
            raise ConfigError(
                f"num_hidden_layers = {self.num_hidden_layers:,} contradicts num_layers = {self.num_layers:,}, of two"
                " blocks each"
            )
        check_active(self.num_experts_per_tok, self.n_routed_experts, ("moe_topk", "n_routed_experts"))
        own: dict[str, Any] = {"idle": self.count or None, "late": True, "shared": self.intermediate_size}
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.n_routed_experts,
            active=self.num_experts_per_tok,
            width=self.moe_intermediate_size,
            activation=self.activation,
            **own,
        )
        attention = replace(self.latent(), stretched=True)
        pair = [self.block(attention, experts), self.block(attention, self.feed_forward())]
        return self.decoder(pair * self.num_layers)
