"""JinaBERT: BERT's post-norm blocks, scores lowered by the distance to both sides (ALiBi), gated networks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Attention, FeedForward, Positions
from tfacct.architecture.parts.attention import QKNorm
from tfacct.families._base import FamilyConfig, Switch, Word
from tfacct.families._bert_like import AbleToDecode
from tfacct.families.bert import of_texts

RELEASED = "2023-10"

ALIBI, TABLE = "alibi", "absolute"
GATED = {"geglu": "gelu", "reglu": "relu"}
"""Kinds of its network → the activation of the gate."""
NORMED = "qk-post-norm"
"""In the name of the code that a file points to, where queries and keys pass norms."""


class Config(AbleToDecode):
    """`JinaBertConfig` of its own code: files say `bert`, and a class of JinaBERT."""

    feed_forward_type: Word = "original"
    query_key_norm: Switch = False

    stems: ClassVar = ("JinaBert",)
    heads: ClassVar = of_texts("bert.")
    understood: ClassVar = {"is_decoder": False}
    uncounted: ClassVar = AbleToDecode.uncounted - {"position_embedding_type"}
    harmless: ClassVar = frozenset({"emb_pooler", "attn_implementation", "model_max_length"})

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked fields, defaults and unknown names."""
        code = raw.get("auto_map")
        if isinstance(code, Mapping) and any(NORMED in str(value) for value in code.values()):
            raw = {"query_key_norm": True, **raw}
        return super().read(raw)

    def attention(self) -> Attention:
        """BERT's, with scores by distance, and norms of queries and keys in one of its codes."""
        norm = QKNorm(self.layer_norm_eps, together=True, kind="layer") if self.query_key_norm else None
        return replace(super().attention(), alibi=self.position_embedding_type == ALIBI, qk_norm=norm)

    def network(self) -> FeedForward:
        """A gated network, whose last product has a bias. Raises ConfigError."""
        return FeedForward(
            hidden=self.hidden_size,
            width=self.intermediate_size,
            gated=True,
            down_bias=True,
            activation=GATED[self.feed_forward_type],
        )

    def positions(self) -> Positions | None:
        """None where scores say how far a token is."""
        return None if self.position_embedding_type == ALIBI else super().positions()

    def check(self) -> None:
        """Refuse what is not understood. Raises ConfigError."""
        super().check()
        for name, known in (("position_embedding_type", (ALIBI, TABLE)), ("feed_forward_type", tuple(GATED))):
            if getattr(self, name) not in known:
                raise self.refused(name, getattr(self, name))
