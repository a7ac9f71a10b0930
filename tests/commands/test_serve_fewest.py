"""`serve --ttft`: the fewest devices that meet a TTFT and a TPOT. Kind: law, output."""

from typing import Any

import pytest

import tfacct
from tfacct.base.errors import TfacctError

LLAMA = tfacct.load("llama-3.1-70b")
ASKED: dict[str, Any] = {"prompt": 2048, "new": 256}


def fewest(**asked: Any) -> Any:
    return LLAMA.fewest_devices(**{"on": "h100", **ASKED, **asked})


@pytest.mark.parametrize("requests", [1, 24])
def test_the_fewest_devices_meet_both_times_and_fewer_do_not(requests: int) -> None:
    found = fewest(ttft="800ms", within="30ms", requests=requests)
    best, tp = found.lines[0], found.on["tp"]
    assert (found.devices, found.replicas) == (best["devices"], best["replicas"])
    assert best["devices"] == tp * best["replicas"]
    assert [line["devices"] for line in found.lines] == sorted(line["devices"] for line in found.lines)
    for line in found.lines:  # each is what `serve` prints for a replica
        count = -(-requests // line["replicas"])
        (served,) = LLAMA.serve(on=f"{line['tp']}xh100", requests=count, **ASKED).lines
        assert line["requests"] == count and line["token_seconds"] == served["token_seconds"]
        assert line["first_token_seconds"][1] == served["first_token_seconds"][1] <= 0.8
        assert line["token_seconds"][1] <= 0.03
        assert line["tokens_per_second"] == pytest.approx(requests * served["tokens_per_second"] / count)
        if line["replicas"] > 1:  # one replica fewer has a replica with more requests, which take too long
            (served,) = LLAMA.serve(
                on=f"{line['tp']}xh100", requests=-(-requests // (line["replicas"] - 1)), **ASKED
            ).lines
            assert served["first_token_seconds"][1] > 0.8 or served["token_seconds"][1] > 0.03
    for count in (1, 2):  # 141 GB of weights do not fit on 1, and on 2 a token takes too long
        assert count not in {line["tp"] for line in found.lines}
    assert LLAMA.serve(on="2xh100", requests=1, **ASKED).lines[0]["token_seconds"][1] > 0.03


def test_prompts_that_are_spread_out_need_fewer_devices() -> None:
    """A first token then takes as long as that of a single request."""
    found = fewest(ttft="800ms", within="30ms", requests=24)
    spread, sizes = found.spread_out, []
    for tp in (1, 2, 4, 8):
        try:
            one, *all_ = LLAMA.serve(on=f"{tp}xh100", requests=[1, 24], **ASKED).lines
        except TfacctError:  # the weights do not fit
            continue
        if all_ and one["first_token_seconds"][1] <= 0.8 and all_[0]["token_seconds"][1] <= 0.03:
            sizes.append(tp)
    assert (spread["devices"], spread["tp"], spread["replicas"]) == (min(sizes), min(sizes), 1)
    assert spread["devices"] < found.devices and spread["requests"] == 24
    at_once, limits = found.lines[0], "first token within 800 ms, later ones within 30.0 ms"
    assert found.answer == (
        f"Needs {found.devices} × H100 SXM5 80GB ({at_once['replicas']} replicas of tp={at_once['tp']}) if all prompts"
        f" arrive at once, at least {spread['devices']} (tp={spread['tp']}) if they are spread out: {limits}."
    )
    alone = fewest(ttft="800ms", within="30ms")
    assert alone.spread_out == alone.lines[0] and "arrive" not in str(alone)


def test_of_equal_numbers_of_devices_the_layout_with_most_tokens_is_first() -> None:
    lines = fewest(ttft="500ms", requests=8).lines
    assert {line["devices"] for line in lines} == {16}
    rates = [line["tokens_per_second"] for line in lines]
    assert rates == sorted(rates, reverse=True)


def test_a_price_is_that_of_all_replicas() -> None:
    (best, *_) = fewest(ttft="500ms", requests=8, price=2).lines
    assert best["cost_per_million"] == pytest.approx(2 * 16 * 1e6 / (3600 * best["tokens_per_second"]))


def test_one_new_token_needs_the_time_to_first_token_alone() -> None:
    found = fewest(new=1, ttft="1s")
    assert found.lines[0]["token_seconds"] is None and found.tpot_seconds is None
    assert "per token" not in found.answer


@pytest.mark.parametrize(
    ("requests", "share"),
    [  # 110 of 164 and 669 of 734 measured runs
        (4, "65% of 164 measured runs of MoE models with at most 4 requests"),
        (5, "91% of 734 measured runs of MoE models with more than 4 requests"),
    ],
)
def test_a_note_says_how_often_the_first_token_came_by_the_upper_end(requests: int, share: str) -> None:
    found = tfacct.load("deepseek-v3").fewest_devices(on="8xh200", ttft="2s", requests=requests, **ASKED)
    assert found.replicas == 1
    (note,) = (note for note in found.notes if note.key == "first_token")
    assert note == f"In {share}, the first token came before the upper end of its range."


def test_no_end_of_a_range_is_named_without_a_known_error() -> None:
    found = tfacct.load("llama-3.1-8b").fewest_devices(on="gaudi3", ttft="5s", **ASKED)
    assert "first_token" not in {note.key for note in found.notes}
