"""DeepSeek-V4: attention to a window and to compressed keys, several residual streams, experts in every layer."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar, Literal

from pydantic import StrictInt

from tfacct.architecture.grouped import group
from tfacct.architecture.parts import Part, Rotary, SelfAttention
from tfacct.architecture.parts.attention import Compression
from tfacct.architecture.parts.indexer import LEGEND as INDEXER_LEGEND
from tfacct.architecture.parts.projector import Learned, Linear, NamedTensors, Scaling
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.families.decoder import EXPERT_MODULES, EXPERT_TENSORS, Decoder, Window
from tfacct.families.family import mlp_modules, submodules
from tfacct.families.fields import (
    Fraction,
    JsonDict,
    LayerCount,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
    divide_exactly,
    is_size,
    read_rope,
    require_even,
)
from tfacct.families.hyper_connections import PUBLISHED_HYPER_CONNECTIONS, HyperConnected
from tfacct.families.layer_kinds import LayerTypes, validated_layer_types
from tfacct.families.task_heads import DECODER
from tfacct.ledger import paths
from tfacct.ledger.einsum import Mask, Size
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import Line, Matmul, Pointwise, State
from tfacct.ledger.workload import COMPRESSED

PLAIN, LIGHT, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
RATIOS = {0: PLAIN, 4: LIGHT, 128: HEAVY}
"""Kinds of layers by their values in compress_ratios, independent of compress_rates."""
RATES = {LIGHT: 4, HEAVY: 128}
LEGACY_RATES = {LIGHT: "compress_rate_csa", HEAVY: "compress_rate_hca"}
"""Fields of older files with the same meaning as compress_rates."""
DEFAULT_ROTARY_FRACTION = 64 / 512
"""Default fraction of a head with rotary embedding."""
INDEXER_FIELDS = {"index_n_heads", "index_head_dim", "index_topk"}
COMPRESSOR = "kv_proj gate_proj kv_norm"
COMPRESSES = {"light": "lightly compressed", "heavy": "heavily compressed", None: "uncompressed"}
"""Kinds of layers by compression."""


@record(kw_only=True)
class CompressedAttention(SelfAttention):
    """Causal self-attention of `groups` · `group_heads` query heads to a single key head, whose keys are also values:
    "DeepSeek-V4" (arXiv 2606.19348), section 2.3, with the order and shapes of the matmuls of transformers'
    DeepseekV4Attention.

    Queries come from a latent of size `q_rank`. A query sees the last `window` tokens and, in layers with compression,
    compressed keys: elementwise softmax-weighted sums over `light` or `heavy` tokens each. With `light`, a key also has
    contributions from the tokens before its own. An indexer of `index_heads` heads, with keys of size `index_dim` that
    are compressed in the same way, selects `index_top` keys per token.
    Each head has a sink. `rope_dim` elements of a head have a rotary embedding, which is undone in the result. Head
    `groups` project the result to `out_rank` elements each, then one projection combines them. `twice`: the cache
    stores the keys of the window also as values.
    """

    hidden: Size
    groups: Size
    group_heads: Size
    head_dim: Size
    rope_dim: Size
    q_rank: Size
    out_rank: Size
    window: Size
    light: Size | None
    heavy: Size | None
    index_heads: Size | None
    index_dim: Size | None
    index_top: Size | None
    rotary: Rotary
    eps: float = 1e-6
    twice: bool = False

    name: ClassVar[str] = "attn"
    axis_names: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "groups": "Og",
        "group_heads": "Ng",
        "head_dim": "H",
        "rope_dim": "Hr",
        "q_rank": "Rq",
        "out_rank": "Ro",
        "window": "W",
        "light": "Mc",
        "heavy": "Mh",
        "index_heads": "Nx",
        "index_dim": "Hx",
        "index_top": "Sx",
    }
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "N": "query heads, Og · Ng",
        "Og": "head groups of the output projection",
        "Ng": "heads in a group",
        "H": "head size",
        "Hr": "rotary dimensions of a head",
        "Rq": "size of the query latent",
        "Ro": "output width of a head group",
        "W": "keys that a query of a windowed layer sees",
        "Mc": "tokens per lightly compressed key",
        "Mh": "tokens per heavily compressed key",
        "Hu": "a token's contributions to its own key and the next one, 2 · H",
        **INDEXER_LEGEND,
        "Hw": "the same for an indexer key, 2 · Hx",
        "Sx": "keys that the indexer selects per token",
    }
    made: ClassVar[dict[str, str]] = {"N": "Og · Ng"}
    at_most: ClassVar[dict[str, str]] = {"Hr": "H"}
    cut: ClassVar[frozenset[str]] = frozenset(("Hr",))

    @property
    def heads(self) -> Size:
        """Number of query heads, N = Og · Ng."""
        return self.groups * self.group_heads

    @property
    def kv_heads(self) -> Size:
        """Number of key heads, which are also value heads: 1."""
        return 1

    @property
    def kind(self) -> Literal["light", "heavy"] | None:
        """Kind of compression; None if queries see only the tokens of a window."""
        return "light" if self.light is not None else "heavy" if self.heavy is not None else None

    @property
    def compression(self) -> Compression:
        """Compression of the layer."""
        return Compression(COMPRESSES[self.kind], self.heavy if self.light is None else self.light, self.index_top)

    @property
    def mask(self) -> Mask:
        """Visible pairs with compressed keys under a mask: complete keys, or the selected ones among them."""
        return "entries" if self.index_top is None else "chosen entries"

    def derived(self) -> dict[str, str]:
        """Query heads, and both contributions of overlapping keys."""
        return self.made | ({} if self.light is None else {"Hu": "2 · H", "Hw": "2 · Hx"})

    def multiples(self) -> dict[str, int]:
        """Elements rotate in pairs."""
        return {"Hr": 2}

    def lines(self, at: str) -> Iterator[Line]:
        """Queries and keys, compressed keys, scores and values of both, the grouped output projection; and the
        states."""
        kind = self.kind
        yield Matmul(f"{at}.q_a_proj", "B T D, D Rq -> B T Rq")
        yield Pointwise(f"{at}.q_a_norm", "B T Rq", weight="Rq", kind="norm_rms")
        yield Matmul(f"{at}.q_b_proj", "B T Rq, Rq N H -> B T N H")
        yield Pointwise(f"{at}.q_b_norm", "B T N H", kind="norm_rms")
        yield Matmul(f"{at}.kv_proj", "B T D, D H -> B T H")
        yield Pointwise(f"{at}.kv_norm", "B T H", weight="H", kind="norm_rms")
        yield Pointwise(f"{at}.q_rotary", "B T N Hr", kind="rotary")
        yield Pointwise(f"{at}.kv_rotary", "B T Hr", kind="rotary")
        if kind is not None:
            yield from self._compressed(f"{at}.compressor", kind, "H", "Hu")
        if self.light is not None:
            yield from self._index(f"{at}.compressor.indexer")
        yield Matmul(f"{at}.scores", "B T N H, B S H -> B N T S", mask="causal")
        if kind is not None:
            yield from self._scores_of_entries(at, kind)
        yield Pointwise(f"{at}.sinks", "B N T", weight="N")
        yield Pointwise(f"{at}.softmax", "B N T S", kind="softmax")
        yield Matmul(f"{at}.values", "B N T S, B S H -> B T N H", mask="causal")
        if kind is not None:
            yield from self._values_of_entries(at, kind)
        yield Pointwise(f"{at}.out_rotary", "B T N Hr", kind="rotary")
        yield Matmul(f"{at}.o_a_proj", "B T Og Ng H, Ng H Og Ro -> B T Og Ro")
        yield Matmul(f"{at}.o_b_proj", "B T Og Ro, Og Ro D -> B T D")
        yield State(f"{at}.kv_cache", "B S H")
        if self.twice:
            yield State(f"{at}.v_cache", "B S H")
        if kind is not None:
            yield from self._states(f"{at}.compressor", kind, "H", "Hu")
        if self.light is not None:
            yield from self._states(f"{at}.compressor.indexer", "light", "Hx", "Hw")

    def _scores_of_entries(self, at: str, kind: str) -> Iterator[Line]:
        entries = COMPRESSED["entries"][kind]
        yield Matmul(f"{at}.compressed_scores", f"B T N H, B {entries} H -> B N T {entries}", mask=self.mask)
        yield Pointwise(f"{at}.compressed_softmax", f"B N T {entries}", kind="softmax")

    def _values_of_entries(self, at: str, kind: str) -> Iterator[Line]:
        entries = COMPRESSED["entries"][kind]
        yield Matmul(f"{at}.compressed_values", f"B N T {entries}, B {entries} H -> B T N H", mask=self.mask)
        yield Pointwise(f"{at}.compressed_add", "B T N H", kind="sum")

    def _compressed(self, at: str, kind: str, size: str, both: str) -> Iterator[Line]:
        """Elements of each token, their weights, and the complete keys; two contributions each if keys overlap."""
        new, rate = COMPRESSED["new"][kind], "Mc" if kind == "light" else "Mh"
        each = both if kind == "light" else size
        yield Matmul(f"{at}.kv_proj", f"B T D, D {each} -> B T {each}")
        yield Matmul(f"{at}.gate_proj", f"B T D, D {each} -> B T {each}")
        yield Pointwise(f"{at}.position_bias", f"B {new} {rate} {each}", bias=f"{rate} {each}")
        yield Pointwise(f"{at}.softmax", f"B {new} {rate} {each}", kind="softmax")
        yield Pointwise(f"{at}.weighting", f"B {new} {rate} {each}", kind="weighting")
        yield Pointwise(f"{at}.kv_norm", f"B {new} {size}", weight=size, kind="norm_rms")
        yield Pointwise(f"{at}.rotary", f"B {new} Hr", kind="rotary")

    def _index(self, at: str) -> Iterator[Line]:
        """Indexer scores: separate heads over its compressed keys, weighted and summed."""
        yield from self._compressed(at, "light", "Hx", "Hw")
        yield Matmul(f"{at}.q_proj", "B T Rq, Rq Nx Hx -> B T Nx Hx")
        yield Pointwise(f"{at}.q_rotary", "B T Nx Hr", kind="rotary")
        yield Matmul(f"{at}.scores", "B T Nx Hx, B Sc Hx -> B T Nx Sc", mask="entries")
        yield Pointwise(f"{at}.act", "B T Nx Sc", kind="activation")
        yield Matmul(f"{at}.weights_proj", "B T D, D Nx -> B T Nx")
        yield Pointwise(f"{at}.sum", "B T Nx Sc")

    def _states(self, at: str, kind: str, size: str, both: str) -> Iterator[Line]:
        """Compressed keys; waiting tokens of an incomplete key, and their weights; and, if keys overlap, the
        contributions of the last complete key's tokens to the next key."""
        entries, waiting = (COMPRESSED[what][kind] for what in ("entries", "waiting"))
        each = both if kind == "light" else size
        yield State(f"{at}.cache", f"B {entries} {size}")
        yield State(f"{at}.waiting_cache", f"B {waiting} {each}")
        yield State(f"{at}.waiting_gates", f"B {waiting} {each}")
        if kind == "light":
            yield State(f"{at}.overlap_cache", f"B Uc Mc {size}")
            yield State(f"{at}.overlap_gates", f"B Uc Mc {size}")


class DeepseekV4(HyperConnected):
    """DeepSeek-V4: attention to a window and to compressed keys and values; several residual streams; experts in
    every layer."""

    sizes = dict(vocab=129280)
    hidden_size: PositiveInt = 4096
    moe_intermediate_size: PositiveInt = 2048
    num_hidden_layers: LayerCount = 43
    num_attention_heads: PositiveInt = 64
    num_key_value_heads: PositiveInt = 1
    head_dim: PositiveInt = 512
    q_lora_rank: PositiveInt = 1024
    qk_rope_head_dim: PositiveInt | None = None
    qk_nope_head_dim: PositiveInt | None = None
    partial_rotary_factor: Fraction | None = None
    num_experts_per_tok: PositiveInt = 6
    n_routed_experts: PositiveInt = 256
    n_shared_experts: NonNegativeInt = 1
    max_position_embeddings: PositiveInt = 1_048_576
    layer_types: LayerTypes | None = None
    compress_ratios: list[StrictInt] | None = None
    compress_rates: JsonDict | None = None
    compress_rate_csa: PositiveInt | None = None
    compress_rate_hca: PositiveInt | None = None
    compress_rope_theta: PositiveFloat = 160_000.0
    hc_sinkhorn_iters: PositiveInt = 20
    mlp_layer_types: LayerTypes | None = None
    num_hash_layers: NonNegativeInt | None = None
    swiglu_limit: PositiveFloat = 10.0
    scoring_func: StrictStr = "sqrtsoftplus"
    routed_scaling_factor: PositiveFloat = 1.5
    sliding_window: Window = 128
    o_groups: PositiveInt = 8
    o_lora_rank: PositiveInt = 1024
    index_n_heads: PositiveInt = 64
    index_head_dim: PositiveInt = 128
    index_topk: PositiveInt = 512
    dspark_target_layer_ids: list[NonNegativeInt] | None = None
    dspark_markov_rank: PositiveInt | None = None
    hidden_act: StrictStr = "silu"
    rms_norm_eps: PositiveFloat = 1e-6
    rope_theta: PositiveFloat = 10_000.0
    rope_scaling: JsonDict | None = None
    rope_parameters: JsonDict | None = None
    tie_word_embeddings: StrictBool = False
    attention_bias: StrictBool = False
    mlp_bias: StrictBool = False

    reference_only = """-partial_rotary_factor -compress_rates qk_nope_head_dim hc_sinkhorn_iters num_hash_layers
        mlp_layer_types dspark_target_layer_ids dspark_markov_rank"""
    attribute_map = {"num_local_experts": "n_routed_experts", "intermediate_size": "moe_intermediate_size"}
    ignored_fields = "topk_method n_group topk_group expert_dtype rope_interleave compress_rope_parameters"
    required_values = {"attention_bias": False, "num_key_value_heads": 1, "n_shared_experts": 1}
    all_layers_have_experts, expert_count = True, "n_routed_experts"
    experts_options = dict(
        shared_alike=True,
        shared_bias=attrgetter("mlp_bias"),
        scoring=attrgetter("scoring_func"),
        scaling=attrgetter("routed_scaling_factor"),
        bound=attrgetter("swiglu_limit"),
    )
    dropouts = Decoder.dropouts
    task_heads = DECODER
    constant_axes = frozenset({"Xf", "Xg"})
    keep_in_fp32_modules = tuple(
        f"self_attn.compressor.{name}"
        for name in ("kv_proj", "gate_proj", "indexer.kv_proj", "indexer.gate_proj", "indexer.scorer.weights_proj")
    )
    hf_cache_differs = "it caches one token fewer per window, and separate keys and values in uncompressed layers"
    module_names = Decoder.module_names
    layer_module_names = {
        "attn_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
        **submodules("attn", "self_attn", "q_a_proj q_a_norm q_b_proj kv_proj kv_norm o_a_proj o_b_proj"),
        **submodules("attn", "self_attn", scores="", values="", compressed_scores="", compressed_values=""),
        **submodules("attn.compressor", "self_attn.compressor", COMPRESSOR),
        **submodules("attn.compressor.indexer", "self_attn.compressor.indexer", COMPRESSOR, q_proj="q_b_proj"),
        **submodules("attn.compressor.indexer", "self_attn.compressor.indexer.scorer", "weights_proj", scores=""),
        **EXPERT_MODULES,
        **mlp_modules("mlp.shared_experts", at="mlp.shared"),
        "hc.attn.mix": "",
        "hc.mlp.mix": "",
    }
    layer_tensor_names = {
        **EXPERT_TENSORS,
        "attn.sinks.weight": "self_attn.sinks",
        "attn.compressor.position_bias.bias": "self_attn.compressor.position_bias",
        "attn.compressor.indexer.position_bias.bias": "self_attn.compressor.indexer.position_bias",
    }
    checkpoint_conversion_mapping = (
        (r"\.attn\.", ".self_attn."),
        (r"\.ffn\.", ".mlp."),
        (r"^(model\.)?embed\.", "model.embed_tokens."),
        (r"^(model\.)?head\.", "lm_head."),
        (r"(^|\.)hc_head_(fn|base|scale)$", r"\1hc_head.hc_\2"),
        PUBLISHED_HYPER_CONNECTIONS,
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
            (rf"\.shared_experts\.w{n}\.", f".shared_experts.{to}_proj.")
            for n, to in ((1, "gate"), (2, "down"), (3, "up"))
        ),
    )

    def unread_fields(self) -> set[str]:
        return set() if LIGHT in self.layer_kinds() else INDEXER_FIELDS

    def layer_kinds(self) -> list[str]:
        """Kind of attention per layer; entries beyond num_hidden_layers are ignored. Raises ConfigError."""
        count = self.num_hidden_layers
        if self.layer_types is not None:
            return validated_layer_types(self.layer_types[:count], count, (*RATES, PLAIN))
        if self.compress_ratios is None:
            return [LIGHT if number > 1 and number % 2 else HEAVY for number in range(count)]
        for number, ratio in enumerate(self.compress_ratios):
            if ratio not in RATIOS:
                raise ConfigError(f"compress_ratios[{number}] = {ratio:,} is not supported: use 0, 4 or 128")
        kinds = [RATIOS[ratio] for ratio in self.compress_ratios[:count]]
        return validated_layer_types(kinds, count, (*RATES, PLAIN), "compress_ratios")

    def compression(self, kind: str) -> int:
        """Tokens per compressed key. Raises ConfigError."""
        given = self.compress_rates or RATES
        for name, value in given.items():
            if name not in RATES or not is_size(value):
                raise self.refused(f"compress_rates.{name}", value)
        found = getattr(self, LEGACY_RATES[kind]) or given.get(kind)
        if found is None:
            raise ConfigError(f"compress_rates has no {kind}, which a layer uses")
        return int(found)

    def rotary_size(self, layer: Any = None) -> int:
        """Rotary dimensions of a head. Raises ConfigError."""
        size, part = self.head_dim, self.partial_rotary_factor
        if part is None:
            part = DEFAULT_ROTARY_FRACTION if self.qk_rope_head_dim is None else self.qk_rope_head_dim / size
        rotary_dim = require_even(int(size * part), "rotary dimensions of a head:")
        if rotary_dim > size:
            raise ConfigError(f"qk_rope_head_dim = {rotary_dim:,}, but a head has head_dim = {size:,} elements")
        if self.qk_rope_head_dim not in (None, rotary_dim):
            raise ConfigError(
                f"qk_rope_head_dim = {self.qk_rope_head_dim:,} contradicts partial_rotary_factor = {part}"
            )
        if self.qk_nope_head_dim not in (None, size - rotary_dim):
            raise ConfigError(
                f"qk_nope_head_dim = {self.qk_nope_head_dim:,}, but {rotary_dim:,} of head_dim = {size:,} elements"
                " are rotated"
            )
        return rotary_dim

    def rope_of(self, kind: str) -> Rotary:
        """Rotary embedding of a kind of layer: its base, and scaling if tokens are compressed."""
        parameters, label = self.rope_parameters or {}, "main" if kind == PLAIN else "compress"
        if isinstance(parameters.get(label), Mapping):
            return read_rope(self.rope_theta, None, parameters[label])._replace(pairs="neighbours")
        if kind == PLAIN:
            return Rotary(self.rope_theta, None, "neighbours")
        scaling = {**(self.rope_scaling or parameters), "rope_theta": self.compress_rope_theta}
        return Rotary(self.compress_rope_theta, scaling, "neighbours")

    def attention(self, layer: str, **overrides: Any) -> Any:
        """Attention of a kind of layer. Raises ConfigError."""
        rotary_dim = self.rotary_size()
        sizes = self.index_n_heads, self.index_head_dim, self.index_topk
        heads, size, top = sizes if layer == LIGHT else (None, None, None)
        if layer == LIGHT and self.index_head_dim < rotary_dim:
            raise ConfigError(
                f"index_head_dim = {self.index_head_dim:,} must be at least {rotary_dim:,}, the rotary dimensions of"
                " a head"
            )
        return CompressedAttention(
            hidden=self.hidden_size,
            groups=self.o_groups,
            group_heads=divide_exactly(self.num_attention_heads, self.o_groups, "num_attention_heads by o_groups"),
            head_dim=self.head_dim,
            rope_dim=rotary_dim,
            q_rank=self.q_lora_rank,
            out_rank=self.o_lora_rank,
            window=self.sliding_window,
            light=self.compression(layer) if layer == LIGHT else None,
            heavy=self.compression(layer) if layer == HEAVY else None,
            eps=self.rms_norm_eps,
            rotary=self.rope_of(layer),
            index_heads=heads,
            index_dim=size,
            index_top=top,
        )

    def check(self) -> None:
        super().check()
        if self.mlp_layer_types is not None:
            given, count = self.mlp_layer_types, self.num_hidden_layers
            validated_layer_types(given[:count], count, ("hash_moe", "moe"), "mlp_layer_types")

    def layers(self) -> list[str]:
        return self.layer_kinds()

    def hf_cache(self) -> Transformer:
        """One token fewer per window; keys are stored twice in layers without compression."""

        def cached(part: Part) -> Part:
            if not isinstance(part, CompressedAttention):
                return part
            return replace(part, window=part.window - 1, twice=part.kind is None)

        return self.transformer().mapped(cached)

    def with_additional_layers(self) -> Ledger | None:
        """Ledger with the layers of a DSpark draft, stored under `mtp` in files of DeepSeek-V4-Flash-DSpark: layers
        without compression, the projection of the layers that they read, and the draft's heads."""
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
