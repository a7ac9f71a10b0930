"""Gemma: Llama's block with its own head size, GELU as the activation, and a tied, scaled embedding."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Switch
from tfacct.families._gemma_like import PREFIX_SAID, GemmaLike

RELEASED = "2024-02"


class Config(GemmaLike):
    """`GemmaConfig`, with its class's defaults."""

    intermediate_size: Count = 24576
    num_key_value_heads: Count = 16
    use_bidirectional_attention: Switch | None = None

    changes_training: ClassVar = frozenset({"use_bidirectional_attention"})
    inside: ClassVar[Mapping[str, int]] = {
        "vocab_size": 256000,
        "hidden_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
    }
    stems: ClassVar = ("Gemma",)
    harmless: ClassVar = frozenset({"hidden_activation"})
    gotchas: ClassVar = (
        *GemmaLike.gotchas,
        PREFIX_SAID,
        "`gelu` in hidden_act means the tanh form. The class corrects it as well.",
    )

    @property
    def activation(self) -> str:
        """The first releases say `gelu` and mean its tanh form; the class corrects it too."""
        return "gelu_pytorch_tanh" if self.hidden_act == "gelu" else self.hidden_act

    def architecture(self) -> Transformer:
        """Equal pre-norm blocks."""
        attention = self.attention(prefix=bool(self.use_bidirectional_attention))
        return self.decoder(self.equal_blocks(self.block(attention, self.feed_forward())))
