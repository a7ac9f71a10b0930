"""Bytes inside a section by how far its operations have come, against the lines counted one by one."""

import pytest

from tfacct import load
from tfacct.accounts.gradients import suffixes
from tfacct.accounts.inside import Inside
from tfacct.ledger.kept import IN, Held, Kept, Moment, Run, Section
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Workload
from tfacct.reports.training import Recipe, step_of


@pytest.mark.parametrize("name", ["mixtral-8x7b", "gpt2"])
def test_what_is_kept_at_a_moment_is_that_of_the_lines_alive_there(name: str) -> None:
    step = step_of(load(name).loaded, Workload(context=64, tokens=64, batch=2), Recipe())
    for section in step.run.sections:
        inside, again = (Inside(section, step.at, step.pass_, again=again) for again in (False, True))
        places = (each.places.moments for each in (inside, again))
        for moment, *reached in zip(section.run.moments, *places, strict=True):
            alive = [*section.run.alive(moment.at)]
            names = frozenset(line.path for line in alive)
            held = [each for each in moment.held if each.path not in names]
            axes = {**section.axes, **step.at}
            beside = sum(each.bytes(axes, step.pass_) for each in held)
            assert inside.within(reached[:1]) == [(moment.at, step.bytes(section, alive), beside, 0, moment.after)]
            assert inside.within(reached[:1], 5, 7)[0][2] == beside + (5 if moment.alone else 12)
            rest = [line for line in alive if line.path != IN]  # a block's input is counted elsewhere
            assert again.within(reached[1:])[0][1] == step.bytes(section, rest)


def test_gradients_that_are_finished_by_hand() -> None:
    assert suffixes(("q", "k", "act", "o"), 3, {(3, "q"): 5, (3, "o"): 7, (4, "k"): 9}) == [12, 7, 7, 7, 0]


def test_gradients_that_are_added_to_earlier_ones_by_hand() -> None:
    """Moments of q and act: k runs with q, o with act."""
    section = Section(Run(("q", "k", "act", "o"), (), (Moment("act", ()), Moment("q", ()))), {})
    inside = Inside(section, {}, width("bf16"))
    assert inside.together([12, 7, 7, 7, 0]) == [5, 0, 7, 7]


def test_tensors_that_are_made_again_are_there_up_to_where_it_has_run() -> None:
    one, other = Kept("k", "T", by=("scores",)), Kept("softmax", "T S", by=("softmax", "values"))
    order = ("scores", "softmax", "values")
    moments = (
        Moment("values", (Held("T"),), again="values"),
        Moment("values", (), again="scores"),
        Moment("values", ()),
    )
    section = Section(Run(order, (), moments, remade=(one, other)), {"T": 3, "S": 5})
    inside = Inside(section, {}, width("bf16"))
    assert [held for _, _, held, *_ in inside.within(inside.places.moments)] == [2 * (3 + 15) + 2 * 3, 2 * 3, 0]
