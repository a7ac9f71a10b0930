"""Bytes inside a section by how far its operations have come, against the lines counted one by one."""

import pytest

from tfacct import load
from tfacct.accounts.gradients import Gradients, suffixes
from tfacct.accounts.inside import Inside, Moments
from tfacct.accounts.step_sums import StepSums
from tfacct.accounts.training import Angles
from tfacct.ledger.kept import IN, Held, Kept, Moment, Run, Sizes
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Workload
from tfacct.reports.training import step_of
from tfacct.training.recipe import Recipe


@pytest.mark.parametrize("name", ["mixtral-8x7b", "gpt2"])
def test_what_is_kept_at_a_moment_is_that_of_the_lines_alive_there(name: str) -> None:
    step = step_of(load(name).loaded, Workload(context=64, tokens=64, batch=2), Recipe())
    for section in step.run.sections:
        inside, again = (Inside(section.run, step.sizes(section), again=again) for again in (False, True))
        none = [0] * len(section.run.moments)
        alone, beside, rerun = (
            Moments(inside, none).all(),
            Moments(inside, none, 5, 7).all(),
            Moments(again, none).all(),
        )
        for moment, one, other, made in zip(section.run.moments, alone, beside, rerun, strict=True):
            alive = [*section.run.alive(moment.at)]
            names = frozenset(line.path for line in alive)
            axes = {**section.axes, **step.at}
            held = sum(each.bytes(axes, step.pass_) for each in moment.held if each.path not in names)
            assert one == (moment.at, step.bytes(section, alive), held, 0, moment.after)
            assert other[2] == held + (5 if moment.alone else 12)
            gone = section.run.read_first.get(moment.at, ()) if moment.after else ()
            rest = [
                line for line in alive if line.path != IN and line not in gone
            ]  # a block's input is counted elsewhere
            assert made[1] == step.bytes(section, rest)


def test_gradients_that_are_finished_by_hand() -> None:
    assert suffixes(("q", "k", "act", "o"), 3, {(3, "q"): 5, (3, "o"): 7, (4, "k"): 9}) == [12, 7, 7, 7, 0]


def test_gradients_that_are_added_to_earlier_ones_by_hand() -> None:
    """Moments of q and act: k runs with q, o with act."""
    run = Run(("q", "k", "act", "o"), (), (Moment("act", ()), Moment("q", ())))
    inside = Inside(run, Sizes({}, width("bf16")))
    assert inside.together([12, 7, 7, 7, 0]) == [5, 0, 7, 7]


def test_tensors_that_are_made_again_are_there_up_to_where_it_has_run() -> None:
    one, other = Kept("k", "T", by=("scores",)), Kept("softmax", "T S", by=("softmax", "values"))
    order = ("scores", "softmax", "values")
    moments = (
        Moment("values", (Held("T"),), again="values"),
        Moment("values", (), again="scores"),
        Moment("values", ()),
    )
    inside = Inside(Run(order, (), moments, remade=(one, other)), Sizes({"T": 3, "S": 5}, width("bf16")))
    assert [held for _, _, held, *_ in Moments(inside, [0] * 3).all()] == [2 * (3 + 15) + 2 * 3, 2 * 3, 0]


def test_kinds_of_blocks_have_one_list_of_gradients_if_these_are_alike() -> None:
    found = object.__new__(Gradients)
    found.of, found.biases, found._behind = {(0, "q"): 5, (3, "q"): 5, (7, "q"): 6, (9, "q"): 5}, {9: {"q": 1}}, {}
    one, same, other, biased = (found.behind(kind, ("q",)) for kind in (0, 3, 7, 9))
    assert same is one == [5, 0]
    assert other == [6, 0]
    assert biased is not one


def test_a_gradient_that_every_block_adds_to_is_there_behind_the_operation_that_makes_it() -> None:
    sums = object.__new__(StepSums)
    sums.last, sums.collected, sums.all_collected = 2, (("k", 7),), 7
    places = Run(("i", "j", "q", "k", "o"), (), (Moment("o", ()), Moment("k", ()), Moment("q", ()))).places
    last, other = sums.added_inside(2, places), sums.added_inside(1, places)
    assert [last.at(nth) for nth in range(3)] == [0, 0, 7]
    assert [other.at(nth) for nth in range(3)] == [7, 7, 7]


def test_angles_go_in_the_first_block_that_turns_by_them_and_sines_before() -> None:
    sums = object.__new__(StepSums)
    sums.angles = (Angles("turn", 10, 1, 4), Angles("turn.local", 6, 2, 3))
    moments = Moment("o", ()), Moment("turn", ()), Moment("turn", (), after=True), Moment("q", ())
    places = Run(("q", "turn", "o"), (), moments).places
    first, behind, local = (sums.gone(number, places) for number in (1, 3, 0))
    assert [first.at(nth) for nth in range(4)] == [
        6,
        6,
        10,
        16,
    ]  # 6: the other kind has gone with block 2
    assert [behind.at(nth) for nth in range(4)] == [0] * 4
    assert [local.at(nth) for nth in range(4)] == [16] * 4
