"""MiniMax-M3's language model: grouped-query attention to blocks of keys that an indexer chooses, experts beside a
shared network."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tfacct.architecture.parts import Attention, Blocks, Experts, FeedForward, Norm, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import (
    Count,
    FamilyConfig,
    Fields,
    Fraction,
    Layers,
    Real,
    UpTo,
    even,
    shown,
    turned_part,
    validate,
)
from tfacct.families._endings import BODY, CAUSAL_MODEL, Ending
from tfacct.families._experts import BESIDE_PATHS, ROUTED_TENSORS, LayerNetworks, check_active, check_first_dense
from tfacct.families._layers import FULL, Flags, LayerTypes, kinds_of_layers
from tfacct.families._llama_like import LlamaLike

RELEASED = "2026-06"

SPARSE = "minimax_m3_sparse"
OF_INDEXER: Mapping[str, str] = {
    "sparse_num_index_heads": "index_n_heads",
    "sparse_index_dim": "index_head_dim",
    "sparse_block_size": "index_block_size",
    "sparse_topk_blocks": "index_topk_blocks",
    "sparse_local_block": "index_local_blocks",
}
"""Sizes as sparse_attention_config spells them, which the class takes in place of its own fields."""
OF_EXPERTS = {"num_local_experts", "num_experts_per_tok", "intermediate_size", "shared_intermediate_size"}
"""Fields that say something of layers of experts only."""
FREQUENCY = "sparse_attention_freq"
SILENT = frozenset(("use_sparse_attention", "sparse_score_type", "sparse_init_block", "sparse_disable_index_value"))
ATTENTION = "model.layers.*.self_attn"
FUSED = dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj") | {"down_proj": "down_proj"}


class Config(LlamaLike):
    """`MiniMaxM3VLTextConfig`, with its class's defaults, sizes too. intermediate_size is the width of one expert,
    dense_intermediate_size that of a dense layer."""

    vocab_size: Count = 200064
    hidden_size: Count = 6144
    intermediate_size: Count = 3072
    dense_intermediate_size: Count = 12288
    shared_intermediate_size: Count = 3072
    num_hidden_layers: Layers = 60
    num_attention_heads: Count = 64
    num_key_value_heads: Count = 4
    head_dim: Count = 128
    max_position_embeddings: Count = 524288
    rope_theta: Real | None = 5_000_000.0
    rotary_dim: Count | None = None
    partial_rotary_factor: Fraction | None = None
    num_local_experts: Count = 128
    num_experts_per_tok: Count = 4
    mlp_layer_types: LayerNetworks | None = None
    moe_layer_freq: Flags | None = None
    first_k_dense_replace: UpTo | None = None
    moe_intermediate_size: Count | None = None
    layer_types: LayerTypes | None = None
    sparse_attention_config: Fields | None = None
    index_n_heads: Count = 4
    index_head_dim: Count = 128
    index_block_size: Count = 128
    index_topk_blocks: Count = 16
    index_local_blocks: UpTo = 1

    stems: ClassVar = ("MiniMaxM3VL", "MiniMaxM3VLText", "MiniMaxM3Sparse", "MiniMaxM3")
    uncounted: ClassVar = LlamaLike.uncounted | {
        "rotary_dim",
        "partial_rotary_factor",
        "index_block_size",
        "index_topk_blocks",
        "index_local_blocks",
        "first_k_dense_replace",
        "moe_intermediate_size",
    }
    aliases: ClassVar = {"num_experts": "num_local_experts"}
    harmless: ClassVar = frozenset(
        """
        routed_scaling_factor swiglu_alpha swiglu_limit scoring_func use_routing_bias use_qk_norm qk_norm_type
        use_gemma_norm n_shared_experts
        attention_output_gate
        """.split()
    )
    heads: ClassVar[Mapping[str, Ending]] = {
        "ForCausalLM": CAUSAL_MODEL,
        "Model": BODY,
        "ForConditionalGeneration": CAUSAL_MODEL,  # the same head, behind images too
    }
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **BESIDE_PATHS,
        **{f"blocks.*.mlp.{name}": f"model.layers.*.mlp.{theirs}" for name, theirs in FUSED.items()},
        **{
            f"blocks.*.mlp.shared.{name}": f"model.layers.*.mlp.shared_experts.{theirs}"
            for name, theirs in FUSED.items()
        },
        **{f"blocks.*.attn.{name}": f"{ATTENTION}.{name}" for name in ("q_norm", "k_norm")},
        **{
            f"blocks.*.attn.indexer.{name}": f"{ATTENTION}.indexer.{name}"
            for name in ("q_proj", "k_proj", "q_norm", "k_norm")
        },
        "blocks.*.attn.indexer.scores": f"{ATTENTION}.indexer",
    }
    hf_tensors: ClassVar = ROUTED_TENSORS
    gotchas: ClassVar = (
        "In layers of minimax_m3_sparse an indexer scores every token's key with index_n_heads heads of index_head_dim,"
        " and each of its heads chooses index_topk_blocks blocks of index_block_size keys for a token; its keys are a"
        " third cache. Attention is counted over all keys, as transformers runs it, and under --masked over those up to"
        " the token: which blocks are chosen is not taken off.",
        "sparse_attention_config says the same in other words; where it is there, the class takes its sizes."
        " moe_layer_freq is mlp_layer_types in numbers: 1 is sparse.",
        "Layers of experts have a shared network of shared_intermediate_size beside them. The router's bias is a buffer"
        " in the class and not a parameter here. Layers that predict further tokens are not counted, as in the class.",
        "The class rotates the share of a head that rope_parameters.partial_rotary_factor says, all of it without; it"
        " does not read rotary_dim, which other programs take. No product depends on it.",
    )

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked fields; no default is taken of what no layer has, or sparse_attention_config says."""
        config, defaulted, unknown = validate(cls, raw)
        assert isinstance(config, cls)
        routed, sparse = config.routed(), any(config.sparse())
        silent = {name for name in OF_INDEXER.values() if not sparse or name in config.said()}
        silent |= set() if any(routed) else OF_EXPERTS
        silent |= {"dense_intermediate_size"} if all(routed) else set()
        return config, {name: value for name, value in defaulted.items() if name not in silent}, unknown

    def said(self) -> dict[str, Any]:
        """Sizes of the indexer as sparse_attention_config has them, and its list of layers. Raises ConfigError."""
        found: dict[str, Any] = {}
        for name, value in (self.sparse_attention_config or {}).items():
            if name in SILENT:
                continue
            whole = isinstance(value, int) and not isinstance(value, bool)
            if name in OF_INDEXER and whole and value >= (0 if name == "sparse_local_block" else 1):
                found[OF_INDEXER[name]] = value
            elif name == FREQUENCY and isinstance(value, Sequence) and all(one in (0, 1) for one in value):
                found[FREQUENCY] = value
            else:
                raise self.refused(f"sparse_attention_config.{name}", value)
        return found

    def sparse(self) -> list[bool]:
        """Booleans, one for each layer: whether an indexer chooses its keys. Raises ConfigError."""
        given, listed = self.layer_types, self.said().get(FREQUENCY)
        if given is None and listed is not None:
            given = [SPARSE if one else FULL for one in listed]
        if given is None:
            return [False] * self.num_hidden_layers
        return [kind == SPARSE for kind in kinds_of_layers(given, self.num_hidden_layers, (FULL, SPARSE))]

    def routed(self) -> list[bool]:
        """Booleans, one for each layer: whether it has experts. Raises ConfigError."""
        given = self.mlp_layer_types
        if given is None and self.moe_layer_freq is not None:
            given = ["sparse" if one else "dense" for one in self.moe_layer_freq]
        if given is None:
            return [True] * self.num_hidden_layers
        kinds = kinds_of_layers(given, self.num_hidden_layers, ("dense", "sparse"), "mlp_layer_types")
        check_first_dense(self.first_k_dense_replace, [kind == "sparse" for kind in kinds])
        return [kind == "sparse" for kind in kinds]

    def turned(self) -> int:
        """Number of a head's elements that are rotated. Raises ConfigError."""
        part = turned_part(self.partial_rotary_factor or 1.0, self.rope_parameters)
        turned = self.rotary_dim if part == 1.0 and self.rotary_dim is not None else int(self.head_dim * part)
        if turned > self.head_dim:
            raise ConfigError(f"rotary_dim = {turned:,}, but a head has head_dim = {self.head_dim:,} elements")
        return even(turned, "rotated elements of a head:")

    def norm(self) -> Norm:
        """RMSNorm whose stored weight is the scale less 1."""
        return Norm(hidden=self.hidden_size, kind="rms", eps=self.rms_norm_eps, less_one=True)

    def attending(self, *, sparse: bool) -> Attention:
        """Attention of one kind of layers. Raises ConfigError."""
        own: dict[str, Any] = {"rope_dim": self.turned(), "qk_norm": QKNorm(self.rms_norm_eps, less_one=True)}
        if not sparse:
            return self.attention(**own)
        sizes = {name: self.said().get(name, getattr(self, name)) for name in OF_INDEXER.values()}
        heads, size = sizes["index_n_heads"], sizes["index_head_dim"]
        if self.num_attention_heads % heads:
            raise ConfigError(f"num_attention_heads: {self.num_attention_heads:,} is not divisible by {heads:,}")
        if size < self.turned():
            raise ConfigError(
                f"index_head_dim = {shown(size)} must be at least {self.turned():,}, the rotated elements of a head"
            )
        chosen = Blocks(sizes["index_block_size"], sizes["index_topk_blocks"], sizes["index_local_blocks"])
        return self.attention(**own, index_heads=heads, index_dim=size, chosen=chosen)

    def architecture(self) -> Transformer:
        """Attention to all keys or to chosen ones, a network or experts, in four kinds of blocks at most."""
        if self.moe_intermediate_size not in (None, self.intermediate_size):  # the class does not read it
            raise ConfigError(
                f"moe_intermediate_size = {self.moe_intermediate_size:,} contradicts intermediate_size ="
                f" {self.intermediate_size:,}, the width of an expert"
            )
        check_active(self.num_experts_per_tok, self.num_local_experts, ("num_experts_per_tok", "num_local_experts"))
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.num_local_experts,
            active=self.num_experts_per_tok,
            width=self.intermediate_size,
            shared=self.shared_intermediate_size,
            activation="swigluoai",
        )
        dense = FeedForward(
            hidden=self.hidden_size, width=self.dense_intermediate_size, gated=True, activation="swigluoai"
        )
        per_layer = list(zip(self.sparse(), self.routed(), strict=True))
        made = {
            (sparse, routed): self.block(self.attending(sparse=sparse), experts if routed else dense)
            for sparse, routed in dict.fromkeys(per_layer)
        }
        return self.decoder([made[kind] for kind in per_layer])
