"""Saved activations of a training step: one line per tensor, and bytes by part of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from tfacct.architecture.parts import mixers
from tfacct.ledger import paths
from tfacct.training.memory import TrainingMemory
from tfacct.training.step import MEMORY, SavedTensor

DTYPES = {"fp32": "fp32", "mask": "bool", "index": "int64", "int32": "int32", "seed": None}
"""Dtype of a saved tensor by its role, if it is not that of the step. The seed of a kernel is two integers."""
PARTS = {"loss": "loss", "attn": "attention", "cross": "cross-attention", "mlp": "MLP"}
"""Parts of a model, by the first word of their paths."""
INPUTS, OTHERS, IN_FLIGHT = "matmul inputs", "others", "other micro-batches"


class TrainLine(TypedDict):
    """A tensor saved for the backward pass. `dtype`: null for a kernel's seed. `saved_for`: the operations whose
    gradients need it."""

    path: str
    part: str
    axes: str
    dtype: str | None
    count: int
    bytes: int
    saved_for: list[str]


def saved_lines(one: TrainingMemory) -> list[TrainLine]:
    """Tensors saved for the backward pass. Layers of several kinds share a line if they save a tensor of the same
    size."""
    found: dict[object, TrainLine] = {}
    for group in one.step.graph.groups:
        tensors = one.step.saved_in(group)
        for tensor, size in zip(tensors, one.step.bytes_in(group).each(tensors), strict=True):
            line = found.setdefault((tensor, size), _line(tensor, one.recipe.dtype))
            line["count"] += int(group.count * tensor.times)
            line["bytes"] += int(group.count * size)
    stage = one.step.stage
    if stage is not None and stage.saved:
        waiting = _line(SavedTensor(IN_FLIGHT, "", ()), "")
        found[IN_FLIGHT] = {**waiting, "count": stage.in_flight - 1, "bytes": int(stage.saved)}
    return [*found.values()]


def _line(tensor: SavedTensor, dtype: str) -> TrainLine:
    return {
        "path": tensor.path,
        "part": _part(tensor),
        "axes": tensor.axes,
        "dtype": DTYPES.get(tensor.role, dtype) or None,
        "count": 0,
        "bytes": 0,
        "saved_for": list(tensor.saved_for),
    }


def _part(tensor: SavedTensor) -> str:
    path = tensor.path
    if path == IN_FLIGHT:
        return path
    if path.startswith(f"{paths.ENCODER}.") or path == MEMORY:
        return paths.ENCODER
    name, _, leaf = path.removeprefix("blocks.*.").partition(".")
    if (leaf or name).endswith("weight_cast"):
        return "weight casts"
    if ("norm" in name and not leaf) or leaf == "in" or leaf.endswith(".in") or path == "lm_head.in":
        return INPUTS
    if name in PARTS or name in mixers():
        return PARTS.get(name, name)
    if name in ("in", "residual stream") or name.endswith("_add"):
        if not tensor.saved_for:
            return "layer inputs"
        return "norms" if any("norm" in operation for operation in tensor.saved_for) else INPUTS
    return "norms" if "norm" in name or name.startswith("mid") else OTHERS


def by_part(saved: Sequence[TrainLine]) -> dict[str, int]:
    """Saved bytes by part of the model."""
    found: dict[str, int] = {}
    for line in saved:
        found[line["part"]] = found.get(line["part"], 0) + line["bytes"]
    return found
