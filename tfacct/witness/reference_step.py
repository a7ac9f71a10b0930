"""What the reference model itself keeps in a training pass, beside what the account says: by the modules that asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tfacct.accounts.training import Step
from tfacct.architecture.transformer import Transformer
from tfacct.base.spelling import option
from tfacct.ledger.kept import turns
from tfacct.ledger.workload import Workload
from tfacct.witness.checks import Check, Counts, reference_rooms

PARTS = (".weight", ".square", ".root", ".gather", ".sigmoid", ".division", ".weighing")
"""Operations that are part of a module."""


def kept_by_reference(shape: Transformer, step: Step, dtype: str, work: Workload) -> Check:
    """Bytes that autograd saves, by the modules of the reference model that asked for them. Needs torch."""
    reference_rooms(option("train"))
    from tfacct.reference import saving

    lines = (
        (section.count * step.bytes(section, [line]), (_module(by) for by in line.by if not turns(by)))
        for section in step.run.sections
        for line in section.run.kept
    )
    theirs = ((each.bytes, each.modules) for each in saving.kept(shape, dtype, work.batch, work.tokens, work.source))
    return Check("kept by the reference model", "bytes", _groups(lines), _groups(theirs))


def peak_by_reference(shape: Transformer, most: int, dtype: str, work: Workload) -> Check:
    """The most bytes alive at any operator before the optimizer's step, without its state. Needs torch."""
    reference_rooms(option("train"))
    from tfacct.reference import saving

    theirs = saving.peak(shape, dtype, work.batch, work.tokens, work.source).bytes
    return Check("peak, operator by operator", "bytes", {"total": most}, {"total": theirs})


def _module(operation: str) -> str:
    """The module that runs an operation: the norm whose square or root it is."""
    return next((operation.removesuffix(part) for part in PARTS if operation.endswith(part)), operation)


def _groups(found: Iterable[tuple[int, Iterable[str]]]) -> Counts:
    """Bytes by the modules that need them, those of all blocks together."""
    groups: Counter[str] = Counter()
    for size, modules in found:
        starred = {".".join("*" if part.isdigit() else part for part in name.split(".")) for name in modules}
        groups[" + ".join(sorted(name or "the model" for name in starred))] += int(size)
    return groups
