"""The former place of `loading/where`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfacct.loading.where import RESERVE, USE, MemoryLimit, memory_limit, of_device, usable_words

if TYPE_CHECKING:
    from tfacct.parallel.mesh import Mesh

__all__ = ["RESERVE", "USE", "Budget", "budget", "layout", "of_device", "usable_words"]
Budget = MemoryLimit


def budget(
    fit: int | str | None,
    use: float | None = None,
    reserve: int | str | None = None,
    *,
    training: bool = False,
) -> Budget | None:
    return memory_limit(fit, use, reserve, training=training, given="fit")


def layout(budget: MemoryLimit | None, mesh: Mesh | None, ranks: int, *, training: bool = False) -> Mesh | None:
    """The mesh that was asked for, checked against the devices; without one, all devices of the budget share the model:
    by tp to serve, by fsdp to train. Raises UsageError."""
    if budget is None or budget.count == 1:
        return mesh
    if mesh is not None:
        budget.checked_for(ranks)
        return mesh
    from tfacct.parallel.mesh import mesh_of

    return mesh_of(fsdp=budget.count) if training else mesh_of(tp=budget.count)
