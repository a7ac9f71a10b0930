"""RWKV-4 by hand, and its reports. Kind: golden, output."""

from __future__ import annotations

import pytest

import tfacct

# "RWKV: Reinventing RNNs for the Transformer Era" (arXiv 2305.13048), appendix on parameters: as printed there.
PUBLISHED = {"169m": 1.693e8, "430m": 4.304e8, "1b5": 1.515e9, "3b": 2.985e9, "7b": 7.393e9, "14b": 1.415e10}


@pytest.mark.parametrize("size", PUBLISHED)
def test_the_papers_totals(size: str) -> None:
    assert float(f"{tfacct.load(f'rwkv-4-{size}-pile').params().total:.3e}") == PUBLISHED[size]


@pytest.mark.parametrize(
    "command",
    [
        "flops rwkv-4-169m-pile",
        "flops rwkv-4-169m-pile --bytes",
        "memory --kv rwkv-4-169m-pile",
        "formula rwkv",
        "memory rwkv-4-169m-pile",
    ],
)
def test_no_word_of_attention_or_keys(run, command: str) -> None:
    ran = run(*command.split())
    assert ran.code == 0 and "None" not in ran.out
    for word in ("softmax", "rotary", "query heads", "convolution", "KV cache"):
        assert word not in ran.out
