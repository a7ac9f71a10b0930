"""A training step's bytes against the reference model: what it keeps, module by module, and holds at its peak."""

from __future__ import annotations

from collections.abc import Sequence

from tfacct.accounts.instants import peak
from tfacct.ledger.workload import Request, Workload, whole_sequences
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Report, Tick, unwatched
from tfacct.reports import compose, counting
from tfacct.reports.counting import Counting
from tfacct.reports.kept_as import FORM, REFERENCE, able, check, instants, kept_step, runner
from tfacct.reports.verify import verdict
from tfacct.reports.verify_train import Verified, facts, one_table, several_table
from tfacct.training.recipe import Recipe
from tfacct.witness.checks import in_one_go
from tfacct.witness.reference_step import kept_by_reference, peak_by_reference

CHECKED = (
    "Checked: the bytes that autograd keeps, module by module, and the most bytes alive at any operator before the"
    " optimizer's step, without its state."
)
"""What is checked of every model."""


def verify_reference(
    subjects: Sequence[LoadedModel], request: Request, terms: Counting, *, progress: Tick = unwatched
) -> Report:
    """Run each model's step as the reference model on meta, all its blocks, and compare exactly. Needs torch. Raises
    UsageError for a model with a part that has no rule."""
    recipe, who = terms.recipe, runner(REFERENCE)
    check(recipe, REFERENCE)
    if request.decode or request.tokens is not None:
        raise whole_sequences("train")
    subjects, left_out = able(subjects, recipe, REFERENCE)
    verified = []
    with in_one_go():
        for done, subject in enumerate(subjects):
            progress(subject.name, done, len(subjects))
            verified.append(_asked(subject, counting.workload(subject, request), recipe))
    one = verified[0] if len(verified) == 1 else None
    whose = f"{compose.name_of(subjects[0])}: a training step" if one else "Training steps"
    return compose.report(
        "verify",
        subjects,
        one_table(one) if one else several_table(verified, "by the reference model"),
        [facts(each, recipe) for each in verified],
        title=f"{whose} in {recipe.dtype} against {who.who}, {compose.workload_words(subjects, request)}",
        convention=who.counted,
        answer=verdict([(each.subject, each.checks) for each in verified], "to the byte"),
        notes=lambda at: list(dict.fromkeys(each.checked for each in verified[at])),
        counted=who.counted,
        requests=[request],
        left_out=left_out,
        defaults=[],
        headline="kept_bytes",
        agrees=all(each.agrees for each in verified),
    )


def _asked(subject: LoadedModel, work: Workload, recipe: Recipe) -> Verified:
    subject = subject.running(FORM)
    step = kept_step(subject, work, recipe, REFERENCE)
    shape, blocks = subject.architecture, sum(stack.count for stack in subject.architecture.stacks)
    checks = [kept_by_reference(shape, step, recipe.dtype, work)]
    fullest = peak(one for one in instants(subject, step, work, recipe, REFERENCE) if one.name != "optimizer step")
    checks.append(peak_by_reference(shape, int(fullest.total - fullest.states), recipe.dtype, work))
    return Verified(subject, work, checks, (blocks, blocks), CHECKED, REFERENCE)
