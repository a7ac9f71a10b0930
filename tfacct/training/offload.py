"""Offloading to the host: what leaves the device, what the host has instead, and what moves in each step.

`optimizer`: optimizer state and master weights are on the host, which updates them: the device sends its gradients and
receives the new weights; copies of these on the host are not counted. `activations`: inputs of recomputed layers are on
the host but two, that of the running layer and of the one before it, which comes back meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

from tfacct.base.units import binary
from tfacct.ledger.einsum import Size
from tfacct.training.phases import Phase
from tfacct.training.recipe import Recipe
from tfacct.training.step import TrainingStep


class HostMemory(NamedTuple):
    """Bytes on the host, and those that move between host and device in an optimizer step, both ways."""

    optimizer_state: Size = 0
    activations: Size = 0
    moved: Size = 0

    @property
    def total(self) -> Size:
        """Bytes on the host."""
        return self.optimizer_state + self.activations


def words(host: HostMemory) -> str:
    """What is on the host, in words."""
    parts = {"optimizer state": host.optimizer_state, "layer inputs": host.activations}
    named = " and ".join(f"{binary(int(size))} of {name}" for name, size in parts.items() if size)
    return f"On the host: {named or 'nothing'}. {binary(int(host.moved))} move between host and device in each step."


def on_device(recipe: Recipe, step: TrainingStep, phases: list[Phase]) -> list[Phase]:
    """The phases without an optimizer state that is on the host, and without the temporaries of its update."""
    if not recipe.offloads("optimizer"):
        return phases
    *others, update = (each._replace(optimizer_state=0) for each in phases)
    return [*others, update._replace(temporary=update.temporary - step.update)]


def on_host(recipe: Recipe, step: TrainingStep, gradients: Size) -> HostMemory:
    """What the host has of a step that makes so many bytes of gradients. ZeRO-1 updates a share of them on each rank,
    and weights have half the bytes of fp32 gradients."""
    state: Size = 0
    moved: Size = 0
    if recipe.offloads("optimizer"):
        mesh = recipe.mesh
        own = gradients if mesh is None or mesh.zero != 1 else -(-gradients // mesh.dp)
        state, moved = step.optimizer_state, own + (own // 2 if recipe.fp32_gradients else own)
    inputs = step.offloaded_inputs
    return HostMemory(state, inputs, moved + 2 * inputs * recipe.gradient_accumulation)
