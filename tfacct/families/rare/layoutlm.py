"""LayoutLM: BERT with embeddings of a token's box on its page, and a stored but unused pooler."""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Classes, Part, Pooler, Segments
from tfacct.architecture.transformer import Transformer
from tfacct.base.record import record
from tfacct.families.bert import POOLED, Bert, DecoderCapable
from tfacct.families.fields import PositiveInt
from tfacct.families.task_heads import ANSWERS
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, Table, Unused


@record(kw_only=True)
class LayoutEmbedding(Part):
    """Embeddings of a token's box on its page (transformers' LayoutLMEmbeddings): four embeddings, for x, y, height and
    width, of which six rows are added to the token embedding."""

    rows: Size
    hidden: Size

    TABLES: ClassVar[tuple[str, ...]] = ("x", "y", "h", "w")
    ADDED: ClassVar[tuple[str, ...]] = ("left", "upper", "right", "lower", "height", "width")

    name: ClassVar[str] = "box_embed"
    label: ClassVar[str] = "box embeddings"
    listed_after: ClassVar[tuple[str, int]] = (Segments.name, 1)
    axis_names: ClassVar[dict[str, str]] = {"rows": "Vb", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"Vb": "places across a page", "D": Segments.legend["D"]}

    def lines(self, at: str) -> Iterator[Line]:
        """Embeddings and additions."""
        for name in self.TABLES:
            yield Table(f"{at}.{name}", "Vb D")
        for name in self.ADDED:
            yield Pointwise(f"{at}.{name}_add", "B T D", kind="sum")


@record(kw_only=True)
class UnusedPooler(Part):
    """A stored pooler whose output is not used (transformers' LayoutLMForMaskedLM)."""

    hidden: Size

    name: ClassVar[str] = "idle"
    label: ClassVar[str] = "an unused pooler"
    listed_after: ClassVar[tuple[str, int]] = (Classes.name, 1)
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "Dp": Pooler.legend["Dp"]}
    made: ClassVar[dict[str, str]] = {"Dp": "D"}

    def lines(self, at: str) -> Iterator[Line]:
        """Only stored tensors."""
        yield Unused(Matmul(at, "B D, D Dp -> B Dp", bias=True))


class StoresPooler(DecoderCapable):
    """Every class stores the pooler, and runs it even if its output is not used."""

    hf_extra_note = "it runs a pooler whose output is not used"

    def transformer(self) -> Transformer:
        model = super().transformer()
        if model.pooler is not None:
            return model
        return replace(model, extra_parts=(*model.extra_parts, UnusedPooler(hidden=self.hidden_size)))

    def hf_products(self) -> Transformer | None:
        model = self.transformer()
        if model.extra(UnusedPooler) is None:
            return None
        return replace(model, extra_parts=(), pooler=Pooler(hidden=self.hidden_size))


class LayoutLM(StoresPooler, Bert):
    """LayoutLM, an encoder of pages: BERT, with embeddings of the box of each token on its page."""

    max_2d_position_embeddings: PositiveInt = 1024
    task_heads = {**POOLED, "ForQuestionAnswering": replace(ANSWERS, auto="LayoutLMForQuestionAnswering")}
    base_model_prefix = "layoutlm"
    module_names = {
        "idle": ".pooler.dense",
        "pooler": ".pooler.dense",
        **{f"box_embed.{name}": f".embeddings.{name}_position_embeddings" for name in LayoutEmbedding.TABLES},
    }

    def architecture(self) -> Transformer:
        boxes = LayoutEmbedding(rows=self.max_2d_position_embeddings, hidden=self.hidden_size)
        return replace(super().architecture(), extra_embeddings=(boxes,))
