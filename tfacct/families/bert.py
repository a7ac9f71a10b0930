"""BERT: bidirectional attention over a whole text, post-norm blocks, and the head that predicts masked tokens."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tfacct.families._bert_like import ENCODING, PRETRAINED, AbleToDecode, class_table
from tfacct.families._endings import Ending

RELEASED = "2018-10"


def of_texts(body: str) -> Mapping[str, Ending]:
    """Classes of a body by this name, whose pooler stands in front of the classes of a text."""
    paths = {"pooler": f"{body}pooler.dense", "classifier": "classifier"}
    return {**ENCODING, "ForSequenceClassification": replace(ENCODING["ForSequenceClassification"], paths=paths)}


def with_pairs(body: str) -> Mapping[str, Ending]:
    """BERT's classes, of a body by this name: two also score whether one text follows another, by two numbers."""
    pooled, of_pair = {"pooler": f"{body}pooler.dense"}, {"classifier": "cls.seq_relationship"}
    texts = of_texts(body)
    classes = texts["ForSequenceClassification"]
    pair = replace(classes, auto="AutoModelForNextSentencePrediction", paths={**pooled, **of_pair})
    return {
        **texts,
        "ForPreTraining": replace(PRETRAINED, paths={**pooled, **of_pair}, scores=2, obeys=False),
        "ForNextSentencePrediction": replace(pair, scores=2, obeys=False, picks=False),
    }


class Config(AbleToDecode):
    """`model_type = "bert"`: `BertForMaskedLM`, or the class that `architectures` names."""

    stems: ClassVar = ("Bert",)
    harmless: ClassVar = frozenset(
        """
        directionality pooler_fc_size pooler_num_attention_heads
        pooler_num_fc_layers pooler_size_per_head pooler_type
        """.split()
    )
    heads: ClassVar = with_pairs("bert.")
    hf_paths: ClassVar = class_table(
        "bert.",
        {
            "lm_head.transform": "cls.predictions.transform.dense",
            "lm_head.norm": "cls.predictions.transform.LayerNorm",
            "lm_head": "cls.predictions.decoder",
        },
    )
    hf_tensors: ClassVar = {"lm_head.bias": "cls.predictions.bias"}
