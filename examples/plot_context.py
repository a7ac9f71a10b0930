"""Draws where GPT-2 XL's FLOPs go as its context grows, and Llama-3.1-8B's KV cache by number of key/value heads.

Needs matplotlib: `pip install '.[plot]'`. Writes two pictures into the folder it is run in.
"""

from __future__ import annotations

import subprocess
import sys

PICTURES = {
    "gpt2_xl_shares.png": ["flops", "gpt2-xl", "--ctx", "16k"],
    "llama_kv_cache.svg": [
        *("sweep", "llama-3.1-8b", "--ctx", "1k..128k"),
        *("--set", "num_key_value_heads=1,8,32", "--metric", "kv_cache_bytes"),
    ],
}

for file, command in PICTURES.items():
    words = ["tfacct", *command, "--output", file, "--force"]
    ran = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
    if ran.returncode:
        sys.exit(ran.stderr.strip())
    print(f"drew {file}: {' '.join(words)}")
