"""Layouts that `plan` tries for a number of devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from math import gcd
from typing import Any

from tfacct.architecture.parts import Attention
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.base.units import number_of
from tfacct.ledger.einsum import divisors
from tfacct.ledger.lines import EXPERTS
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh, Method, checked
from tfacct.parallel.pipeline import blocks_in
from tfacct.parallel.support import rows_divisors, unsupported_part
from tfacct.parallel.verified import verified

MOST_SEQUENCE_SHARDS = 16
"""Largest number of sequence shards to try."""
LEAST_TOKENS = 2048
"""Smallest number of tokens of a sequence on one rank to try."""


SIZES = ("tp", "sp", "fsdp", "ep", "dp", "zero", "pp", "cp", "ulysses")
"""Axes of a layout that are tried."""
OF_STAGES = ("schedule", "pp_chunks")
"""Options of pipeline stages; with them, only layouts with stages are tried."""
TRAINING = ("sp", "fsdp", "zero", "cp", "ulysses")
"""Axes that are tried only for training."""
_RENAMED = {"pp_chunks": "chunks", "tp_plan": "plan"}
OPTIONS: Mapping[str, str] = {
    name: _RENAMED.get(name, name)
    for name in (
        *("tp", "sp", "pp", "cp", "ulysses", "fsdp", "ep", "dp", "cp_method", "zero"),
        *("schedule", "microbatches", "pp_chunks", "tp_plan", "imbalance"),
    )
}
"""Options of a layout, in the order of its label, and the fields of a mesh that they set."""


def sizes_of(mesh: Mesh) -> dict[str, Any]:
    """The options that define a layout."""
    values = {name: getattr(mesh, field) for name, field in OPTIONS.items()}
    given = {name: value for name, value in values.items() if value != getattr(Mesh(), OPTIONS[name])}
    return {name: float(value) if isinstance(value, Fraction) else value for name, value in given.items()}


def label(mesh: Mesh) -> str:
    """A layout in words.

    >>> label(Mesh(4, sp=True, dp=16, zero=1)), label(Mesh())
    ('tp=4 sp dp=16 zero=1', 'no sharding')
    """
    sizes = sizes_of(mesh).items()
    return " ".join(name if value is True else f"{name}={value}" for name, value in sizes) or "no sharding"


def layouts_with(model: LoadedModel, devices: int, tokens: int, given: Mesh, *, train: bool) -> list[Mesh]:
    """The given layout if it uses all devices, else all layouts that agree with what was given. Raises UsageError."""
    if not train and (name := next((name for name in TRAINING if name in sizes_of(given)), None)):
        raise UsageError(f"{option(name, getattr(given, name))} applies to a training step", option("train", True))
    many = number_of(devices, "device")
    if uneven := next((ranks for ranks in (given.ranks, given.ep) if devices % ranks), None):
        raise UsageError(f"{label(given)} needs {uneven:,} ranks, which do not divide {many}")
    if given.ranks == devices > 1:
        return [checked(given)]
    if other := next((name for name in sizes_of(given) if name not in (*SIZES, "tp_plan", *OF_STAGES)), None):
        raise UsageError(
            f"{option(other)} needs a whole layout, but {label(given)} uses {given.ranks:,} of {many}",
            "give the whole layout, or remove it",
        )
    sizes = {name: getattr(given, name) for name in sizes_of(given) if name in SIZES}
    every = trained(model, devices, tokens) if train else served(model, devices)
    found = (mesh for mesh in every if all(getattr(mesh, name) == size for name, size in sizes.items()))
    found = (replace(mesh, plan=given.plan) if mesh.tp > 1 else mesh for mesh in found)
    if not any(name in sizes_of(given) for name in OF_STAGES):
        return [*found]
    staged = (checked(replace(mesh, schedule=given.schedule, chunks=given.chunks)) for mesh in found if mesh.pp > 1)
    return [mesh for mesh in staged if mesh.pp * mesh.chunks <= blocks_in(model.ledger)]


def served(model: LoadedModel, devices: int) -> Iterator[Mesh]:
    """Replicas sharded by tp and pp, and by ep if the model has experts."""
    experts = _experts(model)
    for tp, pp in _stages(model, devices):
        mesh = Mesh(tp, dp=devices // tp // pp, pp=pp)
        yield from (mesh, *(replace(mesh, ep=ep) for ep in _whole(experts, tp, devices // pp)))


def _stages(model: LoadedModel, devices: int) -> Iterator[tuple[int, int]]:
    """Sizes of `tp` and `pp`, with no more stages than layers."""
    blocks = blocks_in(model.ledger)
    for tp in divisors([devices]):
        yield from ((tp, pp) for pp in divisors([devices // tp]) if pp <= blocks)


def _sequence_shards(devices: int, tokens: int) -> list[int]:
    """Possible numbers of shards of a sequence, from 2 on."""
    most = min(MOST_SEQUENCE_SHARDS, tokens // LEAST_TOKENS)
    return [shards for shards in divisors([devices])[1:] if shards <= most]


def trained(model: LoadedModel, devices: int, tokens: int) -> Iterator[Mesh]:
    """Layouts of tp, fsdp, dp and ZeRO; pp with dp and ZeRO 1; cp and ulysses with fsdp, cp with pp; ep with fsdp, or
    with dp, also in stages."""
    windows = any(part.window is not None for _, part in model.architecture.having(Attention))
    method: Method = "gather" if windows else "ring"
    experts = _experts(model)
    heads = gcd(*(group.axes["K"] for group in model.ledger.groups if "K" in group.axes))  # 0 without experts
    for tp, pp in _stages(model, devices):
        dp = devices // tp // pp
        if pp > 1:
            for sp in (False, True) if tp > 1 else (False,):
                yield from _with_zero(Mesh(tp, sp, dp=dp, pp=pp), 1)
                for ep in _whole(experts, tp, devices // pp):
                    yield from _with_zero(Mesh(tp, sp, dp=dp, pp=pp, ep=ep), 1)
            for cp in _sequence_shards(dp, tokens):  # long sequences: with sp wherever it works
                yield from _with_zero(Mesh(tp, tp > 1, dp=dp // cp, pp=pp, cp=cp, cp_method=method), 1)
    for tp in divisors([devices]):
        for sp in (False, True) if tp > 1 else (False,):
            for shards in _sequence_shards(devices // tp, tokens):
                fsdp = devices // tp // shards
                if fsdp == 1:
                    continue
                of_heads = gcd(shards, heads // tp) if heads >= tp else 1  # as many as share the heads
                for ulysses in sorted({1, of_heads}):
                    cp = shards // ulysses
                    how = method if cp > 1 else "ring"
                    yield Mesh(tp, sp, fsdp, cp=cp, cp_method=how, ulysses=ulysses)
            for fsdp in divisors([devices // tp]):
                mesh = Mesh(tp, sp, fsdp, dp=devices // tp // fsdp)
                yield from _with_zero(mesh, 2)
                for ep in _whole(experts, tp, devices) if 1 in (mesh.fsdp, mesh.dp) else ():
                    yield from _with_zero(replace(mesh, ep=ep), 2)


def _experts(model: LoadedModel) -> int:
    """Greatest number of ranks that divides the experts of all layers; 0 without experts."""
    return gcd(*(group.axes[EXPERTS] for group in model.ledger.groups if EXPERTS in group.axes))


def _whole(experts: int, tp: int, devices: int) -> list[int]:
    """Sizes of `ep` for `experts` experts, multiples of `tp`; empty without experts."""
    return [ep for ep in divisors([experts, devices]) if ep > 1 and ep % tp == 0] if experts else []


def _with_zero(mesh: Mesh, most: int) -> Iterator[Mesh]:
    """The mesh, and with replicas also with the stages of ZeRO up to `most`."""
    yield from (replace(mesh, zero=zero) for zero in (range(most + 1) if mesh.fsdp == 1 < mesh.dp else (0,)))


MOST_RANKS = 2**16
"""Largest `fsdp` to try."""


def rank_counts(model: LoadedModel, mesh: Mesh, unknown: str) -> list[int]:
    """Numbers of ranks to try: all that are supported, or powers of 2. Raises UsageError for a model without
    experts."""
    if unknown == "ep":
        experts = [group.axes[EXPERTS] for group in model.ledger.groups if EXPERTS in group.axes]
        if not experts:
            raise UsageError(f"{model.name} has no experts for {option('ep')} to shard", f"use {option('tp')}")
        return [count for count in divisors(experts) if count == 1 or count % mesh.tp == 0]
    if unknown == "pp":
        return [*range(1, blocks_in(model.ledger) + 1)]
    if unknown == "tp":
        return divisors([max((part.heads for part in model.architecture.attentions), default=1)])
    # Padded rows were checked only for some classes; others need a number that divides all rows.
    compared = verified(model.family, "torch_plan") or unsupported_part(model.architecture) is not None
    if not compared and (even := rows_divisors(model, replace(mesh, fsdp=2))):
        return even
    return [2**power for power in range(MOST_RANKS.bit_length())]


def with_ranks(mesh: Mesh, unknown: str, count: int) -> Mesh:
    """The mesh with this number of ranks; `tp=1` has no sequence parallelism and no plan."""
    sizes: dict[str, Any] = {unknown: count}
    found = replace(mesh, **sizes)
    return replace(found, sp=False, plan="torch") if found.tp == 1 and unknown == "tp" else found
