"""Bytes inside a section by how far its operations have come, against the lines counted one by one."""

from tfacct import load
from tfacct.accounts.inside import Inside, suffixes
from tfacct.ledger.workload import Workload
from tfacct.reports.training import Recipe, step_of


def test_what_is_kept_at_a_moment_is_that_of_the_lines_alive_there() -> None:
    step = step_of(load("mixtral-8x7b").loaded, Workload(context=64, tokens=64, batch=2), Recipe())
    for section in step.run.sections:
        inside = Inside(section, step.at, step.pass_)
        for moment in section.run.moments:
            alive = [*section.run.alive(moment.at)]
            names = frozenset(line.path for line in alive)
            held = [each for each in moment.held if each.path not in names]
            axes = {**section.axes, **step.at}
            beside = sum(each.bytes(axes, step.pass_) for each in held)
            assert inside.at(moment, frozenset()) == (step.bytes(section, alive), beside)
            known = frozenset([alive[0].path]) if alive else frozenset[str]()
            assert inside.at(moment, known)[0] == step.bytes(section, alive[1:])


def test_gradients_that_are_finished_by_hand() -> None:
    assert suffixes(("q", "k", "act", "o"), 3, {(3, "q"): 5, (3, "o"): 7, (4, "k"): 9}) == [12, 7, 7, 7, 0]
