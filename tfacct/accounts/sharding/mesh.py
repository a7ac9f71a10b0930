"""Where things live: the letters that a mesh divides, and whether it can."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd, isqrt
from typing import Literal, TypeAlias

from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.einsum import Axes, Letters
from tfacct.ledger.groups import Ledger

LIVES = ("K", "N", "F", "V")
"""Letters that `tp` divides: heads, the network's width, the vocabulary."""
TOKENS = ("T", "O")
"""Letters of the stream that `sp` divides beside them."""
NAMES = {"K": "key/value heads", "N": "query heads", "F": "feed-forward width", "V": "vocabulary", "T": "new tokens"}

Plan: TypeAlias = Literal["torch", "megatron"]


@record
class Mesh:
    """Ranks: `fsdp` groups of `tp` each. `sp`: the stream's tokens are divided too. `plan`: whether products that read
    one tensor each reduce its gradient, as torch's plan has it, or together, as Megatron does."""

    tp: int = 1
    sp: bool = False
    fsdp: int = 1
    plan: Plan = "torch"

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.tp * self.fsdp

    def divided(self, every: Letters) -> str | None:
        """Rule 1: the letter of a product, or of a tensor, that `tp` divides; None if it has none of them."""
        return None if self.tp == 1 else next((letter for letter in LIVES if letter in every), None)


def check(ledger: Ledger, mesh: Mesh, at: Axes) -> None:
    """Raises UsageError if a letter that the mesh divides has no size that it divides."""
    sizes = {(letter, group.axes[letter]) for group in ledger.groups for letter in LIVES if letter in group.axes}
    if mesh.sp:
        sizes.add(("T", at["T"]))
    wrong = sorted((letter, whole) for letter, whole in sizes if whole % mesh.tp)
    if wrong:
        named = ", ".join(f"{letter} = {whole:,} ({NAMES[letter]})" for letter, whole in wrong)
        fitting = ", ".join(map(str, divisors([whole for _, whole in sizes])))
        tokens = wrong[-1][0] == wrong[0][0] == "T"
        raise UsageError(
            f"{option('tp', mesh.tp)} does not divide {named}",
            f"{option('sp', True)} divides the tokens: ask for a multiple of {mesh.tp}"
            if tokens
            else f"sizes that divide all: {fitting}",
        )


def divisors(sizes: Iterable[int]) -> list[int]:
    """Numbers that divide all of these.

    >>> divisors([32, 8, 28672])
    [1, 2, 4, 8]
    """
    common = gcd(*sizes)
    small = [n for n in range(1, isqrt(common) + 1) if common % n == 0]
    return sorted({*small, *(common // n for n in small)})
