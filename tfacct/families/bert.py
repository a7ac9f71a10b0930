"""BERT: bidirectional attention over a whole text, post-norm blocks, and the head that predicts masked tokens."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Positions, Segments
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch, Word, share
from tfacct.families._endings import SCORED, TOKENS_CLASSIFIED, Ending


class Config(FamilyConfig):
    """`model_type = "bert"`: `BertForMaskedLM`, or the class that `architectures` names."""

    vocab_size: Count = 30522
    hidden_size: Count = 768
    num_hidden_layers: Layers = 12
    num_attention_heads: Count = 12
    intermediate_size: Count = 3072
    max_position_embeddings: Count = 512
    type_vocab_size: Count = 2
    tie_word_embeddings: Switch = True
    position_embedding_type: Word = "absolute"
    is_decoder: Switch = False
    hidden_act: Word = "gelu"
    layer_norm_eps: Real = 1e-12

    stems: ClassVar = ("Bert",)
    uncounted: ClassVar = frozenset(("hidden_act", "layer_norm_eps", "position_embedding_type", "is_decoder"))
    harmless: ClassVar = frozenset(
        """
        directionality pooler_fc_size pooler_num_attention_heads
        pooler_num_fc_layers pooler_size_per_head pooler_type
        """.split()
    )
    heads: ClassVar = {
        "ForMaskedLM": Ending("AutoModelForMaskedLM"),
        "Model": Ending("AutoModel", "none", pooler=True, paths={"pooler": "pooler.dense"}, body=""),
        "ForSequenceClassification": replace(
            SCORED, pooler=True, bias=True, paths={"pooler": "bert.pooler.dense", "classifier": "classifier"}
        ),
        "ForTokenClassification": TOKENS_CLASSIFIED,
    }
    body: ClassVar = "bert."
    fixed: ClassVar = frozenset("G")
    hf_paths: ClassVar = {
        "embed": "bert.embeddings.word_embeddings",
        "pos_embed": "bert.embeddings.position_embeddings",
        "type_embed": "bert.embeddings.token_type_embeddings",
        "embed_norm": "bert.embeddings.LayerNorm",
        "blocks.*.attn.q_proj": "bert.encoder.layer.*.attention.self.query",
        "blocks.*.attn.k_proj": "bert.encoder.layer.*.attention.self.key",
        "blocks.*.attn.v_proj": "bert.encoder.layer.*.attention.self.value",
        "blocks.*.attn.scores": "bert.encoder.layer.*.attention.self",
        "blocks.*.attn.values": "bert.encoder.layer.*.attention.self",
        "blocks.*.attn.o_proj": "bert.encoder.layer.*.attention.output.dense",
        "blocks.*.attn_norm": "bert.encoder.layer.*.attention.output.LayerNorm",
        "blocks.*.mlp.up_proj": "bert.encoder.layer.*.intermediate.dense",
        "blocks.*.mlp.down_proj": "bert.encoder.layer.*.output.dense",
        "blocks.*.mlp_norm": "bert.encoder.layer.*.output.LayerNorm",
        "lm_head.transform": "cls.predictions.transform.dense",
        "lm_head.norm": "cls.predictions.transform.LayerNorm",
        "lm_head": "cls.predictions.decoder",
    }
    hf_tensors: ClassVar = {"lm_head.bias": "cls.predictions.bias"}
    gotchas: ClassVar = (
        "An encoder: every token sees all others, nothing is kept between steps, and there is no decode step.",
        "Without `architectures`, the head is that of the masked language model: a hidden-size product, a LayerNorm,"
        " and logits over the tied token table, with a bias. BertModel has a pooler instead, and no logits."
        " BertForSequenceClassification has a pooler and classes, BertForTokenClassification classes for every"
        " position.",
        "A position_embedding_type other than absolute is refused, and so is is_decoder = true.",
    )

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    def architecture(self) -> Transformer:
        """Three tables and a norm, post-norm blocks that are not causal, and a head with a transform."""
        for name, understood in (("position_embedding_type", "absolute"), ("is_decoder", False)):
            if getattr(self, name) != understood:
                raise self.refused(name, getattr(self, name))
        if not self.tie_word_embeddings and self.ending.head == "lm":
            raise self.refused("tie_word_embeddings", False)
        hidden, heads = self.hidden_size, self.num_attention_heads
        norm = Norm(hidden=hidden, kind="layer", eps=self.layer_norm_eps)
        attention = Attention(
            hidden=hidden,
            kv_heads=heads,
            group=1,
            head_dim=share(hidden, heads, "hidden_size by num_attention_heads"),
            qkv_bias=True,
            out_bias=True,
            causal=False,
        )
        network = FeedForward(hidden=hidden, width=self.intermediate_size, bias=True, activation=self.hidden_act)
        head = Head(
            hidden=hidden,
            vocab=self.vocab_size,
            tied=True,
            bias=True,
            transform=self.hidden_act,
            eps=self.layer_norm_eps,
        )
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            positions=Positions(rows=self.max_position_embeddings, hidden=hidden),
            segments=Segments(rows=self.type_vocab_size, hidden=hidden),
            embed_norm=norm,
            stacks=(Stack(Block.of(attention, network, norm=norm, order="post"), self.num_hidden_layers),),
            final_norm=None,
            head=head,
        )
