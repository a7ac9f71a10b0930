"""RoBERTa with the norms in front of the sublayers, as fairseq's switch of that name builds it."""

from typing import ClassVar

from tfacct.families import roberta
from tfacct.families._bert_like import LM_HEAD, class_table

RELEASED = "2019-04"

BODY_AT = "roberta_prelayernorm."


class Config(roberta.Config):
    """`RobertaPreLayerNormConfig`, with its class's defaults."""

    stems: ClassVar = ("RobertaPreLayerNorm",)
    order: ClassVar = "pre"
    body: ClassVar = BODY_AT
    hf_paths: ClassVar = {
        **class_table(BODY_AT, LM_HEAD),
        "blocks.*.attn_norm": f"{BODY_AT}encoder.layer.*.attention.LayerNorm",
        "blocks.*.mlp_norm": f"{BODY_AT}encoder.layer.*.intermediate.LayerNorm",
        "final_norm": f"{BODY_AT}LayerNorm",
    }
