"""ELECTRA: BERT's encoder, with tables that may be narrower than the model; a discriminator, or the generator."""

from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Pooler
from tfacct.families._base import Count
from tfacct.families._bert_like import ENCODING, AbleToDecode, class_table
from tfacct.families._endings import BODY, TOKENS

RELEASED = "2020-03"

DISCRIMINATOR = replace(
    TOKENS,
    auto="AutoModelForPreTraining",
    pooler=True,
    paths={"pooler": "discriminator_predictions.dense", "classifier": "discriminator_predictions.dense_prediction"},
    scores=1,
    obeys=False,
)


class Config(AbleToDecode):
    """`ElectraConfig`, with its class's defaults: `ElectraForMaskedLM`, or the class that `architectures` names."""

    embedding_size: Count = 128
    hidden_size: Count = 256
    num_attention_heads: Count = 4
    intermediate_size: Count = 1024

    stems: ClassVar = ("Electra",)
    harmless: ClassVar = frozenset("summary_type summary_use_proj summary_activation".split())
    heads: ClassVar = {**ENCODING, "Model": BODY, "ForPreTraining": DISCRIMINATOR}
    head_act: ClassVar = "gelu"
    body: ClassVar = "electra."
    hf_paths: ClassVar = class_table(
        "electra.",
        {
            "embed.project": "electra.embeddings_project",
            "lm_head.transform": "generator_predictions.dense",
            "lm_head.norm": "generator_predictions.LayerNorm",
            "lm_head": "generator_lm_head",
        },
    )
    gotchas: ClassVar = (
        "An encoder: every token sees all others, nothing is kept between steps, and there is no decode step.",
        "Published discriminators say ElectraForPreTraining: a product of every position and one score, whether its"
        " token was replaced. Without `architectures`, the head is the generator's.",
        "Tables of tokens, positions and segments have rows of embedding_size. Where that is not hidden_size, a product"
        " behind their norm makes them as long, and the generator's head makes them short again.",
        "ElectraModel has no pooler. A position_embedding_type other than absolute is refused, and so is"
        " is_decoder = true.",
    )

    def pooler(self, hidden: Any) -> Pooler:
        """Product of the first position, and GELU; the discriminator's of each position."""
        if self.ending is DISCRIMINATOR:
            return Pooler(hidden=hidden, reads="each", activation=self.hidden_act)
        return Pooler(hidden=hidden, activation="gelu")
