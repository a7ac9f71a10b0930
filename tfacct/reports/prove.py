"""The proof as a report: what each statement says, and what it means."""

from __future__ import annotations

from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Report, Tick, unwatched
from tfacct.reports.statements import proof_report
from tfacct.verify.proof import By, Proof, proven


def prove(subject: LoadedModel, *, by: By = "symbols", progress: Tick = unwatched) -> Report:
    """Prove that formula and model are the same polynomial, for all sizes. Needs torch and fvcore; sympy."""
    if by not in ("symbols", "grid"):
        raise UsageError(f"{option('by')} is symbols or grid, not {by!r}")
    subject = subject.running("expanded")  # one formula is proven; the other forms are a --set away
    try:
        proof = proven(subject.architecture, by=by, progress=progress)
    except RuntimeError as error:  # torch's, of a reference model whose code needs a size as a number
        said = f"{subject.name}: its reference model does not run with {by} for sizes: nothing is proven"
        raise UsageError(
            said, f"leave {option('prove', True)} out: its counts are compared at sizes of your own"
        ) from error
    return _report(subject, proof)


def _report(subject: LoadedModel, proof: Proof) -> Report:
    symbolic = proof.symbolic
    pairs = " full T x S attention, S = C + T;" if subject.architecture.attentions else ""
    said = f"2 FLOPs per multiply-add; products only;{pairs}{' all logits' if subject.logits else ''}"
    return proof_report(
        subject,
        proof.statements,
        by=proof.by,
        legend={letter: symbolic.legend[letter] for letter in symbolic.symbols},
        means=[_means(subject, proof)],
        title="the formula is what the model does",
        convention=said.removesuffix(";"),
        hints=()
        if proof.changed is None
        else (f"hint: torch's private symbolic shapes have changed ({proof.changed}): proven on a grid instead",),
    )


def _means(subject: LoadedModel, proof: Proof) -> str:
    like = f"The model has the biases and ties of {subject.name}, and any sizes."
    if proof.by == "grid":
        return (
            f"{like} Counted at every point of a grid with the two smallest values of each size and the three"
            " smallest of T. Two polynomials of degree 1 at most (2 in T) that agree there are the same. Each count is"
            " such a polynomial, because the model multiplies each size of a product once."
        )
    sizes = "Every size was a symbol, so each count is itself a polynomial"
    if proof.sizes.recurs:
        *before, last = (str(tokens) for tokens in proof.sizes.tokens_tried)
        curve, read = ("line", "once") if proof.sizes.tokens_degree == 1 else ("parabola", "once or twice")
        sizes = (
            "Every size but T was a symbol, so each count is itself a polynomial in them. T was proven by"
            f" interpolation, because {proof.sizes.recurrence} runs over the tokens: T was"
            f" {', '.join(before)} and {last}, and the last lies on the {curve} through the others. It is a"
            f" {curve}, because every product multiplies T {read}"
        )
    cases = "one block"
    if proof.sizes.chunk is not None:
        sizes = (
            f"{sizes}. A recurrence runs chunk by chunk, so T was a symbol in one chunk of {proof.sizes.chunk} tokens,"
            " in two and in three: the third adds what the second adds"
        )
        cases = "one block of each kind and two chunks"
    beyond = ", ".join(proof.sizes.conditions())
    holds = f"torch assumed nothing, so it holds for all sizes of at least 2{f' ({beyond})' if beyond else ''}"
    compared = f"compared with the formula symbol by symbol{f', and {holds}' if proof.holds else ''}"
    return (
        f"{like} {sizes}. Each polynomial was {compared}. Cases that a symbol leaves out were run separately, with"
        f" {cases}. The blocks are one loop over the same code, so a count is linear in L: checked at 1, 2 and 3."
    )
