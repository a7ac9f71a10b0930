"""RoFormer: BERT with rotary embedding and stored sines and cosines."""

from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from typing import ClassVar

from tfacct.architecture.parts import Part, Rotary, Segments
from tfacct.architecture.transformer import Transformer
from tfacct.base.record import record
from tfacct.families.bert import ENCODING, Bert, DecoderCapable
from tfacct.families.fields import PositiveInt, StrictBool, require_even
from tfacct.families.task_heads import BODY
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Table


@record(kw_only=True)
class SinusoidTable(Part):
    """Sines and cosines of the rotary embedding, stored with the weights and not trained (transformers'
    RoFormerSinusoidalPositionalEmbedding)."""

    rows: Size
    head_dim: Size

    name: ClassVar[str] = "turns"
    label: ClassVar[str] = "a stored rotary embedding"
    listed_after: ClassVar[tuple[str, int]] = (Segments.name, 2)
    axis_names: ClassVar[dict[str, str]] = {"rows": "P", "head_dim": "H"}
    legend: ClassVar[dict[str, str]] = {"P": "rows of the position embedding", "H": "head size"}

    def multiples(self) -> dict[str, int]:
        """One sine and one cosine per pair."""
        return {"H": 2}

    def lines(self, at: str) -> Iterator[Line]:
        """The stored sines and cosines."""
        yield Table(at, "P H", embedding=False, trained=False)


class RoFormer(DecoderCapable):
    """RoFormer: BERT's encoder with rotary embedding; sines and cosines are stored with the weights."""

    sizes = dict(vocab=50000, context=1536)
    embedding_size: PositiveInt | None = None
    rotary_value: StrictBool = False
    required_values = {"rotary_value": False}
    task_heads = {**ENCODING, "Model": BODY}
    base_model_prefix = "roformer"
    module_names = {**Bert.module_names, "embed.project": ".embeddings_project", "turns": ".encoder.embed_positions"}
    tensor_names = Bert.tensor_names
    pooler_options = dict(activation=attrgetter("hidden_act"))

    def rope(self) -> Rotary:
        require_even(self.head_dim, "the size of a head")
        return Rotary(10_000.0, pairs="neighbours")

    def positions(self) -> None:
        return

    def architecture(self) -> Transformer:
        turns = SinusoidTable(rows=self.max_position_embeddings, head_dim=self.head_dim)
        return replace(super().architecture(), extra_embeddings=(turns,))
