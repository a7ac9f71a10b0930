"""Gemma: Llama's block with heads of a size of their own, an activation of GELU, and a tied, scaled embedding."""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture import Transformer
from tfacct.families._base import Count, Switch, Word
from tfacct.families._llama_like import LlamaLike


class Config(LlamaLike):
    """`GemmaConfig`, with its class's defaults. The head is tied unless the config says otherwise."""

    intermediate_size: Count = 24576
    num_key_value_heads: Count = 16
    head_dim: Count = 256
    max_position_embeddings: Count = 8192
    tie_word_embeddings: Switch = True
    hidden_act: Word = "gelu_pytorch_tanh"
    attention_bias: Switch = False

    harmless: ClassVar = frozenset({"hidden_activation"})

    @property
    def activation(self) -> str:
        """The first releases say `gelu` and mean its tanh form; the class corrects it too."""
        return "gelu_pytorch_tanh" if self.hidden_act == "gelu" else self.hidden_act

    def architecture(self) -> Transformer:
        """Token rows times √hidden_size; the scales of norms are stored less 1."""
        biased = self.attention_bias
        return self.with_biases(qkv=biased, out=biased, mlp=False, less_one=True, scaled=True)
