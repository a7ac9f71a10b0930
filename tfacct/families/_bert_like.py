"""Shared by BERT and its relatives: an encoder alone, with tables in front, post-norm blocks, several heads."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from tfacct.architecture.blocks import Block, Order, Stack
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Positions, RelativeBias, Segments
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
PRETRAINED = Ending("AutoModelForPreTraining", pooler=True, bias=True, also=True)
"""A masked language model's head, and scores of a pair of texts beside it."""

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


class Sizes(NamedTuple):
    """Sizes of an encoder, whatever its config calls them. `table`: width of its tables where it is not `hidden`."""

    vocab: int
    hidden: int
    layers: int
    heads: int
    width: int
    rows: int
    segments: int = 0
    table: int | None = None
    activation: str = "gelu"
    eps: float = 1e-12


class Encoding(FamilyConfig):
    """An encoder as BERT is one, from `sizes`."""

    understood: ClassVar[Mapping[str, object]] = {}
    """Fields that the class reads and no part here expresses, and the value that is counted."""
    heads: ClassVar = ENCODING
    head_act: ClassVar[str | None] = None
    """Activation of the head's transform, where it is not that of the networks."""
    body: ClassVar = "bert."
    fixed: ClassVar = frozenset("G")
    once: ClassVar[bool] = False
    """Whether all blocks share the weights of one."""
    order: ClassVar[Order] = "post"
    """How its blocks run. One that has its norms in front has one behind the last block too."""
    head_first: ClassVar[bool] = False
    """Whether its language model's head stands in front of the body, and names the table that is tied."""
    front_norm: ClassVar[bool] = True
    """Whether a norm stands behind the tables."""
    unties: ClassVar[bool] = False
    """Whether a head that is not tied, and still has one bias, is the class's."""

    @property
    def sizes(self) -> Sizes:
        """Sizes of the encoder."""
        raise NotImplementedError

    @property
    def context(self) -> int:
        """Positions that the table has."""
        return self.sizes.rows

    @property
    def row(self) -> dict[str, Any]:
        """Length of the rows in front of the blocks, as parts take it."""
        hidden, table = self.sizes.hidden, self.sizes.table
        return {"hidden": hidden if table is None else table, "narrow": table is not None}

    def norm(self) -> Norm:
        """LayerNorm over the hidden size."""
        return Norm(hidden=self.sizes.hidden, kind="layer", eps=self.sizes.eps)

    def attention(self) -> Attention:
        """Heads with keys of their own, biases on all four projections; every token sees all others."""
        hidden, heads = self.sizes.hidden, self.sizes.heads
        size = share(hidden, heads, "hidden_size by num_attention_heads")
        return Attention(
            hidden=hidden, kv_heads=heads, group=1, head_dim=size, qkv_bias=True, out_bias=True, causal=False
        )

    def network(self) -> FeedForward:
        """Two matrices with biases."""
        sizes = self.sizes
        return FeedForward(hidden=sizes.hidden, width=sizes.width, bias=True, activation=sizes.activation)

    def positions(self) -> Positions | None:
        """Table of positions."""
        return Positions(rows=self.sizes.rows, **self.row)

    def distances(self) -> RelativeBias | None:
        """Learned scores of the distances between tokens, in those of the family that have some."""
        return None

    def head(self) -> Head:
        """Logits over the tied token table, with a bias, behind a product, its activation and a LayerNorm."""
        sizes = self.sizes
        return Head(
            hidden=sizes.hidden,
            vocab=sizes.vocab,
            width=sizes.table,
            tied=getattr(self, "tie_word_embeddings", True),
            bias=True,
            transform=self.head_act or sizes.activation,
            eps=sizes.eps,
        )

    def tensors(self) -> dict[str, str]:
        """Our tensors → the class's."""
        named_by_head = self.head_first and self.ending.head == "lm"
        return {**super().tensors(), **({"embed.weight": "lm_head.decoder.weight"} if named_by_head else {})}

    def check(self) -> None:
        """Refuse what is not understood. Raises ConfigError."""
        for name, understood in self.understood.items():
            if getattr(self, name) != understood:
                raise self.refused(name, getattr(self, name))
        if not (self.unties or getattr(self, "tie_word_embeddings", True)) and self.ending.head == "lm":
            raise self.refused("tie_word_embeddings", False)

    def architecture(self) -> Transformer:
        """Tables and a norm, blocks that are not causal, and a head with a transform."""
        self.check()
        sizes = self.sizes
        block = Block.of(self.attention(), self.network(), norm=self.norm(), order=self.order)
        wide: dict[str, Any] = {} if sizes.table is None else {"width": sizes.table, "late": True, "bias": True}
        return Transformer(
            embed=Embedding(vocab=sizes.vocab, hidden=sizes.hidden, **wide),
            positions=self.positions(),
            segments=Segments(rows=sizes.segments, **self.row) if sizes.segments else None,
            bias=self.distances(),
            embed_norm=Norm(kind="layer", eps=sizes.eps, **self.row) if self.front_norm else None,
            stacks=(Stack(block, sizes.layers, once=self.once),),
            final_norm=self.norm() if self.order == "pre" else None,
            head=self.head(),
        )


class BertLike(Encoding):
    """Fields that most of the family spell alike."""

    vocab_size: Count = 30522
    hidden_size: Count = 768
    num_hidden_layers: Layers = 12
    num_attention_heads: Count = 12
    intermediate_size: Count = 3072
    max_position_embeddings: Count = 512
    tie_word_embeddings: Switch = True
    hidden_act: Word = "gelu"
    layer_norm_eps: Real = 1e-12

    uncounted: ClassVar[frozenset[str]] = frozenset(("hidden_act", "layer_norm_eps"))

    @property
    def sizes(self) -> Sizes:
        """Sizes by the family's names; segments and narrow tables in those that have some."""
        table = getattr(self, "embedding_size", None)
        return Sizes(
            vocab=self.vocab_size,
            hidden=self.hidden_size,
            layers=self.num_hidden_layers,
            heads=self.num_attention_heads,
            width=self.intermediate_size,
            rows=self.max_position_embeddings,
            segments=getattr(self, "type_vocab_size", 0),
            table=None if table == self.hidden_size else table,
            activation=self.hidden_act,
            eps=self.layer_norm_eps,
        )


class AbleToDecode(BertLike):
    """Those whose classes can be decoders too, which is refused."""

    type_vocab_size: Count = 2
    is_decoder: Switch = False
    position_embedding_type: Word = "absolute"

    uncounted: ClassVar = BertLike.uncounted | {"is_decoder", "position_embedding_type"}
    understood: ClassVar = {"position_embedding_type": "absolute", "is_decoder": False}
    dropouts: ClassVar = {
        "embedding": ("hidden_dropout_prob", 0.1),
        "residual": ("hidden_dropout_prob", 0.1),
        "attention": ("attention_probs_dropout_prob", 0.1),
        "classifier": ("classifier_dropout", None),
    }
