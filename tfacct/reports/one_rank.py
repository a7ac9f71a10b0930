"""Models as one rank of a mesh has them: its heads, its part of widths and of the vocabulary, its experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfacct.architecture.parts import Experts, Grouped, Part
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.groups import Ledger
from tfacct.ledger.workload import check_size
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import LIVES, Mesh
from tfacct.parallel.shards import with_experts_here, with_heads_here
from tfacct.reports.mesh import check_divided, check_ruled, check_sizes, norms_all_heads


def on_ranks(subjects: Sequence[LoadedModel], tp: int, ep: int = 1) -> list[LoadedModel]:
    """The models as one of `tp` ranks has them: its heads, its part of the networks' width and of the vocabulary.
    `ep`: ranks, `tp` of them to a batch, that divide the experts, each of which is whole. Raises TfacctError."""
    check_size(option("tp"), tp)
    check_size(option("ep"), ep)
    if ep % tp and ep > 1:
        said = f"{option('ep', ep)} divides experts among whole groups of {option('tp', tp)}"
        raise UsageError(said, f"a multiple of {tp}, such as {option('ep', tp)}")
    return [_on_rank(subject, Mesh(tp, ep=ep)) if tp * ep > 1 else subject for subject in subjects]


def _on_rank(subject: LoadedModel, mesh: Mesh) -> LoadedModel:
    if mesh.ep > 1:  # engines pad nothing
        check_ruled(subject, mesh)
        check_sizes(subject, mesh, {})
    else:
        check_divided(subject, mesh)
    shape, ledger = _with_shares(subject, mesh)
    if mesh.ep > 1:
        ledger = with_experts_here(ledger, mesh)
    return replace(subject, architecture=shape, ledger=ledger)


def _with_shares(subject: LoadedModel, mesh: Mesh) -> tuple[Transformer, Ledger]:
    """The model with the shares of `tp`, its experts whole where other ranks divide them, and its ledger: once for any
    number of these."""
    key = _with_shares, mesh.tp, mesh.ep > 1
    if key in subject.ledger.known:
        known: tuple[Transformer, Ledger] = subject.ledger.known[key]
        return known

    def divided(part: Part) -> Part:
        own = {field: (letter, getattr(part, field)) for field, letter in part.sizes().items() if letter in LIVES}
        sizes: dict[str, Any] = {field: mesh.share(letter, whole) for field, (letter, whole) in own.items()}
        if norms_all_heads(part):
            return part
        if isinstance(part, Grouped):
            sizes["group"] = part.heads // mesh.tp // sizes["kv_heads"]  # of one that several ranks have, fewer
        if isinstance(part, Experts) and mesh.ep > 1:  # each expert is whole, and a shared network as wide is not
            shared = {"shared": sizes["width"], "shared_alike": False} if part.shared_alike else {}
            sizes |= {"width": part.width, **shared}
        return replace(part, **sizes) if sizes else part

    shape = subject.architecture.mapped(divided)
    found = shape, with_heads_here(shape.ledger(), mesh)
    subject.ledger.known[key] = found
    return found
