"""The meter: MFU and HFU of a step by hand, its clock and its peaks. Kind: golden, refusal."""

from typing import Any

import pytest

import tfacct
from tests.helpers.imports import imported_by
from tests.helpers.utilization import FULL, PALM
from tfacct import Meter, TfacctError

# GPT-2 at 1,024 tokens, per token, in 12 layers: q, k, v, o, up, down, and both matmuls of attention; attention alone:
# q, k, v, o and both. The results of o and down are dropped out, so they run again too.
BLOCKS_AGAIN = 12 * 2 * (4 * 768**2 + 2 * 768 * 3_072 + 2 * 768 * 1_024)
ATTENTION_AGAIN = 12 * 2 * (4 * 768**2 + 2 * 768 * 1_024)


@pytest.mark.parametrize(("convention", "each"), [("palm", PALM), ("full", FULL)])
@pytest.mark.parametrize(("recompute", "again"), [("none", 0), ("full", BLOCKS_AGAIN), ("attention", ATTENTION_AGAIN)])
def test_a_step_by_hand(convention: Any, each: int, recompute: Any, again: int) -> None:
    meter = Meter("gpt2", peak="8x100T", ctx="1k", convention=convention, recompute=recompute)
    reading = meter.step(32_768, seconds=0.5)
    assert reading.mfu == pytest.approx(each * 32_768 / 0.5 / 8e14, rel=1e-12)
    assert reading.hfu == pytest.approx((each + again) * 32_768 / 0.5 / 8e14, rel=1e-12)
    assert reading.mfu == pytest.approx(
        tfacct.mfu("gpt2", tokens_per_second=65_536, peak=8e14, ctx=1024, convention=convention)
    )
    assert (reading.tokens, reading.seconds, reading.tokens_per_second) == (32_768, 0.5, 65_536)
    assert set(reading.named()) == {f"mfu_{convention}", f"hfu_{convention}", "tokens_per_second"}


def test_all_steps_together_are_weighed_by_their_time() -> None:
    meter = Meter("gpt2", peak=1e12)
    with pytest.raises(TfacctError, match="no steps measured yet"):
        _ = meter.total
    meter.step(100, seconds=1)
    meter.step(500, seconds=3)
    assert (meter.total.tokens, meter.total.seconds, meter.total.tokens_per_second) == (600, 4, 150)
    assert meter.total.mfu == pytest.approx(meter.step(150, seconds=1).mfu)


def test_the_clock_counts_from_the_last_step_or_from_start(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 11.0, 50.0, 52.5])
    monkeypatch.setattr("tfacct.api.meter.perf_counter", lambda: next(now))
    meter = Meter("gpt2", peak=1e12)  # at 10
    assert meter.step(100).seconds == 1  # at 11
    meter.start()  # at 50
    assert meter.step(100).seconds == 2.5  # at 52.5


def test_devices_have_their_peak_for_the_dtype_of_the_matmuls() -> None:
    def peak(text: Any, **how: Any) -> float:
        return Meter("gpt2", peak=text, **how).peak

    rated = {row["device"]: row for row in tfacct.devices().rows}
    assert peak("h100-sxm") == rated["h100-sxm"]["bf16"] and peak("4xh100-sxm") == 4 * rated["h100-sxm"]["bf16"]
    assert peak("h100-sxm", dtype="fp8") == rated["h100-sxm"]["fp8"]
    assert peak("4090") == peak("rtx-4090") and peak("8x4090") == 8 * peak("rtx-4090")  # a card, not FLOP/s
    assert peak("8 x h100") == 8 * peak("h100") and peak("2x 989T") == 2 * 989e12
    by_name, by_number = (
        tfacct.mfu("gpt2", tokens_per_second=65_536, peak=one) for one in ("4xh100-sxm", 4 * rated["h100-sxm"]["bf16"])
    )
    assert by_name == by_number
    assert peak("989e12") == peak(989e12) == peak("989T") == peak("1x989T") == 989e12


@pytest.mark.parametrize("peak", [0, -1, True, "no-card", "", "0x989T", "8x", float("inf"), float("nan"), None])
def test_an_invalid_peak_is_refused(peak: Any) -> None:
    with pytest.raises(TfacctError):
        Meter("gpt2", peak=peak)


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(TfacctError, match="has no fp8 units"):
        Meter("gpt2", peak="a100-sxm-80gb", dtype="fp8")
    with pytest.raises(TfacctError, match="did you mean full"):
        Meter("gpt2", peak=1e12, recompute="ful")  # type: ignore[arg-type]
    with pytest.raises(TfacctError, match="train=False"):
        Meter("gpt2", peak=1e12, recompute="full", train=False)
    meter = Meter("gpt2", peak=1e12)
    for tokens, seconds in ((1, 0), (1, -1.0), (-1, 1.0), (1, float("nan"))):
        with pytest.raises(TfacctError, match="must be above 0"):
            meter.step(tokens, seconds=seconds)
    assert Meter("gpt2", peak=1e12, train=False).flops_per_token == FULL / 3


def test_it_is_light() -> None:
    assert imported_by("from tfacct import Meter; Meter('gpt2', peak='h100-sxm').step(3)") == set()


def test_a_step_above_the_peak_is_warned_of() -> None:
    meter = tfacct.Meter("gpt2", peak="15.6e12", ctx=1024)
    with pytest.warns(UserWarning, match="above 100%"):
        meter.step(tokens=100_000, seconds=1.0)
