"""Where things live: the letters that a mesh divides, and whether it can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import gcd, isqrt
from typing import Literal, TypeAlias

from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.einsum import Axes, Letters, Size, rounded_up
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import EXPERTS

LIVES = ("K", "N", "F", "Fe", "Fs", "V")
"""Letters that `tp` divides: heads, widths of networks, the vocabulary."""
HEADS = ("K", "N")
"""Those that stay whole numbers on every rank."""
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
    of them receives, over the mean. `dp`: copies of all that, each with a batch of its own; `zero`: the stage of ZeRO
    by which these divide moments (1) and gradients (2)."""

    tp: int = 1
    sp: bool = False
    fsdp: int = 1
    plan: Plan = "torch"
    ep: int = 1
    imbalance: Fraction = Fraction(1)
    dp: int = 1
    zero: int = 0

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.tp * self.fsdp * self.dp

    @property
    def copies(self) -> int:
        """Number of ranks that have the same experts; `fsdp` divides what each of these has among them."""
        return self.tp * self.fsdp // self.ep if self.ep > 1 else self.fsdp

    def fits(self, letter: str, axes: Axes, ranks: int) -> bool:
        """True if so many ranks of `tp` divide a letter. Fewer key/value heads than ranks are on several each. Of
        a width or a vocabulary the last ranks may have fewer, if `fsdp` does not divide that again."""
        whole = axes[letter]
        if letter == "K" and ranks > whole:
            return bool(ranks % whole == 0)
        return bool(whole % ranks == 0 or (letter not in (*HEADS, "T") and self.fsdp == 1 and whole > ranks))

    def share(self, letter: str | None, whole: Size) -> Size:
        """Size of a divided letter on the fullest rank of `tp`."""
        return whole if letter is None else rounded_up(whole, self.tp)

    def divided(self, every: Letters, bank: bool = False) -> str | None:
        """Rule 1: the letter of a product, or of a tensor, that `tp` divides; None if it has none of them. Those of
        experts that `ep` divides are whole."""
        if self.tp == 1 or (bank and self.ep > 1):
            return None
        return next((letter for letter in LIVES if letter in every), None)


def check(ledger: Ledger, mesh: Mesh, at: Axes) -> None:
    """Raises UsageError if a letter that the mesh divides has no size that it divides."""
    everywhere = [(group.axes, letter) for group in ledger.groups for letter in _lives(group, mesh)]
    if mesh.sp:
        everywhere.append((at, "T"))
    banks = [group.axes[EXPERTS] for group in ledger.groups if EXPERTS in group.axes]
    uneven = [whole for whole in banks if whole % mesh.ep]
    if uneven:
        fitting = ", ".join(map(str, divisors(banks)))
        said = f"{option('ep', mesh.ep)} does not divide E = {uneven[0]:,} ({NAMES['E']})"
        raise UsageError(said, f"sizes that divide all: {fitting}")
    wrong = sorted({(letter, axes[letter]) for axes, letter in everywhere if not mesh.fits(letter, axes, mesh.tp)})
    if not wrong:
        return
    named = ", ".join(f"{letter} = {whole:,} ({NAMES[letter]})" for letter, whole in wrong)
    said = f"{option('tp', mesh.tp)} does not divide {named}"
    if wrong[0][0] == wrong[-1][0] == "T":
        raise UsageError(said, f"{option('sp', True)} divides the tokens: ask for a multiple of {mesh.tp}")
    heads = {axes[letter] for axes, letter in everywhere if letter == "N"}
    tried = divisors(heads or {whole for _, whole in wrong})
    possible = [n for n in tried if all(mesh.fits(letter, axes, n) for axes, letter in everywhere if letter != "T")]
    raise UsageError(said, f"sizes that divide all: {', '.join(map(str, possible))}")


def replicated(ledger: Ledger, mesh: Mesh) -> list[int]:
    """Numbers of key/value heads that are fewer than the ranks of `tp`, so that several ranks have each."""
    found = {group.axes["K"] for group in ledger.groups if "K" in _lives(group, mesh)}
    return sorted(heads for heads in found if heads < mesh.tp)


def padded(ledger: Ledger, mesh: Mesh) -> list[tuple[str, int]]:
    """Letters, with their sizes, of which the last ranks of `tp` have fewer than the first."""
    found = {(letter, group.axes[letter]) for group in ledger.groups for letter in _lives(group, mesh)}
    return sorted((letter, whole) for letter, whole in found if letter not in HEADS and whole % mesh.tp)


def _lives(group: Group, mesh: Mesh) -> Iterator[str]:
    """Letters of a group that `tp` divides."""
    there = [letter for letter in LIVES if letter in group.axes]
    if mesh.ep > 1 and EXPERTS in group.axes:  # those of experts alone are whole
        shared = {axis for line in group.lines for one in line.parameters() if not one.bank for axis in one.axes}
        there = [letter for letter in there if letter != "Fe" or letter in shared]
    yield from there


def divisors(sizes: Iterable[int]) -> list[int]:
    """Numbers that divide all of these.

    >>> divisors([32, 8, 28672])
    [1, 2, 4, 8]
    """
    common = gcd(*sizes)
    small = [n for n in range(1, isqrt(common) + 1) if common % n == 0]
    return sorted({*small, *(common // n for n in small)})
