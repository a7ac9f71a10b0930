"""SGLang and llama.cpp: formulas by hand. Kind: golden, refusal."""

import pytest

from tfacct import load
from tfacct.engines.profiles import GIB


def test_sglangs_pool_by_hand() -> None:
    """What is free after loading, less a tenth of what was free before; 128 KiB a token."""
    start = load("llama-3.1-8b").engine(engine="sglang", on="h100", gpu_memory_utilization=0.9)
    assert start.kv_cache_tokens == start.pool_bytes // 131_072 and start.interval is None
    terms = {one["what"]: one["bytes"] for one in start.terms}
    assert terms["not static"] == int((terms["card"] - terms["CUDA context"]) * (1 - 0.9))
    left = terms["card"] - terms["CUDA context"] - terms["weights"] - terms["not static"]
    assert 0 <= left - start.pool_bytes < 2 * 131_072


@pytest.mark.parametrize(("cards", "share"), [(1, 0.88), (2, 0.87), (4, 0.85), (8, 0.81)])
def test_the_default_share_of_sglang_0_4_is_by_cards(cards: int, share: float) -> None:
    start = load("llama-3.1-8b").engine(engine="sglang", on=f"{cards}xh100", engine_version="0.4.6")
    assert any(one["source"].endswith(f"{share:g}") for one in start.terms)


def test_the_default_share_of_sglang_0_5_by_hand() -> None:
    """An H100: 512 MiB, 1.5 for each of 8,192 tokens, 2 for each of 256 requests, 128 for a rank; of 81,090 MiB."""
    start = load("llama-3.1-8b").engine(engine="sglang", on="h100")
    assert round(1 - (512 + 12_288 + 512 + 128) / 81_090, 3) == 0.834
    assert any(one["source"].endswith("0.834") for one in start.terms)


def test_sglang_0_5_reserves_10_gib_at_least_on_large_cards() -> None:
    """512 + 1.5 · 2,048 (the least chunk) + 512 + 128 = 4,224 MiB are fewer than 10,240 of an H100's 81,090."""
    start = load("llama-3.1-8b").engine(engine="sglang", on="h100", max_num_batched_tokens=1024)
    assert round(1 - 10_240 / 81_090, 3) == 0.874
    assert any(one["source"].endswith("0.874") for one in start.terms)


def test_llama_cpps_buffers_by_hand() -> None:
    """512 rows of 128,256 logits and one or two residual streams, in fp32; a cache of 8,192 tokens of 128 KiB."""
    start = load("llama-3.1-8b").engine(engine="llama.cpp", on="4090", dtype="q4_k_m", max_model_len="8k")
    buffer = next(one for one in start.terms if one["what"] == "compute buffer")
    assert (buffer["low_bytes"], buffer["high_bytes"]) == tuple(512 * (128_256 + c * 4096) * 4 for c in (1, 2))
    assert start.pool_bytes == GIB and start.log_lines == ["CUDA0 KV buffer size = 1024.00 MiB"]
    file = load("llama-3.1-8b").memory(dtype="q4_k_m", ctx=8).weights_bytes
    assert file - start.weights_bytes == 128_256 * 4096 * 144 // 256  # the embedding stays on the host, in q4_k


def test_a_card_that_is_too_small() -> None:
    start = load("llama-3.1-8b").engine(engine="llama.cpp", on="t4", max_model_len=4096)
    assert not start.starts and start.answer.startswith("Does not start: a cache of 4,096 tokens needs ")
    assert start.answer.endswith("Use a shorter context or narrower weights.")
    start = load("llama-3.1-70b").engine(engine="llama.cpp", on="t4", max_model_len=4096)
    assert start.answer.endswith("Use narrower weights or more memory.")  # the weights alone are too large
    assert load("llama-3.1-8b").engine(engine="llama.cpp", on="t4", dtype="q4_k_m").starts


def test_sglang_starts_with_fewer_tokens_than_the_longest_request() -> None:
    """It shortens requests; it fails where the weights leave nothing: 131 GiB of them on a card of 79."""
    start = load("llama-3.1-8b").engine(engine="sglang", on="l4")
    quantized = load("deepseek-v3").engine(engine="sglang", on="8xh200")
    assert [start.terms[2]["kind"], quantized.terms[2]["kind"]] == ["derived", "estimate"]
    assert start.starts and 0 < start.kv_cache_tokens < start.max_model_len == 131_072
    assert f", or {start.kv_cache_tokens / 131_072:.2f} requests of 131,072 tokens" in start.answer
    start = load("llama-3.1-70b").engine(engine="sglang", on="h100")
    assert not start.starts and start.pool_bytes is None
    assert start.answer.startswith("Does not start: no memory is left for the cache") and start.launch is None


def test_flags_have_the_names_of_the_engine() -> None:
    model = load("llama-3.1-8b")
    line = model.engine(engine="sglang", on="h100", dtype="fp8", kv_dtype="fp8", max_num_batched_tokens=4096).launch
    given = "--chunked-prefill-size 4096 --quantization fp8 --kv-cache-dtype fp8_e4m3"
    assert line.endswith(f"meta-llama/Llama-3.1-8B {given}")
    line = model.engine(engine="llama.cpp", on="h100", kv_dtype="fp16").launch
    assert line == "llama-server -m Llama-3.1-8B.gguf -ngl 999 -c 4096 -ctk f16 -ctv f16"
    assert model.engine(engine="llama.cpp", on="h100", kv_dtype="q8_0").launch.endswith("-ctk q8_0 -ctv q8_0")
