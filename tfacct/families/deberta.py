"""DeBERTa: BERT's layers with disentangled attention, which also scores the distance between two tokens."""

from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar, Self

from tfacct.architecture.parts import Attention, Part, Positions, RelativeBias
from tfacct.architecture.parts.attention import DIRECTIONS, DISTANCES
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.families.bert import CLASSES, ENCODING, Bert, BertBase, mlm_head_modules, sequence_classifier
from tfacct.families.fields import LayerCount, NonNegativeInt, PositiveInt, StrictBool, StrictStr
from tfacct.families.task_heads import BODY
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import CENTRED_KERNEL, Line, Matmul, Pointwise, Table


@record(kw_only=True)
class Distances(Part):
    """Embedding of the distances between two tokens, shared by all layers. `normed`: a LayerNorm follows. `of_text`: a
    text reads two rows per token, so longer texts need more rows."""

    buckets: Size
    hidden: Size
    normed: bool = True
    eps: float = 1e-7
    of_text: bool = False

    name: ClassVar[str] = "rel_embed"
    label: ClassVar[str] = "relative distances"
    listed_after: ClassVar[tuple[str, int]] = (RelativeBias.name, 0)
    axis_names: ClassVar[dict[str, str]] = {"buckets": "Rp", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"Rp": DISTANCES, "D": "hidden size"}

    def for_context(self, context: int) -> Self:
        """The embedding with as many rows as a text reads."""
        return replace(self, buckets=2 * context) if self.of_text else self

    def lines(self, at: str) -> Iterator[Line]:
        """Embedding, and the norm over all its rows."""
        yield Table(at, "Rp D")
        if self.normed:
            yield Pointwise(f"{at}.norm", "Rp D", weight="D", bias="D", kind="norm_layer")


@record(kw_only=True)
class DisentangledAttention(Attention):
    """Attention that also scores distances, with the embedding of Distances: He et al., "DeBERTa" (arXiv 2006.03654),
    section 3.1, with the matmuls of transformers' DisentangledSelfAttention.

    A query is multiplied with the key of each distance (`to_positions`), and a key with the query of each distance
    (`from_positions`). Each layer computes these keys and queries for all distances; if `shared`, with the weights of
    the tokens' keys and queries, and then always both. `reach`: the furthest distance, if far distances share rows; no
    count depends on it. Without a number of `distances`, it reads as many rows as a text has distances, two per token;
    without `key_bias`, the keys of distances also have no bias (deberta).
    """

    distances: Size | None
    to_positions: bool = True
    from_positions: bool = True
    shared: bool = True
    reach: int | None

    axis_names: ClassVar[dict[str, str]] = {**Attention.axis_names, "distances": "Rp"}
    legend: ClassVar[dict[str, str]] = {axis: Attention.legend[axis] for axis in "DNKGH"} | {
        "Rp": DISTANCES,
        "Xd": DIRECTIONS,
    }

    def derived(self) -> dict[str, str]:
        """Query heads, and both directions of each distance in a text."""
        return self.made | ({"Xd": "2"} if self.distances is None else {})

    def _score_lines(self, at: str) -> Iterator[Line]:
        to, back = ("Xd S", "Xd T") if self.distances is None else ("Rp", "Rp")

        def projected(name: str, owner: str, heads: str, rows: str, *, bias: bool = True) -> Matmul:
            weight = f"{at}.{owner}" if self.shared else None
            spec = f"{rows} D, D {heads} H -> {rows} {heads} H"
            return Matmul(f"{at}.{name}", spec, weight=weight, bias=bias and not self.shared)

        if self.shared or self.to_positions:
            yield projected("pos_k_proj", "k_proj", "K", to, bias=self.key_bias)
        if self.shared or self.from_positions:
            yield projected("pos_q_proj", "q_proj", "N", back)
        if self.to_positions:
            yield Matmul(f"{at}.to_positions", f"B T K G H, B {to} K H -> B K G T {to}")
            yield Pointwise(f"{at}.to_add", "B K G T S", kind="sum")
        if self.from_positions:
            yield Matmul(f"{at}.from_positions", f"B S K H, B {back} K G H -> B K G S {back}")
            yield Pointwise(f"{at}.from_add", "B K G T S", kind="sum")
        yield from Attention._score_lines(self, at)


@record(kw_only=True)
class FirstConvolution(Part):
    """Convolution of the first layer's input over `kernel` tokens around each token. After an activation it is added to
    the layer's output, and a LayerNorm follows: "DeBERTa", version 2, and transformers' DebertaV2Encoder."""

    hidden: Size
    kernel: Size
    activation: str
    eps: float = 1e-7

    name: ClassVar[str] = "first_conv"
    listed_after: ClassVar[tuple[str, int]] = (RelativeBias.name, 1)
    at_front: ClassVar[bool] = True
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "kernel": CENTRED_KERNEL}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        CENTRED_KERNEL: "kernel size of the convolution, in tokens",
        "Dn": "input channels of the convolution, D",
    }
    made: ClassVar[dict[str, str]] = {"Dn": "D"}

    def lines(self, at: str) -> Iterator[Line]:
        """The unfolded matmul, its activation, the addition and the norm."""
        yield Matmul(at, f"B T Dn {CENTRED_KERNEL}, Dn {CENTRED_KERNEL} D -> B T D", bias=True)
        yield Pointwise(f"{at}.act", "B T D", kind="activation", function=self.activation)
        yield Pointwise(f"{at}.add", "B T D", kind="sum")
        yield Pointwise(f"{at}.norm", "B T D", weight="D", bias="D", kind="norm_layer")


class DebertaBase(BertBase):
    """The fields that both versions share."""

    defaults = dict(layer_norm_eps=1e-7)
    type_vocab_size: NonNegativeInt = 0
    relative_attention: StrictBool = False
    max_relative_positions: int = -1
    position_biased_input: StrictBool = True
    pos_att_type: str | list[str] | None = None
    embedding_size: PositiveInt | None = None
    pooler_hidden_size: PositiveInt | None = None
    pooler_hidden_act: StrictStr = "gelu"
    legacy: StrictBool = True

    dropouts = {}
    reference_only = "legacy"
    ignored_fields = "attention_type max_seq_length summary_last_token"
    task_heads = {**ENCODING, "Model": BODY, CLASSES: sequence_classifier("pooler.dense")}
    base_model_prefix = "deberta"
    module_names = {"rel_embed": ".encoder.rel_embeddings"}
    layer_module_names = {"attn.to_positions": "attention.self", "attn.from_positions": "attention.self"}
    tensor_names = {"lm_head.bias": "cls.predictions.bias"}
    pooler_options = dict(activation=attrgetter("pooler_hidden_act"))
    key_bias = True

    def hf_module_names(self) -> dict[str, str]:
        """Module names with the head, which depend on `legacy`."""
        modules = {**mlm_head_modules("lm_predictions.lm_head"), "lm_head": "lm_predictions.lm_head"}
        return {**super().hf_module_names(), **(Bert.module_names if self.legacy else modules)}

    def hf_tensor_names(self) -> dict[str, str]:
        head = "cls.predictions" if self.legacy else "lm_predictions.lm_head"
        return {name: hf_name.replace("cls.predictions", head) for name, hf_name in super().hf_tensor_names().items()}

    @property
    def position_terms(self) -> frozenset[str]:
        """The terms in pos_att_type: scores of content to position (c2p) and of position to content (p2c). Raises
        ConfigError."""
        given = self.pos_att_type or []
        terms = frozenset(word.strip() for word in (given.lower().split("|") if isinstance(given, str) else given))
        if terms - {"c2p", "p2c"}:
            raise ConfigError(f"pos_att_type names {sorted(terms - {'c2p', 'p2c'})[0]!r}, which is not supported")
        return terms

    @property
    def max_distance(self) -> int:
        """Number of different distances, before bucketing."""
        return self.max_position_embeddings if self.max_relative_positions < 1 else self.max_relative_positions

    def check(self) -> None:
        super().check()
        self.require_if_given(dict.fromkeys(("embedding_size", "pooler_hidden_size"), self.hidden_size))
        if self.relative_attention and not self.position_terms:
            raise self.refused("pos_att_type", self.pos_att_type)

    def attention(self, **overrides: Any) -> Attention:
        """Attention scaled by the number of terms of a score; disentangled if relative_attention is set."""
        terms = self.position_terms
        scale = (self.head_dim * (1 + len(terms))) ** -0.5
        plain = super().attention(key_bias=self.key_bias, scale=scale)
        if not self.relative_attention:
            return plain
        how: dict[str, Any] = self.distance_scores()
        return DisentangledAttention.of(plain, to_positions="c2p" in terms, from_positions="p2c" in terms, **how)

    def positions(self) -> Positions | None:
        return super().positions() if self.position_biased_input else None

    def architecture(self) -> Transformer:
        model = super().architecture()
        return replace(model, extra_embeddings=(self.distance_embedding(),)) if self.relative_attention else model


class Deberta(DebertaBase):
    """DeBERTa: BERT's layers; attention also scores every distance in a text."""

    sizes = dict(vocab=50265)
    talking_head: StrictBool = False
    required_values = {"talking_head": False}
    constant_axes = frozenset({"G", "Xd"})
    key_bias = False
    layer_module_names = {
        **{f"attn.{name}_proj": "attention.self.in_proj" for name in "qkv"},
        "attn.pos_k_proj": "attention.self.pos_proj",
        "attn.pos_q_proj": "attention.self.pos_q_proj",
    }
    layer_tensor_names = {f"attn.{name}_proj.bias": f"attention.self.{name}_bias" for name in "qv"}

    def distance_scores(self) -> dict[str, Any]:
        return {"distances": None, "shared": False, "reach": None}

    def distance_embedding(self) -> Distances:
        return Distances(buckets=2 * self.max_distance, hidden=self.hidden_size, normed=False, of_text=True)

    def check(self) -> None:
        super().check()
        if self.relative_attention and self.max_distance < self.max_position_embeddings:
            raise ConfigError(
                f"max_relative_positions = {self.max_distance:,} is less than max_position_embeddings ="
                f" {self.max_position_embeddings:,}: texts longer than the distance embedding are not supported"
            )


class DebertaV2(DebertaBase):
    """DeBERTa v2 and v3: BERT's layers; attention also scores distances in buckets, and a convolution may follow the
    first layer."""

    sizes = dict(vocab=128100, hidden=1536, mlp=6144, heads=24)
    num_hidden_layers: LayerCount = 24
    position_buckets: int = -1
    share_att_key: StrictBool = False
    norm_rel_ebd: StrictStr = "none"
    attention_head_size: PositiveInt | None = None
    conv_kernel_size: NonNegativeInt = 0
    conv_groups: PositiveInt = 1
    conv_act: StrictStr = "tanh"
    reference_only = "conv_groups -norm_rel_ebd"
    module_names = {
        "rel_embed.norm": ".encoder.LayerNorm",
        "first_conv": ".encoder.conv.conv",
        "first_conv.norm": ".encoder.conv.LayerNorm",
    }
    layer_module_names = {f"attn.{name[0]}_proj": f"attention.self.{name}_proj" for name in ("query", "key", "value")}

    def hf_module_names(self) -> dict[str, str]:
        """Distances use the projections of tokens, or their own."""
        at, prefix = "deberta.encoder.layer.*.attention.self", "" if self.share_att_key else "pos_"
        projections = {f"blocks.*.attn.pos_{name[0]}_proj": f"{at}.{prefix}{name}_proj" for name in ("key", "query")}
        return {**super().hf_module_names(), **projections}

    @property
    def norms_distances(self) -> bool:
        """True if a norm follows the embedding of distances."""
        return "layer_norm" in [word.strip() for word in self.norm_rel_ebd.lower().split("|")]

    @property
    def distances(self) -> int:
        """Rows of the embedding of distances."""
        return 2 * (self.position_buckets if self.position_buckets > 0 else self.max_distance)

    def distance_scores(self) -> dict[str, Any]:
        reach = self.max_distance if self.position_buckets > 0 else None
        return {"distances": self.distances, "shared": self.share_att_key, "reach": reach}

    def distance_embedding(self) -> Distances:
        normed, eps = self.norms_distances, self.layer_norm_eps
        return Distances(buckets=self.distances, hidden=self.hidden_size, normed=normed, eps=eps)

    def check(self) -> None:
        super().check()
        self.require_if_given({"attention_head_size": self.hidden_size // self.num_attention_heads})
        if self.conv_kernel_size and (self.conv_groups != 1 or self.conv_kernel_size % 2 == 0):
            name = "conv_groups" if self.conv_groups != 1 else "conv_kernel_size"
            raise self.refused(name, getattr(self, name))
        if not self.relative_attention and self.norms_distances:  # an unused norm, which the class stores
            raise self.refused("norm_rel_ebd", self.norm_rel_ebd)

    def architecture(self) -> Transformer:
        model = super().architecture()
        if not self.conv_kernel_size:
            return model
        kernel, act = self.conv_kernel_size, self.conv_act
        conv = FirstConvolution(hidden=self.hidden_size, kernel=kernel, activation=act, eps=self.layer_norm_eps)
        return replace(model, extra_parts=(conv,))
