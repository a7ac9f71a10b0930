"""What one rank of `tp` keeps in a training step, in letters: the same tensors, those with a divided letter divided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tfacct.accounts.sharding.mesh import LIVES, Mesh, divisors
from tfacct.accounts.sharding.steps import PART, along_tokens
from tfacct.accounts.training import Step
from tfacct.base.errors import ConfigError, TfacctError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.einsum import AXIS, Size, renamed
from tfacct.ledger.kept import Kept, Section
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.reports.formula_ranks import LETTER, By
from tfacct.reports.train_ranks import step_of, unruled
from tfacct.training.recipe import Recipe

OTHERS = "a rank keeps other tensors there"


def check(axes: Mapping[str, str]) -> None:
    """Raises UsageError for an axis that is not written into what a step keeps."""
    for axis in axes:
        if axis != "tp":
            raise UsageError(f"the formula of a training step has no {option(axis)}", "leave it out")


def on_rank(step: Step, sp: bool) -> Step:
    """A step in letters as one rank takes it. Tokens of a part of the stream keep the size of all, which is divided
    where it is written."""
    return along_tokens(step, Mesh(sp=True)) if sp else step


def divides(line: Kept, axes: Mapping[str, str]) -> By:
    """Numbers of ranks, or letters for them, that divide a kept tensor."""
    return (axes["tp"],) if axes and not {*LIVES, PART}.isdisjoint(AXIS.findall(line.spec)) else ()


def spec_of(line: Kept) -> str:
    """Axes of a kept tensor, as they are written."""
    return renamed(line.spec, {PART: "T"})


def sums(step: Step, sections: Iterable[Section], axes: Mapping[str, str]) -> dict[By, Size]:
    """Bytes that some sections keep, by what divides them."""
    found: dict[By, Size] = {}
    for section in sections:
        for line in step.lines_of(section):
            by = divides(line, axes)
            found[by] = found.get(by, 0) + section.count * step.bytes(section, [line])
    return found


def in_numbers(subject: LoadedModel, recipe: Recipe, work: Workload, axes: Mapping[str, str], sp: bool) -> Step | None:
    """The step of one rank; None where a letter stands for the number of ranks. Raises TfacctError."""
    number = axes["tp"]
    if number.isdigit():
        return step_of(subject, work, replace(recipe, mesh=Mesh(int(number), sp)))
    fits = _fitting(subject, work, sp)
    why = unruled(subject, replace(recipe, mesh=Mesh(fits[0] if fits else LETTER, sp)))
    if why is not None:
        raise ConfigError(f"{subject.name}: {why}", "the formula of one device alone is written")
    return None


def compared(
    subject: LoadedModel, recipe: Recipe, work: Workload, axes: Mapping[str, str], sp: bool, values: Mapping[By, Size]
) -> list[str]:
    """What is said of numbers of ranks whose step keeps something else than the sums at these sizes. Raises UsageError
    where none keeps as much."""
    number = axes["tp"]
    asked = [int(number)] if number.isdigit() else _fitting(subject, work, sp)
    others = []
    for ranks in asked:
        try:
            kept = step_of(subject, work, replace(recipe, mesh=Mesh(ranks, sp))).kept()
        except TfacctError:
            continue
        if sum(int(value) // (ranks if by else 1) for by, value in values.items()) != int(kept):
            others.append(ranks)
    if others == asked:
        raise UsageError(
            f"{subject.name}: no formula holds for these ranks: {OTHERS}", f"`tfacct train` counts {option('tp')}"
        )
    return [f"The formula does not hold for {number} = {', '.join(map(str, others))}: {OTHERS}."] if others else []


def _fitting(subject: LoadedModel, work: Workload, sp: bool) -> list[int]:
    """Numbers of ranks that divide heads, networks and the vocabulary, and where asked the tokens."""
    sizes = [group.axes[letter] for group in subject.ledger.groups for letter in LIVES if letter in group.axes]
    return divisors([*sizes, *([work.tokens] if sp and work.tokens > 1 else [])])[1:]


def notes(step: Step, axes: Mapping[str, str], sp: bool) -> list[str]:
    """Which letters are divided."""
    lines = (line for section in step.run.sections for line in step.lines_of(section))
    there = {letter for line in lines for letter in AXIS.findall(line.spec)}
    named, ranks = " ".join(letter for letter in LIVES if letter in there), axes["tp"]
    said = [f"{ranks} ranks divide {named}: on one rank, a tensor with any of these letters is divided once."]
    if sp:
        said.append("They also divide T in what is kept of the stream, except in what products read: that is gathered.")
    return said
