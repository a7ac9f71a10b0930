"""LoRA: which products get adapters, what these are, and what a report says of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from tfacct.accounts.training import Adapter
from tfacct.accounts.updates import Parameter
from tfacct.architecture.parts import Embedding
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.kept import FULL, Held, Pass
from tfacct.ledger.lines import Matmul
from tfacct.ledger.storage import storage, width
from tfacct.loading.model import LoadedModel
from tfacct.profiles.adapters import adapted
from tfacct.profiles.adapters_parts import STREAM, Adapters, Sides

if TYPE_CHECKING:
    from tfacct.reports.training import Recipe, Trained

LORA = "lora"
"""Stands among a family's `trains` where adapters were measured."""
NARROW = 2
"""A vocabulary of fewer than so many hidden sizes: the forward pass of the loss would be fuller than its gradient."""
WORKLOAD = frozenset("BTS")
NF4 = "nf4"
PACKED = 64
"""Numbers of 4 bits that share a scale."""
CODES = FULL * (1 + 16 + 256)
"""Bytes of the mean of a matrix's scales, and of its codes of numbers and of scales (bitsandbytes 0.50)."""


class Asked(NamedTuple):
    """A rank, and names of products; none for all."""

    rank: int
    names: tuple[str, ...]


def read(text: str) -> Asked:
    """`16` or `16:q_proj,v_proj`. Raises UsageError."""
    rank, colon, names = text.partition(":")
    found = tuple(name.strip() for name in names.split(",") if name.strip())
    if not rank.strip().isascii() or not rank.strip().isdigit() or not int(rank) or (colon and not found):
        raise UsageError(f"{option('lora')} is a rank, or a rank and products, as in 16:q_proj,v_proj, not {text!r}")
    return Asked(int(rank), found)


def products(subject: LoadedModel, *, packed: bool = False) -> dict[str, Sides]:
    """Products of the blocks that have weights of their own: what they read, and what they make. `packed`: the weights
    are in 4 bits."""
    return {line.path: sides for line, sides, _ in _lines(subject, packed)}


def _lines(subject: LoadedModel, packed: bool = False) -> Iterator[tuple[Matmul, Sides, int]]:
    for number, group in enumerate(subject.ledger.groups):
        for line in group.lines if group.numbers else ():
            if isinstance(line, Matmul) and line.weight_axes() is not None and line.bank is None:
                read, weight, made = (" ".join(axes) for axes in line.einsum[:3])
                unpacked = Held(weight), Held(_scales(line), "full")
                yield line, Sides(read, "" if made == STREAM else made, unpacked if packed else ()), number


def _scales(line: Matmul) -> str:
    """Letter of a product's blocks of 4-bit numbers."""
    return f"C{line.path.rpartition('.')[2].replace('_', '')}"


def chosen(subject: LoadedModel, asked: Asked) -> frozenset[str]:
    """Paths of the products that names stand for: by our names, or as the class calls its modules."""
    modules = subject.config.paths()
    return frozenset(
        path
        for path in products(subject)
        if not asked.names or any(_called(name, path, modules.get(path, "")) for name in asked.names)
    )


def _called(name: str, *places: str) -> bool:
    return any(place == name or place.endswith(f".{name}") for place in places)


def refusal(subject: LoadedModel, recipe: Recipe) -> str | None:
    """Reason why a model's step with adapters is not counted; None if it is."""
    if recipe.lora is None:
        return None
    if recipe.checkpoint == "attention":
        return "adapters have not been measured with attention that runs again"
    shape, asked = subject.architecture, read(recipe.lora)
    if LORA not in subject.config.trains:
        return f"the training step of {subject.family} has not been measured with adapters"
    modules, every = subject.config.paths(), products(subject)
    for name in asked.names:
        if not any(_called(name, path, modules.get(path, "")) for path in every):
            known = ", ".join(path.rpartition(".")[2] for path in every)
            return f"{name!r} names no product of its blocks, which are {known}"
    if sum(stack.count for stack in shape.stacks) < 2:
        return "adapters on a single block have not been measured"
    if isinstance(shape.embed, Embedding) and shape.embed.vocab < NARROW * shape.embed.hidden:
        return "adapters have been measured with vocabularies of twice the hidden size or more"
    return None


class Lent(NamedTuple):
    """The pass with adapters, their weights, as an optimizer is handed them, the bytes of a number of theirs, and those
    of the frozen weights where they are in 4 bits."""

    run: Pass
    adapters: tuple[Adapter, ...]
    parameters: list[Parameter]
    width: int
    frozen: int | None


def lent(subject: LoadedModel, recipe: Recipe, run: Pass) -> Lent:
    """Adapters of a recipe on a model, and its pass with them."""
    from tfacct.reports.training import habits

    asked, shape, own = read(recipe.lora or ""), subject.architecture, habits(subject)
    on = chosen(subject, asked)
    wide = recipe.adapters == "fp32"
    each = FULL if wide else FULL // 2
    made: list[Adapter] = []
    handed: list[Parameter] = []
    for line, _, number in _lines(subject):
        group = subject.ledger.groups[number]
        for which in "AB" if line.path in on else "":
            axes = line.einsum.left if which == "A" else line.einsum.out
            side = prod(int(group.axes[axis]) for axis in axes if axis not in WORKLOAD)
            path = f"{line.path}.lora_{which}.weight"
            made.append(Adapter(path, asked.rank * side, each * asked.rank * side, group.numbers))
            sides = (asked.rank, side) if which == "A" else (side, asked.rank)
            handed.append(Parameter(sides, len(group.numbers), number))
    packed = recipe.weights == NF4
    how = Adapters(
        asked.rank,
        on,
        products(subject, packed=packed),
        wide=wide and not recipe.full,
        drops=recipe.lora_dropout > 0,
        embedded=recipe.checkpoint == "full",
        packed=packed,
        apart=own.apart,
        inline=own.inline_network,
        remakes=shape.embed.factor is not None or shape.positions is not None or own.embedding,
    )
    run = adapted(run, how)
    if packed:
        scales = {_scales(line): _blocks(_numbers(subject, line, number)) for line, _, number in _lines(subject)}
        run = run._replace(blocks=tuple(each._replace(axes={**each.axes, **scales}) for each in run.blocks))
    return Lent(run, tuple(made), handed, each, _packed(subject) if packed else None)


def _numbers(subject: LoadedModel, line: Matmul, number: int) -> int:
    axes = subject.ledger.groups[number].axes
    return prod(int(axes[axis]) for axis in line.weight_axes() or ())


def _blocks(numbers: int) -> int:
    return -(-numbers // PACKED)


def _packed(subject: LoadedModel) -> int:
    """Bytes of a model whose products in the blocks are in 4 bits, with the tables of codes that each of them has."""
    copies = sum(len(subject.ledger.groups[number].numbers) for *_, number in _lines(subject))
    return copies * CODES + sum(int(t.count * storage(NF4).bytes(t.stored)) for t in subject.ledger.tensors())


def facts(one: Trained) -> dict[str, Any]:
    """The adapters, as in the JSON."""
    asked, modules = read(one.recipe.lora or ""), one.subject.config.paths()
    on = [path for path in products(one.subject) if path in chosen(one.subject, asked)]
    return {
        "rank": asked.rank,
        "dtype": one.recipe.adapters,
        "dropout": one.recipe.lora_dropout,
        "weights": one.recipe.weights or one.recipe.dtype,
        "products": [paths.short(path) for path in on],
        "modules": [modules.get(path, path) for path in on],
        "params": sum(int(adapter.copies * adapter.elements) for adapter in one.step.adapters),
        "bytes": one.step.adapter_bytes,
    }


def notes(one: Trained) -> list[str]:
    """What the adapters are, and where they keep more than full fine-tuning would."""
    from tfacct.reports.training import step_of

    recipe, of = one.recipe, facts(one)
    names = ", ".join(name.rpartition(".")[2] for name in of["products"])
    stored = recipe.dtype if recipe.weights is None else f"{recipe.weights}; tables, norms and head in {recipe.dtype}"
    said = [
        f"Weights are frozen, in {stored}. Adapters of rank {of['rank']:,} in {of['dtype']} on {names}:"
        f" {units.si(of['params'])} parameters, {units.binary(of['bytes'])}; gradients and moments are theirs."
    ]
    whole = step_of(
        one.subject, one.work, replace(recipe, lora=None, adapters="fp32", lora_dropout=0.0, weights=None)
    ).kept()
    kept = one.step.kept()
    if kept > whole:
        copies = "each casts its input to fp32" if recipe.adapters != recipe.dtype else "each keeps a copy of its input"
        said.append(
            f"The adapters keep more than full fine-tuning would, {units.binary(kept)} in place of"
            f" {units.binary(whole)}: {copies}."
        )
    if recipe.weights == NF4:
        largest = max(_numbers(one.subject, line, number) for line, _, number in _lines(one.subject))
        said.append(
            f"A product's weight is unpacked to {recipe.dtype} for its gradient, one at a time:"
            f" {units.binary(int(width(recipe.dtype).bytes(largest)))} at most."
        )
    return said
