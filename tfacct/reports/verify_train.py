"""A training step's bytes against the transformers class and torch's optimizers, each under a line of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, Workload, whole_sequences
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row, Table, Tick, unwatched
from tfacct.profiles.chunked import CHUNKS
from tfacct.reports import compose, counting
from tfacct.reports.conventions import TRAINING
from tfacct.reports.counting import Counting
from tfacct.reports.train import trainable
from tfacct.reports.training import step_of
from tfacct.reports.verify import Pair, rows, verdict, witness_facts, word
from tfacct.training.recipe import Recipe
from tfacct.witness.checks import Check, in_one_go
from tfacct.witness.step import Run, blocks_run, step_checks


@record
class Verified:
    """One model, and what every witness said of its training step: `checked` in one sentence."""

    subject: LoadedModel
    work: Workload
    checks: list[Check]
    run: tuple[int, int]
    checked: str

    @property
    def agrees(self) -> bool:
        return all(check.agrees for check in self.checks)


def verify_train(
    subjects: Sequence[LoadedModel],
    request: Request,
    terms: Counting,
    *,
    all_layers: bool = False,
    against: str | None = None,
    progress: Tick = unwatched,
) -> Report:
    """Ask the class and torch about each model's training step, on meta, and compare exactly. `all_layers` runs every
    block instead of two. Needs torch and transformers. Raises UsageError for a model whose step is not counted."""
    if against not in (None, "transformers"):
        raise UsageError(f"{option('against')} knows transformers, not {against!r}")
    if request.decode or request.tokens is not None:
        raise whole_sequences("train")
    recipe = terms.recipe
    subjects, left_out = trainable(subjects, recipe)
    recipe = recipe.for_models(subjects)
    verified = []
    with in_one_go():
        for done, subject in enumerate(subjects):
            progress(subject.name, done, len(subjects))
            verified.append(_asked(subject, counting.workload(subject, request), recipe, all_layers))
    one = verified[0] if len(verified) == 1 else None
    words = f"{compose.workload_words(subjects, request)}, {recipe.description}"
    who = f"{compose.name_of(subjects[0])}: a training step" if one else "Training steps"
    return compose.report(
        "verify",
        subjects,
        _one(one) if one else _several(verified),
        [_facts(each, recipe) for each in verified],
        title=f"{who} in {recipe.dtype} against witnesses, {words}",
        convention=f"as transformers runs it with {recipe.runs_with}: {TRAINING}",
        answer=verdict([(each.subject, each.checks) for each in verified], "to the byte"),
        notes=lambda at: _notes(verified[at], recipe),
        counted=recipe.counted,
        requests=[request],
        left_out=left_out,
        defaults=[],
        headline="kept_bytes",
        agrees=all(each.agrees for each in verified),
    )


def _asked(subject: LoadedModel, work: Workload, recipe: Recipe, all_layers: bool) -> Verified:
    recipe = recipe.for_model(subject)
    step_of(subject, work, recipe)  # says what is not counted, before the class is made
    how = _how(subject, recipe)
    checks = step_checks(subject, work, how, lambda model: step_of(model, work, recipe), all_layers=all_layers)
    return Verified(subject, work, checks, blocks_run(subject, all_layers), _checked(checks))


def _checked(checks: Sequence[Check]) -> str:
    """One sentence of what was checked."""
    peak = any(check.witness.startswith("peak") for check in checks)
    optimizer = ", and the optimizer's state" if any("torch.optim" in check.witness for check in checks) else ""
    held = ", the most bytes alive before the optimizer's step" if peak else ""
    return f"Checked: the bytes that autograd keeps, module by module{held}, those of gradients{optimizer}."


def _how(subject: LoadedModel, recipe: Recipe) -> Run:
    """How the class is run."""
    alike = {name: getattr(recipe, name) for name in Run._fields if name not in ("lora", "chunks")}
    chunks = CHUNKS if recipe.loss == "chunked" else 1
    if recipe.lora is None:
        return Run(**alike, chunks=chunks)
    from tfacct.reports import lora

    asked = lora.read(recipe.lora)
    return Run(**alike, lora=(asked.rank, lora.layers(subject, asked)), chunks=chunks)


def _facts(verified: Verified, recipe: Recipe) -> dict[str, Any]:
    """One model as it stands in the JSON."""
    kept = verified.checks[0]
    return {
        "workload": counting.workload_facts(verified.work, dtype=recipe.dtype),
        "agrees": verified.agrees,
        "blocks_traced": verified.run[0],
        "block_count": verified.run[1],
        "profile": "transformers",
        "checked": verified.checked,
        "optimizer": recipe.optimizer,
        "recompute": recipe.recompute,
        "attention": recipe.for_model(verified.subject).attention,
        "loss": recipe.loss,
        "lora": recipe.lora,
        "weights_dtype": recipe.weights_dtype or recipe.dtype,
        "kept_bytes": kept.totals[0],
        "measured_kept_bytes": kept.totals[1],
        "witnesses": [witness_facts(check) for check in verified.checks],
        "lines": [
            {"path": path, "kept_bytes": pair[0], "measured_kept_bytes": pair[1], "equal": pair[0] == pair[1]}
            for path, pair in kept.pairs().items()
        ],
    }


def _one(verified: Verified) -> Table:
    """Kept bytes by what needs them, and the other checks."""
    columns = (
        Column("what", "kept for the gradients of"),
        Column("formula", "formula", "count"),
        Column("measured", "measured", "count"),
        Column("verdict", "", "verdict"),
    )
    kept, *others = verified.checks
    lines: dict[str, tuple[Pair, bool]] = {path: (pair, pair[0] == pair[1]) for path, pair in kept.pairs().items()}
    total: dict[str, tuple[Pair, bool]] = {kept.witness: (kept.totals, kept.agrees)}
    further: dict[str, tuple[Pair, bool]] = {check.witness: (check.totals, check.agrees) for check in others}
    return columns, (rows(lines) if len(lines) > 1 else (), rows(total), rows(further)), ()


def _several(verified: Sequence[Verified]) -> Table:
    """A row for each model."""
    columns = (
        Column("model", "model"),
        Column("formula", "kept", "count"),
        Column("measured", "by the class", "count"),
        Column("witnesses", "checks", "count", drop=2),
        Column("verdict", "", "verdict"),
    )
    found: tuple[Row, ...] = tuple(
        {
            "model": compose.name_of(each.subject),
            "formula": each.checks[0].totals[0],
            "measured": each.checks[0].totals[1],
            "witnesses": len(each.checks),
            "verdict": word(each.checks[0].totals, each.agrees),
        }
        for each in verified
    )
    return columns, (found,), ()


def _notes(verified: Sequence[Verified], recipe: Recipe) -> list[str]:
    return [
        *dict.fromkeys(each.checked for each in verified),
        _run(verified),
        *dict.fromkeys(check.note for each in verified for check in each.checks if check.note),
        *_silent(verified, recipe),
    ]


def _run(verified: Sequence[Verified]) -> str:
    run, blocks = (sum(each.run[side] for each in verified) for side in (0, 1))
    if run == blocks:
        return f"Ran all {blocks:,} blocks of the class, at full size on the meta device."
    return (
        f"Ran {run:,} of {blocks:,} blocks of the class, at full size on the meta device, and 1 and 3 of them for all;"
        f" {option('all_layers', True)} runs every block."
    )


def _silent(verified: Sequence[Verified], recipe: Recipe) -> list[str]:
    """Says which optimizer no witness was asked about."""
    if recipe.optimizer == "none" or any("torch.optim" in each.checks[-1].witness for each in verified):
        return []
    return [f"The state of {recipe.optimizer} was not asked for: it is no optimizer of torch that runs on meta."]
