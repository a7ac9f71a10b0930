"""Errors of `tfacct devices --calibrate` on this machine: OMP_NUM_THREADS=1 python benchmarks/calibrate_error.py

The script calibrates this machine, then times twelve runs of the reference model (forward, decode and training). Their
models and sizes were chosen before the first run. It prints measured and predicted seconds, and the ratio of a plain
roofline at the best calibrated rates. The exit code is 1 if the median error exceeds its limit, or half of the
roofline's median error. With one thread, seconds are CPU time of the process, so other processes disturb them less.
Each run is timed a few times, and the fastest time counts.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

import tfacct
from tfacct.ledger.workload import Workload
from tfacct.loading import devices
from tfacct.reference import calibrating, running
from tfacct.reference.model import inputs
from tfacct.reports.devices import calibrate

LIMIT, SHARE = 0.20, 0.5
"""Limits: of the median error, and of its ratio to the roofline's median error."""
REPEATS = 4
SMOL: dict[str, Any] = {
    **{"model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30},
    **{"num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49_152, "max_position_embeddings": 8192},
    **{"tie_word_embeddings": True},
}
"""Sizes of SmolLM2-135M."""
RUNS = (
    ("gpt2", "forward", 128, 1),
    ("smol", "forward", 256, 1),
    ("pythia-160m", "forward", 128, 2),
    ("qwen3-0.6b", "forward", 64, 1),
    ("gpt2", "decode", 256, 1),
    ("smol", "decode", 512, 4),
    ("pythia-160m", "decode", 64, 8),
    ("qwen3-0.6b", "decode", 128, 1),
    ("gpt2", "train", 64, 1),
    ("smol", "train", 128, 1),
    ("pythia-70m", "train", 128, 2),
    ("opt-125m", "train", 128, 1),
)


def measured(model: tfacct.Model, kind: str, context: int, batch: int) -> float:
    """Seconds of the fastest of a few runs."""
    shape, on = model.loaded.architecture, torch.device("cpu")
    work = Workload(context, 1 if kind == "decode" else context, batch)
    built = running.prepare(shape, on, torch.float32, fused=False, logits="all")
    given = inputs(shape, **work.sizes, device="cpu", dtype=torch.float32)

    def once() -> None:
        running.one_pass(built, given, kind == "train")

    once()
    return min(calibrating.seconds_of(once, on) for _ in range(REPEATS))


def predicted(model: tfacct.Model, kind: str, context: int, batch: int, on: str) -> Any:
    """The estimate of `time`."""
    if kind == "train":
        return model.train_time(on=on, ctx=context, batch=batch)
    return model.time(on=on, ctx=context, batch=batch, prefill=kind == "forward")


def roofline(model: tfacct.Model, kind: str, context: int, batch: int, on: str) -> float:
    """The longer of two times: FLOPs at the fastest rate of a matmul; weights and cache at the bandwidth of a copy."""
    device = devices.load(on)
    flops = model.flops(ctx=context, batch=batch, decode=kind == "decode", train=kind == "train").total_flops
    memory = model.memory(ctx=context, batch=batch, dtype="fp32")
    traffic = (memory.weights_bytes + memory.kv_cache_bytes) * (3 if kind == "train" else 1)
    return max(flops / device.peak["fp32"], traffic / device.bandwidth)


def main() -> None:
    with TemporaryDirectory() as folder:
        on = str(Path(folder) / "here.toml")
        print(calibrate(output=on).answer.partition(": ")[2])
        rows = []
        print(f"\n{'run':29} {'batch':>5} {'measured':>10} {'predicted':>10} {'ratio':>6} {'roofline':>9}")
        for name, kind, context, batch in RUNS:
            model = tfacct.load(SMOL if name == "smol" else name)
            took = measured(model, kind, context, batch)
            estimate = predicted(model, kind, context, batch, on).value_seconds
            plain = roofline(model, kind, context, batch, on)
            rows.append((abs(estimate / took - 1), abs(plain / took - 1)))
            times = f"{1e3 * took:7.1f} ms {1e3 * estimate:7.1f} ms {estimate / took:6.2f} {plain / took:9.2f}"
            print(f"{name:14} {kind:8} {context:5} {batch:5} {times}", flush=True)
    ours, naive = (median(column) for column in zip(*rows, strict=True))
    print(f"\nmedian error {100 * ours:.1f}%, largest {100 * max(rows)[0]:.1f}%")
    print(f"median error of a plain roofline {100 * naive:.1f}%")
    broken = ours > LIMIT or ours > SHARE * naive
    print("above a limit" if broken else "within the limits")
    sys.exit(broken)


if __name__ == "__main__":
    main()
