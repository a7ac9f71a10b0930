"""First and last parts of an image encoder: patches, and an attention pooler.

Patches and class token: Dosovitskiy et al., "An Image is Worth 16x16 Words" (arXiv 2010.11929), section 3.1. Pooler:
Zhai et al., "Scaling Vision Transformers" (2106.04560), section 3.2, as in transformers'
SiglipMultiheadAttentionPoolingHead.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    """Projection of patches instead of a token embedding: a convolution with stride equal to its width.

    `pixels`: per patch and channel. `front`: number of learned tokens before the patches (a class token); None without
    any. The context includes them. `norm_eps`: ε of an RMSNorm after the projection. `last`: learned tokens come after
    the patches. `further`: number of learned tokens other than the class token, in a separate tensor (transformers'
    Dinov2WithRegistersEmbeddings); `taught`: this is one distillation token (DeiTEmbeddings). `masked`: a learned mask
    token is stored, but not used in a pass (Dinov2Embeddings).
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
    name: ClassVar[str] = "embed"
    label: ClassVar[str] = "patch embeddings"
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
        FRONT: "learned tokens before the patches",
        FURTHER: "learned tokens after the class token",
        **ALONE,
    }
    made: ClassVar[dict[str, str]] = {"U": "1"}

    def derived(self) -> dict[str, str]:
        """U, if there are learned tokens next to the class token."""
        return {} if self.further is None and not self.taught else self.made

    def lines(self, at: str) -> Iterator[Line]:
        """Projection, norm and learned tokens."""
        rows = "T" if self.front is None else PATCHES
        yield Matmul(f"{at}.project", f"B {rows} Cc Px, Cc Px D -> B {rows} D", bias=self.bias)
        if self.norm_eps is not None:
            yield Pointwise(f"{at}.norm", f"B {rows} D", weight="D", kind="norm_rms")
        if self.front is not None and (self.taught or self.further is not None):
            yield Table(f"{at}.class", "U D", embedding=False)
            yield Table(f"{at}.further", "U D" if self.taught else f"{FURTHER} D", embedding=False)
        elif self.front is not None:
            yield Table(f"{at}.class", f"{FRONT} D", embedding=False)
        if self.masked:
            yield Unused(Pointwise(f"{at}.mask", f"B {rows} D", weight="D"))


@record(kw_only=True)
class AttentionPooler(Part):
    """One vector per image: attention of learned queries to all positions, then a norm and an MLP."""

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

    def lines(self, at: str) -> Iterator[Line]:
        """Learned queries, projections, QKᵀ and PV over all positions, norm, MLP and residual addition."""
        yield Table(f"{at}.probe", "Qp D", embedding=False)
        yield Matmul(f"{at}.q_proj", "B Qp D, D Np Hz -> B Qp Np Hz", bias=True)
        yield Matmul(f"{at}.k_proj", "B T D, D Np Hz -> B T Np Hz", bias=True)
        yield Matmul(f"{at}.v_proj", "B T D, D Np Hz -> B T Np Hz", bias=True)
        yield Matmul(f"{at}.scores", "B Qp Np Hz, B T Np Hz -> B Np Qp T")
        yield Pointwise(f"{at}.softmax", "B Np Qp T", kind="softmax")
        yield Matmul(f"{at}.values", "B Np Qp T, B T Np Hz -> B Qp Np Hz")
        yield Matmul(f"{at}.o_proj", "B Qp Np Hz, Np Hz D -> B Qp D", bias=True)
        yield Pointwise(f"{at}.norm", "B Qp D", weight="D", bias="D", kind="norm_layer")
        for line in projections(f"{at}.mlp", "F", gated=False, bias=True, function=self.activation):
            yield line.renamed({"T": "Qp"})
        yield Pointwise(f"{at}.add", "B Qp D", kind="sum")
