"""First and last parts of an image encoder: patches, and a pooler that attends to all results.

Patches and a class token: Dosovitskiy et al., "An Image is Worth 16x16 Words" (arXiv 2010.11929), section 3.1. The
pooler: Zhai et al., "Scaling Vision Transformers" (2106.04560), section 3.2, as in transformers'
SiglipMultiheadAttentionPoolingHead.
"""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture.parts.feed_forward import FeedForward, projections
from tfacct.architecture.parts.part import Part
from tfacct.architecture.parts.shared import ALONE
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import FRONT, FURTHER, Line, Matmul, Pointwise, Table, Unused
from tfacct.ledger.workload import PATCHES


@record(kw_only=True)
class Patches(Part):
    """Product of every patch's pixels in place of a token table: a convolution whose windows do not overlap.

    `pixels`: of one patch, in each of `channels`. `front`: learned tokens in front of those of the patches, a class
    token; None where there is none. The context is the number of all of them. `norm_eps`: that of an RMSNorm behind the
    product, where there is one. If `last`, the learned tokens stand behind the patches. `further`: those of `front`
    behind the class token, in a table of their own (transformers' Dinov2WithRegistersEmbeddings); `taught`: that is one
    token (DeiTEmbeddings). If `masked`, a learned token is
    stored that stands for patches which training hides: no pass holds it (Dinov2Embeddings).
    """

    channels: Size
    pixels: Size
    hidden: Size
    front: Size | None = None
    bias: bool = True
    norm_eps: float | None = None
    last: bool = False
    further: Size | None = None
    taught: bool = False
    masked: bool = False

    scaled: ClassVar[bool] = False
    factor: ClassVar[float | None] = None
    width: ClassVar[Size | None] = None
    late: ClassVar[bool] = False
    name: ClassVar[str] = "embed"
    axis_names: ClassVar[dict[str, str]] = {
        "channels": "Cc",
        "pixels": "Px",
        "hidden": "D",
        "front": FRONT,
        "further": FURTHER,
    }
    legend: ClassVar[dict[str, str]] = {
        "Cc": "colour channels of an image",
        "Px": "pixels of a patch",
        "D": "hidden size",
        FRONT: "learned tokens in front of the patches",
        FURTHER: "those of them after the class token",
        **ALONE,
    }
    made: ClassVar[dict[str, str]] = {"U": "1"}

    def derived(self) -> dict[str, str]:
        """U, where the class token has others beside it."""
        return {} if self.further is None and not self.taught else self.made

    def lines(self, at: str) -> tuple[Line, ...]:
        """The product, and the class token where there is one."""
        rows = "T" if self.front is None else PATCHES
        product = Matmul(f"{at}.project", f"B {rows} Cc Px, Cc Px D -> B {rows} D", bias=self.bias)
        norm = () if self.norm_eps is None else (Pointwise(f"{at}.norm", f"B {rows} D", weight="D", kind="norm_rms"),)
        hidden = (Unused(Pointwise(f"{at}.mask", f"B {rows} D", weight="D")),) if self.masked else ()
        if self.front is None:
            return (product, *norm, *hidden)
        tables = {"class": FRONT}
        if self.taught or self.further is not None:
            tables = {"class": "U", "further": "U" if self.taught else FURTHER}
        front = (Table(f"{at}.{name}", f"{axis} D", embedding=False) for name, axis in tables.items())
        return (product, *norm, *front, *hidden)


@record(kw_only=True)
class AttentionPooler(Part):
    """One vector for each image: what a learned query reads of all positions, and a network behind a norm."""

    hidden: Size
    heads: Size
    head_dim: Size
    width: Size
    probes: Size = 1
    activation: str = "gelu"
    eps: float = 1e-6

    name: ClassVar[str] = "pooler"
    axis_names: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "heads": "Np",
        "head_dim": "Hz",
        "width": "F",
        "probes": "Qp",
    }
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Np": "heads of the pooler",
        "Hz": "size of one head of the pooler",
        "F": FeedForward.legend["F"],
        "Qp": "learned queries of the pooler",
    }

    def lines(self, at: str) -> tuple[Line, ...]:
        """The query, projections, QKᵀ and PV over all positions, the norm, the network and its addition."""
        network = (
            line.renamed({"T": "Qp"})
            for line in projections(f"{at}.mlp", "F", gated=False, bias=True, function=self.activation)
        )
        return (
            Table(f"{at}.probe", "Qp D", embedding=False),
            Matmul(f"{at}.q_proj", "B Qp D, D Np Hz -> B Qp Np Hz", bias=True),
            Matmul(f"{at}.k_proj", "B T D, D Np Hz -> B T Np Hz", bias=True),
            Matmul(f"{at}.v_proj", "B T D, D Np Hz -> B T Np Hz", bias=True),
            Matmul(f"{at}.scores", "B Qp Np Hz, B T Np Hz -> B Np Qp T"),
            Pointwise(f"{at}.softmax", "B Np Qp T", kind="softmax"),
            Matmul(f"{at}.values", "B Np Qp T, B T Np Hz -> B Qp Np Hz"),
            Matmul(f"{at}.o_proj", "B Qp Np Hz, Np Hz D -> B Qp D", bias=True),
            Pointwise(f"{at}.norm", "B Qp D", weight="D", bias="D", kind="norm_layer"),
            *network,
            Pointwise(f"{at}.add", "B Qp D", kind="sum"),
        )
