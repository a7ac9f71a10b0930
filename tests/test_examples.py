"""Every example runs and prints what its text promises. Kind: output."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.documents import builder
from tests.helpers.examples import MODELS, WITH_TORCH
from tfacct import load

EXAMPLES = Path(__file__).parent.parent / "examples"
SAYS = {
    "cs336_accounting.py": [
        "2,127,057,600 parameters, 8,508,230,400 bytes",
        "4,513,336,524,800",
        "149,522,795,724,800 FLOPs, 33.13 times",
        "the blocks alone give 33.8, with the head 33.13",
    ],
    # 2 · 32 layers · 16,384 tokens · K heads · 128 · 2 bytes, for K = 32, 8, 1
    "gqa_on_llama.py": ["8,589,934,592", "2,147,483,648", "268,435,456", "GQA keeps 25% of the cache"],
    # the sums of sizes in tests/accounts/test_metrics.py; GPT-2: 3,072 + 2·768 + 768·50,257/(2·12·768) = 6,702.04
    "when_does_attention_win.py": ["6,703 tokens", "10,124 tokens", "28,629 tokens", "S = D·F/(N·H) + 2·D + D·V/("],
    # (80 GiB - 2 · 8,030,261,248) / (2 · 32 · 8 · 128 · 2 = 131,072 bytes a token) = 532,827.3
    "dask_sweep.py": [
        "1,000,000 points in 1 chunks",
        "at most 532,827 tokens in all",
        "1,000 of them by numpy: the same",
    ],
    # 6 · N + 12 · 32 · 32 · 128 · 4,096, N less 128,256 rows that are looked up and 65 norms; again all but down:
    # 2 · 32 · (2·4,096² + 2·4,096·1,024 + 2·4,096·14,336) and 4 · 32 · 4,096 · 4,096. A step is 64 · 4,096 tokens in
    # 3.1 s, of 8 · 989.4e12 FLOP/s
    "meter_plain_loop.py": [
        f"takes {6 * (8_030_261_248 - (128_256 + 65) * 4_096) + 12 * 32 * 4_096 * 4_096:,} FLOPs",
        f"and {64 * (2 * 4_096**2 + 2 * 4_096 * 1_024 + 2 * 4_096 * 14_336) + 128 * 4_096**2:,} that are run again",
        "step 2: hfu_full, mfu_full, tokens_per_second",
        "MFU (full attention) 0.5499, HFU 0.6818, 84,563 tokens/s",
    ],
    # 3 steps of 2 · 2 · 32 tokens; 6 · (97·32 + 2 · 12·32²) + 12 · 2 · 32 · 32
    "meter_trainer.py": ["384 tokens in 3 steps, 190,656 FLOPs each", "step 2: hfu_full, mfu_full"],
    "plot_context.py": ["drew gpt2_xl_shares.png: tfacct flops gpt2-xl", "drew llama_kv_cache.svg"],
    # parameters: 2·151,936·2,048 + 2,048 + 16·(4·2,048² + 3·2,048 (q, k, v biases) + 3·2,048·11,008 + 2·2,048)
    "qwen2_from_config.py": ["num_key_value_heads = 32", "head_dim = 64", "1,973,061,632", "15,728,640 bytes"],
}


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs its code cells in order. (Its stored outputs are compared with the documentation.)"""
    pytest.importorskip("matplotlib")
    for name, value in {"COLUMNS": "80", "MPLBACKEND": "agg"}.items():
        monkeypatch.setenv(name, value)
    (page,) = EXAMPLES.glob("*.ipynb")
    cells = json.loads(builder().notebook(page.read_text(encoding="utf-8")))["cells"]
    outputs = [out for cell in cells for out in cell.get("outputs", ())]
    printed = ["".join(out.get("data", {}).get("text/plain", out.get("text", ""))) for out in outputs]
    # 8,030,261,248 · 2 + 2 · 32 · 8 · 128 · 2 · 8,192; the largest context of docs/python.md, and its million contexts
    assert "(17134264320, 1073741824, 74075)" in printed and "28629" in printed
    # 6 · 8,030,261,248 + 12 · 32 · 32 · 128 · 8,192 = 61,066,469,376 FLOPs a token, 9,000 times, over 989e12
    assert printed[-1].startswith("{'palm': 0.5557, ")
    assert any("<table>" in "".join(out.get("data", {}).get("text/html", "")) for out in outputs)


def test_every_example_is_run() -> None:
    assert {*SAYS, *WITH_TORCH} == {path.name for path in EXAMPLES.glob("*.py")}
    assert set(MODELS) == {path.name for path in EXAMPLES.glob("*.toml")}


def test_the_lectures_example_is_the_preset() -> None:
    example, preset = (load(source).loaded for source in (EXAMPLES / "lecture_transformer.toml", "lecture-transformer"))
    assert example.raw == preset.raw


NEEDS = {"meter_trainer.py": "accelerate"}
APART = (*NEEDS, "meter_plain_loop.py")
"""Examples that import torch, or that assert they did not: in a process of their own."""
WARNS = ("meter_trainer.py",)
"""Examples whose libraries write warnings on stderr. They take a while to import, too."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in WARNS else []) for name in SAYS]
)
def test_an_example_prints_its_words(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{name} needs it")
    monkeypatch.chdir(tmp_path)
    if name in APART:
        subprocess.run([sys.executable, EXAMPLES / name], check=True, timeout=60)
    else:
        monkeypatch.setattr(sys, "argv", [name])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    captured = capfd.readouterr()
    assert captured.err == "" or name in WARNS
    for words in SAYS[name]:
        assert words in captured.out


def test_without_matplotlib_the_example_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError")
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "plot_context.py"], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert ran.returncode == 1 and ran.stdout == ""
    hint = "hint: pip install '.[plot]' in a tfacct checkout"
    assert ran.stderr.splitlines() == ["error: pictures need matplotlib", hint]
