"""The cost of one more token, unbounded questions, and questions about quantized weights. Kind: golden, output."""

import json
from pathlib import Path
from typing import Any

from tests.families import TINY
from tests.helpers.cli import Run
from tfacct import load
from tfacct.accounts.memory import next_token_bytes
from tfacct.ledger.cost import Cost
from tfacct.ledger.storage import BF16_EACH
from tfacct.ledger.workload import Workload


def facts(run: Run, *arguments: str) -> dict[str, Any]:
    ran = run(*arguments, "--json")
    assert ran.code == 0, ran.err
    return ran.models[0]


def test_costs_add_up() -> None:
    both = Cost(6, read=2, written=1) + Cost(4, read=1, written=1)
    assert (both.flops, both.read, both.written, both.moved, both.intensity) == (10, 3, 2, 5, 2)


def test_one_more_token_past_the_windows(run: Run) -> None:
    """gemma-3-27b: 62 layers of 16 · 128 keys and values in bf16, 8 KiB each; 52 of them cache at most 1,024 tokens."""
    for command in ("memory", "memory --kv"):
        past, within = (facts(run, *command.split(), "gemma-3-27b-text", "--ctx", ctx) for ctx in ("131072", "512"))
        assert past["kv_bytes_next_token"] == 10 * 8192 and within["kv_bytes_next_token"] == 62 * 8192
        assert past["kv_bytes_per_token"] == within["kv_bytes_per_token"] == 62 * 8192
        table = run(*command.split(), "gemma-3-27b-text").out
        assert any(line.split()[:2] == ["next", "token"] and "80.0 KiB" in line for line in table.splitlines())
        assert ("496 KiB" in table) is ("--kv" in command) and "/ token" not in table  # there, in full layers alone
    several = run("memory", "gemma-3-27b-text", "gpt2").out
    assert "next token" in several and "80.0 KiB" in several


def test_the_window_fills_up() -> None:
    """A windowed layer caches one more token until its window is full, and none after that."""
    model = load("gemma-3-27b-text").loaded
    for context, blocks in ((1022, 62), (1023, 62), (1024, 10), (1025, 10)):
        at = Workload(context, context, 7).axes()
        assert next_token_bytes(model.ledger, at, BF16_EACH) == blocks * 8192


def test_without_a_cache_nothing_limits_the_batch(run: Run) -> None:
    """bert-base in 24 GiB: its weights, and no cache that grows with context or batch."""
    fit = facts(run, "memory", "bert-base", "--on", "24GiB")["fit"]
    slack = 24 * 1024**3 - 2 * 109_514_298
    assert (fit["largest_context"], fit["largest_batch"]) == (512, None)  # where its position embedding ends
    assert fit["context_slack_bytes"] == fit["batch_slack_bytes"] == slack
    printed = run("memory", "bert-base", "--on", "24GiB").out_line
    assert "there is no cache." in printed and " free 23.8 " in printed
    assert "window" not in printed and "1,000,000,000,000" not in printed and "next token" not in printed
    rows = run("memory", "bert-base", "gpt2", "--on", "24GiB").out.splitlines()
    assert next(row for row in rows if row.startswith(" bert-base")).split()[-2:] == ["512", "any"]
    small = run("memory", "bert-base", "--on", "1MiB")
    assert small.code == 0 and "the weights alone need 209 MiB, and 1.00 MiB is usable" in small.out


def test_a_state_of_one_size_bounds_the_batch_only(run: Run) -> None:
    fit = facts(run, "memory", "mamba-130m", "--on", "24GiB")["fit"]
    state = 24 * (2 * 1536 * 4 + 4 * 1536 * 16)  # bytes of one sequence, in 24 layers; the recurrence's in fp32
    assert fit["largest_context"] is None and fit["context_slack_bytes"] > 0
    assert fit["largest_batch"] == (24 * 1024**3 - 2 * 129_135_360) // state


def test_the_cache_of_quantized_weights_is_answered(run: Run, tmp_path: Path) -> None:
    """deepseek-v3 caches 576 numbers in each of 61 layers, in any format of its weights."""
    ran = facts(run, "sweep", "deepseek-v3", "--metric", "total_flops,kv_cache_bytes", "--ctx", "1k")
    assert ran["lines"][0]["kv_cache_bytes"] == 1024 * 61 * 576 * 2
    table = run("sweep", "deepseek-v3", "--metric", "kv_cache_bytes", "--ctx", "1k").out
    assert "Counted: KV cache in bf16 ·" in table and "weights" not in table
    file = tmp_path / "unknown.json"
    file.write_text(json.dumps({**TINY["llama"], "quantization_config": {"quant_method": "vptq"}}))
    refused = run("sweep", str(file), "--metric", "total_bytes", "--ctx", "32")
    assert (refused.code, refused.out) == (2, "") and "give --dtype" in refused.err
    assert load("deepseek-v3").evaluate("weights_bytes", batch=[1])[0] == 673_150_552_416


def test_a_diff_of_weights_stored_in_an_unknown_way_leaves_their_bytes_out(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "unknown.json"
    file.write_text(json.dumps({**TINY["llama"], "quantization_config": {"quant_method": "vptq"}}))
    arguments = ("compare", str(file), "--ctx", "16,32", "--by", "line")
    found = facts(run, *arguments)
    totals = {name: (line["old"], line["new"]) for name, line in found["totals"].items()}
    assert totals["total_flops"] == tuple(load(file).flops(ctx=ctx).total for ctx in (16, 32))
    assert "kv_cache_bytes" in totals and not {"weights_bytes", "total_bytes"} & set(totals)
    assert found["left_out"] == ["weights_bytes", "total_bytes"]
    assert found["old_side"]["workload"]["dtype"] is found["new_side"]["workload"]["dtype"] is None
    printed = run(*arguments).out_line
    assert 'Not included: bytes of the weights (unknown.json: quant_method = "vptq" is not supported' in printed
    given = facts(run, *arguments, "--dtype", "int8")
    assert given["left_out"] == [] and given["old_side"]["workload"]["dtype"] == "int8"
