"""MFU and HFU in a plain training loop: a meter that is told the tokens of each step, and imports no torch.

The loop stands still for a moment in place of a step: yours trains there.
"""

from __future__ import annotations

import sys
from time import sleep

from tfacct import Meter

BATCH, CTX, DEVICES = 64, 4096, 8
TOKENS = BATCH * CTX

# Two ways to say the same peak: devices by name, or FLOP/s of one, times how many there are.
meter = Meter("llama-3.1-8b", peak=f"{DEVICES}xh100-sxm", ctx=CTX, recompute="full")
assert meter.peak == Meter("llama-3.1-8b", peak=f"{DEVICES}x989.4T", ctx=CTX).peak
print(f"a token takes {meter.flops_per_token:,.0f} FLOPs")
print(f"and {meter.flops_per_token_again:,.0f} that are run again")

meter.start()  # what came before, such as loading the data, is no step
for step in range(3):
    sleep(0.01)  # forward, backward, optimizer: of fewer tokens here, since nothing is computed
    reading = meter.step(TOKENS // 1000)
    assert reading.hfu > reading.mfu > 0
    print(f"step {step}:", ", ".join(sorted(reading.named())))

# Where something else times the steps, say what they took: here 3.1 seconds, as eight cards might.
reading = meter.step(TOKENS, seconds=3.1)
print(f"MFU (full attention) {reading.mfu:.4f}, HFU {reading.hfu:.4f}, {reading.tokens_per_second:,.0f} tokens/s")
assert "torch" not in sys.modules
