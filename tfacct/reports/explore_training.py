"""What a training step needs, on one card and on several: numbers that a page shows as they are, with their commands.

They are counted here, not on the page: what autograd keeps is no ledger's line.
"""

from __future__ import annotations

from typing import Any

from tfacct.base.errors import TfacctError
from tfacct.ledger.workload import Request
from tfacct.loading.model import LoadedModel
from tfacct.reports.ranks import mesh_of
from tfacct.reports.train import train
from tfacct.reports.training import Recipe

CONTEXT = 4096
"""Tokens of the step, or as many as the model was made for."""
RANKS = (1, 2, 4, 8)
PARTS = ("weights", "optimizer", "gradients", "kept", "held", "gathered")
"""Parts of what is there at an instant."""


def training(subject: LoadedModel) -> dict[str, Any]:
    """Bytes at the peak of a training step by part, for each number of ranks that FSDP divides the weights among; or
    `why` they are not counted."""
    context = min(CONTEXT, subject.context)
    try:
        steps = [_peak(subject, context, ranks) for ranks in RANKS]
    except TfacctError as error:
        return {"why": error.message.removeprefix(f"{subject.name}: ")}
    return {"context": context, "steps": steps}


def _peak(subject: LoadedModel, context: int, ranks: int) -> list[Any]:
    """Ranks, the instant of the peak, and the bytes of its parts."""
    mesh = None if ranks == 1 else mesh_of(fsdp=ranks)
    (facts,) = train([subject], Request(ctx=context), Recipe("bf16", mesh=mesh)).models
    peak = max(facts["instants"], key=lambda instant: instant["total_bytes"])
    parts = [peak[f"{part}_bytes"] for part in PARTS]
    if sum(parts) != peak["total_bytes"] or facts["peak_bytes"] != peak["total_bytes"]:
        raise TfacctError("the parts of the peak do not add up to it")
    return [ranks, peak["instant"], *parts]
