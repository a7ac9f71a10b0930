"""AltCLIP's encoder of texts: XLM-RoBERTa's body, a norm and a product of every position behind it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Picked
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real
from tfacct.families._bert_like import class_table
from tfacct.families._endings import Ending
from tfacct.families.roberta import Config as Roberta

RELEASED = "2022-11"

LAYERS = {
    ours: theirs.replace("encoder.layer.", "encoder.layers.") for ours, theirs in class_table("roberta.", {}).items()
}
"""Modules of the body; its class has CLIP's name for the list of layers."""


class Config(Roberta):
    """`AltCLIPTextConfig`, with its class's defaults."""

    vocab_size: Count = 250002
    hidden_size: Count = 1024
    num_hidden_layers: Layers = 24
    num_attention_heads: Count = 16
    intermediate_size: Count = 4096
    max_position_embeddings: Count = 514
    type_vocab_size: Count = 1
    layer_norm_eps: Real = 1e-5
    project_dim: Count = 768
    projection_dim: Count = 768

    uncounted: ClassVar = Roberta.uncounted | {"projection_dim"}
    stems: ClassVar = ("AltCLIPText",)
    harmless: ClassVar = frozenset({"initializer_factor", "pooler_fn", "learn_encoder"})
    in_files: ClassVar = ((r"\.encoder\.layer\.", ".encoder.layers."),)
    heads: ClassVar[Mapping[str, Ending]] = {
        "Model": Ending("AltCLIPTextModel", "none", pooler=True, paths={"pooler.project": "transformation"}),
        "ModelWithProjection": Ending(
            "", "none", pooler=True, paths={"pooler.project": "transformation", "pooler.then": "text_projection"}
        ),
    }
    body: ClassVar = ""
    hf_paths: ClassVar = {**LAYERS, "final_norm": "pre_LN"}
    hf_tensors: ClassVar = {}

    def pooler(self, hidden: Any) -> Picked:
        """Product of every position, and in a whole one more of the first's."""
        then = self.projection_dim if "pooler.then" in self.ending.paths else None
        return Picked(hidden=hidden, reads="each", width=self.project_dim, bias=True, then=then)

    def architecture(self) -> Transformer:
        """RoBERTa's body, and a norm behind it."""
        return replace(super().architecture(), final_norm=self.norm(), head=None)
