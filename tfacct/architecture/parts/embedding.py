"""First and last parts of a model: token, position and segment embeddings or a stem, and the head.

Tied embeddings: Press and Wolf (arXiv 1608.05859). Sinusoidal positions: Vaswani et al. (1706.03762), section 3.5.
Segments, and a head with a transform: transformers' BertEmbeddings and BertLMPredictionHead. Embeddings narrower than
the model: transformers' OPTDecoder (`word_embed_proj_dim`), and, for all embeddings, AlbertEmbeddings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from tfacct.architecture.parts.part import Part
from tfacct.architecture.parts.shared import ALONE
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, Table
from tfacct.ledger.workload import PATCHES

WIDTHS = {"D": "hidden size", "De": "width of the token embedding"}


def row(narrow: bool) -> str:
    """Axis of the width of an embedding, or of its norm."""
    return "De" if narrow else "D"


@record(kw_only=True)
class Embedding(Part):
    """Token embedding: rows are looked up, not multiplied.

    `scaled`: rows are multiplied by `factor`, or by √hidden if it is None. `width`: embedding width, if not `hidden`;
    then rows are projected, with `bias` if set. `late`: the projection comes after the other embeddings and their norm,
    which are equally narrow. `shared`: the embedding is the decoder's, and stored there. `rows`: number of rows, if not
    the vocabulary size.
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
        "De": "width of the token embedding",
        "Vr": "rows of the token embedding",
    }

    def sizes(self) -> dict[str, str]:
        """Return field → axis; `rows` replaces `vocab` if set."""
        found = Part.sizes(self)
        return found if self.rows is None else {field: axis for field, axis in found.items() if field != "vocab"}

    def axes(self) -> dict[str, Size]:
        """Sizes of the axes; a shared embedding has only D, if it is scaled."""
        if not self.shared:
            return Part.axes(self)
        return {"D": self.hidden} if self.scaled else {}

    def lines(self, at: str) -> Iterator[Line]:
        """Embedding, projection and scale."""
        if not self.shared and self.width is None:
            yield Table(at, "V D" if self.rows is None else "Vr D")
        elif not self.shared:
            yield Table(at, "V De")
            yield Matmul(f"{at}.project", "B T De, De D -> B T D", bias=self.bias)
        if self.scaled:
            yield Pointwise(f"{at}.scale", "B T D", kind="scale")


@record(kw_only=True)
class Stem(Part):
    """Two convolutions over audio frames instead of a token embedding, both of width KERNEL, the second with stride
    STRIDE.

    There is one position for every STRIDE frames.

    Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (arXiv 2212.04356), section 2.2, and
    transformers' WhisperEncoder. A frame has `bins` numbers. `every`: positions per segment; convolutions do not cross
    segments (Qwen2_5OmniAudioEncoder).
    """

    bins: Size
    hidden: Size
    every: int | None

    KERNEL: ClassVar[int] = 3
    STRIDE: ClassVar[int] = 2
    scaled: ClassVar[bool] = False
    factor: ClassVar[float | None] = None

    axis_names: ClassVar[dict[str, str]] = {"bins": "Mf", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = {
        "Mf": "frequency bins of a frame",
        "D": "hidden size",
        "Fp": "frames per position",
        "Kf": "kernel size of the first convolution in frames",
        "Dk": f"inputs of the second convolution, {KERNEL} · D",
    }
    made: ClassVar[dict[str, str]] = {"Fp": f"{STRIDE}", "Kf": f"{KERNEL}", "Dk": f"{KERNEL} · D"}

    def lines(self, at: str) -> Iterator[Line]:
        """Both convolutions as matmuls, and their activations."""
        yield Matmul(f"{at}.conv1", "B T Fp Mf Kf, Mf Kf D -> B T Fp D", bias=True)
        yield Pointwise(f"{at}.act1", "B T Fp D", kind="activation", function="gelu")
        yield Matmul(f"{at}.conv2", "B T Dk, Dk D -> B T D", bias=True)
        yield Pointwise(f"{at}.act2", "B T D", kind="activation", function="gelu")


@record(kw_only=True)
class Positions(Part):
    """Absolute position embedding, added to the token embedding. The first `offset` rows are unused.

    `layout`: `row`: one row for each position; `after_norm`: the same, added after the norm of the embeddings
    (BlenderbotSmallDecoder); `class_and_patches`: learned tokens between the class token and the patches have no
    position (Dinov2WithRegistersEmbeddings); `columns_and_rows`: separate embeddings for the column and the row of a
    patch (Gemma4VisionPatchEmbedder). The others are computed, not stored: `sines`: alternating sines and cosines;
    `sines_then_cosines` (M2M100SinusoidalPositionalEmbedding); `ctrl_sines`: the same with the paper's frequencies
    (CTRLModel). `trained`: false for a constant embedding. `narrow`: `hidden` is the width of a narrow token embedding.
    `tiles`: the embedding is resampled to each image, and the patches are ordered by tiles of these side lengths
    (Qwen3VLVisionModel).
    """

    rows: Size
    hidden: Size
    offset: int = 0
    trained: bool = True
    layout: Literal[
        "row", "after_norm", "class_and_patches", "columns_and_rows", "sines", "sines_then_cosines", "ctrl_sines"
    ] = "row"
    narrow: bool = False
    tiles: tuple[int, ...] | None = None

    name: ClassVar[str] = "pos_embed"
    axis_names: ClassVar[dict[str, str]] = {"rows": "P", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = {
        "P": "rows of the position embedding",
        "Xy": "position embeddings: columns and rows",
        **ALONE,
        **WIDTHS,
    }
    made: ClassVar[dict[str, str]] = {"Xy": "2", "U": "1"}

    @property
    def stored(self) -> bool:
        """True for a stored embedding, False for computed sines and cosines."""
        return "sines" not in self.layout

    def derived(self) -> dict[str, str]:
        """Number of embeddings, if not one, and of learned tokens with a position."""
        axes = {"columns_and_rows": "Xy", "class_and_patches": "U"}
        return {axis: self.made[axis] for layout, axis in axes.items() if layout == self.layout}

    def sizes(self) -> dict[str, str]:
        """Return field → axis; computed positions have no rows."""
        found = {**Part.sizes(self), "hidden": row(self.narrow)}
        return found if self.stored else {field: axis for field, axis in found.items() if field != "rows"}

    def lines(self, at: str) -> Iterator[Line]:
        """Embedding, if any, and addition."""
        tokens, width = "T", row(self.narrow)
        if self.layout == "class_and_patches":
            tokens = PATCHES
            yield Table(at, "P D")
            yield Pointwise(f"{at}.class_add", "B U D", kind="sum")
        elif self.layout == "columns_and_rows":
            yield Table(at, "Xy P D")
            yield Pointwise(f"{at}.join", "B T D", kind="sum")
        elif self.stored:
            yield Table(at, f"P {width}", trained=self.trained)
            if self.tiles is not None:
                yield Pointwise(f"{at}.resample", f"B T {width}", kind="sum")
        yield Pointwise(f"{at}.add", f"B {tokens} {width}", kind="sum")


@record(kw_only=True)
class Segments(Part):
    """Segment embedding, added to the token embedding. `narrow`: `hidden` is the token embedding's width."""

    rows: Size
    hidden: Size
    narrow: bool = False

    name: ClassVar[str] = "type_embed"
    axis_names: ClassVar[dict[str, str]] = {"rows": "Vs", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"Vs": "segment or language IDs", **WIDTHS}
    counted: ClassVar[str] = "Vs"

    def sizes(self) -> dict[str, str]:
        """Return field → axis."""
        return {**Part.sizes(self), "hidden": row(self.narrow)}

    def lines(self, at: str) -> Iterator[Line]:
        """Embedding and addition."""
        yield Table(at, f"{self.counted} {row(self.narrow)}")
        yield Pointwise(f"{at}.add", f"B T {row(self.narrow)}", kind="sum")


@record(kw_only=True)
class Head(Part):
    """Logits over the vocabulary, for the O positions of the workload.

    `tied`: the weight is the token embedding, stored once and used by two lines. `width`: embedding width, if not
    `hidden`; every token is projected to it first. `transform`: activation of a projection with LayerNorm before the
    logits; its output has `width`, or `output_width` for a separate output embedding of that width (transformers'
    RemBertLMPredictionHead). `transform_bias`, `norm_bias`: the projection has a bias, the norm a shift. `logit_scale`
    multiplies the logits, `softcap` bounds them, `scale` multiplies the head's input.
    """

    hidden: Size
    vocab: Size
    tied: bool = False
    bias: bool = False
    width: Size | None = None
    output_width: Size | None = None
    logit_scale: float | None = None
    softcap: float | None = None
    transform: str | None = None
    transform_bias: bool = True
    norm_bias: bool = True
    eps: float = 1e-12
    scale: float | None = None

    name: ClassVar[str] = "lm_head"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "vocab": "V", "width": "De", "output_width": "Dd"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "V": "vocabulary",
        "De": "width of the token embedding",
        "Dd": "width of the output embedding",
        "Dt": "output of the head's transform, as wide as D",
    }
    made: ClassVar[dict[str, str]] = {"Dt": "D"}

    def derived(self) -> dict[str, str]:
        """Dt for a transform with unchanged width."""
        return {} if self.transform is None or self.row != "Dt" else self.made

    @property
    def row(self) -> str:
        """Axis of the width of the head's input."""
        if self.output_width is not None:
            return "Dd"
        return "De" if self.width is not None else "Dt" if self.transform is not None else "D"

    def lines(self, at: str) -> Iterator[Line]:
        """Projection to the logits, and the operations before and after it."""
        yield from self._before(at)
        yield from self._logits(at, "embed" if self.tied else None)

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

    def again(self, at: str) -> Iterator[Line]:
        """Lines for logits of other hidden states, at path `at`, with the same weight."""
        return self._logits(at, "embed" if self.tied else "lm_head")

    def _logits(self, at: str, weight: str | None) -> Iterator[Line]:
        row = self.row
        yield Matmul(at, f"B O {row}, {row} V -> B O V", weight=weight, bias=self.bias)
        if self.logit_scale is not None:
            yield Pointwise(f"{at}.logit_scale", "B O V", kind="scale")
        if self.softcap is not None:
            yield Pointwise(f"{at}.softcap", "B O V")
