"""Checks of a parallel layout that need no model."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from tfacct.base.errors import UsageError, listed
from tfacct.base.spelling import option
from tfacct.ledger.workload import check_size
from tfacct.parallel.mesh import Mesh, Method, Schedule, divisors


def checked(mesh: Mesh) -> Mesh:
    """The mesh, where its sizes and its plan make sense. Raises UsageError."""
    for name, value in (("tp", mesh.tp), ("fsdp", mesh.fsdp), ("ep", mesh.ep), ("dp", mesh.dp)):
        check_size(option(name), value)
    if mesh.plan not in ("torch", "megatron"):
        raise UsageError(f"{option('tp_plan')} is torch or megatron, not {mesh.plan!r}")
    check_sequence(mesh)
    mesh = checked_axes(_checked_copies(mesh))
    check_experts(mesh)
    if mesh.ranks == 1:
        raise UsageError("one rank sends nothing", f"give {option('tp', 8)} or {option('fsdp', 8)}")
    return mesh


def check_sequence(mesh: Mesh) -> None:
    """Raises UsageError for ranks of `tp` that are asked how they divide, and are none."""
    if mesh.tp == 1 and (mesh.sp or mesh.plan != "torch"):
        given = option("sp", True) if mesh.sp else option("tp_plan", mesh.plan)
        raise UsageError(f"{given} divides what {option('tp')} does: it needs {option('tp', 2)} or more")


def _checked_copies(mesh: Mesh) -> Mesh:
    """The mesh; ranks that divide weights too, by ZeRO's third stage, are those of `fsdp`. Raises UsageError."""
    if mesh.zero not in (0, 1, 2, 3):
        raise UsageError(f"{option('zero')} is 1, 2 or 3, not {mesh.zero}", f"{option('dp', 8)} alone divides nothing")
    if mesh.zero and (mesh.dp == 1 or mesh.fsdp > 1):
        raise UsageError(f"{option('zero', mesh.zero)} goes with {option('dp')}, without {option('fsdp')}")
    if mesh.ep > mesh.tp and mesh.fsdp == mesh.dp == mesh.parts == 1 and mesh.ep % mesh.tp == 0:
        mesh = replace(mesh, dp=mesh.ep // mesh.tp)  # all else is whole on each, as where a model is served
    return replace(mesh, fsdp=mesh.dp, dp=1, zero=0) if mesh.zero == 3 else mesh


def check_experts(mesh: Mesh) -> None:
    """Raises UsageError for ranks that cannot divide experts."""
    batches = "fsdp" if mesh.fsdp > 1 else "dp"
    groups = getattr(mesh, batches) * mesh.parts
    if mesh.ep > 1 and (mesh.ep % mesh.tp or mesh.tp * groups % mesh.ep):
        sizes = [mesh.tp * n for n in divisors([groups]) if mesh.tp * n > 1]
        also = f"{option('tp')} and {option(batches)}"
        if mesh.parts > 1:
            also = f"{option('tp')}, {option(batches)} and {option('cp' if mesh.cp > 1 else 'ulysses')}"
        raise UsageError(
            f"{option('ep', mesh.ep)} divides experts among the ranks of {also}, a batch's ranks together",
            f"sizes that they have: {', '.join(map(str, sizes))}" if sizes else f"give {option(batches, mesh.ep)} too",
        )
    if mesh.imbalance != 1 and mesh.ep == 1:
        given = option("imbalance", f"{float(mesh.imbalance):g}")
        raise UsageError(f"{given} applies to tokens that go to experts: it needs {option('ep', 2)} or more")
    if mesh.imbalance < 1 or mesh.imbalance > mesh.ep:
        raise UsageError(
            f"{option('imbalance')} is what the fullest rank of {option('ep')} receives over the mean: from 1 to"
            f" {mesh.ep:,}"
        )


def checked_axes(mesh: Mesh) -> Mesh:
    """The mesh, where stages and parts of sequences make sense. Raises UsageError."""
    for name, value in (("pp", mesh.pp), ("pp_chunks", mesh.chunks), ("cp", mesh.cp), ("ulysses", mesh.ulysses)):
        check_size(option(name), value)
    if mesh.schedule not in get_args(Schedule):
        raise UsageError(f"{option('schedule')} is {listed(get_args(Schedule))}, not {mesh.schedule!r}")
    if mesh.cp_method not in get_args(Method):
        raise UsageError(f"{option('cp_method')} is {listed(get_args(Method))}, not {mesh.cp_method!r}")
    if mesh.microbatches:
        check_size(option("microbatches"), mesh.microbatches)
    given = {
        option("schedule", mesh.schedule): mesh.schedule != "1f1b",
        option("microbatches", mesh.microbatches): bool(mesh.microbatches),
        option("pp_chunks", mesh.chunks): mesh.chunks > 1,
    }
    alone = next((name for name, so in given.items() if so), None)
    if mesh.pp == 1 and alone:
        raise UsageError(f"{alone} applies to stages: it needs {option('pp', 2)} or more")
    if mesh.cp == 1 and mesh.cp_method != "ring":
        raise UsageError(
            f"{option('cp_method', mesh.cp_method)} applies to {option('cp')}: it needs {option('cp', 2)} or more"
        )
    if mesh.chunks > 1 and mesh.schedule != "interleaved":
        raise UsageError(f"{option('pp_chunks', mesh.chunks)} goes with {option('schedule', 'interleaved')}")
    interleaved = mesh.schedule == "interleaved" and mesh.chunks == 1
    return replace(mesh, chunks=2) if interleaved else mesh
