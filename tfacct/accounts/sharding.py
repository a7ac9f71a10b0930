"""A mesh over a ledger: letters are divided among ranks, and what each rank holds and sends follows.

Where things live is stated once (`LIVES`, and a step's tokens under sequence parallelism). Three rules give the rest:
1. A mesh axis divides one letter of a product: over `tp` the first of `LIVES` that it has.
2. An operand that lives divided along another letter is gathered, once for all products that read it.
3. A divided letter that is contracted leaves a partial sum: an all-reduce, or a reduce-scatter where the result lives
   divided. The backward pass follows by the same rules from the products of `Matmul.backward`.
Over `fsdp`, which divides the batch, weights are the operands that live divided: rule 2 gathers them, and rule 3
scatters the sums of their gradients.

Shoeybi et al., "Megatron-LM" (arXiv 1909.08053), section 3; Korthikanti et al. (2205.05198), section 4.2.2; Rajbhandari
et al., "ZeRO" (1910.02054), section 5; torch's DTensor plans and fully_shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd, isqrt, prod
from typing import Literal, NamedTuple, TypeAlias

from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, Letters, letters, rounded_up, size, whole_bytes
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import Matmul, Parameter, Pointwise, Table

LIVES = ("K", "N", "F", "V")
"""Letters that `tp` divides: heads, the network's width, the vocabulary."""
TOKENS = ("T", "O")
"""Letters of the stream that `sp` divides beside them."""
NAMES = {"K": "key/value heads", "N": "query heads", "F": "feed-forward width", "V": "vocabulary", "T": "new tokens"}

Kind: TypeAlias = Literal["all-reduce", "all-gather", "reduce-scatter"]
When: TypeAlias = Literal["forward", "backward"]
Of: TypeAlias = Literal["stream", "shared weights", "weights"]
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


class Collective(NamedTuple):
    """A collective as a line: `what` is the line of the ledger that needs it, `calls` how many times it runs in a step,
    `bytes` those of all results on one rank, `because` the letter it follows from. `of`: the stream, weights that every
    rank of `tp` has, or the weights of an `fsdp` unit. `sent`: bytes that one rank sends in a ring."""

    what: str
    kind: Kind
    over: Literal["tp", "fsdp"]
    when: When
    of: Of
    calls: int
    bytes: int
    sent: int
    because: str


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


def collectives(ledger: Ledger, mesh: Mesh, at: Axes, bits: int, *, train: bool = False) -> list[Collective]:
    """Every collective of a forward pass, or with `train` of a training step, in numbers of so many bits.

    Raises UsageError for a mesh that does not divide what it must.
    """
    check(ledger, mesh, at)
    found: list[Collective] = []
    if mesh.tp > 1:
        for group in ledger.groups:
            found += _of_group(group, mesh, at, bits, train)
    if mesh.fsdp > 1:
        found += _of_weights(ledger, mesh, bits, train)
    return found


def _of_group(group: Group, mesh: Mesh, at: Axes, bits: int, train: bool) -> Iterator[Collective]:
    """Collectives over `tp` of one group of blocks."""
    axes = group.bound(at)
    whens: tuple[When, ...] = ("forward", "backward") if train else ("forward",)

    def sent(what: str, kind: Kind, when: When, operand: Letters, because: str, of: Of = "stream") -> Collective:
        elements = size(axes, operand)
        result = elements // mesh.tp if kind == "reduce-scatter" else elements
        return _collective(what, kind, "tp", when, of, group.count, whole_bytes(result, bits), mesh.tp, because)

    whole: set[tuple[str, str, Letters]] = set()
    reduced: set[tuple[str, Letters]] = set()
    for line in _products(group):
        letter = mesh.divided(line.einsum.every)
        if letter is None:
            continue
        reads = paths.module_of(line.path)
        for when in whens:
            one = line if when == "forward" else line.backward()[0]
            # The operand that is not the weight: what a product reads, or the gradient of what it made.
            read, made = one.einsum.left, one.einsum.out
            what = reads if when == "forward" else line.path
            if mesh.sp and _streams(read, letter) and (when, what, read) not in whole:
                whole.add((when, what, read))
                yield sent(line.path, "all-gather", when, read, "T")
            if letter in made:
                continue
            together = when == "backward" and (mesh.sp or mesh.plan == "megatron")
            if together and (reads, made) in reduced:
                continue  # one tensor's gradients are added up before they are reduced
            if together:
                reduced.add((reads, made))
            yield sent(line.path, "reduce-scatter" if mesh.sp else "all-reduce", when, made, letter)
    for path, spec, weight in _shared(group) if train else ():
        letter = mesh.divided(spec) or ("T" if mesh.sp else None)
        if letter is not None and letter not in weight:
            yield sent(path, "all-reduce", "backward", weight, letter, "shared weights")


def _streams(operand: Letters, letter: str) -> bool:
    """True if an operand is the stream, which lives divided along its tokens."""
    return letter not in operand and any(axis in TOKENS for axis in operand)


def _products(group: Group) -> Iterator[Matmul]:
    """Products of a group. Looking rows up is one: of tokens, each a row of zeros and a one, and the table."""
    for line in group.lines:
        if isinstance(line, Matmul) and line.weight_axes() is not None:
            yield line
        elif isinstance(line, Table) and "V" in letters(line.spec):
            # No gradient is asked of the tokens, and the table's own needs no sum over V.
            yield Matmul(line.path, f"B T V, {line.spec} -> B T D")


def _shared(group: Group) -> Iterator[tuple[str, Letters, Letters]]:
    """Weights of work that is no product: path, axes of the work, axes of the weight."""
    for line in group.lines:
        if isinstance(line, Pointwise):
            for parameter in line.parameters():
                yield parameter.path, letters(line.spec), parameter.axes
        elif isinstance(line, Table) and "V" not in letters(line.spec):
            yield f"{line.path}.weight", ("B", "T", "D"), letters(line.spec)


def _collective(
    what: str,
    kind: Kind,
    over: Literal["tp", "fsdp"],
    when: When,
    of: Of,
    calls: int,
    result: int,
    ranks: int,
    because: str,
) -> Collective:
    """A collective whose result has so many bytes, and what one rank sends for it in a ring: all but its own share of a
    gather's result, as many shares of a scatter's, and both for an all-reduce."""
    shares = {"all-gather": 1, "all-reduce": 2, "reduce-scatter": 1}[kind]
    share = result if kind == "reduce-scatter" else rounded_up(result, ranks)
    sent = shares * (ranks - 1) * share
    return Collective(what, kind, over, when, of, calls, calls * result, calls * sent, because)


class Shard(NamedTuple):
    """A stored tensor on one rank: `rows` × `columns` of it, with `padded` rows where `fsdp` divides them."""

    path: str
    rows: int
    columns: int
    padded: int

    @property
    def elements(self) -> int:
        """Number of elements that the fullest rank stores, padding included."""
        return self.padded * self.columns


def shard(parameter: Parameter, axes: Axes, mesh: Mesh) -> Shard:
    """A tensor on one rank. Its rows are the outputs of a product, the rows of a table, and all of a vector."""
    if parameter.embedding:
        along = parameter.axes[:1]
    elif parameter.inputs:
        along = tuple(axis for axis in parameter.axes if axis not in parameter.inputs)
    else:
        along = parameter.axes
    letter = mesh.divided(parameter.axes)
    local = {axis: axes[axis] // mesh.tp if axis == letter else axes[axis] for axis in parameter.axes}
    rows = prod(local[axis] for axis in along)
    columns = prod(size_ for axis, size_ in local.items() if axis not in along)
    return Shard(parameter.path, rows, columns, rounded_up(rows, mesh.fsdp))


def gathered(ledger: Ledger, mesh: Mesh) -> Iterator[tuple[str, int, list[Shard]]]:
    """Weights that are gathered together: those of a block, for each kind of blocks with their number, then all that
    is in no block."""
    root: dict[str, Shard] = {}
    for group in ledger.groups:
        own = {one.path: one for one in _shards(group, mesh)}
        if any(map(paths.repeated, own)):
            yield next(iter(own)).split("*")[0] + "*", group.count, list(own.values())
        else:
            root = {**own, **root}
    if root:
        yield "", 1, list(root.values())


def stored_elements(ledger: Ledger, mesh: Mesh) -> int:
    """Number of elements that the fullest rank stores, padding included."""
    return sum(count * one.elements for _, count, shards in gathered(ledger, mesh) for one in shards)


def _shards(group: Group, mesh: Mesh) -> Iterable[Shard]:
    return (shard(own, group.axes, mesh) for line in group.lines for own in line.parameters())


def _of_weights(ledger: Ledger, mesh: Mesh, bits: int, train: bool) -> Iterator[Collective]:
    """Collectives over `fsdp`, which gathers weights before they are read and scatters their gradients."""
    for what, count, shards in gathered(ledger, mesh):
        part = whole_bytes(sum(one.elements for one in shards), bits)
        steps: list[tuple[Kind, When, int]] = [("all-gather", "forward", mesh.fsdp * part)]
        if train:
            # Blocks let go of their weights behind the forward pass; what is in no block stays.
            steps += [("all-gather", "backward", mesh.fsdp * part)] if what else []
            steps.append(("reduce-scatter", "backward", part))
        for kind, when, result in steps:
            yield _collective(what, kind, "fsdp", when, "weights", count, result, mesh.fsdp, "B")
