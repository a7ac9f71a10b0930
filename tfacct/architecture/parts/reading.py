"""The end of an encoder of texts whose positions read learned rows before their mean is taken.

Lee et al., "NV-Embed" (arXiv 2405.17428), section 3.1; its own code (LatentAttentionModel).
"""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture.parts.feed_forward import projections
from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, Table


@record(kw_only=True)
class LatentReader(Part):
    """What each position reads of `rows` learned rows is added to it, behind a norm of both, and then what a gated
    network makes of that; one vector for each text is the mean of all."""

    hidden: Size
    rows: Size
    heads: Size
    head_dim: Size
    width: Size
    eps: float = 1e-5

    reads: ClassVar[str] = "average"
    name: ClassVar[str] = "pooler"
    letters: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "rows": "Zp",
        "heads": "Np",
        "head_dim": "Hz",
        "width": "Fy",
    }
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Zp": "learned rows that the pooler reads",
        "Np": "heads of the pooler",
        "Hz": "size of one head of the pooler",
        "Fy": "width of the pooler's network",
    }

    def lines(self, at: str) -> tuple[Line, ...]:
        """Norms, projections, QKᵀ and PV over the rows, the network, and both additions."""
        return (
            Table(f"{at}.rows", "Zp D", embedding=False),
            Pointwise(f"{at}.norm", "B T D", weight="D", bias="D", kind="norm_layer"),
            Pointwise(f"{at}.rows_norm", "B Zp D", weight="D", bias="D", kind="norm_layer"),
            Matmul(f"{at}.q_proj", "B T D, D Np Hz -> B T Np Hz"),
            Matmul(f"{at}.k_proj", "B Zp D, D Np Hz -> B Zp Np Hz"),
            Matmul(f"{at}.v_proj", "B Zp D, D Np Hz -> B Zp Np Hz"),
            Matmul(f"{at}.scores", "B T Np Hz, B Zp Np Hz -> B Np T Zp"),
            Pointwise(f"{at}.softmax", "B Np T Zp", kind="softmax"),
            Matmul(f"{at}.values", "B Np T Zp, B Zp Np Hz -> B T Np Hz"),
            Matmul(f"{at}.o_proj", "B T Np Hz, Np Hz D -> B T D"),
            Pointwise(f"{at}.add", "B T D", kind="sum"),
            Pointwise(f"{at}.mlp_norm", "B T D", weight="D", bias="D", kind="norm_layer"),
            *projections(f"{at}.mlp", "Fy", gated=True, bias=True),
            Pointwise(f"{at}.mlp_add", "B T D", kind="sum"),
        )
