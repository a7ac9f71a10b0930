"""A model that is no preset: a `config.json` as Qwen2Config writes it, fields left out, counted for 4 × 30 tokens."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tfacct import load

CONFIG = {
    "model_type": "qwen2",
    "vocab_size": 151_936,
    "hidden_size": 2_048,
    "intermediate_size": 11_008,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    # num_key_value_heads is left out: the class takes 32
}

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "config.json"
    path.write_text(json.dumps(CONFIG))
    model = load(path)

print("fields the config leaves to its class:")
for name, value in model.loaded.defaulted.items():
    print(f"  {name} = {value}")

report = model.flops(ctx=30, batch=4)
print("\nforward pass of 4 sequences of 30 tokens:")
for line in report.lines:
    print(f"  {line['path']:<24}{line['spec']:<34}{line['flops']:>18,}")
print(f"  {'total':<58}{report.total:>18,}")
print(f"\nparameters: {model.params().total:,}")
print(f"KV cache in bf16: {model.kv(ctx=30, batch=4).total:,} bytes")
