"""MFU and HFU in the Trainer of transformers: a callback that counts the tokens of every step.

It trains a GPT-2 of two small layers for three steps, on a CPU. Needs transformers, accelerate and torch.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from tfacct import Meter

CTX, BATCH, ACCUMULATED = 32, 2, 2


class Utilization(TrainerCallback):
    """Writes MFU and HFU next to the Trainer's own numbers, under names that say the convention."""

    def __init__(self, meter: Meter, tokens_of_step: int) -> None:
        self.meter, self.tokens_of_step = meter, tokens_of_step
        self.readings: list[dict[str, float]] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the clock: evaluation and saving between steps are no part of one."""
        self.meter.start()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Read the meter."""
        self.readings.append(self.meter.step(self.tokens_of_step).named())

    def on_log(self, *_: Any, logs: dict[str, float] | None = None, **__: Any) -> None:
        """Add the last reading to what is logged."""
        if logs is not None and self.readings:
            logs.update(self.readings[-1])


config = GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=97, n_positions=CTX, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
rows = [{"input_ids": (ids := torch.arange(CTX) % 97), "labels": ids} for _ in range(BATCH * ACCUMULATED * 3)]

# The meter takes the model itself: its config is counted. A CPU core of 50 GFLOP/s is the peak here.
meter = Meter(model, peak="50e9", ctx=CTX)
callback = Utilization(meter, tokens_of_step=BATCH * ACCUMULATED * CTX)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=ACCUMULATED,
        max_steps=3,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[callback]).train()

for number, reading in enumerate(callback.readings):
    assert 0 < reading["mfu_full"] == reading["hfu_full"]
    print(f"step {number}:", ", ".join(sorted(reading)))
print(f"{meter.total.tokens:,} tokens in {len(callback.readings)} steps, {meter.flops_per_token:,.0f} FLOPs each")
