"""Shared by the Gemma families: scales stored less 1, a tied and scaled embedding, heads of a size of their own."""

from collections.abc import Sequence
from typing import Any

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, Embedding, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Switch, Word
from tfacct.families._llama_like import LlamaLike

PREFIX_SAID = (
    "With use_bidirectional_attention, as in a PaliGemma, the tokens of a prefix see one another. No product and no"
    " cache changes; --masked is refused."
)


class GemmaLike(LlamaLike):
    """The fields that the Gemma families spell alike. The head is tied unless the config says otherwise."""

    head_dim: Count = 256
    max_position_embeddings: Count = 8192
    tie_word_embeddings: Switch = True
    hidden_act: Word = "gelu_pytorch_tanh"
    attention_bias: Switch = False

    def norm(self) -> Norm:
        """RMSNorm whose weight is the scale less 1."""
        return Norm(hidden=self.hidden_size, kind="rms", eps=self.rms_norm_eps, less_one=True)

    def attention(self, **own: Any) -> Attention:
        """attention_bias is on all four projections."""
        return LlamaLike.attention(self, **{"qkv_bias": self.attention_bias, "out_bias": self.attention_bias, **own})

    def decoder(self, blocks: Sequence[Block], **own: Any) -> Transformer:
        """Token rows times √hidden_size."""
        return LlamaLike.decoder(
            self, blocks, **{"embed": Embedding(vocab=self.vocab_size, hidden=self.hidden_size, scaled=True), **own}
        )
