"""A calibrated machine: prices by hand, its file, and notes of `time --on`. No test asserts a time. Kind: golden,
refusal.
"""

from dataclasses import replace
from pathlib import Path

import pytest

import tfacct
from tests.helpers.calibrated import GPT2, seconds, swept
from tests.helpers.cli import Run
from tfacct.base.errors import TfacctError
from tfacct.ledger.workload import Workload
from tfacct.loading import calibration, devices
from tfacct.loading.calibration import BLOCK, Checks, Curve


def test_a_size_between_two_is_read_off_by_logarithms() -> None:
    curve = Curve((10, 1000), (1.0, 100.0), (3.0, 300.0))
    assert curve.at(100, "forward") == pytest.approx(10) and curve.at(100, "train") == pytest.approx(30)
    assert curve.at(1, "forward") == 1 and curve.at(2000, "forward") == 200


def test_products_by_hand() -> None:
    # Two blocks of 12 · 768² weights and the head of 50,257 · 768, for each of 8 tokens; thrice that in training.
    madds = 8 * (2 * 12 * 768**2 + 50_257 * 768)
    assert seconds(GPT2, Workload(8, 8), swept()) == pytest.approx(madds * 1e-9)
    assert seconds(GPT2, Workload(8, 8), swept(), "train") == pytest.approx(3 * madds * 1e-9)
    assert seconds(GPT2, Workload(9, 1, 8), swept()) == pytest.approx(madds * 1e-9)  # the same rows, one of each


def test_attention_by_hand() -> None:
    # A head of 64 takes 1 s for 16 × 16 pairs: 12 heads and 2 blocks with 32 × 32 take 12 · 2 · 4 s.
    base = swept(1e-30)
    on = replace(base, work={**base.work, "own_heads": Curve((16, 64), (1.0, 16.0), (1.0, 1.0))})
    assert seconds(GPT2, Workload(32, 32), on) == pytest.approx(96)
    # One new token takes a head 1 s over 32 keys; 3 sequences over 64 keys.
    on = replace(base, work={**base.work, "own_token": Curve((32, 128), (1.0, 4.0), (1.0, 1.0))})
    assert seconds(GPT2, Workload(64, 1, 3), on) == pytest.approx(3 * 12 * 2 * 2)


@pytest.mark.parametrize(
    ("kind", "times"),
    [("layer_norm", 5), ("add", 5), ("gelu_tanh", 2), ("softmax", 2), (BLOCK, 2), ("join", 0), ("rotary", 0)],
)
def test_other_work_is_counted(kind: str, times: int) -> None:
    # gpt2 of two blocks: two norms and two additions in each, the norm and the table of positions outside.
    base = swept(1e-30)
    on = replace(base, work={**base.work, kind: Curve((1, 10**12), (1.0, 1.0), (1.0, 1.0))})
    assert seconds(GPT2, Workload(8, 8), on) == pytest.approx(times)
    if kind == "join":  # keys and values of two blocks
        assert seconds(GPT2, Workload(8, 1), on) == pytest.approx(4)


def test_errors_of_checks_by_hand() -> None:
    # Measured over predicted of 0.8, 1 and 1.25: errors of 25 %, 0 and 20 %.
    checks = Checks({"a": 0.8, "b": 1.0, "c": 1.25})
    assert checks.error == pytest.approx(0.2) and checks.ends == (0.8, 1.25) and not checks.doubtful


def test_a_sweep_of_a_busy_machine_is_doubted(tmp_path: Path) -> None:
    path = tmp_path / "busy.toml"
    busy = replace(swept(), checks=Checks({"a": 0.15, "b": 0.5, "c": 1.1}))
    path.write_text(calibration.written("busy", 10**10, 1e10, 1e11, busy, machine=False))
    notes = " ".join(" ".join(GPT2.time(on=str(path), ctx=8).notes).split())
    assert "checks are far off: the machine was busy" in notes
    assert "far off" not in " ".join(GPT2.time(on="cpu", ctx=8).notes)


def test_the_file_of_a_swept_machine(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(calibration.written('a "quoted"\nname', 10**9, 1e10, 1e11, swept(), machine=False))
    device = devices.load(str(path))
    assert device.calibration == swept() and device.name == "a  quoted  name"
    assert (device.memory, device.bandwidth, dict(device.peak)) == (10**9, 10**10, {"fp32": 10**11})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('clock = "process"', 'clock = "sun"'), "clock must be one of 'process', 'wall' or 'events', not \"sun\""),
        (("threads = 1", "threads = 0"), "threads must be at least 1, not 0"),
        (("sizes = [1, 1000]", "sizes = [1000, 1]"), "sizes must be in ascending order"),
        (("sizes = [1, 1000]", "sizes = [1]"), "must have the same length"),
        (("forward = [1e-05", "forward = [-1e-05"), "must be above 0, not -1e-05"),
        (("forward = [1e-05", "forward = [nan"), "must be a finite number, not NaN"),
        (("cold = true", "cold = 3"), "cold must be true or false"),
        (("[calibration.work.add]", "[calibration.work.ad]"), "work lacks add"),
        (("[calibration.checks]", "[calibration.check]"), "checks is missing"),
        (('dtype = "fp32"', 'dtype = "bf16"'), "which is missing from [peak]"),
        (("cache = 1", "cash = 1"), "cache is missing"),
    ],
)
def test_a_broken_file_is_refused_by_field(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    text = calibration.written("mine", 10**9, 1e10, 1e11, swept(), machine=False)
    assert change[0] in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(*change))
    with pytest.raises(TfacctError) as refused:
        devices.load(str(path))
    assert says in str(refused.value) and "mine.toml: [calibration]" in str(refused.value)


def test_a_file_has_at_most_200_matmuls(tmp_path: Path) -> None:
    path, pair = tmp_path / "mine.toml", swept().products
    for products in (100 * pair, (*100 * pair, pair[0])):
        one = replace(swept(), products=products)
        path.write_text(calibration.written("mine", 10**9, 1e10, 1e11, one, machine=False))
        if len(products) == 200:
            assert devices.load(str(path)).calibration == one
        else:
            with pytest.raises(TfacctError, match="products must have at most 200"):
                devices.load(str(path))


def test_notes_of_time_on_a_swept_machine() -> None:
    model = tfacct.load("gpt2")
    for step in (model.time(on="cpu", ctx=64), model.time(on="cpu", ctx=64, prefill=True)):
        assert step.estimate is True and step.validation is None and step.interval_80_seconds is None
        assert sum(one["seconds"] for one in step.kernels) == pytest.approx(step.value_seconds)
        assert step.answer.startswith("≈") and "whole passes" in " ".join(step.notes)
        assert step.calibration["low"] <= 1.5 and step.calibration["median_error"] < 0.2
    # FLOPs are those that the reference model runs: every pair.
    assert sum(one["flops"] for one in step.kernels) == model.flops(ctx=64).total_flops
    trained = model.train_time(on="cpu", ctx=64)
    assert sum(trained.parts_seconds.values()) == pytest.approx(trained.value_seconds)
    assert trained.mfu == pytest.approx(
        model.flops(ctx=64, train=True).total_flops / trained.value_seconds / devices.load("cpu").peak["fp32"]
    )


def test_a_swept_machine_named_by_its_file(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(calibration.written("mine", 16 * 10**9, 1e10, 1e11, swept(), machine=False))
    ran = run("time", "gpt2", "--on", f"2x{path}")
    assert ran.err == f"error: mine was calibrated as one device, not as 2\nhint: --on {path}\n"
    trained = tfacct.load("gpt2").train_time(on=str(path), ctx=64, use=0.5, reserve="1GB")
    assert trained.usable_bytes == 16 * 10**9 // 2 - 10**9


def test_a_swept_machine_serves_no_users() -> None:
    with pytest.raises(TfacctError, match="serves no requests"):
        tfacct.load("gpt2").serve(on="cpu", prompt=8, new=8)
    with pytest.raises(TfacctError, match="calibrated for a plain step"):
        tfacct.load("gpt2").train_time(on="cpu", recompute="full")
    fitting = tfacct.load("gpt2").fit()
    assert "cpu" not in {line["device"] for line in fitting.lines}
