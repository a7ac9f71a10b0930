"""RoFormer: BERT with rotary embedding, whose sines and cosines are stored."""

from dataclasses import replace
from typing import Any

from tfacct.architecture.parts import Attention, Pooler, Rotary, Turns
from tfacct.architecture.transformer import Transformer
from tfacct.families.bert import ENCODING, Bert, DecoderCapable
from tfacct.families.fields import PositiveInt, StrictBool, require_even
from tfacct.families.task_heads import BODY


class RoFormer(DecoderCapable):
    """RoFormer: BERT's encoder with rotary embedding, whose sines and cosines are stored with the weights."""

    defaults = dict(vocab_size=50000, max_position_embeddings=1536)
    embedding_size: PositiveInt | None = None
    rotary_value: StrictBool = False
    required_values = {**DecoderCapable.required_values, "rotary_value": False}
    task_heads = {**ENCODING, "Model": BODY}
    base_model_prefix = "roformer"
    module_names = {**Bert.module_names, "embed.project": ".embeddings_project", "turns": ".encoder.embed_positions"}
    tensor_names = Bert.tensor_names

    def pooler(self, hidden: Any) -> Pooler:
        return Pooler(hidden=hidden, activation=self.hidden_act)

    def attention(self) -> Attention:
        plain = super().attention()
        size = require_even(plain.head_dim, "the size of a head")
        return replace(plain, head_dim=size, rotary=Rotary(10_000.0, pairs="neighbours"))

    def positions(self) -> None:
        return

    def architecture(self) -> Transformer:
        turns = Turns(rows=self.max_position_embeddings, head_dim=self.attention().head_dim)
        return replace(super().architecture(), extra_embeddings=(turns,))
