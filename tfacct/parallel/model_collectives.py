"""Collectives of a loaded model, as its class fuses and orders its matmuls and stores its tensors."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes
from tfacct.loading.model import LoadedModel
from tfacct.parallel.collectives import Collective
from tfacct.parallel.mesh import QK_NORMS, Mesh
from tfacct.parallel.pipeline import in_pipeline
from tfacct.parallel.rules import AfterHead, collectives
from tfacct.parallel.support import routing_bits
from tfacct.parallel.verified import verified


def model_collectives(
    subject: LoadedModel, mesh: Mesh, at: Axes, bits: int, *, train: bool = False
) -> list[Collective]:
    """Every collective of the rank that sends most, in numbers of so many bits. Raises TfacctError."""
    every = {id(lines): lines for lines in stage_collectives(subject, mesh, at, bits, train=train)}
    return max(every.values(), key=lambda lines: sum(one.sent for one in lines))


def stage_collectives(
    subject: LoadedModel,
    mesh: Mesh,
    at: Axes,
    bits: int,
    *,
    train: bool = False,
    after: AfterHead = "divided",
    reduced: int | None = None,
) -> list[list[Collective]]:
    """Every collective of each rank of `pp`. Raises TfacctError."""
    how: dict[str, Any] = {
        "train": train,
        "shares": routing_bits(subject, mesh, bits, train=train),
        "modules": subject.once(fused_modules),
        "tensors": subject.once(tensors_in_order) if train and mesh.replicas > 1 else None,
        "after": after,
        "reduced": reduced,
    }
    if mesh.pp == 1:
        return [collectives(subject.ledger, mesh, at, bits, **how)]
    return in_pipeline(subject.ledger, mesh, at, bits, **how)


def fused_modules(subject: LoadedModel) -> dict[str, str]:
    """The module of the class that runs several matmuls of the ledger as one, for each of these."""
    theirs = subject.config.hf_modules
    several = Counter(theirs.values())
    return {path: module for path, module in theirs.items() if several[module] > 1}


def tensors_in_order(subject: LoadedModel) -> dict[str, str]:
    """The class's tensor for each tensor of the ledger, in the order in which the class computes with them: it norms
    queries and keys after their own matmuls, or after that of the values."""
    theirs = subject.class_tensors
    if verified(subject.family, "norms_last"):
        return theirs
    last = {paths.module_of(path): place for place, path in enumerate(theirs)}

    def place(path: str) -> int:
        module = paths.module_of(path)
        made = module.removesuffix("_norm") + "_proj" if module.endswith(QK_NORMS) else module
        return last.get(made, last[module])

    return {path: theirs[path] for path in sorted(theirs, key=place)}
