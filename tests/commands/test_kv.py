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


def test_several_batches_are_a_row_each(run) -> None:
    """16,060,522,496 bytes of weights, 1 GiB a sequence of 8,192; 24 GiB hold (24 GiB - weights) / 131,072 tokens."""
    asked = ("memory", "llama-3.1-8b", "--batch", "64,1,8", "--ctx", "8k")
    (facts,) = run(*asked, "--json").models
    assert facts["batches"] == [
        {"batch": n, "weights_bytes": 16_060_522_496, "kv_cache_bytes": n * 2**30,
         "total_bytes": 16_060_522_496 + n * 2**30} for n in (1, 8, 64)
    ]  # fmt: skip
    assert (facts["workload"]["batch"], facts["total_bytes"]) == (64, 16_060_522_496 + 64 * 2**30)
    assert run(*asked).out.splitlines()[0] == "From 16.0 GiB at batch 1 to 79.0 GiB at batch 64."
    ran = run(*asked, "--on", "24GiB")
    assert ran.out.splitlines()[0] == "Batch 8 is the largest of these that fits in 24 GiB."
    rows = [line.split() for line in ran.out.splitlines() if "GiB" in line][-3:]
    assert [row[-1] for row in rows] == [f"{74_075 // 1:,}", f"{74_075 // 8:,}", f"{74_075 // 64:,}"]
    report = load("llama-3.1-8b").memory(batch="1,8,64", ctx="8k", on="24GiB")
    assert [row["largest_context"] for row in report.batches] == [74_075, 9_259, 1_157]
    assert load("gpt2").memory(batch=8).total == load("gpt2").memory(batch="8").total
    assert load("gpt2").memory(batch="8").batches is None
    assert "Both batches fit in 1 GiB." in run("memory", "mamba-130m", "--batch", "1,2", "--on", "1GiB").out
    small = run("memory", *"llama-3.1-8b --batch 1,2 --on 1GiB".split())
    answer = "None of these batches fits in 1 GiB: the weights alone need 15.0 GiB, and 1.00 GiB is usable."
    assert small.code == 0 and answer in small.out_line
    assert run("memory", "bert-base", "--batch", "1..4").out.splitlines()[0] == "209 MiB at every batch."


def test_each_column_of_a_rank_is_that_ranks() -> None:
    """Half of 32 query heads and of 8 key/value heads; one key/value head is stored by both ranks."""
    facts = load("llama-3.1-8b").kv(ctx=1024, tp=2).models[0]
    each = 2 * 32 * 1024 * 128 * 2
    assert (facts["query_heads"], facts["kv_heads"]) == (16, 4)
    assert [facts["lines"][-1][column] for column in ("mha", "as_built", "mqa")] == [16 * each, 4 * each, each]
