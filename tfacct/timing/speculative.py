"""Speculative decoding on the devices of a model: drafts by its multi-token prediction layer, or by a smaller model."""

from __future__ import annotations

from dataclasses import replace

from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.groups import Ledger
from tfacct.ledger.workload import Request, check_size
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.timing.placement import Deployment, Placement
from tfacct.timing.serving import Draft, Host

MOST = 32
"""Largest number of tokens that are drafted in a step."""
MTP_DRAFTS, MTP_RUNS, MTP_CELLS, MTP_ERROR = 3, 111, 4, 0.104
"""Measured runs of DeepSeek-V3 with drafts by its own layer, their cells, and the median error of the time per output
token. They log neither the drafts nor their acceptance: 3 drafts and the acceptance that fits a cell best are taken."""


@record
class Speculation:
    """Drafts of a load: `tokens` in every step, the share of them that is accepted, and the model that drafts them;
    None for the multi-token prediction layer of the model itself. Raises UsageError."""

    tokens: int
    acceptance: float
    model: LoadedModel | None = None

    @property
    def words(self) -> str:
        """The drafts in words."""
        each = "1 draft" if self.tokens == 1 else f"{self.tokens:,} drafts"
        return (
            f"{each} per step{'' if self.model is None else f' from {self.model.name}'}, acceptance {self.acceptance:g}"
        )

    def __post_init__(self) -> None:
        check_size(option("draft_tokens"), self.tokens, MOST)
        if not isinstance(self.acceptance, (int, float)) or not 0 <= self.acceptance <= 1:
            raise UsageError(
                f"{option('acceptance')} must be from 0 to 1, not {self.acceptance!r}",
                "the share of accepted drafts, given that all earlier ones were accepted: engines log it",
            )


def with_draft(one: Placement, drafts: Speculation, context: int) -> Placement:
    """The placement with what drafts tokens for it, on the same devices. Raises TfacctError, also for a draft model
    that cannot draft for this one, or not so many tokens."""
    draft, model = drafts.model, one.model
    if draft is None:
        made = mtp_draft(one.host, model, drafts.tokens, drafts.acceptance)
        return replace(one, host=replace(one.host, draft=made))
    selection.generating([draft])
    vocabulary, needed = (one.architecture.head.vocab for one in (draft, model) if one.architecture.head is not None)
    if vocabulary != needed:
        raise UsageError(
            f"{option('draft', draft.name)}: its vocabulary has {vocabulary:,} tokens, that of {model.name} {needed:,}",
            "engines need a draft model with the vocabulary of the model",
        )
    selection.runnable(draft, Request(ctx=context))
    host = Deployment(kv_dtype=one.cache).place(draft, one.count, one.device).host
    return replace(one, host=replace(one.host, draft=Draft(host, drafts.tokens, drafts.acceptance)))


def mtp_draft(host: Host, model: LoadedModel, tokens: int, acceptance: float) -> Draft:
    """Drafts by the model's own multi-token prediction layer, which shares its head. Raises UsageError for a model
    without one."""
    has_field = "mtp" in type(model.config).model_fields
    ledger = model.config.with_additional_layers() if has_field else None
    layer = Ledger(()) if ledger is None else _only_mtp(ledger)
    if not layer.groups:
        raise UsageError(
            f"{model.name} has no known multi-token prediction layer for {option('draft_tokens', tokens)}",
            f"{option('draft', 'MODEL')}: a smaller model drafts",
        )
    if layer.groups[0].count != 1:
        raise UsageError(f"{model.name} has {layer.groups[0].count} multi-token prediction layers, not one")
    shared = frozenset(tensor.path for tensor in model.ledger.tensors())
    return Draft(replace(host, ledger=layer, adapters=None), tokens, acceptance, shared)


def _only_mtp(ledger: Ledger) -> Ledger:
    """The groups of multi-token prediction layers, in both ways of latent attention."""
    groups = tuple(group for group in ledger.groups if paths.parse(group.lines[0].path).stack == paths.MTP)
    return Ledger(groups, None if ledger.instead is None else _only_mtp(ledger.instead))
