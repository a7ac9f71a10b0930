"""Token table with two others beside it: of what characters look like, and of how they are spoken.

Su et al., "RoCBert" (ACL 2022, 2022.acl-long.65), section 3.3; the order of the rows: transformers' RoCBertEmbeddings.
"""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture.parts.embedding import Embedding
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Table


@record(kw_only=True)
class ShapedEmbedding(Embedding):
    """A token's row, that of its shape and that of its sound stand side by side, and a product makes the hidden size of
    them. `shapes` and `sounds` are rows of those tables, `shape_dim` and `sound_dim` their lengths."""

    shapes: Size
    shape_dim: Size
    sounds: Size
    sound_dim: Size

    mesh_unsupported: ClassVar[str] = "tables of shapes and of sounds"
    letters: ClassVar[dict[str, str]] = {
        "vocab": "V", "hidden": "D", "shapes": "Vsh", "shape_dim": "Dsh", "sounds": "Vso", "sound_dim": "Dso"
    }  # fmt: skip
    legend: ClassVar[dict[str, str]] = {letter: Embedding.legend[letter] for letter in "VD"} | {
        "Vsh": "shapes of tokens",
        "Dsh": "width of the table of shapes",
        "Vso": "sounds of tokens",
        "Dso": "width of the table of sounds",
        "Dal": "rows of token, shape and sound side by side, D + Dsh + Dso",
    }
    made: ClassVar[dict[str, str]] = {"Dal": "D + Dsh + Dso"}

    def derived(self) -> dict[str, str]:
        """All three rows together."""
        return self.made

    def lines(self, at: str) -> tuple[Line, ...]:
        """Three tables, and the product of their rows."""
        return (
            Table(at, "V D"),
            Table(f"{at}.shapes", "Vsh Dsh"),
            Table(f"{at}.sounds", "Vso Dso"),
            Matmul(f"{at}.project", "B T Dal, Dal D -> B T D", bias=True),
        )
