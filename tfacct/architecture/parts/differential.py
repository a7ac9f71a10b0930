"""Self-attention whose heads are subtracted from one another in pairs.

Ye et al., "Differential Transformer" (arXiv 2410.05258), section 2.1; the order and the shapes of the products:
transformers' DiffLlamaAttention.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts.attention import Attention
from tfacct.base.record import record
from tfacct.ledger.lines import Line, Matmul, Pointwise


@record(kw_only=True)
class DifferentialAttention(Attention):
    """Attention that runs twice over the same queries and keys: all heads read the values of the first half of the key
    heads, and then those of the second, laid out for all of them each time.

    What a head of the first half read of both, side by side, loses a share of what one of the second did: the share is
    exp(sum of the first) − exp(sum of the second) + a constant of the layer, of two products of learned vectors. An
    RMSNorm without weight, with this `eps`, of each such pair stands in front of the last product.
    """

    eps: float

    mesh_unsupported: ClassVar[str] = "attention whose heads are subtracted in pairs"
    legend: ClassVar[dict[str, str]] = {letter: Attention.legend[letter] for letter in "DNKGH"}

    def multiples(self) -> dict[str, int]:
        """Key heads have a first and a second half."""
        return {**Attention.multiples(self), "K": 2}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Attention's, with everything from scores to values a second time, and the difference."""
        own = Attention.lines(self, at)
        named = [line.path for line in own]
        first, behind = named.index(f"{at}.scores"), named.index(f"{at}.values") + 1
        twice = [line for line in own[first:behind] if isinstance(line, Matmul | Pointwise)]
        again = [replace(line, path=line.path.replace(f"{at}.", f"{at}.second_", 1)) for line in twice]
        return (
            *own[:behind],
            *again,
            *(Pointwise(f"{at}.{which}_lambda", "H", weight="H", bias="H") for which in ("first", "second")),
            Pointwise(f"{at}.difference", "B T N H"),
            Pointwise(f"{at}.pair_norm", "B T N H", kind="norm_rms"),
            *own[behind:],
        )
