"""Parameters of the examples' models, by hand."""

import tomllib
from pathlib import Path

FILE = Path(__file__).with_suffix(".toml")
MODELS = {name: eval(f"({text})") for name, text in tomllib.loads(FILE.read_text(encoding="utf-8")).items()}


WITH_TORCH = {
    # 12·768² weights of a layer and 13·768 shifts and norms, 12 times; embeddings of 50,257 and 1,024 rows; a norm
    "check_own_gpt.py": [
        f"all {12 * (12 * 768**2 + 13 * 768) + (50_257 + 1_024 + 2) * 768:,} parameters and the FLOPs of 64 tokens",
        "lm_head: a separate weight in the code, tied to the embedding in the config",
        "blocks.0.attn.q_proj + k_proj + v_proj: 4,608 wide in the code, 2,304 in the config",
        "lm_head.bias: 50,257 parameters in the code, not in the config",
        "blocks.0.mlp.up_proj: 2,048 wide in the code, 3,072 in the config",
    ],
}
"""Scripts that import torch, and what they print."""
