"""ESM C, an encoder of proteins: gated networks and rotary positions, norms of queries and keys, factors by depth."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Head, Norm, Pooler, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Switch
from tfacct.families._bert_like import ENCODING, MASKED
from tfacct.families._endings import BODY, TOKENS, Ending
from tfacct.families._llama_like import OWN_SHARE, QK_NORM_PATHS, LlamaLike

RELEASED = "2024-12"

BODY_AT = "esmc."
EPS = 1e-5
"""ε of all norms in the class."""
SHALLOW = 36
"""Blocks of a model whose results are added as they are."""


class Config(LlamaLike):
    """`EsmcConfig`, with its class's defaults: `EsmcForMaskedLM`, or what `architectures` names."""

    vocab_size: Count = 64
    hidden_size: Count = 2560
    intermediate_size: Count = 6912
    num_hidden_layers: Layers = 80
    num_attention_heads: Count = 40
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 2048
    attention_bias: Switch = False
    mlp_bias: Switch = False

    stems: ClassVar = ("Esmc",)
    nulls: ClassVar = OWN_SHARE
    harmless: ClassVar = frozenset({"mask_token_id"})
    fixed: ClassVar = frozenset("G")
    body: ClassVar = BODY_AT
    heads: ClassVar[Mapping[str, Ending]] = {
        "ForMaskedLM": MASKED,
        "Model": BODY,
        "ForSequenceClassification": ENCODING["ForSequenceClassification"],
        "ForTokenClassification": TOKENS,
    }
    hf_paths: ClassVar = {
        **{our: their.replace("model.", BODY_AT) for our, their in {**LlamaLike.hf_paths, **QK_NORM_PATHS}.items()},
        "lm_head.transform": "lm_head.dense",
        "lm_head.norm": "lm_head.layer_norm",
        "lm_head": "lm_head.decoder",
    }

    def norm(self) -> Norm:
        """LayerNorm over the hidden size."""
        return Norm(hidden=self.hidden_size, kind="layer", eps=EPS)

    def pooler(self, hidden: Any) -> Pooler:
        """What stands in front of the classes of a protein: a product of its first position, and a tanh."""
        return Pooler(hidden=hidden)

    def architecture(self) -> Transformer:
        """Blocks that are not causal, whose results have a factor."""
        self.whole_heads()
        if self.num_key_value_heads != self.num_attention_heads:
            raise self.refused("num_key_value_heads", self.num_key_value_heads)
        if self.tie_word_embeddings and self.ending.head == "lm":
            raise self.refused("tie_word_embeddings", True)
        biased, norm = self.attention_bias, self.norm()
        normed = QKNorm(EPS, together=True, kind="layer", shift=False)
        attention = self.attention(qkv_bias=biased, out_bias=biased, causal=False, qk_norm=normed)
        factor = (SHALLOW / self.num_hidden_layers) ** 0.5
        parts = (attention, self.feed_forward(bias=self.mlp_bias))
        return self.decoder(
            self.equal_blocks(Block(tuple(Sublayer(part, norm, factor=factor) for part in parts))),
            final_norm=Norm(hidden=self.hidden_size, kind="layer", learned="scale", eps=EPS),
            head=Head(hidden=self.hidden_size, vocab=self.vocab_size, bias=True, transform="gelu", eps=EPS),
        )
