"""Plants every one-letter slip, and every slip of a role, in every line of what a training step keeps: a module then
keeps other bytes than its class saves, in one of the random configs that the class was asked about.

A slip that changes none is one by law: letters that are one size in every step, roles of as many bytes in this pass.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias, get_args

import pytest

from tests.test_training_witness import ENCODERS, FAMILIES, FURTHER, LAST, NEAR, PAIRS, SINCE
from tests.training_configs import drawn
from tfacct.accounts.training import Step
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Kept, Role, Section, bytes_each
from tfacct.loading.model import subject
from tfacct.reports.training import refusal, step_of

FIRST = ("bert", "deepseek_v3", "gemma2", "gpt2", "gpt_neox", "llama", "mixtral", "t5")
"""One family of each sort of block; the others are asked in the sweeps."""
FEW, SWEPT = 20, range(100, 300)
"""Configs that are asked about anyway, and those of the sweep: they are asked while a slip is left that none caught."""

Slip: TypeAlias = tuple[str, Role]


def one_size(line: Kept, sizes: Mapping[str, Size]) -> Iterator[set[str]]:
    """Letters that are one size by law, in a step of these sizes."""
    yield {"D", "Dt", "Dp"}  # heads are as wide as the stream
    encoder = line.path.startswith("encoder.")
    if encoder:  # what kernels round up goes by both names there
        yield {"T32", "I32"}
    if line.path.endswith(".values_copy"):  # the kernel that makes it takes values as wide as keys alone
        yield {"Hq", "Hv"}
    if sizes.get("N") == sizes.get("K"):
        yield {"N", "K"}
    if sizes.get("K") == 1:
        yield {"N", "G"}
    yield {"T", "S", "O", *(("S8",) if sizes["T"] % 8 == 0 else ())}  # all tokens are read, and all have logits
    yield {"I", "J", *(("J8",) if sizes.get("I", 1) % 8 == 0 else ())}
    if encoder:
        yield {"S8", "J8"} if sizes["I"] % 8 else {"S8", "J8", "I"}


def letters_slipped(line: Kept, sizes: Mapping[str, Size]) -> Iterator[Slip]:
    """The line with each letter replaced by each other that may have another size. The grammar refuses a letter that
    stands twice."""
    alike = [*one_size(line, sizes)]
    words = line.spec.split()
    for at, word in enumerate(words):
        for letter in sizes:
            if letter not in words and not any({letter, word} <= one for one in alike):
                yield " ".join([*words[:at], letter, *words[at + 1 :]]), line.role


def roles_slipped(line: Kept, step: Step) -> Iterator[Slip]:
    """The line with each role of other bytes."""
    for role in get_args(Role):
        if bytes_each(role, step.pass_) != bytes_each(line.role, step.pass_):
            yield line.spec, role


def uncaught(step: Step, section: Section, line: Kept, slips: Iterable[Slip]) -> set[Slip]:
    """Slips of which the line has as many bytes as without them."""
    right = step.bytes(section, [line])
    return {(spec, role) for spec, role in slips if step.bytes(section, [replace(line, spec=spec, role=role)]) == right}


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=() if name in FIRST else pytest.mark.slow)
        for name in FAMILIES + FURTHER + NEAR + SINCE + LAST + ENCODERS + PAIRS
    ],
)
def test_every_slip_in_a_kept_line_changes_bytes_that_a_class_keeps(family: str) -> None:
    """`test_many_steps_are_the_classes_own` has the class's bytes of the same configs, equal by module."""
    missed: dict[tuple[str, str, Role], set[Slip]] = {}
    for seed in SWEPT:
        if seed >= SWEPT[FEW] and not any(missed.values()):
            break
        config, recipe, work = drawn(family, seed)
        model = subject(family, config, {}, None)
        recipe = replace(recipe, recompute="none")
        if refusal(model, recipe) is not None:
            recipe = replace(recipe, dtype="bf16")
        step = step_of(model, work, recipe)
        for section in step.run.sections:
            sizes = {letter: size for letter, size in {**section.axes, **step.at}.items() if size is not None}
            for line in step.lines_of(section):
                left = uncaught(step, section, line, (*letters_slipped(line, sizes), *roles_slipped(line, step)))
                place = line.path, line.spec, line.role
                missed[place] = missed.get(place, left) & left
    assert {place: left for place, left in missed.items() if left} == {}
