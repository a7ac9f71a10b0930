"""What divided logits send: they are gathered, or a loss is computed of them where they are.

Shoeybi et al., "Megatron-LM" (arXiv 1909.08053), section 3: the loss is fused with the head's product, so that numbers
of tokens are sent in place of logits. torch's loss_parallel sends the same three.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from tfacct.ledger.einsum import Axes, size, whole_bytes
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import Matmul
from tfacct.parallel.mesh import VOCABULARY, Mesh, lives
from tfacct.parallel.sends import Collective, collective

AfterHead: TypeAlias = Literal["divided", "gathered", "loss"]
LOSS_BITS = 32
"""Width of the numbers of a loss: logits are cast to fp32 for it."""
OF_LOSS = ("max", "sum", "target")
"""What a token's loss needs of all ranks: its largest logit, the sum of exponentials, and the logit of its target."""


def of_logits(ledger: Ledger, mesh: Mesh, at: Axes, bits: int, after: AfterHead) -> Iterator[Collective]:
    """Collectives of logits that `tp` divides. The gradients of gathered ones are not sent: each rank takes its own,
    and so it is with those of a divided loss."""
    for group in ledger.groups if mesh.tp > 1 and after != "divided" else ():
        axes = group.bound(at)
        for line in group.lines:
            if not isinstance(line, Matmul) or line.weight_axes() is None:
                continue
            letter = next((axis for axis in line.einsum.out if lives(axis) == VOCABULARY), None)
            if letter is None:
                continue
            tokens = size(axes, tuple(axis for axis in line.einsum.out if axis != letter))
            if after == "gathered":
                result = whole_bytes(tokens * mesh.tp * mesh.share(letter, axes[letter]), bits)
                yield collective(line.path, "all-gather", "tp", "forward", "logits", group.count, result, mesh.tp, "V")
            for name in OF_LOSS if after == "loss" else ():
                result = whole_bytes(tokens, LOSS_BITS)
                yield collective(
                    f"loss.{name}", "all-reduce", "tp", "forward", "logits", group.count, result, mesh.tp, "V"
                )
