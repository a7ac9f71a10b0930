"""Self-attention whose queries are made by experts, and whose results pass them again.

Zhang et al., "Mixture of Attention Heads" (arXiv 2210.05144), section 3; Shen et al., "JetMoE" (2404.07413), section
2.2; the order and the shapes of the products: transformers' JetMoeAttention.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Self

from tfacct.architecture.parts.attention import Attention
from tfacct.architecture.parts.experts import Experts
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, State


@record(kw_only=True)
class SentAttention(Attention):
    """Attention of which each token is sent to `group` of `experts`: one makes a query for each key head of it, and
    takes what those queries read back to the stream, weighted. All share keys and values, and a bias of the sum."""

    experts: Size

    mesh_unsupported: ClassVar[str] = "attention whose queries experts make"
    letters: ClassVar[dict[str, str]] = {**Attention.letters, "group": "A", "experts": "E"}
    legend: ClassVar[dict[str, str]] = {
        **{letter: Attention.legend[letter] for letter in "DKH"},
        **{letter: Experts.legend[letter] for letter in "AE"},
        "N": "query heads, K · A",
    }
    made: ClassVar[dict[str, str]] = {"N": "K · A"}
    cases: ClassVar[frozenset[str]] = frozenset("KA")
    at_most: ClassVar[dict[str, str]] = {"A": "E"}
    dealt: ClassVar[str | None] = "E"

    def with_kv_heads(self, kv_heads: Size) -> Self:
        """Return the part with another number of key heads: each expert has a query for every one."""
        return replace(self, kv_heads=kv_heads)

    def lines(self, at: str) -> tuple[Line, ...]:
        """Router, queries by experts, keys and values, QKᵀ and PV, the experts' last products, and the two caches."""
        pairs = "B K A T S"
        return (
            Matmul(f"{at}.router", "B T D, D E -> B T E"),
            Pointwise(f"{at}.routing", "B T E"),
            Matmul(f"{at}.experts.q_proj", "B T A D, D K H -> B T A K H", bank="E"),
            *(Matmul(f"{at}.{which}_proj", "B T D, D K H -> B T K H") for which in "kv"),
            Pointwise(f"{at}.q_rotary", "B T N H", kind="rotary"),
            Pointwise(f"{at}.k_rotary", "B T K H", kind="rotary"),
            Matmul(f"{at}.scores", f"B T K A H, B S K H -> {pairs}", mask="causal"),
            Pointwise(f"{at}.softmax", pairs, kind="softmax"),
            Matmul(f"{at}.values", f"{pairs}, B S K H -> B T K A H", mask="causal"),
            Matmul(f"{at}.experts.o_proj", "B T A K H, K H D -> B T A D", bank="E"),
            Pointwise(f"{at}.weighting", "B T A D", kind="weighting"),
            Pointwise(f"{at}.sum", "B T D", bias="D", kind="sum"),
            *(State(f"{at}.{which}_cache", "B S K H") for which in "kv"),
        )
