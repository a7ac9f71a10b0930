"""First and last parts of a model: token, position and segment embeddings or a stem, and the head.

Tied tables: Press and Wolf (arXiv 1608.05859). Sines and cosines for positions: Vaswani et al. (1706.03762), section
3.5. Segments, and a head with a transform: transformers' BertEmbeddings and BertLMPredictionHead. Tables narrower than
the model: transformers' OPTDecoder (`word_embed_proj_dim`), and, with all tables as narrow, AlbertEmbeddings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from tfacct.architecture.parts.part import Part
from tfacct.architecture.parts.shared import ALONE
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, PointwiseKind, Table
from tfacct.ledger.workload import PATCHES

WIDTHS = {"D": "hidden size", "De": "width of the token table"}


def row(narrow: bool) -> str:
    """Axis of the rows of a table in front of the blocks, or of their norm."""
    return "De" if narrow else "D"


@record(kw_only=True)
class Embedding(Part):
    """Token table: read by row, never multiplied. `scaled`: each row is multiplied by `factor`, or
    by √hidden if there is none.

    `width`: length of its rows if it is not `hidden`; a product then projects them, `bias` being its own. `late`: it
    stands behind the other tables and their norm, which are as narrow. `shared`: the rows are those of the decoder's
    table, and stored there. `rows`: how many it has, where they are not as many as the vocabulary.
    """

    vocab: Size
    hidden: Size
    scaled: bool = False
    factor: float | None = None
    width: Size | None = None
    late: bool = False
    bias: bool = False
    shared: bool = False
    rows: Size | None = None

    name: ClassVar[str] = "embed"
    axis_names: ClassVar[dict[str, str]] = {"vocab": "V", "hidden": "D", "width": "De", "rows": "Vr"}
    legend: ClassVar[dict[str, str]] = {
        "V": "vocabulary",
        "D": "hidden size",
        "De": "width of the token table",
        "Vr": "rows of the token table",
    }

    def sizes(self) -> dict[str, str]:
        """Return field → axis; a table that says its rows has no other number of them."""
        found = Part.sizes(self)
        return found if self.rows is None else {field: axis for field, axis in found.items() if field != "vocab"}

    def axes(self) -> dict[str, Size]:
        """Sizes of the part's axes; a shared table has only that of its rows, if they are scaled."""
        if not self.shared:
            return Part.axes(self)
        return {"D": self.hidden} if self.scaled else {}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Table, and the work on the rows read from it."""
        scale = (Pointwise(f"{at}.scale", "B T D", kind="scale"),) if self.scaled else ()
        if self.shared:
            return scale
        if self.width is None:
            return (Table(at, "V D" if self.rows is None else "Vr D"), *scale)
        return (Table(at, "V De"), Matmul(f"{at}.project", "B T De, De D -> B T D", bias=self.bias), *scale)


@record(kw_only=True)
class Stem(Part):
    """Two convolutions in place of a token table: of `KERNEL` frames of audio, and of as many of the results, of which
    the second one begins at every `STRIDE`-th. So there is one position for every `STRIDE` frames.

    Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (arXiv 2212.04356), section 2.2, and
    transformers' WhisperEncoder. A frame has `bins` numbers. `every`: so many positions are made by themselves, and see
    no frame of the next (Qwen2_5OmniAudioEncoder).
    """

    bins: Size
    hidden: Size
    every: int | None

    KERNEL: ClassVar[int] = 3
    STRIDE: ClassVar[int] = 2
    scaled: ClassVar[bool] = False
    factor: ClassVar[float | None] = None
    width: ClassVar[Size | None] = None
    late: ClassVar[bool] = False

    axis_names: ClassVar[dict[str, str]] = {"bins": "Mf", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = {
        "Mf": "frequency bins of a frame",
        "D": "hidden size",
        "Fp": "frames for one position",
        "Kf": "frames that the first convolution sees",
        "Dk": f"numbers that the second convolution sees, {KERNEL} · D",
    }
    made: ClassVar[dict[str, str]] = {"Fp": f"{STRIDE}", "Kf": f"{KERNEL}", "Dk": f"{KERNEL} · D"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Both products, unfolded, and their activations."""
        return (
            Matmul(f"{at}.conv1", "B T Fp Mf Kf, Mf Kf D -> B T Fp D", bias=True),
            Pointwise(f"{at}.act1", "B T Fp D", kind="activation"),
            Matmul(f"{at}.conv2", "B T Dk, Dk D -> B T D", bias=True),
            Pointwise(f"{at}.act2", "B T D", kind="activation"),
        )


@record(kw_only=True)
class Positions(Part):
    """Absolute positions, added to the token's row. The first `offset` rows of the embedding stand for no position.

    `layout`: `row`, one row for each position; `after_norm`, the same, added to the result of the embeddings' norm
    (BlenderbotSmallDecoder); `class_and_patches`, the learned tokens between the class token and the patches have no
    position (Dinov2WithRegistersEmbeddings); `columns_and_rows`, a patch gets a row for its column and one for its row
    (Gemma4VisionPatchEmbedder). Otherwise sines and cosines are computed and nothing is stored: `sines`, in turn;
    `sines_then_cosines` (M2M100SinusoidalPositionalEmbedding); `ctrl_sines`, the same at the rates of the paper
    (CTRLModel). If not `trained`, what is stored never changes. `narrow`: `hidden` is the width of a token embedding
    with short rows. With `tiles` the embedding is resampled to the sides of each image, whose patches come tile by
    tile, with so many on a side (Qwen3VLVisionModel).
    """

    rows: Size
    hidden: Size
    offset: int = 0
    trained: bool = True
    layout: Literal[
        "row",
        "after_norm",
        "class_and_patches",
        "columns_and_rows",
        "sines",
        "sines_then_cosines",
        "ctrl_sines",
    ] = "row"
    narrow: bool = False
    tiles: tuple[int, ...] | None = None

    name: ClassVar[str] = "pos_embed"
    axis_names: ClassVar[dict[str, str]] = {"rows": "P", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = {
        "P": "rows of the position table",
        "Xy": "position tables, of columns and of rows",
        **ALONE,
        **WIDTHS,
    }
    made: ClassVar[dict[str, str]] = {"Xy": "2", "U": "1"}

    @property
    def stored(self) -> bool:
        """True if there is an embedding, False for computed sines and cosines."""
        return "sines" not in self.layout

    def derived(self) -> dict[str, str]:
        """Number of embeddings, where it is not one, and of learned tokens that have a position."""
        axes = {"columns_and_rows": "Xy", "class_and_patches": "U"}
        return {axis: self.made[axis] for layout, axis in axes.items() if layout == self.layout}

    def sizes(self) -> dict[str, str]:
        """Return field → axis; without an embedding there are no rows."""
        found = {**Part.sizes(self), "hidden": row(self.narrow)}
        return found if self.stored else {field: axis for field, axis in found.items() if field != "rows"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The embedding, where there is one, and the addition."""
        width = row(self.narrow)
        added = Pointwise(f"{at}.add", f"B T {width}", kind="sum")
        if self.layout == "class_and_patches":
            own = Pointwise(f"{at}.class_add", "B U D", kind="sum")
            return (Table(at, "P D"), own, Pointwise(f"{at}.add", f"B {PATCHES} D", kind="sum"))
        if self.layout == "columns_and_rows":
            return (Table(at, "Xy P D"), Pointwise(f"{at}.join", "B T D", kind="sum"), added)
        if not self.stored:
            return (added,)
        resampled = () if self.tiles is None else (Pointwise(f"{at}.resample", f"B T {width}", kind="sum"),)
        return (Table(at, f"P {width}", trained=self.trained), *resampled, added)


@record(kw_only=True)
class Segments(Part):
    """Learned table of a text's segments, added to the token's row. `narrow`: `hidden` is the width of that row."""

    rows: Size
    hidden: Size
    narrow: bool = False

    name: ClassVar[str] = "type_embed"
    axis_names: ClassVar[dict[str, str]] = {"rows": "Vs", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"Vs": "segments of a text, or its languages", **WIDTHS}
    counted: ClassVar[str] = "Vs"

    def sizes(self) -> dict[str, str]:
        """Return field → axis."""
        return {**Part.sizes(self), "hidden": row(self.narrow)}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Table and addition."""
        return (
            Table(at, f"{self.counted} {row(self.narrow)}"),
            Pointwise(f"{at}.add", f"B T {row(self.narrow)}", kind="sum"),
        )


@record(kw_only=True)
class Head(Part):
    """Logits over the vocabulary, for the O positions that the workload asks for.

    `tied`: the token table is the weight, stored once and used by two lines. `width`: length of the table's rows if it
    is not `hidden`; a product then projects every token's vector to it first. `transform`: a product, this activation
    and a LayerNorm stand before the logits; with a `width` that product gives rows of it, and with `own` rows of that
    length, of a table of the head's own (transformers' RemBertLMPredictionHead). `transform_bias` and
    `norm_bias`: the product has a bias, the norm a shift. `logit_scale` multiplies the logits,
    `softcap` bounds them, `scale` multiplies the vectors that they are computed from.
    """

    hidden: Size
    vocab: Size
    tied: bool = False
    bias: bool = False
    width: Size | None = None
    own: Size | None = None
    logit_scale: float | None = None
    softcap: float | None = None
    transform: str | None = None
    transform_bias: bool = True
    norm_bias: bool = True
    eps: float = 1e-12
    scale: float | None = None

    name: ClassVar[str] = "lm_head"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "vocab": "V", "width": "De", "own": "Dd"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "V": "vocabulary",
        "De": "width of the token table",
        "Dd": "width of the head's own table",
        "Dt": "result of the head's transform, as wide as D",
    }
    made: ClassVar[dict[str, str]] = {"Dt": "D"}

    def derived(self) -> dict[str, str]:
        """Dt where there is a transform that keeps the width."""
        return {} if self.transform is None or self.row != "Dt" else self.made

    @property
    def row(self) -> str:
        """Axis of the vectors that the logits are computed from."""
        if self.own is not None:
            return "Dd"
        return "De" if self.width is not None else "Dt" if self.transform is not None else "D"

    def lines(self, at: str) -> tuple[Line, ...]:
        """Product that gives the logits, and the work before and behind it."""
        return (*self._before(at), *self._logits(at, "embed" if self.tied else None))

    def _before(self, at: str) -> Iterator[Line]:
        if self.width is not None and self.transform is None:
            yield Matmul(f"{at}.project", "B T D, D De -> B T De")
        if self.scale is not None:
            yield Pointwise(f"{at}.scale", "B O D", kind="scale")
        if self.transform is not None:
            row = self.row
            yield Matmul(f"{at}.transform", f"B O D, D {row} -> B O {row}", bias=self.transform_bias)
            yield Pointwise(f"{at}.act", f"B O {row}", kind="activation", function=self.transform)
            shift = row if self.norm_bias else ""
            yield Pointwise(f"{at}.norm", f"B O {row}", weight=row, bias=shift, kind="norm_layer")

    def again(self, at: str) -> tuple[Line, ...]:
        """Lines that give the logits of another stream, under the path `at`, with the same weight."""
        return self._logits(at, "embed" if self.tied else "lm_head")

    def _logits(self, at: str, weight: str | None) -> tuple[Line, ...]:
        row = self.row
        after: tuple[tuple[str, PointwiseKind, float | None], ...] = (
            ("logit_scale", "scale", self.logit_scale),
            ("softcap", "", self.softcap),
        )
        own = tuple(Pointwise(f"{at}.{name}", "B O V", kind=kind) for name, kind, value in after if value is not None)
        return (Matmul(at, f"B O {row}, {row} V -> B O V", weight=weight, bias=self.bias), *own)
