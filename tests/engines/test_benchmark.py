"""The benchmark of start-ups passes on a published start and fails on a wrong figure or missing data. Kind: golden."""

import csv
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LLAMA = {
    "id": "one", "engine": "vllm", "version": "0.19.0", "device": "h100-sxm", "total_gib": "79.19", "tp": "1",
    "pp": "1", "rank": "0", "model": "meta-llama/Llama-3.1-8B-Instruct", "dtype": "bfloat16", "quant": "None",
    "kv_dtype": "auto", "max_model_len": "8192", "batched_tokens": "8192", "max_seqs": "1024", "utilization": "0.95",
    "block": "16", "graphs": "full", "sampler": "", "cublas_mib": "32", "encoder_items": "", "weights_gib": "14.99",
    "peak_gib": "1.89", "pool_gib": "58.11", "kv_tokens": "476000", "concurrency": "58.11",
    "can_score": "peak weights pool tokens layout",
}  # fmt: skip
"""A start whose figures the documentation quotes."""
BLOCK = {"model": "a hybrid", "state_bytes": "2146304", "token_bytes": "4096", "alignment": "16", "block": "528"}


def ran(folder: Path) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, str(ROOT / "benchmarks" / "engines.py"), str(folder)]
    return subprocess.run(script, capture_output=True, text=True, cwd=ROOT)


def written(folder: Path, **other: str) -> Path:
    for name, row in (("startups.csv", LLAMA | other), ("aligned_blocks.csv", BLOCK)):
        with (folder / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, row)
            writer.writeheader()
            writer.writerow(row)
    return folder


def test_missing_data_is_stated(tmp_path: Path) -> None:
    found = ran(tmp_path)
    assert found.returncode == 0 and "no start-up logs" in found.stdout and "not checked" in found.stdout


def test_terms_that_are_off_are_red(tmp_path: Path) -> None:
    right = ran(written(tmp_path))
    assert "BROKEN one" not in right.stdout and "1 of 1 equal the log" in right.stdout
    off = {"peak_gib": "1.91", "weights_gib": "15.02", "pool_gib": "57.4", "kv_tokens": "481000"}
    wrong = ran(written(tmp_path, **off))
    assert wrong.returncode == 1
    for name in ("peak", "weights", "pool", "tokens"):
        assert f"BROKEN one meta-llama/Llama-3.1-8B-Instruct: {name}" in wrong.stdout, wrong.stdout
