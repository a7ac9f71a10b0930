"""The cache in pages and with scales, the usable share of a device, formats that quantize the head. Kind: golden,
refusal.
"""

import json
import re

import pytest

from tests.helpers.cli import Run
from tests.helpers.models import tiny
from tfacct import load
from tfacct.base.errors import TfacctError

LLAMA = load("llama-3.1-8b")
TOKEN = 2 * 32 * 8 * 128  # numbers of keys and values of a token


def test_pages_by_hand() -> None:
    """8,190 tokens take 512 pages of 16; a window of 9 takes 3 of 4."""
    assert LLAMA.memory(ctx=8190, kv_block=16).kv_cache_bytes == 2 * TOKEN * 8192
    assert LLAMA.memory(ctx=8193, kv_block=16, batch=3).kv_cache_bytes == 3 * 2 * TOKEN * 8208
    assert LLAMA.memory(ctx=8193, kv_block=1).kv_cache_bytes == LLAMA.memory(ctx=8193).kv_cache_bytes
    windowed = tiny("mistral", sliding_window=9)
    plain, paged = (load(windowed.raw).memory(ctx=30, **how) for how in ({}, {"kv_block": 4}))
    assert paged.kv_cache_bytes * 9 == plain.kv_cache_bytes * 12


def test_caches_with_scales() -> None:
    """8 bits a number, and a scale of 4 bytes for each token and head of keys and of values."""
    scaled = TOKEN + 4 * 2 * 32 * 8
    assert LLAMA.memory(ctx=100, kv_dtype="fp8-token").kv_cache_bytes == 100 * scaled
    assert LLAMA.kv(dtype="int8-token", ctx=100).total == 100 * scaled
    with pytest.raises(TfacctError, match="unknown dtype"):
        LLAMA.memory(dtype="fp8-token")


def test_other_heads_are_not_counted_in_pages_next_to_states() -> None:
    """With other heads, the pages that are as large as a state would have other sizes."""
    plain, paged = (load("qwen3-next-80b-a3b").kv(ctx=1024, **how) for how in ({}, {"kv_block": 16}))
    for last, absent in ((plain.lines[-1], False), (paged.lines[-1], True)):
        assert (last["mha"] is None, last["mqa"] is None) == (absent, absent)
    assert not any(note.startswith("MHA") for note in paged.notes)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-next-80b-a3b"])
def test_charts_draw_the_pages_that_the_report_counts(name: str) -> None:
    """4,096 tokens fill no whole number of pages of 1,000 tokens, nor of more next to states."""
    model = load(name)
    for report in (model.memory(ctx=4096, kv_block=1000), model.kv(ctx=4096, kv_block=1000)):
        chart = report._chart()
        assert report.kv_cache_bytes in [sizes[chart.x.index(4096)] for sizes in chart.series.values()]


def test_a_share_of_a_card_and_the_pages_that_it_leaves() -> None:
    found = LLAMA.memory(ctx=8190, on="80GB", use=0.9, kv_block=16)
    free = 72 * 10**9 - 2 * 8_030_261_248
    page = 16 * 2 * TOKEN
    assert found.pages == {
        "page_bytes": page,
        "count": free // page,
        "tokens": free // page * 16,
        "concurrency": free // page / 512,
        "starts": True,
        "largest_max_model_len": free // page * 16,
    }
    assert found.fit["largest_context"] == found.pages["tokens"] and found.fit["budget_bytes"] == 72 * 10**9
    assert found.kv_block == 16


def test_where_vllm_would_raise_no_note_says_that_it_starts() -> None:
    """16,060,522,496 bytes of weights leave memory for 3,785 pages of 2 MiB, 60,560 tokens: fewer than 131,072."""
    found = LLAMA.memory(on="24GB", kv_block=16)
    assert (found.pages["starts"], found.pages["largest_max_model_len"]) == (False, 60_560)
    notes = " ".join(found.notes)
    assert "would not start with requests of 131,072 tokens; the longest that starts has 60,560 tokens." in notes
    assert "would start" in " ".join(LLAMA.memory(on="24GB", kv_block=16, ctx=60_560).notes)
    assert LLAMA.memory(on="24GB", kv_block=16, ctx=60_561).pages["starts"] is False


def test_a_model_whose_weights_do_not_fit_has_no_pages(run: Run) -> None:
    asked = ("memory", "llama-3.1-70b", "gpt2", "--on", "t4", "--kv-block", "16")
    out = run(*asked, "--json").out
    large, small = json.loads(out)["models"]
    assert (large["fit"]["fits"], small["fit"]["fits"]) == (False, True)
    assert large["pages"] is None and small["pages"]["count"] > 0
    assert not re.search(r": -\d", out) and "1 of 2 models fit on T4" in run(*asked).out


def test_a_page_has_a_key_of_its_own() -> None:
    plain, paged = LLAMA.memory(ctx=100), LLAMA.memory(ctx=100, kv_block=16)
    assert plain.kv_bytes_per_token == paged.kv_bytes_per_token == 2 * TOKEN
    assert paged.kv_page_bytes == 16 * 2 * TOKEN


@pytest.mark.parametrize(
    ("name", "block", "groups"),
    [
        ("qwen3.5-9b", 528, 4),
        ("qwen3.5-27b", 784, 4),
        ("qwen3-next-80b-a3b", 544, 4),
        ("nemotron-nano-9b-v2", 672, 8),
        ("kimi-linear-48b-a3b", 1920, 4),
        ("lfm2-1.2b", 16, 3),
    ],
)
def test_pages_of_a_hybrid_are_those_of_an_engine(name: str, block: int, groups: int) -> None:
    """528, 672 and 784 are what vLLM prints. Qwen3-Next: a state of 1,097,728 bytes and 2,048 a token, on one card
    as on two. Groups have as many layers as attention has: 4 of 27 with states, in 7 groups and one, of Nemotron."""
    found = load(name).memory(kv_block=16, ctx=4096, on="h200")
    assert found.kv_block == load(name).kv(kv_block=16).kv_block == load(name).engine(on="h200").block_size == block
    if found.pages is not None:
        assert found.fit["largest_batch"] == int(found.pages["concurrency"])
        assert found.pages["tokens"] == found.pages["count"] // groups * block


def test_the_cache_of_a_hybrid_fills_whole_blocks_of_an_engine(run: Run) -> None:
    """Qwen3.5-9B: 8,192 tokens take 16 blocks of 528, in 8 layers of 4 heads of 256 for keys and for values. A block of
    a layer has 528 · 4,096 bytes; so has the page of each of 24 layers with states: 3 inputs of 8,192 channels in bf16,
    32 heads of 128 · 128 numbers in fp32, and padding."""
    attention, states = 8 * 2 * 4 * 256 * 2, 24 * 528 * 4096
    assert 0 <= 528 * 4096 - (3 * 8192 * 2 + 32 * 128 * 128 * 4) < 16 * 4096
    model = load("qwen3.5-9b")
    assert model.engine(on="h100").block_size == model.kv(kv_block=16).kv_block == 528
    for found in (model.memory(ctx=8192, kv_block=16), model.kv(ctx=8192, kv_block=16)):
        assert found.kv_cache_bytes == attention * 16 * 528 + states and found.kv_bytes_per_token == attention
        assert found.kv_bytes_next_token == 0
    assert model.kv(ctx=16 * 528, kv_block=16).kv_bytes_next_token == attention * 528
    ran = run("memory", "qwen3.5-9b", "--kv", "--kv-block", "16", "--kv-dtype", "fp8", "-v")
    assert "Cache pages have 1,056 tokens" in ran.out and "the next 1,056 tokens add" in ran.out


@pytest.mark.parametrize("name", ["mamba-130m", "bert-base"])
def test_pages_of_a_model_without_keys_are_refused(name: str, run: Run) -> None:
    with pytest.raises(TfacctError, match="has no pages"):
        load(name).memory(kv_block=16)
    ran = run("memory", "gpt2", name, "--kv-block", "16", "--json")
    assert ran.document["models_skipped"][0]["model"] == name


def test_in_every_form(run: Run) -> None:
    ran = run("memory", "llama-3.1-8b", "--on", "80GB", "--use", "0.9", "--kv-block", "16", "--ctx", "8k", "-v")
    text = ran.out_line
    assert "start with 26,674 pages, which hold 426,784 tokens" in text and "Usable: 72 GB = 0.9 of 80 GB." in text


def test_a_format_that_quantizes_the_head_and_the_embedding() -> None:
    """llama-3.1-8b: 128,256 · 4,096 numbers each, in fp8 with a scale of 4 bytes for 128 × 128."""
    plain = LLAMA.memory(dtype="fp8-block").weights_bytes
    one = 2 * 128_256 * 4096 - (128_256 * 4096 + 4 * 1002 * 32)
    assert LLAMA.memory(dtype="fp8-block+head").weights_bytes == plain - one
    assert LLAMA.memory(dtype="fp8-block+head+embed").weights_bytes == plain - 2 * one
    for wrong in ("bf16+head", "awq+norms", "awq+head+head", "q4_k_m+head", "+head"):
        with pytest.raises(TfacctError):
            LLAMA.memory(dtype=wrong)
