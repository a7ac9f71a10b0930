"""`serve --prefill-on`: workers that only prefill and workers that only decode. Kind: golden."""

from typing import Any

import pytest

import tfacct
from tests.helpers.cli import Run
from tfacct.timing.kernel_time import CONSTANTS
from tfacct.timing.validated import VALIDATED

LLAMA = tfacct.load("llama-3.1-70b")
ASKED: dict[str, Any] = {"on": "4xh100", "prefill_on": "2xh100", "prompt": 2048, "new": 256}


def asked(**more: Any) -> Any:
    return LLAMA.serve_disaggregated(**{**ASKED, **more})


def test_each_worker_is_that_of_a_step() -> None:
    report = asked(requests=[1, 32, 128])
    low, high = report.first_token_seconds
    prefill = LLAMA.time(on="2xh100", ctx=2048, prefill=True)
    assert low < prefill.value_seconds + CONSTANTS.request < high
    for line in report.lines:
        step = LLAMA.time(on="4xh100", ctx=2048 + 128, batch=line["decode_batch"])
        assert line["token_seconds"] == [pytest.approx(step.value_seconds)] * 2  # no such run of a dense model


def test_the_decode_batch_follows_from_littles_law() -> None:
    first = LLAMA.time(on="2xh100", ctx=2048, prefill=True).value_seconds + CONSTANTS.request
    for line in asked(requests=[1, 8, 32, 128, 200]).lines:
        decoding = 255 * line["token_seconds"][0]
        assert line["value_seconds"] == pytest.approx(first + decoding)
        assert line["decode_batch"] == pytest.approx(line["requests"] * decoding / (first + decoding), abs=0.51)


def test_prompts_queue_where_a_prefill_worker_has_too_little_time(run: Run) -> None:
    one, many = asked(requests=[1, 64]).lines
    # Prompts of 2,048 tokens are taken 4 at a time, so as many of 64 requests as fit into 8,192 tokens.
    four = LLAMA.time(on="2xh100", ctx=2048, batch=4, prefill=True).value_seconds / 4
    assert many["prefill_busy"] == pytest.approx(64 / many["value_seconds"] * four) and many["prefill_busy"] > 1
    assert many["tokens_per_second"] is None and one["tokens_per_second"] == pytest.approx(256 / one["value_seconds"])
    command = "serve llama-3.1-70b --on 4xh100 --prefill-on 2xh100 --prompt 2k --new 256 --requests 1,64"
    out = run(*command.split()).out_line
    assert "keeps up with 1 request (≈ " in out and "output tokens/s), but not with 64." in out
    assert "64 requests would keep a prefill worker 225% busy" in out
    assert "3 such workers keep up" in out and "Not included: queues" in out


def test_a_price_is_that_of_both_workers() -> None:
    (line,) = asked(requests=[4], price=2).lines
    assert line["cost_per_million"] == pytest.approx(2 * (4 + 2) * 1e6 / (3600 * line["tokens_per_second"]))


def test_the_error_is_that_of_decode_steps_of_moe_models() -> None:
    moe = tfacct.load("deepseek-v3").serve_disaggregated(
        on="8xgb200", prefill_on="8xb200", prompt=1024, new=1024, dtype="nvfp4", requests=64
    )
    assert [moe.validation[key] for key in ("metric", "points", "points_on_device")] == ["decode", 111, 44]
    (line,) = moe.lines
    low, high = line["token_seconds"]
    error = VALIDATED["experts", "decode"]
    assert high / low == pytest.approx(error.high / error.low)
    assert asked(requests=1).validation is None
    assert "No disaggregated run of dense models" in " ".join(asked(requests=1).notes)
