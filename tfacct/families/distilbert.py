"""DistilBERT: BERT's encoder with half the layers, and without segments and pooler."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Pooler
from tfacct.families._base import Count, Layers, Switch, Word
from tfacct.families._bert_like import ENCODING, Encoding, Sizes
from tfacct.families._endings import BODY

RELEASED = "2019-10"

FRONT = {
    "embed": "word_embeddings",
    "pos_embed": "position_embeddings",
    "embed_norm": "LayerNorm",
}
LAYER: Mapping[str, str] = {
    "attn.q_proj": "attention.q_lin",
    "attn.k_proj": "attention.k_lin",
    "attn.v_proj": "attention.v_lin",
    "attn.scores": "attention",
    "attn.values": "attention",
    "attn.o_proj": "attention.out_lin",
    "attn_norm": "sa_layer_norm",
    "mlp.up_proj": "ffn.lin1",
    "mlp.down_proj": "ffn.lin2",
    "mlp_norm": "output_layer_norm",
}


class Config(Encoding):
    """`DistilBertConfig`, with its class's defaults: `DistilBertForMaskedLM`, or what `architectures` names."""

    vocab_size: Count = 30522
    dim: Count = 768
    n_layers: Layers = 6
    n_heads: Count = 12
    hidden_dim: Count = 3072
    max_position_embeddings: Count = 512
    tie_word_embeddings: Switch = True
    activation: Word = "gelu"

    dropouts: ClassVar = {
        "embedding": ("dropout", 0.1),
        "mlp": ("dropout", 0.1),
        "attention": ("attention_dropout", 0.1),
        "classifier": ("seq_classif_dropout", 0.2),
    }
    changes_training: ClassVar = frozenset({"chunk_size_feed_forward"})
    stems: ClassVar = ("DistilBert",)
    aliases: ClassVar = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
    uncounted: ClassVar = frozenset({"activation"})
    harmless: ClassVar = frozenset({"sinusoidal_pos_embds", "tie_weights_"})
    heads: ClassVar = {
        **ENCODING,
        "Model": BODY,
        "ForSequenceClassification": replace(
            ENCODING["ForSequenceClassification"], paths={"pooler": "pre_classifier", "classifier": "classifier"}
        ),
    }
    body: ClassVar = "distilbert."
    hf_paths: ClassVar = {
        **{ours: f"distilbert.embeddings.{theirs}" for ours, theirs in FRONT.items()},
        **{f"blocks.*.{ours}": f"distilbert.transformer.layer.*.{theirs}" for ours, theirs in LAYER.items()},
        "lm_head.transform": "vocab_transform",
        "lm_head.norm": "vocab_layer_norm",
        "lm_head": "vocab_projector",
    }
    gotchas: ClassVar = (
        "An encoder: every token sees all others, nothing is kept between steps, and there is no decode step.",
        "dim is the hidden size and hidden_dim the width of the networks; the class reads no intermediate_size.",
        "DistilBertModel has no pooler. DistilBertForSequenceClassification has a product of the first position, and an"
        " activation, in front of the classes.",
        "sinusoidal_pos_embds says how the position table begins: it is stored and trained either way.",
    )

    @property
    def sizes(self) -> Sizes:
        """Sizes by the class's names."""
        return Sizes(
            vocab=self.vocab_size,
            hidden=self.dim,
            layers=self.n_layers,
            heads=self.n_heads,
            width=self.hidden_dim,
            rows=self.max_position_embeddings,
            activation=self.activation,
        )

    def pooler(self, hidden: Any) -> Pooler:
        """Product of the first position, and ReLU."""
        return Pooler(hidden=hidden, activation="relu")
