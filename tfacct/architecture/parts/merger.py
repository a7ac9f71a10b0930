"""The merger after an image encoder: neighbouring patches become one token of the language model.

Wang et al., "Qwen2-VL" (arXiv 2409.12191), section 2.1, and transformers' PatchMerger; from several blocks, as in
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
    """Two products of `patches` patches side by side, with an activation between them: the first as wide as they are
    together, the second `out` wide. A norm stands in front, of each patch, or, `joined`, of all that are side by side.
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
        MERGE: "positions that are merged into one row",
        "Dq": "width of a merged row's result",
        "Du": f"numbers of patches side by side, {MERGE} · D",
    }
    made: ClassVar[dict[str, str]] = {"Du": f"{MERGE} · D"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Norm, product, activation, product."""
        return tuple(self._of(at))

    def _of(self, at: str) -> Iterator[Line]:
        patches, each = (f"B {MERGED} {MERGE} D", f"{MERGE} D") if self.joined else ("B T D", "D")
        kind: PointwiseKind = "norm_layer" if self.norm == "layer" else "norm_rms"
        shift = each if self.norm == "layer" else ""
        yield Pointwise(f"{at}.norm", patches, weight=each, bias=shift, kind=kind)
        yield Matmul(f"{at}.up_proj", f"B {MERGED} {MERGE} D, {MERGE} D Du -> B {MERGED} Du", bias=True)
        yield Pointwise(f"{at}.act", f"B {MERGED} Du", kind="activation", function=self.activation)
        yield Matmul(f"{at}.down_proj", f"B {MERGED} Du, Du Dq -> B {MERGED} Dq", bias=True)


@record(kw_only=True)
class Averaged(Part):
    """Averages of `patches` neighbouring positions, behind which stands what `kind` says.

    `normed`: a LayerNorm (Qwen2AudioEncoder). `scaled`: a factor of √hidden; `standardized`: then numbers that are
    stored but not trained, which shift and scale them (Gemma4VisionModel). `projected`: a LayerNorm, a product that
    makes them `out` wide, and two learned rows for where audio begins and ends (Qwen2_5OmniAudioEncoder).
    """

    hidden: Size
    patches: Size
    kind: Literal["normed", "scaled", "standardized", "projected"] = "normed"
    out: Size | None = None

    by_rows: ClassVar[bool] = True
    """Its counts are of merged rows, which formulas have an axis for."""
    name: ClassVar[str] = "merger"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "patches": MERGE, "out": "Dq"}
    legend: ClassVar[dict[str, str]] = {
        **{axis: Merger.legend[axis] for axis in ("D", MERGE, "Dq")},
        "Xe": "rows for where audio begins and where it ends",
    }
    made: ClassVar[dict[str, str]] = {"Xe": "2"}

    def derived(self) -> dict[str, str]:
        """Return the number of learned rows, where there are some."""
        return self.made if self.kind == "projected" else {}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The averages, and what is made of them."""
        row = f"B {MERGED} D"
        scale = Pointwise(f"{at}.scale", row, kind="scale")
        norm = Pointwise(f"{at}.norm", row, weight="D", bias="D", kind="norm_layer")
        after: dict[str, tuple[Line, ...]] = {
            "normed": (norm,),
            "scaled": (scale,),
            "standardized": (scale, Pointwise(f"{at}.standardize", row)),
            "projected": (
                norm,
                Matmul(f"{at}.proj", f"{row}, D Dq -> B {MERGED} Dq", bias=True),
                Table(f"{at}.ends", "Xe Dq", embedding=False),
            ),
        }
        return (Pointwise(f"{at}.average", f"B {MERGED} {MERGE} D", kind="sum"), *after[self.kind])


@record(kw_only=True)
class Deepstack(Merger):
    """One merger for each of some blocks, by number, of what those blocks give."""

    after_blocks: tuple[int, ...] = ()

    name: ClassVar[str] = "deepstack"

    def lines(self, at: str) -> tuple[Line, ...]:
        """The lines of each merger."""
        return tuple(line for number in range(len(self.after_blocks)) for line in self._of(f"{at}.{number}"))
