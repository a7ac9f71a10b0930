"""Bytes to serve one model at several batches: a row each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Table
from tfacct.reports import compose, ranks, sentences
from tfacct.reports.memory import memory, nothing_fits, too_large

if TYPE_CHECKING:
    from tfacct.parallel.mesh import Mesh
    from tfacct.reports.budget import Budget


@ranks.in_devices
def by_batch(
    subjects: Sequence[LoadedModel],
    request: Request,
    batches: Sequence[int],
    *,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    fit: Budget | None = None,
    kv_block: int | None = None,
    mesh: Mesh | None = None,
) -> Report:
    """Bytes of weights and KV cache at each batch, in rising order; with `fit` also the largest context that fits.

    The facts beside the rows are those of the largest batch. Raises UsageError for several models.
    """
    if len(subjects) != 1:
        raise UsageError(f"several batches ({option('batch')}) are of one MODEL", "name one model, or give one batch")
    (subject,) = subjects
    batches = sorted(set(batches))
    stored: dict[str, Any] = {"dtype": dtype, "kv_dtype": kv_dtype, "kv_block": kv_block, "mesh": mesh}
    each = [memory(subjects, replace(request, batch=batch), **stored) for batch in batches]
    rows = [_row(batch, report) for batch, report in zip(batches, each, strict=True)]
    facts = {key: value for key, value in each[-1].models[0].items() if key != "notes"}
    why = ""
    if fit is not None:
        fitted = [memory(subjects, replace(request, batch=batch), **stored, fit=fit).models[0] for batch in batches]
        for row, there in zip(rows, fitted, strict=True):
            row |= {key: there["fit"][key] for key in ("largest_context", "context_slack_bytes", "fits")}
        facts |= {"fit": fitted[-1]["fit"]}
        why = f": {too_large(fitted[0])}" if nothing_fits(fitted[0]) else ""
    return compose.report(
        "memory",
        subjects,
        _table(subject, rows, fit),
        [{**facts, "batches": rows}],
        title=each[-1].title.rpartition(", batch ")[0],
        convention=each[-1].convention,
        answer=_answer(rows, fit, mesh, why),
        notes=lambda _: [*each[-1].notes, *_fit_notes(fit), *(fit.notes if fit is not None else ())],
        counted=each[-1].counted,
        requests=[replace(request, batch=batches[-1])],
        headline="total_bytes",
    )


def _row(batch: int, report: Report) -> dict[str, Any]:
    facts = report.models[0]
    return {"batch": batch, **{key: facts[key] for key in ("weights_bytes", "kv_cache_bytes", "total_bytes")}}


def _answer(rows: Sequence[dict[str, Any]], fit: Budget | None, mesh: Mesh | None, why: str) -> str:
    """From which size to which; of a budget, the largest batch that fits, or `why` nothing does."""
    if fit is not None:
        where, inside = ranks.fitting_words(fit, mesh), [row["batch"] for row in rows if row["fits"]]
        if len(inside) == len(rows):
            return f"{'Both' if len(rows) == 2 else f'All {len(rows):,}'} batches fit {where}."
        if not inside:
            return f"None of these batches fits {where}{why}."
        return f"Fits {where} up to batch {inside[-1]:,} of these."
    least, most = rows[0], rows[-1]
    if least["total_bytes"] == most["total_bytes"]:
        return f"{units.binary(least['total_bytes'])} at every batch."
    said = (f"{units.binary(row['total_bytes'])} at batch {row['batch']:,}" for row in (least, most))
    return f"From {' to '.join(said)}."


def _fit_notes(fit: Budget | None) -> list[str]:
    if fit is None:
        return []
    return [
        "max ctx: the largest that fits at the batch, even past the trained context, but not past a learned position"
        " embedding. –: not even 1."
    ]


def _table(subject: LoadedModel, rows: Sequence[dict[str, Any]], fit: Budget | None) -> Table:
    columns = (
        Column("batch", "batch", "count"),
        Column("weights_bytes", "weights", "bytes", drop=1),
        Column("kv_cache_bytes", sentences.kept([subject]) or "cache", "bytes"),
        Column("total_bytes", "total", "bytes"),
        *((Column("largest_context", "max ctx", "count", empty="–"),) if fit is not None else ()),
    )
    any_context = [{**row, "largest_context": _shown(row)} for row in rows] if fit is not None else rows
    return columns, (tuple(any_context),), ()


def _shown(row: dict[str, Any]) -> int | str | None:
    """The largest context; `any` where none is too long."""
    free: int | None = row["context_slack_bytes"]
    context: int | None = row["largest_context"]
    return "any" if context is None and free is not None else context
