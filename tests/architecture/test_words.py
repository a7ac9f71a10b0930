"""Sentences about a model are true of every kind of model. Kind: output."""

from fractions import Fraction

import pytest

from tests.helpers.models import tiny
from tfacct import load
from tfacct.architecture.axis_names import MTP, Place, _with_place
from tfacct.ledger.workload import Request
from tfacct.reports.flops import flops

WINDOW = "T × min(S, T + W − 1) in layers with a window of W"
PAIRS = {
    "gpt2": "full T × S attention, all logits",
    "mistral, windowed": f"full T × S attention, {WINDOW}, all logits",
    "bert": "full T × S attention, all logits",
    "t5": "full T × S attention, all logits",
    "mamba": "2·m·k·n per matrix product, all logits",
}
CACHED = {
    "gpt2": "only attention pairs inside the mask, all logits",
    "mistral, windowed": "only attention pairs inside the mask, all logits",
    "bert": "full T × S attention, all logits",
    "t5": "only attention pairs inside the mask, all logits",
    "mamba": "no attention, so --masked changes nothing, all logits",
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_convention_names_the_pairs_that_were_counted(name: str) -> None:
    assert PAIRS[name] in flops([tiny(name)], Request(ctx=19)).convention
    assert CACHED[name] in flops([tiny(name)], Request(ctx=19), masked=True).convention


def test_the_ratio_of_a_training_step_is_to_six_times() -> None:
    for train, label in ((False, "÷ 2·params·tok"), (True, "÷ 6·params·tok")):
        report = load("gpt2").sweep(ctx=(64, 128), train=train)
        (column,) = (column for column in report.columns if column.key == "ratio_to_rule_of_thumb")
        assert column.label == label
        line = report.models[0]["lines"][0]
        rule = (6 if train else 2) * 124_439_808 * 64
        assert line["ratio_to_rule_of_thumb"] == pytest.approx(Fraction(line["total_flops"], rule))


def test_a_size_of_one_part_names_it_and_a_size_of_a_whole_side_names_the_side() -> None:
    """Without an encoder the MTP heads are named; with one, all layers of the decoder are the decoder."""
    ahead, windowed = Place(False, MTP, []), Place(False, "windowed", [])
    alone = [{ahead.words}, set[str]()]
    assert _with_place("head size", [ahead], alone) == "head size in the MTP heads"
    placed = _with_place("heads, K · G", [windowed], [{windowed.words}, {"other layers"}])
    assert placed == "heads in the decoder, K · G"
