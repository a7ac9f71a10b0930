"""SGLang and llama.cpp: formulas by hand. Kind: golden, refusal."""

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


def test_llama_cpps_buffers_by_hand() -> None:
    """512 rows of 128,256 logits and one or two residual streams, in fp32; a cache of 8,192 tokens of 128 KiB."""
    start = load("llama-3.1-8b").engine(engine="llama.cpp", on="4090", dtype="q4_k_m", max_model_len="8k")
    buffer = next(one for one in start.terms if one["what"] == "compute buffer")
    assert (buffer["low_bytes"], buffer["high_bytes"]) == tuple(512 * (128_256 + c * 4096) * 4 for c in (1, 2))
    assert start.pool_bytes == GIB and start.log_lines == ["CUDA0 KV buffer size = 1024.00 MiB"]
    file = load("llama-3.1-8b").memory(dtype="q4_k_m", ctx=8).weights_bytes
    assert file - start.weights_bytes == 128_256 * 4096 * 144 // 256  # the embedding stays on the host, in q4_k


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
