"""`memory --kv`: the cache at a context, and the bytes that further tokens add. Kind: golden, output."""

from tfacct import load


def test_the_latent_and_the_rotary_key_are_cached() -> None:
    """Deepseek-V3: 3 dense and 58 expert layers cache a latent of 512 and 64 rotary dimensions a token."""
    assert load("deepseek-v3").kv(ctx=1).kv_cache_bytes == (3 + 58) * (512 + 64) * 2


def test_a_range_of_contexts_is_the_rows(run) -> None:
    """131,072 bytes a token; digits grouped are one number, as everywhere."""
    (facts,) = run("memory", "--kv", "llama-3.1-8b", "--ctx", "1k..8k", "--json").models
    assert [(line["keys"], line["as_built"]) for line in facts["lines"]] == [
        (1024 * 2**power, 131_072 * 1024 * 2**power) for power in range(4)
    ]
    assert (facts["workload"]["keys"], facts["kv_cache_bytes"]) == (8192, 2**30)
    assert load("llama-3.1-8b").kv(ctx="1k..8k").models == (facts,)
    (facts,) = run("memory", "--kv", "llama-3.1-8b", "--ctx", "8k,2k,3", "--json").models
    assert [line["keys"] for line in facts["lines"]] == [3, 2048, 8192]
    (facts,) = run("memory", "--kv", "llama-3.1-8b", "--ctx", "4,096", "--json").models
    assert [line["keys"] for line in facts["lines"]] == [1024, 4096]


def test_each_column_of_a_rank_is_that_ranks() -> None:
    """Half of 32 query heads and of 8 key/value heads; one key/value head is stored by both ranks."""
    facts = load("llama-3.1-8b").kv(ctx=1024, tp=2).models[0]
    each = 2 * 32 * 1024 * 128 * 2
    assert (facts["query_heads"], facts["kv_heads"]) == (16, 4)
    assert [facts["lines"][-1][column] for column in ("mha", "as_built", "mqa")] == [16 * each, 4 * each, each]
