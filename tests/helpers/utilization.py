"""FLOPs per token of gpt2 at 1,024 tokens, by hand."""

from __future__ import annotations

# 6·124,439,808 + 12 · 12 blocks · 12 heads · 64 · 1,024
PALM = 746_638_848 + 113_246_208
# per token: 3 · 2 · (12 · (4·768² + 2·768·3,072) weights and 50,257·768 of the head) + 3 · 4 · 12 · 768 · 1,024
FULL = 6 * (12 * (4 * 768**2 + 2 * 768 * 3_072) + 50_257 * 768) + 12 * 12 * 768 * 1_024
