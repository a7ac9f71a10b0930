"""DeepSeek-V4: attention to a window and to compressed keys, several residual streams, experts in every block."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic_core import core_schema

from tfacct.architecture.blocks import Block, Sublayer, stacks
from tfacct.architecture.grouped import group
from tfacct.architecture.parts import (
    CompressedAttention,
    Embedding,
    Experts,
    Head,
    HyperConnection,
    HyperHead,
    Norm,
    Part,
    Rotary,
)
from tfacct.architecture.parts.projector import Learned, Linear, NamedTensors, Scaling
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import (
    Checked,
    Count,
    FamilyConfig,
    Fields,
    Fraction,
    Layers,
    Real,
    Switch,
    UpTo,
    Word,
    even,
    rotary,
    share,
    validate,
)
from tfacct.families._endings import DECODER
from tfacct.families._experts import BESIDE_PATHS, ROUTED_TENSORS, check_active
from tfacct.families._layers import LayerTypes, kinds_of_layers
from tfacct.families.mistral import Window
from tfacct.ledger import paths
from tfacct.ledger.groups import Ledger

RELEASED = "2026-04"

PLAIN, LIGHT, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
RATIOS = {0: PLAIN, 4: LIGHT, 128: HEAVY}
"""Kinds of layers as compress_ratios spells them, whatever compress_rates says."""
RATES = {LIGHT: 4, HEAVY: 128}
OLDER = {LIGHT: "compress_rate_csa", HEAVY: "compress_rate_hca"}
"""Fields of older files that say the same as compress_rates."""
NETWORKS = ("hash_moe", "moe")
PART = 64 / 512
"""Share of a head that is rotated, where the config does not say it."""
OF_INDEXER = {"index_n_heads", "index_head_dim", "index_topk"}
Ratios = Annotated[list[int], Checked(core_schema.list_schema(core_schema.int_schema(strict=True), strict=True))]
ATTENTION, LAYER = "model.layers.*.self_attn", "model.layers.*"
MIXED = {"attn": "attn", "mlp": "ffn"}
"""Sublayers, and how the class calls what mixes the streams around them."""
OF_STREAMS = {f"blocks.*.hc.{ours}.weights": f"{LAYER}.{theirs}_hc" for ours, theirs in MIXED.items()}
OF_STREAMS |= {"hc_head.weights": "model.hc_head"}
STREAM_TENSORS = {
    **{
        f"blocks.*.hc.{ours}.{tensor}": f"{LAYER}.{theirs}_hc.{name}"
        for ours, theirs in MIXED.items()
        for tensor, name in (("weights.weight", "fn"), ("base.bias", "base"), ("factors.weight", "scale"))
    },
    "hc_head.weights.weight": "model.hc_head.hc_fn",
    "hc_head.base.bias": "model.hc_head.hc_base",
    "hc_head.factor.weight": "model.hc_head.hc_scale",
}
"""Modules and tensors of what weighs the streams."""
MIXED_IN_FILES = (r"\.hc_(attn|ffn)_(fn|base|scale)$", r".\1_hc.\2")
"""How files spell its tensors."""
COMPRESSOR = ("kv_proj", "gate_proj", "kv_norm")


class Config(FamilyConfig):
    """`DeepseekV4Config`, with its class's defaults, sizes too."""

    vocab_size: Count = 129280
    hidden_size: Count = 4096
    moe_intermediate_size: Count = 2048
    num_hidden_layers: Layers = 43
    num_attention_heads: Count = 64
    num_key_value_heads: Count = 1
    head_dim: Count = 512
    q_lora_rank: Count = 1024
    qk_rope_head_dim: Count | None = None
    qk_nope_head_dim: Count | None = None
    partial_rotary_factor: Fraction | None = None
    num_experts_per_tok: Count = 6
    n_routed_experts: Count = 256
    n_shared_experts: UpTo = 1
    max_position_embeddings: Count = 1_048_576
    layer_types: LayerTypes | None = None
    compress_ratios: Ratios | None = None
    compress_rates: Fields | None = None
    compress_rate_csa: Count | None = None
    compress_rate_hca: Count | None = None
    compress_rope_theta: Real = 160_000.0
    hc_mult: Count = 4
    hc_sinkhorn_iters: Count = 20
    hc_eps: Real = 1e-6
    mlp_layer_types: LayerTypes | None = None
    num_hash_layers: UpTo | None = None
    swiglu_limit: Real = 10.0
    scoring_func: Word = "sqrtsoftplus"
    routed_scaling_factor: Real = 1.5
    sliding_window: Window = 128
    o_groups: Count = 8
    o_lora_rank: Count = 1024
    index_n_heads: Count = 64
    index_head_dim: Count = 128
    index_topk: Count = 512
    hidden_act: Word = "silu"
    rms_norm_eps: Real = 1e-6
    rope_theta: Real = 10_000.0
    rope_scaling: Fields | None = None
    rope_parameters: Fields | None = None
    tie_word_embeddings: Switch = False
    attention_bias: Switch = False
    mlp_bias: Switch = False
    dspark_target_layer_ids: list[UpTo] | None = None
    dspark_markov_rank: Count | None = None

    stems: ClassVar = ("DeepseekV4",)
    in_files: ClassVar = (
        (r"\.attn\.", ".self_attn."),
        (r"\.ffn\.", ".mlp."),
        (r"^(model\.)?embed\.", "model.embed_tokens."),
        (r"^(model\.)?head\.", "lm_head."),
        (r"(^|\.)hc_head_(fn|base|scale)$", r"\1hc_head.hc_\2"),
        MIXED_IN_FILES,
        (r"\.attn_norm\.", ".input_layernorm."),
        (r"\.ffn_norm\.", ".post_attention_layernorm."),
        (r"\.attn_sink$", ".sinks"),
        (r"\.indexer\.compressor\.", ".compressor.indexer."),
        (r"\.self_attn\.indexer\.wq_b\.", ".self_attn.compressor.indexer.q_b_proj."),
        (r"\.self_attn\.indexer\.", ".self_attn.compressor.indexer.scorer."),
        (r"(?<!^model)\.norm\.", ".kv_norm."),
        (r"\.q_norm\.", ".q_a_norm."),
        (r"\.ape$", ".position_bias"),
        (r"\.w(o_a|o_b|q_a|q_b|kv)\.", r".\1_proj."),
        (r"\.wgate\.", ".gate_proj."),
        (r"\.gate\.bias$", ".gate.e_score_correction_bias"),
        *(
            (rf"\.shared_experts\.w{n}\.", f".shared_experts.{name}_proj.")
            for n, name in enumerate(("gate", "down", "up"), 1)
        ),
    )
    fixed: ClassVar = frozenset({"Xf", "Xg"})
    dropouts: ClassVar = {"attention": ("attention_dropout", 0.0)}
    uncounted: ClassVar = frozenset(
        """
        num_key_value_heads n_shared_experts qk_nope_head_dim compress_rope_theta hc_sinkhorn_iters hc_eps
        num_hash_layers mlp_layer_types swiglu_limit scoring_func routed_scaling_factor
        dspark_target_layer_ids dspark_markov_rank
        hidden_act rms_norm_eps rope_theta rope_scaling rope_parameters attention_bias
        """.split()
    )
    aliases: ClassVar = {"num_local_experts": "n_routed_experts", "intermediate_size": "moe_intermediate_size"}
    kept_wide: ClassVar = tuple(
        f"self_attn.compressor.{name}"
        for name in ("kv_proj", "gate_proj", "indexer.kv_proj", "indexer.gate_proj", "indexer.scorer.weights_proj")
    )
    harmless: ClassVar = frozenset(
        "topk_method n_group topk_group expert_dtype rope_interleave compress_rope_parameters".split()
    )
    heads: ClassVar = DECODER
    class_differs: ClassVar = (
        "it keeps one token fewer of a window, and keys and values apart in blocks that compress nothing"
    )
    hf_paths: ClassVar = {
        "embed": "model.embed_tokens",
        "blocks.*.attn_norm": f"{LAYER}.input_layernorm",
        "blocks.*.mlp_norm": f"{LAYER}.post_attention_layernorm",
        **{
            f"blocks.*.attn.{name}": f"{ATTENTION}.{name}"
            for name in ("q_a_proj", "q_a_norm", "q_b_proj", "kv_proj", "kv_norm", "o_a_proj", "o_b_proj")
        },
        **{
            f"blocks.*.attn.{name}": ATTENTION
            for name in ("scores", "values", "compressed_scores", "compressed_values")
        },
        **{f"blocks.*.attn.compressor.{name}": f"{ATTENTION}.compressor.{name}" for name in COMPRESSOR},
        **{f"blocks.*.attn.compressor.indexer.{name}": f"{ATTENTION}.compressor.indexer.{name}" for name in COMPRESSOR},
        "blocks.*.attn.compressor.indexer.q_proj": f"{ATTENTION}.compressor.indexer.q_b_proj",
        "blocks.*.attn.compressor.indexer.scores": f"{ATTENTION}.compressor.indexer.scorer",
        "blocks.*.attn.compressor.indexer.weights_proj": f"{ATTENTION}.compressor.indexer.scorer.weights_proj",
        **BESIDE_PATHS,
        **OF_STREAMS,
        **{f"blocks.*.hc.{ours}.mix": LAYER for ours in ("attn", "mlp")},
        "final_norm": "model.norm",
        "lm_head": "lm_head",
    }
    hf_tensors: ClassVar = {
        **ROUTED_TENSORS,
        "blocks.*.attn.sinks.weight": f"{ATTENTION}.sinks",
        "blocks.*.attn.compressor.position_bias.bias": f"{ATTENTION}.compressor.position_bias",
        "blocks.*.attn.compressor.indexer.position_bias.bias": f"{ATTENTION}.compressor.indexer.position_bias",
        **STREAM_TENSORS,
    }

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked fields; no default is taken of an indexer that no layer has."""
        config, defaulted, unknown = validate(cls, raw)
        assert isinstance(config, cls)
        silent = set() if LIGHT in config.kinds() else OF_INDEXER
        return config, {name: value for name, value in defaulted.items() if name not in silent}, unknown

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    def kinds(self) -> list[str]:
        """Kind of each layer's attention; a longer list names layers that are not counted. Raises ConfigError."""
        count = self.num_hidden_layers
        if self.layer_types is not None:
            return kinds_of_layers(self.layer_types[:count], count, (*RATES, PLAIN))
        if self.compress_ratios is None:
            return [LIGHT if number > 1 and number % 2 else HEAVY for number in range(count)]
        for number, ratio in enumerate(self.compress_ratios):
            if ratio not in RATIOS:
                raise ConfigError(f"compress_ratios[{number}] = {ratio:,} is not understood: write 0, 4 or 128")
        kinds = [RATIOS[ratio] for ratio in self.compress_ratios[:count]]
        return kinds_of_layers(kinds, count, (*RATES, PLAIN), "compress_ratios")

    def rate(self, kind: str) -> int:
        """Tokens that a compressed key of this kind is made of. Raises ConfigError."""
        given = self.compress_rates or RATES
        for name, value in given.items():
            if name not in RATES or not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise self.refused(f"compress_rates.{name}", value)
        found = getattr(self, OLDER[kind]) or given.get(kind)
        if found is None:
            raise ConfigError(f"compress_rates has no {kind}, which a layer has")
        return int(found)

    def turned(self) -> int:
        """Number of a head's elements that are rotated. Raises ConfigError."""
        size, part = self.head_dim, self.partial_rotary_factor
        if part is None:
            part = PART if self.qk_rope_head_dim is None else self.qk_rope_head_dim / size
        turned = even(int(size * part), "rotated elements of a head:")
        if turned > size:
            raise ConfigError(f"qk_rope_head_dim = {turned:,}, but a head has head_dim = {size:,} elements")
        if self.qk_rope_head_dim not in (None, turned):
            raise ConfigError(
                f"qk_rope_head_dim = {self.qk_rope_head_dim:,} contradicts partial_rotary_factor = {part}"
            )
        if self.qk_nope_head_dim not in (None, size - turned):
            raise ConfigError(
                f"qk_nope_head_dim = {self.qk_nope_head_dim:,}, but {turned:,} of head_dim = {size:,} elements"
                " are rotated"
            )
        return turned

    def angles(self, kind: str) -> Rotary:
        """Angles of a kind of layers: a base of its own, and a scaling, where tokens are compressed."""
        spelled, label = self.rope_parameters or {}, "main" if kind == PLAIN else "compress"
        if isinstance(spelled.get(label), Mapping):
            return rotary(self.rope_theta, None, spelled[label])._replace(pairs="neighbours")
        if kind == PLAIN:
            return Rotary(self.rope_theta, None, "neighbours")
        scaling = {**(self.rope_scaling or spelled), "rope_theta": self.compress_rope_theta}
        return Rotary(self.compress_rope_theta, scaling, "neighbours")

    def attending(self, kind: str) -> CompressedAttention:
        """Attention of a kind of layers. Raises ConfigError."""
        turned, own = self.turned(), dict[str, Any]()
        if kind == LIGHT:
            own = {"index_heads": self.index_n_heads, "index_dim": self.index_head_dim, "index_top": self.index_topk}
            if self.index_head_dim < turned:
                raise ConfigError(
                    f"index_head_dim = {self.index_head_dim:,} must be at least {turned:,}, the rotated elements of a"
                    " head"
                )
        return CompressedAttention(
            hidden=self.hidden_size,
            groups=self.o_groups,
            group_heads=share(self.num_attention_heads, self.o_groups, "num_attention_heads by o_groups"),
            head_dim=self.head_dim,
            rope_dim=turned,
            q_rank=self.q_lora_rank,
            out_rank=self.o_lora_rank,
            window=self.sliding_window,
            light=self.rate(kind) if kind == LIGHT else None,
            heavy=self.rate(kind) if kind == HEAVY else None,
            eps=self.rms_norm_eps,
            rotary=self.angles(kind),
            **own,
        )

    def refuse(self) -> None:
        """Refuse what the class does not have. Raises ConfigError."""
        for name, only in (("attention_bias", False), ("num_key_value_heads", 1), ("n_shared_experts", 1)):
            if getattr(self, name) != only:
                raise self.refused(name, getattr(self, name))
        if self.mlp_layer_types is not None:
            count = self.num_hidden_layers
            kinds_of_layers(self.mlp_layer_types[:count], count, NETWORKS, "mlp_layer_types")
        check_active(self.num_experts_per_tok, self.n_routed_experts, ("num_experts_per_tok", "n_routed_experts"))

    def architecture(self) -> Transformer:
        """Blocks of up to three kinds of attention, each with experts, between several streams and their sum."""
        self.refuse()
        hidden, eps = self.hidden_size, self.rms_norm_eps
        norm = Norm(hidden=hidden, kind="rms", eps=eps)
        experts = Experts(
            hidden=hidden,
            experts=self.n_routed_experts,
            active=self.num_experts_per_tok,
            width=self.moe_intermediate_size,
            shared_alike=True,
            shared_bias=self.mlp_bias,
            scoring=self.scoring_func,
            scaling=self.routed_scaling_factor,
            bound=self.swiglu_limit,
            activation=self.hidden_act,
        )
        how: dict[str, Any] = {"hidden": hidden, "streams": self.hc_mult, "eps": self.hc_eps, "norm_eps": eps}
        hyper = HyperConnection(**how, rounds=self.hc_sinkhorn_iters)
        kinds = self.kinds()
        made = {
            kind: Block((Sublayer(self.attending(kind), norm), Sublayer(experts, norm)), hyper=hyper)
            for kind in dict.fromkeys(kinds)
        }
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            stacks=stacks([made[kind] for kind in kinds]),
            hyper=HyperHead(**how),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )

    def with_further_layers(self) -> Ledger | None:
        """Ledger with the layers of a DSpark draft, as files of DeepSeek-V4-Flash-DSpark have them under `mtp`: blocks
        that compress nothing, what joins the layers that they read, and the draft's heads."""
        layers, rank = len(self.dspark_target_layer_ids or ()), self.dspark_markov_rank
        count = self.num_hidden_layers + layers
        if not layers or rank is None or (self.compress_ratios or [])[self.num_hidden_layers : count] != [0] * layers:
            return None
        hidden, streams, vocab = self.hidden_size, self.hc_mult, self.vocab_size
        draft = NamedTensors(
            (
                Linear("main_proj", layers * hidden, hidden, bias=False),
                Scaling("main_norm", hidden),
                Scaling("norm", hidden),
                Learned("markov_head.markov_w1", (vocab, rank)),
                Learned("markov_head.markov_w2", (vocab, rank)),
                Learned("confidence_head.proj", (1, hidden + rank)),
                Learned("hc_head_fn", (streams, streams * hidden)),
                Learned("hc_head_base", (streams,)),
                Learned("hc_head_scale", (1,)),
            )
        )
        with_blocks = self.model_copy(update={"num_hidden_layers": count}).transformer().ledger()
        return Ledger((*with_blocks.groups, group([(paths.in_every(paths.MTP, "draft"), draft)], {}, 1, range(1))))

    def class_keeps(self) -> Transformer:
        """A transformer that keeps what the class keeps: one token fewer of a window, whose keys stand there twice
        where nothing is compressed."""

        def kept(part: Part) -> Part:
            if not isinstance(part, CompressedAttention):
                return part
            return replace(part, window=part.window - 1, twice=part.kind is None)

        return self.transformer().mapped(kept)
