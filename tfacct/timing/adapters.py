"""LoRA adapters of a served model: weights in memory, and products next to those of the model. Estimates."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import Matmul
from tfacct.ledger.workload import check_size
from tfacct.loading.model import LoadedModel
from tfacct.timing.placement import Placement
from tfacct.timing.serving import Adapters
from tfacct.training.lora import RANK, LoraTargets, adapted_layers, adapter_parameters, lora_targets, unknown_targets

MOST = 10_000
"""Largest number of adapters in memory."""


@record
class ServedLora:
    """Adapters as they are asked for: a rank, or a rank and modules, and how many are in memory."""

    targets: str
    loaded: int = 1

    @property
    def words(self) -> str:
        """The adapters in words."""
        many = "1 LoRA adapter" if self.loaded == 1 else f"{self.loaded:,} LoRA adapters"
        return f"{many} of rank {self.targets.replace(':', ' on ')}"


def with_adapters(one: Placement, lora: ServedLora) -> Placement:
    """The placement with adapters on each device. Raises UsageError where it is not known which weights have them."""
    check_size(option("adapters_loaded"), lora.loaded, MOST)
    targets, model = lora_targets(lora.targets), one.model
    reason = unknown_targets(model, targets)
    if model.mla_mode is not None:
        reason = "adapters on latent attention are not supported, because engines run it absorbed"
    if reason is None and adapter_parameters(model, targets) is None:
        reason = "it is not known which weights have adapters"
    if reason is not None:
        raise UsageError(f"{model.name}: {option('lora', lora.targets)}: {reason}")
    return replace(one, host=replace(one.host, adapters=Adapters(_products(model, targets), lora.loaded)))


def _products(model: LoadedModel, targets: LoraTargets) -> Ledger:
    """The products of one adapter: A and B of each linear layer. Those that read the same tensor are one kernel, as
    engines run them."""
    lines = defaultdict[int, list[Matmul]](list)
    for layer in adapted_layers(model, targets):
        module = f"{paths.module_of(layer.path)}.lora_{layer.reads.replace(' ', '')}"
        (read,) = layer.weights(read=True)
        name = layer.path.rpartition(".")[2]
        lines[layer.group].append(Matmul(f"{module}_A.{name}", f"{layer.reads}, {read} -> {layer.narrow}"))
        for line, written in zip(layer.matmuls, layer.weights(read=False), strict=True):
            spec = f"{layer.narrow}, {written} -> {' '.join(line.einsum.out)}"
            lines[layer.group].append(Matmul(f"{module}_B.{line.path.rpartition('.')[2]}", spec))
    groups = ((model.ledger.groups[number], tuple(every)) for number, every in sorted(lines.items()))
    return Ledger(tuple(replace(one, lines=every, axes={**one.axes, RANK: targets.rank}) for one, every in groups))
