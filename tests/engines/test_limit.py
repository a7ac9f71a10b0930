"""The KV pool of an engine in `memory` and `serve`. Kind: golden, refusal."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.cli import Run
from tfacct import load
from tfacct.base.errors import ConfigError
from tfacct.loading import devices

LLAMA = load("llama-3.1-8b")


@pytest.mark.parametrize("name", ["olmo-2-7b", "qwen3-8b"])
def test_the_pool_on_several_cards_is_that_of_the_engine(name: str) -> None:
    """OLMo 2's norm over all heads is whole on each card, and a share of it is counted."""
    pool = load(name).engine(on="4xh100").pool_bytes
    found = load(name).memory(ctx="4k", on="4xh100", engine="vllm")
    assert found.fit["budget_bytes"] - found.weights_bytes == pool


@pytest.mark.parametrize(("engine", "on"), [("vllm", "h100"), ("vllm", "2xh100"), ("sglang", "h100")])
def test_memory_has_the_pool_of_an_engine(engine: Any, on: str) -> None:
    pool = LLAMA.engine(engine=engine, on=on).pool_bytes
    found = LLAMA.memory(ctx="8k", on=on, engine=engine)
    assert found.fit["budget_bytes"] - found.weights_bytes == pool
    assert found.fit["largest_batch"] == pool // (found.kv_cache_bytes)
    assert LLAMA.memory(ctx="8k", on=on, engine=engine, use=0.5).fit["largest_batch"] < found.fit["largest_batch"]


@pytest.mark.parametrize(
    "name", ["gemma-3-12b-text", "mistral-7b-v0.1", "granite-4.0-h-small", "olmo-hybrid-7b", "qwen3.5-9b"]
)
def test_memory_and_serve_admit_the_requests_that_vllm_prints(name: str) -> None:
    """Windows and states take pages of their own."""
    model = load(name)
    printed = model.engine(on="b300", max_model_len=8192).max_concurrency
    assert model.memory(ctx=8192, on="b300", engine="vllm").fit["largest_batch"] == int(printed)
    if name != "granite-4.0-h-small":  # without an estimate
        served = model.serve(on="b300", prompt=8000, new=192, engine="vllm")
        assert served.largest_requests == int(printed)


@pytest.mark.parametrize(
    ("name", "on"), [("qwen3-next-80b-a3b", "2xh200"), ("qwen3.5-9b", "4xh100"), ("kimi-linear-48b-a3b", "4xh200")]
)
def test_memory_counts_states_on_ranks_as_vllm_does(name: str, on: str) -> None:
    start = load(name).engine(on=on, max_model_len=8192)
    found = load(name).memory(ctx=8192, on=on, engine="vllm")
    assert found.fit["budget_bytes"] - found.weights_bytes == start.pool_bytes
    assert (found.pages["count"], found.pages["concurrency"]) == (start.blocks, start.max_concurrency)
    assert found.fit["largest_batch"] == int(start.max_concurrency)
    with pytest.raises(ConfigError, match="a parallel layout does not support DeltaNet"):
        load(name).flops(ctx=8, tp=2)


def test_windows_of_vllm_reserve_a_chunk_of_every_prompt() -> None:
    """Gemma 3 12B: 8 layers of 48 are full, so groups have 8: 1 full group of 512 pages, 5 windowed ones, each of
    min(1,023 + 16,384, 8,192) / 16 + 1 = 513 pages."""
    found = load("gemma-3-12b-text").engine(on="b300", max_model_len=8192)
    assert found.max_concurrency == pytest.approx(found.blocks / (512 + 5 * 513))


def test_tensorrt_llm_takes_nine_tenths_of_the_memory_left_by_weights() -> None:
    found = LLAMA.memory(ctx="8k", on="h100", engine="trtllm")
    left = found.fit["memory_bytes"] - found.weights_bytes
    assert found.fit["budget_bytes"] - found.weights_bytes == left * 9 // 10
    served = LLAMA.serve(on="h100", prompt="2k", new=256, engine="trtllm")
    assert served.largest_requests == left * 9 // 10 // (2304 * 131_072)


@pytest.mark.parametrize("name", ["vllm", "sglang", "trtllm"])
def test_weights_larger_than_the_card_are_an_error_and_the_hint_works(run: Run, name: str) -> None:
    """756 GiB of weights: 94.5 on each of 8 cards, 47.2 on each of 16."""
    line = ("memory", "llama-3.1-405b", "--ctx", "8k", "--engine", name, "--on")
    ran = run(*line, "h100")
    assert (ran.code, ran.out) == (2, "") and "leave no cache" in ran.err and "such as --on 16xh100-sxm" in ran.err
    assert run(*line, "16xh100-sxm").out.startswith("Fits on 16")
    assert "It fits on" not in run("memory", "llama-3.1-70b", "--on", "2xh100", "--engine", name).out


@pytest.mark.parametrize("name", ["vllm", "sglang", "trtllm"])
def test_cards_are_counted_by_the_rule_of_an_engine(run: Run, name: str) -> None:
    """The fewest cards are those on which `memory` with the same engine fits, and on half as many it does not."""
    line = ("llama-3.1-70b", "--ctx", "8k", "--engine", name, "--on")
    model = load("llama-3.1-70b")
    for one in model.fit(ctx="8k", on="h100,l40s", engine=name).lines:
        counts = (one["count"], one["count"] // 2)
        fits = [run("memory", *line, f"{count}x{one['device']}").out.startswith("Fits") for count in counts]
        assert fits == [True, False]
        limit = model.memory(ctx="8k", engine=name, on=f"{one['count']}x{one['device']}").fit
        assert one["usable_bytes"] == limit["budget_bytes"]


def test_cards_that_an_engine_does_not_support_are_named(run: Run, tmp_path: Path) -> None:
    """Cards of AMD, and cards whose total as torch reports it is not known."""
    card = tmp_path / "card.toml"
    head = devices.TEMPLATE.replace('vendor = "ACME"', 'vendor = "ACME"\narchitecture = "Ada"')
    card.write_text("".join(line for line in head.splitlines(keepends=True) if "torch_bytes" not in line))
    line = ("memory", "llama-3.1-8b", "--engine", "vllm", "--on")
    facts = run(*line, f"h100,mi300x,{card}", "--json").models[0]
    reasons = {one["device"]: one["reason"] for one in facts["lines"]}
    assert (facts["engine"], facts["use"], reasons["h100-sxm"]) == ("vLLM 0.33", None, None)
    assert "vLLM on CDNA3" in reasons["mi300x"] and "torch's total of My card is not known" in reasons["card"]
    assert "by the engine: card (torch's total of My card is not known)." in run(*line, f"h100,{card}").out
    for words, message in (
        ("gpt-oss-20b --on all", "mxfp4 experts"),
        ("mixtral-8x7b --on all --ep 2", "does not work with --ep"),
        ("mamba2-130m --on h100", "cache blocks of a model without attention"),
    ):
        ran = run("memory", *words.split(), "--engine", "vllm")
        assert ran.code == 2 and message in ran.err
