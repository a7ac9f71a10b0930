"""RWKV-4 by hand, and its reports. Kind: golden, output."""

from __future__ import annotations

import pytest

import tfacct

# "RWKV: Reinventing RNNs for the Transformer Era" (arXiv 2305.13048), appendix on parameters: as printed there.
PUBLISHED = {"169m": 1.693e8, "430m": 4.304e8, "1b5": 1.515e9, "3b": 2.985e9, "7b": 7.393e9, "14b": 1.415e10}


@pytest.mark.parametrize("size", PUBLISHED)
def test_the_papers_totals(size: str) -> None:
    assert float(f"{tfacct.load(f'rwkv-4-{size}-pile').params().total:.3e}") == PUBLISHED[size]


def test_a_token_by_hand() -> None:
    """Four matrices of D² in a mixer; two of 4·D² and one of D² in a network; the head. T does not stand squared."""
    D, L, V = 768, 12, 50277
    model = tfacct.load("rwkv-4-169m-pile")
    assert model.flops(ctx=1000).total == 2 * 1000 * (13 * D * D * L + V * D)
    assert model.flops(ctx=1000, decode=True).total == 2 * (13 * D * D * L + V * D)


def test_the_state_by_hand() -> None:
    """Two last tokens in bf16, and three numbers of a channel in fp32, at every context."""
    for context in (8, 65536):
        assert tfacct.load("rwkv-4-169m-pile").kv(ctx=context).total == 12 * 768 * (2 * 2 + 3 * 4)


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
