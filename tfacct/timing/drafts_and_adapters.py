"""What a served model runs in addition: drafts of a layer of its own or of a smaller model, and LoRA adapters."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import Matmul
from tfacct.ledger.workload import Request, check_size
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.timing.placement import Deployment, Placement
from tfacct.timing.serving import Adapters, Draft, Host, Speculation
from tfacct.training.lora import RANK, LoraTargets, adapted_layers, adapter_parameters, lora_targets, unknown_targets

MOST_ADAPTERS = 10_000
"""Largest number of adapters in memory."""


def with_draft(one: Placement, drafts: Speculation, context: int) -> Placement:
    """The placement with what drafts tokens for it, on the same devices. Raises TfacctError, also for a draft model
    that cannot draft for this one, or not so many tokens."""
    draft, model = drafts.model, one.model
    if draft is None:
        return replace(one, host=replace(one.host, draft=mtp_draft(one.host, model, drafts)))
    selection.generating([draft])
    vocabulary, needed = (one.architecture.head.vocab for one in (draft, model) if one.architecture.head is not None)
    if vocabulary != needed:
        raise UsageError(
            f"{option('draft', draft.name)}: its vocabulary has {vocabulary:,} tokens, that of {model.name} {needed:,}",
            "engines need a draft model with the vocabulary of the model",
        )
    selection.runnable(draft, Request(ctx=context))
    host = Deployment(kv_dtype=one.host.cache.name).place(draft, one.count, one.device).host
    return replace(one, host=replace(one.host, draft=Draft(host, drafts)))


def mtp_draft(host: Host, model: LoadedModel, drafts: Speculation) -> Draft:
    """Drafts by the model's own multi-token prediction layer, which shares its head. Raises UsageError for a model
    without one."""
    has_field = "mtp" in type(model.config).model_fields
    ledger = model.config.with_additional_layers() if has_field else None
    layer = Ledger(()) if ledger is None else _only_mtp(ledger)
    if not layer.groups:
        raise UsageError(
            f"{model.name} has no known multi-token prediction layer for {option('draft_tokens', drafts.tokens)}",
            f"{option('draft', 'MODEL')}: a smaller model drafts",
        )
    if layer.groups[0].count != 1:
        raise UsageError(f"{model.name} has {layer.groups[0].count} multi-token prediction layers, not one")
    shared = frozenset(tensor.path for tensor in model.ledger.tensors())
    return Draft(replace(host, ledger=layer, adapters=None), drafts, shared)


def _only_mtp(ledger: Ledger) -> Ledger:
    """The groups of multi-token prediction layers, in both ways of latent attention."""
    groups = tuple(group for group in ledger.groups if paths.parse(group.lines[0].path).stack == paths.MTP)
    return Ledger(groups, None if ledger.instead is None else _only_mtp(ledger.instead))


@record
class ServedLora:
    """Adapters as they are asked for: a rank, or a rank and modules, and how many are in memory."""

    targets: str
    loaded: int = 1


def with_adapters(one: Placement, lora: ServedLora) -> Placement:
    """The placement with adapters on each device. Raises UsageError where it is not known which weights have them."""
    check_size(option("adapters_loaded"), lora.loaded, MOST_ADAPTERS)
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
