"""`mfu`: FLOPs per token in two conventions, and utilization. Kind: golden, refusal."""

import re
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.families import TINY
from tests.helpers.cli import Run
from tests.helpers.utilization import FULL, PALM
from tfacct import Meter, TfacctError, load
from tfacct.ledger.workload import Request

GPT2 = load("gpt2")
# scores and values of the visible pairs alone: (1,024 + 1) / 2 keys for each token in place of 1,024
CAUSAL = FULL - 12 * 12 * 768 * 1_024 + 12 * 12 * 768 * 1_025 // 2
BY_HAND = {"full": FULL, "causal": CAUSAL, "palm": PALM, "6nd": 6 * 124_439_808}


@pytest.mark.parametrize(("convention", "wanted"), BY_HAND.items())
def test_gpt2_by_hand(convention: Any, wanted: int) -> None:
    assert GPT2.flops_per_token(ctx="1k", train=True, convention=convention) == wanted
    assert GPT2.flops_per_token(ctx=1024, convention=convention) == wanted / 3
    used = tfacct.mfu(GPT2, tokens_per_second=100_000, peak="312e12", ctx=1024, convention=convention)
    assert used == pytest.approx(wanted * 1e5 / 312e12, rel=1e-15)
    assert tfacct.mfu("gpt2", tokens_per_second=1e5, peak=312e12, convention=convention) == used


PALM_540B = """
[model]
vocab = 256_000
hidden = 18_432
context = 2_048
positions = "rotary"
tied = true

[attention]
heads = 48
kv_heads = 1
head_dim = 256

[feed_forward]
width = 73_728
gated = true

[norm]
kind = "rms"
shared = true
order = "parallel"

[decoder]
layers = 118
"""
"""Table 1 and section 2 of arXiv 2204.02311: parallel layers, one key head, SwiGLU, no biases, a head tied."""


def test_palm_is_as_well_used_as_its_paper_says(tmp_path: Path) -> None:
    """540.35 B parameters; 46.2 % at 238.3 thousand tokens a second on 6,144 chips of 275 TFLOP/s each."""
    file = tmp_path / "palm.toml"
    file.write_text(PALM_540B)
    palm = load(file)
    assert round(palm.params().total / 1e9, 1) == 540.4
    used = tfacct.mfu(palm, tokens_per_second=238.3e3, peak=6_144 * 275e12, convention="palm")
    assert round(used, 3) == 0.462


def test_it_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load("gpt2")
    first = model.flops_per_token(ctx=4096, train=True)
    monkeypatch.setattr("tfacct.api.utilization._counted", lambda *_: pytest.fail("counted again"))
    assert model.flops_per_token(ctx=4096, train=True) == first
    with pytest.raises(pytest.fail.Exception):
        model.flops_per_token(ctx=4096.0, train=True)  # type: ignore[arg-type]


def test_windows_experts_and_no_attention() -> None:
    """PaLM's formula has no windows: T is the context. N has the active experts only."""
    active = load("mixtral-8x7b").params().active_params
    # 32 layers, 32 heads of 128
    assert load("mixtral-8x7b").flops_per_token(ctx=4096, convention="palm", train=True) == (
        6 * active + 12 * 32 * 32 * 128 * 4096
    )
    gemma = load("gemma-3-1b")
    # 26 layers, 4 heads of 256; four in five see 512 tokens
    assert gemma.flops_per_token(ctx=8192, convention="palm") == 2 * gemma.params().total + 4 * 26 * 4 * 256 * 8192
    mamba = load("mamba-130m")
    assert mamba.flops_per_token(ctx=1024, convention="palm") == 2 * mamba.params().total


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "peak": ({"peak": "9x9q"}, "peak must be FLOP/s, not '9q'\nfor example 989e12 or 989T"),
    "no device": ({"peak": "fast"}, "unknown device 'fast'"),
    "no peak": ({"peak": 0}, "peak must be a number above 0, not 0"),
    "speed": ({"tokens_per_second": -1}, "tokens_per_second must be a number above 0, not -1"),
    "no speed": ({"tokens_per_second": float("nan")}, "tokens_per_second must be a number above 0, not nan"),
    "convention": ({"convention": "plam"}, "convention is full, causal, palm, 6nd, not 'plam'\ndid you mean palm?"),
    "ctx": ({"ctx": [1]}, "ctx must be a whole number, not [1]"),
    "two sides": (
        {"model": TINY["t5"], "convention": "palm"},
        "PaLM's formula does not cover encoder-decoders\nconvention='full'",
    ),
    "latent": ({"model": "deepseek-v3", "convention": "palm"}, "PaLM's formula does not cover latent attention\nconv"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_questions_are_refused(name: str) -> None:
    changes, message = REFUSED[name]
    asked = {"model": GPT2, "tokens_per_second": 1000, "peak": "1e12", **changes}
    with pytest.raises(TfacctError, match=rf"^{re.escape(message)}"):
        tfacct.mfu(asked.pop("model"), **asked)


def test_more_than_the_peak_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="MFU of 548% is above 100%") as warned:
        # 100,000 tokens/s are 0.27386 of 312 TFLOP/s; at a peak of 15.6 TFLOP/s they would be 5.477 of it.
        assert tfacct.mfu("gpt2", tokens_per_second=100_000, peak="15.6e12", ctx=1024) == pytest.approx(5.477, rel=1e-3)
    assert warned[0].filename == __file__  # the line that called it


def test_report_of_a_run() -> None:
    """Llama 3.1 8B at 60,000 tokens a second on 8 devices of 989.4 TFLOP/s, in each convention.

    N = 8,030,261,248, of which 128,256 · 4,096 are looked up and 65 · 4,096 are norms; 32 layers, heads together 4,096.
    """
    report = reported(tokens_per_second=60_000)
    (facts,) = report.models
    products, each = 8_030_261_248 - 128_256 * 4_096 - 65 * 4_096, 12 * 32 * 4_096
    per_token = {
        "full": 6 * products + each * 8_192,
        "causal": 6 * products + each * 8_193 / 2,
        "palm": 6 * 8_030_261_248 + each * 8_192,
        "6nd": 6 * 8_030_261_248,
    }
    assert {line["convention"]: line["flops_per_token"] for line in facts["lines"]} == per_token
    for line in facts["lines"]:
        assert line["mfu"] == pytest.approx(per_token[line["convention"]] * 7_500 / 989.4e12, rel=1e-12)
    assert report.answer == "43.9% MFU (full attention): 434 of 989 TFLOP/s on each device."
    meter = Meter("llama-3.1-8b", peak="8xh100-sxm", ctx="8k")
    assert meter.step(tokens=60_000, seconds=1.0).mfu == pytest.approx(facts["mfu"], rel=1e-12)
    by_step = reported(step_time=64 * 8_192 / 60_000, batch=64)
    assert by_step.models[0]["mfu"] == pytest.approx(facts["mfu"], rel=1e-12)
    assert by_step.title.endswith("context 8,192, batch 64 on all devices") and report.title.endswith("8,192")


def reported(
    model: str = "llama-3.1-8b", on: str = "8xh100-sxm", ctx: int = 8_192, batch: int = 1, **asked: Any
) -> Any:
    from tfacct.loading import presets
    from tfacct.reports import mfu

    return mfu.mfu(presets.load(model), Request(ctx, batch=batch), on, **asked)


def test_report_of_impossible_runs() -> None:
    fast = reported(tokens_per_second=600_000)
    assert fast.answer.endswith(
        "MFU of 439% is above 100%: the peak or the speed is misstated, or the kernel skips masked pairs."
    )
    latent = reported("deepseek-v3", tokens_per_second=1_000)
    assert [line["convention"] for line in latent.models[0]["lines"]] == ["full", "causal", "6nd"]
    assert "A row is missing: PaLM's formula does not cover latent attention." in latent.notes
    refused = {
        "give tokens_per_second or step_time": {},
        "step_time must be a number above 0": {"step_time": 0},
        "on 24GB gives only memory": {"on": "24GB", "tokens_per_second": 1},
        "v100-sxm-32gb has no bf16 units": {"on": "v100-sxm-32gb", "tokens_per_second": 1},
        "gpt2: context 8,192 is past the 1,024 positions": {"model": "gpt2", "tokens_per_second": 1},
    }
    for message, asked in refused.items():
        with pytest.raises(TfacctError, match=f"^{message}"):
            reported(**asked)


def test_command_line(run: Run) -> None:
    asked = ("mfu", "llama-3.1-8b", "--ctx", "8k", "--on", "8xh100")
    assert run(*asked, "--tokens-per-second", "60k").out.startswith("43.9% MFU")
    for time in ("8.738", "8.738s", "8738ms"):  # 64 · 8,192 tokens at 60,000 a second
        assert "43.9% MFU" in run(*asked, "--step-time", time, "--batch", "64").out
    python = load("llama-3.1-8b").mfu(on="8xh100", ctx="8k", tokens_per_second="60k")
    assert run(*asked, "--tokens-per-second", "60k", "--json").document == python.document()


def test_a_step_time_next_to_the_estimate(run: Run) -> None:
    """64 sequences on 8 devices do not fit at once: 8 micro-batches of one on each take what `time` estimates."""
    asked = ("--ctx", "8k", "--on", "8xh100", "--json")
    (step,) = run("time", "llama-3.1-8b", "--train", "--batch", "1", "--accumulate", "8", *asked).document["models"]
    seconds, (low, high) = step["value_seconds"], step["interval_80_seconds"]
    expected = f"tfacct expects ≈ {seconds:.2f} s, {step['mfu']:.1%} MFU, under FSDP, without recomputation"
    expected += ", 8 micro-batches of 1"
    words = f"{expected} (80% interval {low:.2f} … {high:.1f} s)."
    assert words in reported(step_time=4.2, batch=64).notes
    for fits_not in ({"batch": 63}, {"on": "l4", "batch": 4}, {"train": False, "batch": 64}):
        assert not any("expects" in note for note in reported(step_time=4, **fits_not).notes)
