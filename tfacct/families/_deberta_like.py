"""Shared by both versions of DeBERTa: BERT's blocks, with scores of the distance between two tokens beside those of
their contents."""

from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Attention, Pooler, Positions
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Real, Switch, UpTo, Word
from tfacct.families._bert_like import ENCODING, TABLES, BertLike
from tfacct.families._endings import BODY

BODY_AT = "deberta."
LAYERS_AT = f"{BODY_AT}encoder.layer.*."
PRODUCTS = dict.fromkeys(("attn.scores", "attn.values", "attn.to_positions", "attn.from_positions"), "attention.self")
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
AN_ENCODER = "An encoder: every token sees all others, nothing is kept between steps, and there is no decode step."


class DebertaLike(BertLike):
    """The fields that both versions spell alike."""

    type_vocab_size: UpTo = 0
    layer_norm_eps: Real = 1e-7
    relative_attention: Switch = False
    max_relative_positions: int = -1
    position_biased_input: Switch = True
    pos_att_type: str | list[str] | None = None
    embedding_size: Count | None = None
    pooler_hidden_size: Count | None = None
    pooler_hidden_act: Word = "gelu"
    legacy: Switch = True

    uncounted: ClassVar = BertLike.uncounted | {"pooler_hidden_act", "legacy"}
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
    }
    hf_tensors: ClassVar = {"lm_head.bias": "cls.predictions.bias"}

    def class_paths(self) -> dict[str, str]:
        """The head as either version has it."""
        return {**self.hf_paths, **(LEGACY if self.legacy else PLAIN)}

    def tensors(self) -> dict[str, str]:
        """Bias of the head."""
        name = "cls.predictions.bias" if self.legacy else "lm_predictions.lm_head.bias"
        return self.ending.renamed({**self.hf_tensors, "lm_head.bias": name}, self.body)

    @property
    def kinds(self) -> frozenset[str]:
        """What pos_att_type names. Raises ConfigError."""
        said = self.pos_att_type or []
        words = frozenset(word.strip() for word in (said.lower().split("|") if isinstance(said, str) else said))
        if words - {"c2p", "p2c"}:
            raise ConfigError(f"pos_att_type names {sorted(words - {'c2p', 'p2c'})[0]!r}, which is not understood")
        return words

    @property
    def reach(self) -> int:
        """Distances that are told apart, before they are put into buckets."""
        return self.max_position_embeddings if self.max_relative_positions < 1 else self.max_relative_positions

    def attention(self) -> Attention:
        """Heads with keys of their own, and scores scaled for as many sums as there are."""
        plain = super().attention()
        return replace(plain, scale=(plain.head_dim * (1 + len(self.kinds))) ** -0.5)

    def scored(self, plain: Attention) -> dict[str, Any]:
        """Fields of attention that scores distances too."""
        sizes: dict[str, Any] = {"hidden": self.hidden_size, "kv_heads": plain.kv_heads, "head_dim": plain.head_dim}
        how: dict[str, Any] = {"to_positions": "c2p" in self.kinds, "from_positions": "p2c" in self.kinds}
        return {**sizes, **how, "group": 1, "qkv_bias": True, "out_bias": True, "causal": False, "scale": plain.scale}

    def positions(self) -> Positions | None:
        """Table of positions, where tokens have one of their own."""
        return super().positions() if self.position_biased_input else None

    def pooler(self, hidden: Any) -> Pooler:
        """Product of the first position, in front of the classes."""
        return Pooler(hidden=hidden, activation=self.pooler_hidden_act)

    def check(self) -> None:
        """Refuse what no part here expresses. Raises ConfigError."""
        super().check()
        for name in ("embedding_size", "pooler_hidden_size"):
            if getattr(self, name) not in (None, self.hidden_size):
                raise self.refused(name, getattr(self, name))
        if self.relative_attention and not self.kinds:
            raise self.refused("pos_att_type", self.pos_att_type)
