"""`devices --calibrate` writes a device file of this machine. Kind: output."""

import mmap
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.helpers.cli import Run
from tests.helpers.lazy import lazy
from tfacct.base.errors import TfacctError
from tfacct.loading import devices
from tfacct.timing import calibrated

torch, flop_counter = lazy("torch"), lazy("torch.utils.flop_counter")
calibrating, running = lazy("tfacct.reference.calibrating"), lazy("tfacct.reference.running")


def test_attention_is_timed_at_the_sizes_that_it_is_read_at() -> None:
    """Forward and backward pass of scores and values: 3 · 2 · 2·heads·T·S·64 FLOPs; above 256 tokens with half of the
    8 heads."""
    for case in calibrating._attention(torch.device("meta"), torch.float32):
        with flop_counter.FlopCounterMode(display=False) as counter:
            case.train()
        pairs = {"heads": case.size**2, "token": case.size}.get(case.kind.rpartition("_")[2], 0)
        heads = 4 if case.size > 256 and "heads" in case.kind else 8
        assert counter.get_total_flops() == 3 * 4 * heads * pairs * 64
        assert case.heads == (heads if pairs else 1)  # seconds are those of one


def test_the_peak_of_a_process_is_the_systems() -> None:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("no /proc")
    (peak,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    found = running.peak_bytes(torch.device("cpu"))
    assert found == pytest.approx(int(peak) * 1024, rel=0.05) and found % mmap.PAGESIZE == 0


def test_a_sweep_writes_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    small: dict[str, Any] = {
        **{"POOL": 2**12, "ROWS": (1, 3), "SHAPES": ((8, 8), (16, 16)), "WARM": ((8, 8),), "ELEMENTS": (512, 1024)},
        **{"TOKENS": (2, 4, 6, 8), "KEYS": (2, 3), "TABLES": ((8, 8), (16, 8)), "ROUNDS": 1, "LEAST": 1e-6},
    }
    for name, value in small.items():
        monkeypatch.setattr(calibrating, name, value)
    configs = calibrated.CONFIGS
    monkeypatch.setitem(configs, "llama", {**configs["small"], "num_hidden_layers": 2})
    monkeypatch.setitem(configs, "gpt2", {**configs["gpt2"], "n_embd": 64, "n_layer": 1, "vocab_size": 64})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    devices.paths.cache_clear()
    ran = run("devices", "--calibrate")
    path = tmp_path / "tfacct" / "devices" / "cpu.toml"
    assert ran.code == 0 and path.exists() and "Wrote" in ran.out
    cpu = devices.load("cpu")
    assert cpu.calibration is not None and cpu.kind == "measured"
    curves = [(2 * one.inputs * one.outputs, one.rows) for one in cpu.calibration.products]
    rates = [flops * m / s for flops, rows in curves for m, s in zip(rows.sizes, rows.forward, strict=True)]
    assert cpu.peak["fp32"] == pytest.approx(max(rates), rel=0.01)
    assert "≈" in run("time", "gpt2", "--on", "cpu", "--ctx", "8").out
    again = run("devices", "--calibrate")
    assert again.code == 2 and "exists" in again.err and "--force" in again.err
    assert run("devices", "--calibrate", "--force").code == 0
    mine = tmp_path / "mine.toml"
    assert "Wrote" in tfacct.calibrate(output=mine).answer
    assert tfacct.load("gpt2").time(on=str(mine), ctx=8).calibration["threads"] >= 1
    with pytest.raises(TfacctError, match="exists"):
        tfacct.calibrate(output=mine)
    assert "unsupported file ending" in run("devices", "--calibrate", "-o", "x.json").err
    assert "cannot have spaces" in run("devices", "--calibrate", "-o", "my card.toml").err
    devices.paths.cache_clear()
