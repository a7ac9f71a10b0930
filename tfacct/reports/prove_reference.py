"""The proof of what the reference model keeps in a training step, as a report."""

from __future__ import annotations

from tfacct.architecture.transformer import Transformer
from tfacct.architecture.words import in_words
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.einsum import AXIS
from tfacct.ledger.kept import Pass
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Report, Tick, unwatched
from tfacct.profiles.reference_compressed import entries
from tfacct.profiles.reference_mixers import lengths
from tfacct.reports.counting import Counting
from tfacct.reports.kept_as import FORM, REFERENCE, check, refusal, runner
from tfacct.reports.statements import DTYPES, formulas, proof_report
from tfacct.training.recipe import Recipe
from tfacct.witness.reference_proof import kept_proven


def prove_reference(
    subject: LoadedModel, terms: Counting, *, by: str | None = None, progress: Tick = unwatched
) -> Report:
    """Prove that the formula of what a training step keeps is what the reference model keeps, in every size, by
    symbols. Needs torch, fvcore and sympy. Raises UsageError for a model with a part that has no rule."""
    if by not in (None, "symbols"):
        raise UsageError(f"what the reference model keeps is proven by symbols: leave {option('by', by)} out")
    check(terms.recipe, REFERENCE)
    why = refusal(subject, terms.recipe, REFERENCE)
    if why is not None:
        raise UsageError(f"{subject.name}: {why}")
    if loop := next((part for part in subject.architecture.parts() if lengths(part, 1)), None):
        raise UsageError(
            f"{subject.name}: the recurrence of {in_words(loop)} runs as often as there are chunks of tokens or rounds"
            " of a scan: what it keeps is not proven for all sizes",
            f"tfacct verify {subject.name} {option('train')} {option('as_', REFERENCE)} measures it at one",
        )
    if any(getattr(part, "by_rows", False) for part in subject.architecture.parts()):
        raise UsageError(
            f"{subject.name}: rows that positions are merged into are not written by the positions' own letter: what it"
            " keeps is not proven for all sizes",
            f"tfacct verify {subject.name} {option('train')} {option('as_', REFERENCE)} measures it at one",
        )
    if any(entries(part, 1) for part in subject.architecture.parts()):
        raise UsageError(
            f"{subject.name}: keys are made of whole groups of tokens: what it keeps is not proven for all sizes",
            f"tfacct verify {subject.name} {option('train')} {option('as_', REFERENCE)} measures it at one",
        )
    padded = "a text" if subject.architecture.longest is not None else ""
    if (encoder := subject.architecture.encoder) is not None and encoder.longest is not None:
        padded = "a source"
    if padded:
        raise UsageError(
            f"{subject.name}: {padded} is padded to whole windows: what it keeps is not proven for all sizes",
            f"tfacct verify {subject.name} {option('train')} {option('as_', REFERENCE)} measures it at one",
        )
    subject, who = subject.running(FORM), runner(REFERENCE)

    def passed(shape: Transformer, dtype: str, work: Workload) -> Pass:
        return who.passed(shape, Recipe(dtype), work)

    dtypes = [terms.recipe.dtype] if terms.dtype else [*DTYPES]
    proof = kept_proven(subject.architecture, dtypes, passed, progress=progress)
    used = {letter for text in formulas(proof.statements).values() for letter in AXIS.findall(text)}
    legend = {letter: meaning for letter, meaning in proof.symbolic.legend.items() if letter in used}
    beyond = "".join(f", {condition}" for condition in proof.sizes.conditions())
    means = (
        f"The model has the biases and ties of {subject.name}. Every size was a symbol, which stands for sizes of at"
        f" least 2{beyond}, so what autograd saved is itself a polynomial. Smaller sizes were run separately, with one"
        " block. Blocks are one loop over the same code, so what they keep is linear in L: checked at 1, 2 and 3."
    )
    return proof_report(
        subject,
        proof.statements,
        by="symbols",
        legend=legend,
        means=[means],
        title=f"the formula of what a training step keeps is what {who.who} keeps",
        convention=who.counted,
        counted=who.counted,
    )
