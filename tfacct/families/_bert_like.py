"""Shared by BERT and its relatives: an encoder alone, with tables in front, post-norm blocks, several heads."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Positions, Segments
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch, Word, share
from tfacct.families._endings import ANSWERS, SCORED, TOKENS_CLASSIFIED, Ending

MASKED = Ending("AutoModelForMaskedLM")
ENCODING: Mapping[str, Ending] = {
    "ForMaskedLM": MASKED,
    "Model": Ending("AutoModel", "none", pooler=True, paths={"pooler": "pooler.dense"}, body=""),
    "ForSequenceClassification": replace(
        SCORED, pooler=True, bias=True, paths={"pooler": "classifier.dense", "classifier": "classifier.out_proj"}
    ),
    "ForTokenClassification": TOKENS_CLASSIFIED,
    "ForQuestionAnswering": ANSWERS,
}
"""The classes of an encoder: a masked language model's head, a body with a pooler, classes of the sequence behind a
product of their own, classes of every position, the ends of an answer."""

LAYER = {
    "attn.q_proj": "attention.self.query",
    "attn.k_proj": "attention.self.key",
    "attn.v_proj": "attention.self.value",
    "attn.scores": "attention.self",
    "attn.values": "attention.self",
    "attn.o_proj": "attention.output.dense",
    "attn_norm": "attention.output.LayerNorm",
    "mlp.up_proj": "intermediate.dense",
    "mlp.down_proj": "output.dense",
    "mlp_norm": "output.LayerNorm",
}
"""Modules of one layer, ours → the class's."""
TABLES = {
    "embed": "embeddings.word_embeddings",
    "pos_embed": "embeddings.position_embeddings",
    "type_embed": "embeddings.token_type_embeddings",
    "embed_norm": "embeddings.LayerNorm",
}
LM_HEAD = {"lm_head.transform": "lm_head.dense", "lm_head.norm": "lm_head.layer_norm", "lm_head": "lm_head.decoder"}
"""The masked language model's head, as RoBERTa and its relatives name it."""


def class_table(body: str, head: Mapping[str, str], **others: str) -> dict[str, str]:
    """Our paths → those of a class whose body stands under `body`; `others`: tables that BERT has not, or elsewhere."""
    tables = {ours: f"{body}{theirs}" for ours, theirs in {**TABLES, **others}.items()}
    layers = {f"blocks.*.{ours}": f"{body}encoder.layer.*.{theirs}" for ours, theirs in LAYER.items()}
    return {**tables, **layers, **head}


class BertLike(FamilyConfig):
    """Fields of the family, and the encoder that they describe."""

    vocab_size: Count = 30522
    hidden_size: Count = 768
    num_hidden_layers: Layers = 12
    num_attention_heads: Count = 12
    intermediate_size: Count = 3072
    max_position_embeddings: Count = 512
    tie_word_embeddings: Switch = True
    is_decoder: Switch = False
    hidden_act: Word = "gelu"
    layer_norm_eps: Real = 1e-12

    uncounted: ClassVar = frozenset(("hidden_act", "layer_norm_eps", "is_decoder"))
    understood: ClassVar[Mapping[str, object]] = {"is_decoder": False}
    """Fields that the class reads and no part here expresses, and the value that is counted."""
    heads: ClassVar = ENCODING
    head_act: ClassVar[str | None] = None
    """Activation of the head's transform, where it is not hidden_act."""
    body: ClassVar = "bert."
    fixed: ClassVar = frozenset("G")

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    @property
    def head_dim(self) -> int:
        """Size of a head, a share of the hidden size."""
        return share(self.hidden_size, self.num_attention_heads, "hidden_size by num_attention_heads")

    def norm(self) -> Norm:
        """LayerNorm over the hidden size."""
        return Norm(hidden=self.hidden_size, kind="layer", eps=self.layer_norm_eps)

    def attention(self) -> Attention:
        """Heads with keys of their own, biases on all four projections; every token sees all others."""
        return Attention(
            hidden=self.hidden_size,
            kv_heads=self.num_attention_heads,
            group=1,
            head_dim=self.head_dim,
            qkv_bias=True,
            out_bias=True,
            causal=False,
        )

    def block(self) -> Block:
        """Attention and a network of two matrices with biases, a norm behind each addition."""
        network = FeedForward(
            hidden=self.hidden_size, width=self.intermediate_size, bias=True, activation=self.hidden_act
        )
        return Block.of(self.attention(), network, norm=self.norm(), order="post")

    def positions(self) -> Positions | None:
        """Table of positions."""
        return Positions(rows=self.max_position_embeddings, hidden=self.hidden_size)

    def segments(self) -> Segments | None:
        """Table of the segments of a text, in those of the family that have one."""
        rows = getattr(self, "type_vocab_size", None)
        return Segments(rows=rows, hidden=self.hidden_size) if rows else None

    def head(self) -> Head:
        """Logits over the tied token table, with a bias, behind a product, its activation and a LayerNorm."""
        return Head(
            hidden=self.hidden_size,
            vocab=self.vocab_size,
            tied=True,
            bias=True,
            transform=self.head_act or self.hidden_act,
            eps=self.layer_norm_eps,
        )

    def check(self) -> None:
        """Refuse what is not understood. Raises ConfigError."""
        for name, understood in self.understood.items():
            if getattr(self, name) != understood:
                raise self.refused(name, getattr(self, name))
        if not self.tie_word_embeddings and self.ending.head == "lm":
            raise self.refused("tie_word_embeddings", False)

    def architecture(self) -> Transformer:
        """Tables and a norm, post-norm blocks that are not causal, and a head with a transform."""
        self.check()
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=self.hidden_size),
            positions=self.positions(),
            segments=self.segments(),
            embed_norm=self.norm(),
            stacks=(Stack(self.block(), self.num_hidden_layers),),
            final_norm=None,
            head=self.head(),
        )
