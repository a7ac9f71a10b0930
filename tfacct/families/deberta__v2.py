"""DeBERTa v2 and v3: BERT's blocks, with scores of the distance between two tokens beside those of their contents."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Attention, Disentangled, Distances, FirstConvolution, Pooler, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Real, Switch, UpTo, Word
from tfacct.families._bert_like import ENCODING, LAYER, TABLES, BertLike
from tfacct.families._endings import BODY

RELEASED = "2020-06"

BODY_AT = "deberta."
PROJECTIONS = {
    "attn.q_proj": "attention.self.query_proj",
    "attn.k_proj": "attention.self.key_proj",
    "attn.v_proj": "attention.self.value_proj",
}
PRODUCTS = dict.fromkeys(("attn.scores", "attn.values", "attn.to_positions", "attn.from_positions"), "attention.self")
THEIRS = {**LAYER, **PROJECTIONS, **PRODUCTS}
POSITIONS = {
    True: {"attn.pos_k_proj": "attention.self.key_proj", "attn.pos_q_proj": "attention.self.query_proj"},
    False: {"attn.pos_k_proj": "attention.self.pos_key_proj", "attn.pos_q_proj": "attention.self.pos_query_proj"},
}
"""Products of the distances, with weights of the tokens' or of their own."""
LEGACY = {
    "lm_head.transform": "cls.predictions.transform.dense",
    "lm_head.norm": "cls.predictions.transform.LayerNorm",
    "lm_head": "cls.predictions.decoder",
}
PLAIN = {
    "lm_head.transform": "lm_predictions.lm_head.dense",
    "lm_head.norm": "lm_predictions.lm_head.LayerNorm",
    "lm_head": "lm_predictions.lm_head",
}


class Config(BertLike):
    """`DebertaV2Config`, with its class's defaults: `DebertaV2ForMaskedLM`, or what `architectures` names."""

    vocab_size: Count = 128100
    hidden_size: Count = 1536
    num_hidden_layers: Count = 24
    num_attention_heads: Count = 24
    intermediate_size: Count = 6144
    type_vocab_size: UpTo = 0
    layer_norm_eps: Real = 1e-7
    relative_attention: Switch = False
    max_relative_positions: int = -1
    position_buckets: int = -1
    position_biased_input: Switch = True
    pos_att_type: str | list[str] | None = None
    share_att_key: Switch = False
    norm_rel_ebd: Word = "none"
    attention_head_size: Count | None = None
    embedding_size: Count | None = None
    pooler_hidden_size: Count | None = None
    pooler_hidden_act: Word = "gelu"
    conv_kernel_size: UpTo = 0
    conv_groups: Count = 1
    conv_act: Word = "tanh"
    legacy: Switch = True

    stems: ClassVar = ("DebertaV2",)
    uncounted: ClassVar = BertLike.uncounted | {"pooler_hidden_act", "legacy", "conv_groups", "conv_act"}
    harmless: ClassVar = frozenset("attention_type max_seq_length summary_last_token".split())
    heads: ClassVar = {
        **ENCODING,
        "Model": BODY,
        "ForSequenceClassification": replace(
            ENCODING["ForSequenceClassification"], paths={"pooler": "pooler.dense", "classifier": "classifier"}
        ),
    }
    body: ClassVar = BODY_AT
    hf_paths: ClassVar = {
        **{ours: f"{BODY_AT}{theirs}" for ours, theirs in TABLES.items()},
        "rel_embed": f"{BODY_AT}encoder.rel_embeddings",
        "rel_embed.norm": f"{BODY_AT}encoder.LayerNorm",
        "first_conv": f"{BODY_AT}encoder.conv.conv",
        "first_conv.norm": f"{BODY_AT}encoder.conv.LayerNorm",
        **{f"blocks.*.{ours}": f"{BODY_AT}encoder.layer.*.{theirs}" for ours, theirs in THEIRS.items()},
    }
    hf_tensors: ClassVar = {"lm_head.bias": "cls.predictions.bias"}
    gotchas: ClassVar = (
        "An encoder: every token sees all others, nothing is kept between steps, and there is no decode step.",
        "With relative_attention, every block multiplies the whole table of distances, once for each sequence batch of"
        " whatever size, and then queries and keys with all of them (pos_att_type: c2p, p2c). Pairs pick their scores"
        " afterwards, so the products grow with tokens · distances.",
        "The table has 2 · position_buckets rows, or 2 · max_relative_positions where there are no buckets; one below 1"
        " means max_position_embeddings. share_att_key: its products are with the weights of keys and queries.",
        "DebertaV2Model has no pooler. position_biased_input = false, as version 3 has it, means no table of"
        " positions.",
        "The convolution of v2-xlarge (conv_kernel_size) reads what the first block reads, all channels of some tokens"
        " around each one, zeros at the ends included; it is added to what that block gives. Convolutions in groups,"
        " and those of an even number of tokens, are refused.",
        "An embedding_size, attention_head_size or pooler_hidden_size of their own are refused.",
    )

    def class_paths(self) -> Mapping[str, str]:
        """Distances with the tokens' weights or their own; the head as either version has it."""
        at = f"{BODY_AT}encoder.layer.*."
        own = {f"blocks.*.{ours}": f"{at}{theirs}" for ours, theirs in POSITIONS[self.share_att_key].items()}
        return {**self.hf_paths, **own, **(LEGACY if self.legacy else PLAIN)}

    def tensors(self) -> dict[str, str]:
        """Bias of the head."""
        name = "cls.predictions.bias" if self.legacy else "lm_predictions.lm_head.bias"
        return self.ending.renamed({"lm_head.bias": name}, self.body)

    @property
    def kinds(self) -> frozenset[str]:
        """What pos_att_type names. Raises ConfigError."""
        said = self.pos_att_type or []
        words = frozenset(word.strip() for word in (said.lower().split("|") if isinstance(said, str) else said))
        if words - {"c2p", "p2c"}:
            raise ConfigError(f"pos_att_type names {sorted(words - {'c2p', 'p2c'})[0]!r}, which is not understood")
        return words

    @property
    def normed(self) -> bool:
        """Whether the table of distances is behind a norm."""
        return "layer_norm" in [word.strip() for word in self.norm_rel_ebd.lower().split("|")]

    @property
    def reach(self) -> int:
        """Distances that are told apart, before they are put into buckets."""
        return self.max_position_embeddings if self.max_relative_positions < 1 else self.max_relative_positions

    @property
    def rows(self) -> int:
        """Rows of the table of distances."""
        return 2 * (self.position_buckets if self.position_buckets > 0 else self.reach)

    def attention(self) -> Attention:
        """Heads with keys of their own, and scores of distances where they are switched on."""
        plain, kinds = super().attention(), self.kinds
        scale = (plain.head_dim * (1 + len(kinds))) ** -0.5
        if not self.relative_attention:
            return replace(plain, scale=scale)
        sizes: dict[str, Any] = {"kv_heads": plain.kv_heads, "group": 1, "head_dim": plain.head_dim}
        return Disentangled(
            hidden=self.hidden_size,
            **sizes,
            qkv_bias=True,
            out_bias=True,
            causal=False,
            scale=scale,
            distances=self.rows,
            to_positions="c2p" in kinds,
            from_positions="p2c" in kinds,
            shared=self.share_att_key,
            reach=self.reach,
            bucketed=self.position_buckets > 0,
        )

    def positions(self) -> Positions | None:
        """Table of positions, where tokens have one of their own."""
        return super().positions() if self.position_biased_input else None

    def pooler(self, hidden: Any) -> Pooler:
        """Product of the first position, in front of the classes."""
        return Pooler(hidden=hidden, activation=self.pooler_hidden_act)

    def check(self) -> None:
        """Refuse what no part here expresses. Raises ConfigError."""
        super().check()
        heads = self.hidden_size // self.num_attention_heads
        own = {"embedding_size": self.hidden_size, "pooler_hidden_size": self.hidden_size, "attention_head_size": heads}
        for name, understood in own.items():
            if getattr(self, name) not in (None, understood):
                raise self.refused(name, getattr(self, name))
        if self.conv_kernel_size and (self.conv_groups != 1 or self.conv_kernel_size % 2 == 0):
            name = "conv_groups" if self.conv_groups != 1 else "conv_kernel_size"
            raise self.refused(name, getattr(self, name))
        if self.relative_attention and not self.kinds:
            raise self.refused("pos_att_type", self.pos_att_type)
        if not self.relative_attention and self.normed:  # a norm of nothing, which the class stores
            raise self.refused("norm_rel_ebd", self.norm_rel_ebd)

    def architecture(self) -> Transformer:
        """BERT's, with a table of distances in front."""
        shape = super().architecture()
        if self.conv_kernel_size:
            kernel, act = self.conv_kernel_size, self.conv_act
            conv = FirstConvolution(hidden=self.hidden_size, kernel=kernel, activation=act, eps=self.layer_norm_eps)
            shape = replace(shape, beside=conv)
        if not self.relative_attention:
            return shape
        table = Distances(buckets=self.rows, hidden=self.hidden_size, normed=self.normed, eps=self.layer_norm_eps)
        return replace(shape, distances=table)
