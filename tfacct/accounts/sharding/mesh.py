"""Where things live: the letters that a mesh divides, and whether it can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import gcd, isqrt
from typing import Literal, TypeAlias

from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.einsum import Axes, Letters
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import EXPERTS, Matmul

LIVES = ("K", "N", "F", "Fe", "Fs", "V")
"""Letters that `tp` divides: heads, widths of networks, the vocabulary."""
TOKENS = ("T", "O")
"""Letters of the stream that `sp` divides beside them."""
NAMES = {
    "K": "key/value heads",
    "N": "query heads",
    "F": "feed-forward width",
    "Fe": "width of one expert",
    "Fs": "width of the shared network",
    "V": "vocabulary",
    "E": "experts",
    "T": "new tokens",
}

Plan: TypeAlias = Literal["torch", "megatron"]


@record
class Mesh:
    """Ranks: `fsdp` groups of `tp` each. `sp`: the stream's tokens are divided too. `plan`: whether products that read
    one tensor each reduce its gradient, as torch's plan has it, or together, as Megatron does. `ep`: so many of the
    ranks divide the experts, which `tp` then leaves whole. `imbalance`: the pairs of token and expert that the fullest
    of them receives, over the mean."""

    tp: int = 1
    sp: bool = False
    fsdp: int = 1
    plan: Plan = "torch"
    ep: int = 1
    imbalance: Fraction = Fraction(1)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.tp * self.fsdp

    @property
    def copies(self) -> int:
        """Number of ranks that have the same experts; `fsdp` divides what each of these has among them."""
        return self.ranks // self.ep if self.ep > 1 else self.fsdp

    def divided(self, every: Letters, bank: bool = False) -> str | None:
        """Rule 1: the letter of a product, or of a tensor, that `tp` divides; None if it has none of them. Those of
        experts that `ep` divides are whole."""
        if self.tp == 1 or (bank and self.ep > 1):
            return None
        return next((letter for letter in LIVES if letter in every), None)


def check(ledger: Ledger, mesh: Mesh, at: Axes) -> None:
    """Raises UsageError if a letter that the mesh divides has no size that it divides."""
    sizes = {(letter, group.axes[letter]) for group in ledger.groups for letter in _lives(group, mesh)}
    if mesh.sp:
        sizes.add(("T", at["T"]))
    banks = [group.axes[EXPERTS] for group in ledger.groups if EXPERTS in group.axes]
    uneven = [whole for whole in banks if whole % mesh.ep]
    if uneven:
        fitting = ", ".join(map(str, divisors(banks)))
        said = f"{option('ep', mesh.ep)} does not divide E = {uneven[0]:,} ({NAMES['E']})"
        raise UsageError(said, f"sizes that divide all: {fitting}")
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


def _lives(group: Group, mesh: Mesh) -> Iterator[str]:
    """Letters of a group that `tp` divides."""
    apart = {axis for line in group.lines if isinstance(line, Matmul) and line.bank for axis in line.einsum.every}
    own = {axis for line in group.lines for one in line.parameters() if not one.bank for axis in one.axes}
    for letter in LIVES:
        if letter in group.axes and (mesh.ep == 1 or letter not in apart or letter in own):
            yield letter


def divisors(sizes: Iterable[int]) -> list[int]:
    """Numbers that divide all of these.

    >>> divisors([32, 8, 28672])
    [1, 2, 4, 8]
    """
    common = gcd(*sizes)
    small = [n for n in range(1, isqrt(common) + 1) if common % n == 0]
    return sorted({*small, *(common // n for n in small)})
