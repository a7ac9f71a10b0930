"""A model's parameters as its class stores them and an optimizer gets them; fields that change its step."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt

from tfacct.ledger import paths
from tfacct.ledger.evaluated import Tensor
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import PIXELS
from tfacct.ledger.torch_parameters import TorchParameter
from tfacct.loading.model import LoadedModel
from tfacct.parallel.shard_shapes import is_routing_bias
from tfacct.training.traits import OUTPUT_PROJECTION_FIRST

IN, OUT = (paths.in_every(paths.BLOCKS, f"attn.{name}") for name in ("q_proj", "o_proj"))


def stored(subject: LoadedModel, part: Ledger | None = None) -> list[TorchParameter]:
    """The parameters as the class stores them, in order: q, k and v are one tensor where it fuses them. `part`: the
    part of the ledger whose parameters they are, if not all."""
    ledger = part or subject.ledger
    if "stored" not in ledger.known:
        ledger.known["stored"] = _stored(subject, ledger)
    found: list[TorchParameter] = ledger.known["stored"]
    return found


def _stored(subject: LoadedModel, ledger: Ledger) -> list[TorchParameter]:
    named, stacks = subject.class_tensors, dict[int, int]()
    found: dict[tuple[str, int | None], TorchParameter] = {}
    for tensor in ledger.tensors():
        table = tensor.parameter.table
        if (table is not None and not table.trained) or is_routing_bias(tensor.path):
            continue  # sines, corrections of the choice of experts: no optimizer gets them
        inside = paths.repeated(tensor.path)
        stack = stacks.setdefault(id(tensor.axes), len(stacks)) if inside else None
        key = named[tensor.path], stack
        shape = _kernel(tensor)
        if key in found:  # fused along their outputs
            at = 1 if tensor.parameter.bank else 0
            shape = (*shape[:at], found[key].shape[at] + shape[at], *shape[at + 1 :])
        found[key] = TorchParameter(shape, int(tensor.count), stack, tensor.embedding)
    if subject.family in OUTPUT_PROJECTION_FIRST:
        modules = subject.config.hf_module_paths()
        return _out_first(found, modules[IN], modules[OUT])
    return list(found.values())


def _out_first(found: Mapping[tuple[str, int | None], TorchParameter], made: str, out: str) -> list[TorchParameter]:
    """The same, attention's last product in front of the one that makes queries."""
    order: list[tuple[str, int | None]] = []
    for key in found:
        name, stack = key
        if not name.startswith(f"{out}."):
            order += [(f"{out}.weight", stack), key] if name == f"{made}.weight" else [key]
    return [found[key] for key in order]


def _kernel(tensor: Tensor) -> tuple[int, ...]:
    """Shape of a tensor in torch's modules: what reads square patches of an image is a convolution there."""
    shape, inputs = tensor.shape_in_torch, tensor.parameter.inputs
    if PIXELS not in inputs:
        return shape
    side = isqrt(int(tensor.axes[PIXELS]))
    return (*shape[:-1], shape[-1] // side**2, side, side)
