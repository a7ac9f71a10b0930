"""ZAYA1: attention whose queries and keys pass convolutions, and experts whose router is a network that goes on from
that of the layer before."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Sublayer, stacks
from tfacct.architecture.parts import ConvolvedAttention, Embedding, Experts, Head, Norm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Fields, Layers, Real, Switch, Word, even, share, turned_part
from tfacct.families._endings import CAUSAL_MODEL
from tfacct.families._experts import ROUTED_TENSORS
from tfacct.families._layers import LayerTypes, kinds_of_layers
from tfacct.ledger.workload import Workload

RELEASED = "2025-11"

FULL, SLIDING = "hybrid", "hybrid_sliding"
LAYER = "model.layers.*"
PROJECTION, ROUTER = f"{LAYER}.self_attn.qkv_proj", f"{LAYER}.mlp.gate"
BASES = {FULL: 5_000_000.0, SLIDING: 10_000.0}


class Config(FamilyConfig):
    """`ZayaConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 262272
    hidden_size: Count = 2048
    num_hidden_layers: Layers = 40
    num_attention_heads: Count = 8
    num_key_value_heads: Count = 2
    head_dim: Count = 128
    hidden_act: Word = "silu"
    max_position_embeddings: Count = 131072
    rms_norm_eps: Real = 1e-5
    tie_word_embeddings: Switch = True
    rope_parameters: Fields | None = None
    sliding_window: Count | None = None
    layer_types: LayerTypes | None = None
    attention_bias: Switch = False
    lm_head_bias: Switch = False
    moe_intermediate_size: Count = 2048
    num_experts: Count = 16
    num_experts_per_tok: Count = 1
    router_hidden_size: Count = 256
    cca_time0: Count = 2
    cca_time1: Count = 2

    dropouts: ClassVar = {"attention": ("attention_dropout", 0.0)}
    uncounted: ClassVar = frozenset({"hidden_act", "rms_norm_eps", "rope_parameters"})
    fixed: ClassVar = frozenset(("A", "Ez"))
    stems: ClassVar = ("Zaya",)
    heads: ClassVar = {"ForCausalLM": CAUSAL_MODEL}
    class_extra: ClassVar = (
        "it makes late values of a token of zeros in front of the first one, whose result is zero, or their bias"
    )
    hf_paths: ClassVar = {
        "embed": "model.embed_tokens",
        "blocks.*.attn_norm": f"{LAYER}.input_layernorm",
        "blocks.*.attn.q_proj": f"{PROJECTION}.q_proj",
        "blocks.*.attn.k_proj": f"{PROJECTION}.k_proj",
        "blocks.*.attn.v_proj": f"{PROJECTION}.v_proj_current",
        "blocks.*.attn.late_v_proj": f"{PROJECTION}.v_proj_delayed",
        "blocks.*.attn.conv": f"{PROJECTION}.conv_qk_depthwise",
        "blocks.*.attn.conv_again": f"{PROJECTION}.conv_qk_depthwise",
        "blocks.*.attn.mixing_conv": f"{PROJECTION}.conv_qk_grouped",
        "blocks.*.attn.scores": f"{LAYER}.self_attn",
        "blocks.*.attn.values": f"{LAYER}.self_attn",
        "blocks.*.attn.o_proj": f"{LAYER}.self_attn.o_proj",
        "blocks.*.mlp_norm": f"{LAYER}.post_attention_layernorm",
        "blocks.*.mlp.router.down_proj": f"{ROUTER}.down_proj",
        **{f"blocks.*.mlp.router.{name}": f"{ROUTER}.router_mlp.{name}" for name in ("norm", "fc1", "fc2", "out_proj")},
        **{f"blocks.*.mlp.experts.{name}_proj": f"{LAYER}.mlp.experts" for name in ("gate", "up", "down")},
        "final_norm": "model.norm",
        "lm_head": "lm_head",
    }
    hf_tensors: ClassVar = {
        **ROUTED_TENSORS,
        "embed.shift.weight": "model.input_hidden_states_scale",
        "embed.shift.bias": "model.input_hidden_states_bias",
        "blocks.*.attn.k_factor.weight": f"{LAYER}.self_attn.qk_norm.temp",
        "blocks.*.mlp.router.follow.weight": f"{ROUTER}.router_states_scale",
        **{
            f"blocks.*.{ours}_add.{gate}.{tensor}": f"{LAYER}.post_{theirs}_residual_scale.{what}_{named}"
            for ours, theirs in (("attn", "attention"), ("mlp", "mlp"))
            for gate, what in (("gate", "hidden_states"), ("stream_gate", "residual"))
            for tensor, named in (("weight", "scale"), ("bias", "bias"))
        },
    }

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    def windows(self) -> list[int | None]:
        """The window of each layer, None where it sees everything. Raises ConfigError."""
        layers = self.num_hidden_layers
        kinds = kinds_of_layers(self.layer_types or [FULL] * layers, layers, (FULL, SLIDING))
        if SLIDING in kinds and self.sliding_window is None:
            raise ConfigError(f"layer {kinds.index(SLIDING)} is {SLIDING}, but sliding_window is null")
        return [self.sliding_window if kind == SLIDING else None for kind in kinds]

    def turned(self, window: int | None) -> tuple[Rotary, int | None]:
        """Angles of a kind of layer, and how many numbers of a head they turn, None for all. Raises ConfigError."""
        kind = FULL if window is None else SLIDING
        given = self.rope_parameters
        spelled: Any = {"rope_theta": BASES[kind], "partial_rotary_factor": 0.5} if given is None else given.get(kind)
        if not isinstance(spelled, Mapping):
            raise ConfigError(f"rope_parameters must have the angles of {kind}")
        size = int(self.head_dim * turned_part(1.0, spelled))
        even(size, "head_dim · partial_rotary_factor")
        return Rotary(spelled.get("rope_theta") or BASES[kind], spelled), None if size == self.head_dim else size

    def attention(self, window: int | None) -> ConvolvedAttention:
        """Attention of a layer with this window. Raises ConfigError."""
        for name in ("cca_time0", "cca_time1"):
            if getattr(self, name) < 2:
                raise self.refused(name, getattr(self, name))
        rotary, turned = self.turned(window)
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        return ConvolvedAttention(
            hidden=self.hidden_size,
            kv_heads=kv_heads,
            group=share(heads, kv_heads, "num_attention_heads by num_key_value_heads"),
            half=even(self.head_dim) // 2,
            first=self.cca_time0 - 1,
            second=self.cca_time1 - 1,
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            rotary=rotary,
            rope_dim=turned,
            window=window,
        )

    def experts(self, *, follows: bool) -> Experts:
        """Experts of a layer; the router of the first one follows none."""
        return Experts(
            hidden=self.hidden_size,
            experts=self.num_experts,
            active=1,
            width=self.moe_intermediate_size,
            idle=1,
            activation=self.hidden_act,
            router_width=self.router_hidden_size,
            router_eps=self.rms_norm_eps,
            follows=follows,
        )

    def architecture(self) -> Transformer:
        """Blocks of each window, of which the first has a router of its own. Raises ConfigError."""
        if self.num_experts_per_tok != 1:
            raise self.refused("num_experts_per_tok", self.num_experts_per_tok)
        norm = Norm(hidden=self.hidden_size, kind="rms", eps=self.rms_norm_eps)

        def block(window: int | None, follows: bool) -> Block:
            parts = self.attention(window), self.experts(follows=follows)
            return Block(tuple(Sublayer(part, norm, scaled=True) for part in parts))

        kinds = [(window, number > 0) for number, window in enumerate(self.windows())]
        built = {kind: block(*kind) for kind in dict.fromkeys(kinds)}
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=self.hidden_size, shifted=True),
            stacks=stacks([built[kind] for kind in kinds]),
            final_norm=norm,
            head=Head(
                hidden=self.hidden_size, vocab=self.vocab_size, tied=self.tie_word_embeddings, bias=self.lm_head_bias
            ),
        )

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """Late values of a token of zeros, where nothing was kept before."""
        return {"blocks.*.attn.late_v_proj": 1} if work.tokens == work.context else {}
