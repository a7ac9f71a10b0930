"""What becomes of logits on a mesh, and the dtype in which gradients are summed over batches."""

from __future__ import annotations

from typing import NamedTuple

from tfacct.base import units
from tfacct.base.errors import UsageError, listed
from tfacct.base.spelling import option
from tfacct.parallel.logits import AfterHead
from tfacct.parallel.mesh import Mesh
from tfacct.reports.mesh import DTYPES

COUNTED: dict[AfterHead, str] = {
    "divided": "; no loss, no optimizer, no gathered logits",
    "gathered": " and the gathered logits; no loss, no optimizer",
    "loss": " and of the loss; no optimizer",
}


class Ends(NamedTuple):
    """What becomes of logits, and the dtype in which gradients of weights are summed over batches; None: the same."""

    after: AfterHead = "divided"
    reduced: str | None = None


def ends_of(mesh: Mesh, train: bool, after: str, reduce_dtype: str | None) -> Ends:
    """Raises UsageError for what this mesh or this pass does not do."""
    if after not in COUNTED:
        raise UsageError(f"{option('after_head')} is {listed(tuple(COUNTED))}, not {after!r}")
    if after != "divided" and mesh.tp == 1:
        raise UsageError(
            f"{option('after_head', after)} applies to logits that {option('tp')} divides", f"give {option('tp', 8)}"
        )
    if after == "loss" and not train:
        raise UsageError(
            f"{option('after_head', after)} applies to a training step", f"{option('train', True)} counts it"
        )
    if reduce_dtype is None:
        return Ends(after)
    name = units.dtype_name(reduce_dtype)
    if name not in DTYPES:
        raise UsageError(f"ranks sum gradients in {listed(DTYPES)}, not {name}")
    if not train or mesh.fsdp * mesh.dp == 1:
        said = f"{option('reduce_dtype', name)} applies to gradients that are summed over batches"
        raise UsageError(said, f"give {option('train', True)}, and {option('fsdp')} or {option('dp')}")
    return Ends(after, name)
