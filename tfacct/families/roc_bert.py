"""RoCBert: BERT's encoder of Chinese, whose tokens have a shape and a sound beside their own row."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import ShapedEmbedding
from tfacct.architecture.transformer import Transformer
from tfacct.families import bert
from tfacct.families._base import Count, Switch
from tfacct.families._bert_like import AbleToDecode

RELEASED = "2022-05"

BODY_AT = "roc_bert."
TABLES = {"shapes": "shape_embed", "sounds": "pronunciation_embed", "project": "map_inputs_layer"}


class Config(bert.Config):
    """`RoCBertConfig`, with its class's defaults: `RoCBertForMaskedLM`, or the class that `architectures` names."""

    shape_vocab_size: Count = 24858
    shape_embed_dim: Count = 512
    pronunciation_vocab_size: Count = 910
    pronunciation_embed_dim: Count = 768
    enable_shape: Switch = True
    enable_pronunciation: Switch = True
    concat_input: Switch = True

    understood: ClassVar = {
        **AbleToDecode.understood,
        "enable_shape": True,
        "enable_pronunciation": True,
        "concat_input": True,
    }
    uncounted: ClassVar = AbleToDecode.uncounted | {*understood}
    stems: ClassVar = ("RoCBert",)
    harmless: ClassVar = frozenset()
    heads: ClassVar = bert.of_texts(BODY_AT)
    body: ClassVar = BODY_AT
    hf_paths: ClassVar = {
        **{ours: theirs.replace("bert.", BODY_AT) for ours, theirs in bert.Config.hf_paths.items()},
        **{f"embed.{ours}": f"{BODY_AT}embeddings.{theirs}" for ours, theirs in TABLES.items()},
    }

    def architecture(self) -> Transformer:
        """BERT's, with tables of shapes and sounds."""
        embed = ShapedEmbedding(
            vocab=self.vocab_size,
            hidden=self.hidden_size,
            shapes=self.shape_vocab_size,
            shape_dim=self.shape_embed_dim,
            sounds=self.pronunciation_vocab_size,
            sound_dim=self.pronunciation_embed_dim,
        )
        return replace(super().architecture(), embed=embed)
