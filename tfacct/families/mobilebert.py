"""MobileBERT: BERT's encoder, each block of it between products that make its tokens narrow and wide again."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.blocks import Block, Stack, Sublayer
from tfacct.architecture.parts import Embedding, Head, NarrowAttention, NarrowNetworks, Norm, Positions, Segments
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Layers, Switch, Word, share
from tfacct.families._bert_like import BertLike, class_table
from tfacct.families._endings import Ending
from tfacct.families._overlapping import NAMES
from tfacct.families.bert import of_texts

RELEASED = "2020-04"

BODY_AT = "mobilebert."
LAYER = "mobilebert.encoder.layer.*"
SCORED = "cls.predictions"
HEAD = {
    "lm_head.transform": f"{SCORED}.transform.dense",
    "lm_head.norm": f"{SCORED}.transform.LayerNorm",
    "lm_head": SCORED,
    "lm_head.rest": SCORED,
}
OWN = {
    **{f"{ours}{norm}": f"{LAYER}.bottleneck.{theirs}.{module}"
       for ours, theirs in (("input", "input"), ("shared", "attention"))
       for norm, module in (("", "dense"), ("_norm", "LayerNorm"))},
    **{f"{which}_proj": f"{LAYER}.attention.self.{name}" for which, name in NAMES.items()},
    "scores": f"{LAYER}.attention.self",
    "values": f"{LAYER}.attention.self",
    "o_proj": f"{LAYER}.attention.output.dense",
    "narrow_norm": f"{LAYER}.attention.output.LayerNorm",
}  # fmt: skip


class Config(BertLike):
    """`MobileBertConfig`, with its class's defaults: `MobileBertForMaskedLM`, or the class that `architectures`
    names."""

    hidden_size: Count = 512
    num_hidden_layers: Layers = 24
    num_attention_heads: Count = 4
    intermediate_size: Count = 512
    type_vocab_size: Count = 2
    hidden_act: Word = "relu"
    embedding_size: Count = 128
    intra_bottleneck_size: Count = 128
    num_feedforward_networks: Count = 4
    classifier_activation: Switch = True
    trigram_input: Switch = True
    use_bottleneck: Switch = True
    use_bottleneck_attention: Switch = False
    key_query_shared_bottleneck: Switch = True
    normalization_type: Word = "no_norm"
    true_hidden_size: Count | None = None

    understood: ClassVar = {
        "trigram_input": True,
        "use_bottleneck": True,
        "use_bottleneck_attention": False,
        "key_query_shared_bottleneck": True,
        "normalization_type": "no_norm",
    }
    uncounted: ClassVar = BertLike.uncounted | {*understood, "true_hidden_size"}
    stems: ClassVar = ("MobileBert",)
    heads: ClassVar = of_texts(BODY_AT)
    body: ClassVar = BODY_AT
    hf_paths: ClassVar = {
        ours: theirs for ours, theirs in class_table(BODY_AT, HEAD).items() if not ours.startswith("blocks.")
    } | {
        "embed.project": f"{BODY_AT}embeddings.embedding_transformation",
        **{f"blocks.*.attn.{ours}": theirs for ours, theirs in OWN.items()},
        "blocks.*.mlp.output": f"{LAYER}.output.bottleneck.dense",
        "blocks.*.mlp_norm": f"{LAYER}.output.bottleneck.LayerNorm",
    }
    hf_tensors: ClassVar = {"lm_head.bias": f"{SCORED}.bias", "lm_head.rest.weight": f"{SCORED}.dense.weight"}
    inputs_first: ClassVar = ("lm_head.rest",)

    @property
    def ending(self) -> Ending:
        """Ending of its class; without an activation the pooler is the first token's vector."""
        whole = super().ending
        if self.classifier_activation or not whole.pooler:
            return whole
        paths = {ours: theirs for ours, theirs in whole.paths.items() if ours != "pooler"}
        return replace(whole, pooler=False, first=whole.head == "classes", paths=paths)

    def class_paths(self) -> Mapping[str, str]:
        """With the networks, of which the last has other names."""
        found = dict(self.hf_paths)
        for number in range(self.num_feedforward_networks):
            last = number == self.num_feedforward_networks - 1
            theirs = LAYER if last else f"{LAYER}.ffn.{number}"
            at = f"blocks.*.mlp.networks.{number}"
            found |= {f"{at}.up_proj": f"{theirs}.intermediate.dense", f"{at}.down_proj": f"{theirs}.output.dense"}
            found[f"{at}.norm"] = f"{theirs}.output.LayerNorm"
        return found

    def norm(self) -> Norm:
        """Scale and shift over the hidden size."""
        return Norm(hidden=self.hidden_size, kind="affine")

    def block(self) -> Block:
        """Attention of narrow tokens, whose result the networks read; theirs is added to the stream."""
        heads, narrow = self.num_attention_heads, self.intra_bottleneck_size
        attention = NarrowAttention(
            hidden=self.hidden_size,
            kv_heads=heads,
            group=1,
            head_dim=share(narrow, heads, "intra_bottleneck_size by num_attention_heads"),
            qkv_bias=True,
            out_bias=True,
            causal=False,
            narrow=narrow,
        )
        networks = NarrowNetworks(
            hidden=self.hidden_size,
            width=self.intermediate_size,
            activation=self.hidden_act,
            narrow=narrow,
            count=self.num_feedforward_networks,
        )
        return Block((Sublayer(attention, gives="next"), Sublayer(networks, self.norm())), order="post")

    def architecture(self) -> Transformer:
        """Tables and a product of three rows, blocks in bottlenecks, and a head over two matrices. Raises
        ConfigError."""
        self.check()
        if self.true_hidden_size not in (None, self.intra_bottleneck_size):
            raise self.refused("true_hidden_size", self.true_hidden_size)
        hidden, table = self.hidden_size, self.embedding_size
        if table >= hidden:
            raise ConfigError(
                f"embedding_size = {table:,} is not less than hidden_size = {hidden:,}: the head has a matrix for the"
                " rest"
            )
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden, width=table, bias=True, beside=True),
            positions=Positions(rows=self.max_position_embeddings, hidden=hidden),
            segments=Segments(rows=self.type_vocab_size, hidden=hidden),
            embed_norm=self.norm(),
            stacks=(Stack(self.block(), self.num_hidden_layers),),
            final_norm=None,
            head=Head(
                hidden=hidden,
                vocab=self.vocab_size,
                width=table,
                rest=hidden - table,
                tied=True,
                bias=True,
                transform=self.hidden_act,
                eps=self.layer_norm_eps,
            ),
        )
