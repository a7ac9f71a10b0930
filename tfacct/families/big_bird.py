"""BigBird with full attention: BERT's encoder for longer texts."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Attention, Embedding
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.spelling import setting
from tfacct.families._base import Count, Switch, Word, shown
from tfacct.families._bert_like import ENCODING, MASKED, class_table
from tfacct.families._endings import TOKENS_CLASSIFIED
from tfacct.families._idle_pooler import StoresPooler

RELEASED = "2020-07"

HEAD = {"lm_head.transform": "transform.dense", "lm_head.norm": "transform.LayerNorm", "lm_head": "decoder"}
FULL = "original_full"


class Config(StoresPooler):
    """`BigBirdConfig`, with its class's defaults: `BigBirdForMaskedLM`, or the class that `architectures` names."""

    vocab_size: Count = 50358
    max_position_embeddings: Count = 4096
    hidden_act: Word = "gelu_new"
    attention_type: Word = "block_sparse"
    use_bias: Switch = True
    rescale_embeddings: Switch = False

    stems: ClassVar = ("BigBird",)
    uncounted: ClassVar = StoresPooler.uncounted | {"rescale_embeddings"}
    harmless: ClassVar = frozenset({"block_size", "num_random_blocks"})
    heads: ClassVar = {
        "ForMaskedLM": MASKED,
        "Model": replace(ENCODING["Model"], paths={"pooler": "pooler"}),
        "ForTokenClassification": TOKENS_CLASSIFIED,
    }
    hf_paths: ClassVar = {
        **class_table("bert.", {ours: f"cls.predictions.{theirs}" for ours, theirs in HEAD.items()}),
        "idle": "bert.pooler",
        "pooler": "bert.pooler",
    }
    hf_tensors: ClassVar = {"lm_head.bias": "cls.predictions.bias"}

    def attention(self) -> Attention:
        """BERT's; queries, keys and values with biases or without."""
        return replace(super().attention(), qkv_bias=self.use_bias)

    def architecture(self) -> Transformer:
        """BERT's, with full attention. Raises ConfigError for any other."""
        if self.attention_type != FULL:
            why = "it reads blocks of keys, some of them drawn at random, and no part here does"
            raise ConfigError(
                f"attention_type = {shown(self.attention_type)} is not counted: {why}",
                f"{setting('attention_type', FULL)} counts every pair of tokens",
            )
        shape = super().architecture()
        embed = Embedding(vocab=self.vocab_size, hidden=self.hidden_size, scaled=self.rescale_embeddings)
        return replace(shape, embed=embed)
