"""EuroBERT: Llama's blocks as an encoder, in which every token sees all others."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from tfacct.architecture.parts import Head, Pooler
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Real, Switch
from tfacct.families._bert_like import MASKED
from tfacct.families._endings import BODY, TOKENS_CLASSIFIED, Ending
from tfacct.families._llama_like import LlamaLike

RELEASED = "2025-03"


class Config(LlamaLike):
    """`EuroBertConfig`, with its class's defaults: `EuroBertForMaskedLM`, or what `architectures` names."""

    vocab_size: Count = 128256
    hidden_size: Count = 768
    intermediate_size: Count = 3072
    num_hidden_layers: Count = 12
    num_attention_heads: Count = 12
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 8192
    attention_bias: Switch = False
    mlp_bias: Switch = False
    classifier_pooling: Literal["bos", "mean", "late"] = "late"
    rms_norm_eps: Real = 1e-5

    stems: ClassVar = ("EuroBert",)
    uncounted: ClassVar = LlamaLike.uncounted | {"classifier_pooling"}
    harmless: ClassVar = frozenset(
        ("mask_token_id", "clf_pooling", "mask_token", "eos_token", "pad_token", "bos_token")
    )
    heads: ClassVar = {
        "ForMaskedLM": MASKED,
        "Model": BODY,
        "ForSequenceClassification": Ending(
            "AutoModelForSequenceClassification",
            "classes",
            pooler=True,
            bias=True,
            paths={"pooler": "dense", "classifier": "classifier"},
        ),
        "ForTokenClassification": TOKENS_CLASSIFIED,
    }

    def pooler(self, hidden: Any) -> Pooler:
        """What stands in front of the classes of a sequence: a product and an activation."""
        reads: dict[str, Literal["first", "mean", "each"]] = {"bos": "first", "mean": "mean", "late": "each"}
        return Pooler(hidden=hidden, reads=reads[self.classifier_pooling], activation="gelu")

    def architecture(self) -> Transformer:
        """attention_bias is on all four projections, mlp_bias on all three and on the head."""
        biased = self.attention_bias
        attention = self.attention(qkv_bias=biased, out_bias=biased, causal=False)
        head = Head(hidden=self.hidden_size, vocab=self.vocab_size, tied=self.tie_word_embeddings, bias=self.mlp_bias)
        blocks = self.equal_blocks(self.block(attention, self.feed_forward(bias=self.mlp_bias)))
        return self.decoder(blocks, head=head)
