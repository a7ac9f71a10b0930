"""Merger after an image encoder: neighbouring patches become one token of the language model.

Wang et al., "Qwen2-VL" (arXiv 2409.12191), section 2.1, and transformers' PatchMerger; from several layers, as in
"DeepStack" (2406.04334) and transformers' Qwen3VLVisionPatchMerger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import MERGE, Line, Matmul, Pointwise, PointwiseKind, Table
from tfacct.ledger.workload import MERGED


@record(kw_only=True)
class Merger(Part):
    """MLP over `patches` concatenated patches with output width `out`, after a norm of each patch or, if `joined`, of
    the concatenation.
    """

    hidden: Size
    patches: Size
    out: Size
    norm: Literal["layer", "rms"] = "layer"
    joined: bool = False
    eps: float = 1e-6
    activation: str = "gelu"

    name: ClassVar[str] = "merger"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "patches": MERGE, "out": "Dq"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        MERGE: "positions merged into one row",
        "Dq": "width of a merged row's result",
        "Du": f"width of concatenated patches, {MERGE} · D",
    }
    made: ClassVar[dict[str, str]] = {"Du": f"{MERGE} · D"}

    def lines(self, at: str) -> Iterator[Line]:
        """Norm, product, activation, product."""
        patches, each = (f"B {MERGED} {MERGE} D", f"{MERGE} D") if self.joined else ("B T D", "D")
        kind: PointwiseKind = "norm_layer" if self.norm == "layer" else "norm_rms"
        shift = each if self.norm == "layer" else ""
        yield Pointwise(f"{at}.norm", patches, weight=each, bias=shift, kind=kind)
        yield Matmul(f"{at}.up_proj", f"B {MERGED} {MERGE} D, {MERGE} D Du -> B {MERGED} Du", bias=True)
        yield Pointwise(f"{at}.act", f"B {MERGED} Du", kind="activation", function=self.activation)
        yield Matmul(f"{at}.down_proj", f"B {MERGED} Du, Du Dq -> B {MERGED} Dq", bias=True)


@record(kw_only=True)
class Averaged(Part):
    """Averages of `patches` neighbouring positions, followed by operations of this `kind`.

    `normed`: a LayerNorm (Qwen2AudioEncoder). `scaled`: a factor of √hidden; `standardized`: the same, then a shift and
    scale that are stored but not trained (Gemma4VisionModel). `projected`: a LayerNorm, a projection to `out`, and two
    learned rows for the beginning and end of audio (Qwen2_5OmniAudioEncoder).
    """

    hidden: Size
    patches: Size
    kind: Literal["normed", "scaled", "standardized", "projected"] = "normed"
    out: Size | None = None

    by_rows: ClassVar[bool] = True
    """True: counts are per merged row, which has an axis in formulas."""
    name: ClassVar[str] = "merger"
    label: ClassVar[str] = "averaged positions"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "patches": MERGE, "out": "Dq"}
    legend: ClassVar[dict[str, str]] = {
        **{axis: Merger.legend[axis] for axis in ("D", MERGE, "Dq")},
        "Xe": "rows for the beginning and end of audio",
    }
    made: ClassVar[dict[str, str]] = {"Xe": "2"}

    def derived(self) -> dict[str, str]:
        """Number of learned rows, if any."""
        return self.made if self.kind == "projected" else {}

    def lines(self, at: str) -> Iterator[Line]:
        """Averages and the operations on them."""
        row = f"B {MERGED} D"
        yield Pointwise(f"{at}.average", f"B {MERGED} {MERGE} D", kind="sum")
        if self.kind in ("normed", "projected"):
            yield Pointwise(f"{at}.norm", row, weight="D", bias="D", kind="norm_layer")
        if self.kind in ("scaled", "standardized"):
            yield Pointwise(f"{at}.scale", row, kind="scale")
        if self.kind == "standardized":
            yield Pointwise(f"{at}.standardize", row)
        if self.kind == "projected":
            yield Matmul(f"{at}.proj", f"{row}, D Dq -> B {MERGED} Dq", bias=True)
            yield Table(f"{at}.ends", "Xe Dq", embedding=False)


@record(kw_only=True)
class Deepstack(Merger):
    """Mergers of the results of the layers in `after_blocks`."""

    after_blocks: tuple[int, ...] = ()

    name: ClassVar[str] = "deepstack"

    def lines(self, at: str) -> Iterator[Line]:
        """Lines of each merger."""
        for number in range(len(self.after_blocks)):
            yield from Merger.lines(self, f"{at}.{number}")
