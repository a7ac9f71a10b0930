"""Model states of a recipe: bytes of gradients, master weights and optimizer state for the trained parameters.

Frameworks differ by a factor of two here. torch stores weights, gradients and state in one dtype: 8 bytes per parameter
in bf16 with AdamW, 16 in fp32 or under autocast. DeepSpeed and Megatron train 16-bit weights with fp32 master weights:
2 + 2 + 4 + 8 = 16 bytes, or 18 if gradients are accumulated in fp32. ZeRO-1 shards master weights and state over n
ranks (4 + 12/n), ZeRO-2 also gradients (2 + 14/n), ZeRO-3 and FSDP everything (16/n); Megatron's distributed optimizer
with fp32 gradients has 6 + 12/n.

An offloaded `optimizer` runs on the host: the device sends its gradients and receives the new weights (copies of these
on the host are not counted). Offloaded `activations` are the inputs of recomputed layers; two stay on the device: that
of the running layer, and that of the previous layer, which is copied back meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from tfacct.base.spelling import option
from tfacct.base.units import binary
from tfacct.ledger.einsum import Size
from tfacct.ledger.storage import width
from tfacct.ledger.torch_parameters import TorchParameter
from tfacct.training.optimizers import BLOCK, FP32_BYTES, SCALE, OptimizerMemory, optimizer
from tfacct.training.phases import Phase
from tfacct.training.recipe import FP32, Recipe
from tfacct.training.step import TrainingStep


def optimizer_memory(
    recipe: Recipe, parameters: Sequence[TorchParameter], bytes_each: int | None = None
) -> OptimizerMemory:
    """Bytes for these parameters, with weights of `bytes_each` bytes per element, or in the trained dtype of the
    recipe.

    The optimizer updates master weights if there are any: its state has their dtype, and 16-bit gradients are cast to
    fp32 for the update (DeepSpeed's `single_grad_partition`, `_prepare_fp32_grad_for_sub_group`).
    """
    rule, master, casts = optimizer(recipe.optimizer), 0, 0
    bytes_each = bytes_each or width(recipe.trained_dtype).bits // 8
    if recipe.master_weights is not None:
        bytes_each, master = FP32_BYTES, FP32_BYTES * sum(each.copies * each.elements for each in parameters)
        casts = 0 if recipe.fp32_gradients else master
    most, least = rule.step_memory(parameters, bytes_each)
    return OptimizerMemory(rule.state_bytes(parameters, bytes_each) + master, master, most + casts, most - least)


def with_gradient_dtype(recipe: Recipe, phases: list[Phase]) -> list[Phase]:
    """The phases with gradients accumulated in fp32, if the recipe does that: all of them have the buffer, as in a step
    that accumulates gradients, and the last phase has all gradients."""
    if not recipe.fp32_gradients:
        return phases
    more = phases[-1].gradients * (FP32_BYTES * 8 // width(recipe.dtype).bits - 1)
    return [each._replace(gradients=each.gradients + more) for each in phases]


def bytes_per_parameter(recipe: Recipe) -> Fraction | None:
    """Bytes of weights, gradients and optimizer state per trained parameter, on all ranks together; None if they differ
    between matrices, or if adapters are trained."""
    rule = optimizer(recipe.optimizer)
    if recipe.lora is not None or rule.matrices is not None or rule.embeddings_fp32:
        return None
    weights = width(recipe.trained_dtype).bits // 8
    master = 0 if recipe.master_weights is None else FP32_BYTES
    gradients = FP32_BYTES if recipe.fp32_gradients else weights
    number = master or weights if rule.number_bytes is None else Fraction(rule.number_bytes)
    scales = Fraction(SCALE, BLOCK) if rule.number_bytes == 1 else 0
    return Fraction(weights + gradients + master + rule.numbers * (number + scales))


def precision(recipe: Recipe) -> str:
    """The precision scheme with its bytes per parameter, and those with master weights if there are none."""
    each = bytes_per_parameter(recipe)
    if each is None:
        return recipe.precision
    words = f"{float(each):.4g} bytes per parameter with optimizer state"
    with_master = replace(recipe, master_weights=FP32)
    if recipe.trained_dtype != FP32 and recipe != with_master and (more := bytes_per_parameter(with_master)):
        words += f", {float(more):.4g} with {option('master_weights', FP32)}"
    return f"{recipe.precision} ({words})"


class HostMemory(NamedTuple):
    """Bytes on the host, and bytes moved between host and device per optimizer step, in both directions."""

    optimizer_state: Size = 0
    activations: Size = 0
    moved: Size = 0

    @property
    def total(self) -> Size:
        """Bytes on the host."""
        return self.optimizer_state + self.activations


def host_words(host: HostMemory) -> str:
    """A sentence about what is on the host."""
    parts = {"optimizer state": host.optimizer_state, "layer inputs": host.activations}
    named = " and ".join(f"{binary(int(size))} of {name}" for name, size in parts.items() if size)
    return f"On the host: {named or 'nothing'}. {binary(int(host.moved))} move between host and device per step."


def on_device(recipe: Recipe, step: TrainingStep, phases: list[Phase]) -> list[Phase]:
    """The phases without an offloaded optimizer state and the temporaries of its update."""
    if not recipe.offloads("optimizer"):
        return phases
    *others, update = (each._replace(optimizer_state=0) for each in phases)
    return [*others, update._replace(temporary=update.temporary - step.optimizer.update)]


def on_host(recipe: Recipe, step: TrainingStep, gradients: Size) -> HostMemory:
    """The memory on the host, for a step with `gradients` bytes of gradients. With ZeRO-1 each rank updates a share of
    them; weights have half the bytes of fp32 gradients."""
    state: Size = 0
    moved: Size = 0
    if recipe.offloads("optimizer"):
        mesh = recipe.mesh
        updated = gradients if mesh is None or mesh.zero != 1 else -(-gradients // mesh.dp)
        state, moved = step.optimizer.state, updated + (updated // 2 if recipe.fp32_gradients else updated)
    inputs = step.offloaded_inputs
    return HostMemory(state, inputs, moved + 2 * inputs * recipe.gradient_accumulation)
