"""OpenAI's privacy filter: gpt-oss's blocks as an encoder that labels tokens; every layer has a window both ways."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch
from tfacct.families._endings import BODY, TOKENS, Ending
from tfacct.families._llama_like import LlamaLike
from tfacct.families.gpt_oss import Biased
from tfacct.families.gpt_oss import Config as GptOss

RELEASED = "2026-04"

LABELS = 33
"""Labels that the class has where its config does not say how many: eight kinds of spans, by their places, and none."""


class Config(Biased):
    """`OpenAIPrivacyFilterConfig`, with its class's defaults, sizes too: `OpenAIPrivacyFilterForTokenClassification`,
    or what `architectures` names. intermediate_size is the width of one expert."""

    vocab_size: Count = 200064
    hidden_size: Count = 640
    intermediate_size: Count = 640
    num_hidden_layers: Layers = 8
    num_attention_heads: Count = 14
    num_key_value_heads: Count = 2
    head_dim: Count = 64
    max_position_embeddings: Count = 131072
    sliding_window: Count = 128
    attention_bias: Switch = True
    rms_norm_eps: Real = 1e-5
    rope_theta: Real | None = 150_000.0

    stems: ClassVar = ("OpenAIPrivacyFilter",)
    uncounted: ClassVar = LlamaLike.uncounted | {"tie_word_embeddings"}  # there is no head
    aliases: ClassVar = GptOss.aliases
    harmless: ClassVar = GptOss.harmless
    heads: ClassVar[Mapping[str, Ending]] = {"ForTokenClassification": TOKENS, "Model": replace(BODY, gives=False)}
    hf_paths: ClassVar = {ours: theirs for ours, theirs in GptOss.hf_paths.items() if ours != "lm_head"}
    hf_tensors: ClassVar = GptOss.hf_tensors
    inputs_first: ClassVar = GptOss.inputs_first

    def end(self, ending: Ending, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Its class has labels of its own by default."""
        defaulted = super().end(ending, raw)
        if "num_labels" not in defaulted:
            return defaulted
        self._labels = LABELS
        return {"num_labels": LABELS}

    def architecture(self) -> Transformer:
        """Blocks that are not causal. Raises ConfigError."""
        attention = self.attention(
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            sinks=True,
            causal=False,
            window=2 * self.sliding_window + 1,
        )
        return replace(self.decoder(self.equal_blocks(self.block(attention, self.experts()))), head=None)
