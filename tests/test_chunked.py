"""A loss in chunks of tokens: kept bytes and the peak, against the classes with their head and loss in plain torch."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.conftest import Ran
from tests.training_configs import drawn
from tfacct import load
from tfacct.accounts.timeline import peak, timeline
from tfacct.base.errors import UsageError
from tfacct.families import config_class
from tfacct.ledger.workload import Workload
from tfacct.loading.model import subject
from tfacct.profiles.chunked import CHUNKS
from tfacct.reports.training import refusal, step_of

FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "mixtral", "qwen3_moe", "gemma")
FURTHER = (
    *("cwm", "deepseek_v3", "glm", "glm4_moe", "gpt2", "gpt_oss", "helium", "internlm3", "iquestcoder", "kimi_k2"),
    *("olmo2", "olmo3", "opt", "phi3", "qwen2_moe", "seed_oss", "smollm3", "starcoder2", "youtu"),
    *("bloom", "cohere", "cohere2", "exaone4", "gemma2", "gemma3_text", "glm4", "gpt_neox", "granite"),
    *("hyperclovax", "ministral3", "nemotron", "olmo", "phi", "stablelm", "falcon", "vaultgemma", "glm4_moe_lite"),
    *("minimax_m2", "gpt_neo"),
    *("dots1", "ernie4_5", "granitemoe"),
    *("arcee", "exaone_moe", "flex_olmo", "granitemoeshared", "hy_v3", "mellum"),
    *("ministral", "solar_open"),
    *("afmoe", "apertus", "llama4_text", "lfm2", "lfm2_moe", "nanochat"),
    *("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"),
)


def check(family: str, seed: int, work: Workload | None = None) -> None:
    from tfacct.reference import keeping
    from tfacct.reference.chunked import loss_in_chunks

    config, recipe, given = drawn(family, seed)
    work = work or given
    config["vocab_size"] = random.Random(seed).choice([50, 300, 2000, 5000])
    recipe = replace(recipe, loss="chunked", gradient_accumulation=1 + (seed % 5 == 4))
    if seed % 7 == 3 and family in FAMILIES:
        recipe = replace(recipe, recompute="attention")
    model = subject(family, config, {}, None)
    if refusal(model, recipe) is not None:
        recipe = replace(recipe, dtype="bf16")
    step = step_of(model, work, recipe)
    run = loss_in_chunks(
        keeping.trainable(model.of_class, recipe.attention, recipe.dtype, checkpoint=recipe.recompute), CHUNKS
    )
    assert step.kept() == sum(each.bytes for each in keeping.kept(run, work.batch, work.tokens)), (config, recipe, work)
    most = keeping.peak(run, work.batch, work.tokens, accumulate=recipe.accumulates)
    found = peak(instant for instant in timeline(step) if instant.name != "optimizer step")
    assert found.total == most.bytes, (config, recipe, work, found, most)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [3, 4])
def test_a_step_is_the_classes_own(family: str, seed: int) -> None:
    pytest.importorskip("transformers")
    check(family, seed)


@pytest.mark.parametrize("family", FURTHER)
def test_a_step_of_a_further_family_is_its_classes_own(family: str) -> None:
    pytest.importorskip("transformers")
    check(family, 4)


@pytest.mark.parametrize("tokens", [1, 2, 3, 8, 9])
def test_few_tokens_make_few_chunks(tokens: int) -> None:
    pytest.importorskip("transformers")
    check("llama", 7, Workload(context=tokens, tokens=tokens, batch=1))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES + FURTHER)
def test_many_steps_are_the_classes_own(family: str) -> None:
    pytest.importorskip("transformers")
    for seed in range(100, 200):
        check(family, seed)


def test_llama_by_hand() -> None:
    """The log-probabilities of 4,096 tokens over 128,256 words in fp32 are not kept, nor a weight of 4 bytes. The
    head's backward is fullest where the weight's gradients of two chunks are added: three of 2 · V · D bytes."""
    llama = load("llama-3.1-8b")
    whole, chunked = llama.train(ctx=4096), llama.train(ctx=4096, loss="chunked")
    assert whole.kept_bytes - chunked.kept_bytes == 4 * 4096 * 128_256 + 4
    head = next(each for each in chunked.instants if each["instant"] == "head, backward")
    table, rows = 2 * 128_256 * 4096, 2 * 4096 * 4096
    assert head["gradients_bytes"] == table
    assert head["held_bytes"] == 2 * table + rows * 7 // 8 + 4 + 8
    assert chunked.peak_bytes < whole.peak_bytes


def test_what_is_said_and_refused(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    out = " ".join(run("train", "llama-3.1-8b", "--loss", "chunked", "--ctx", "1k").out.split())
    assert "loss in chunks" in out and "in 8 chunks of the tokens" in out and "The head runs again" in out
    monkeypatch.setattr(config_class("phi"), "trains", frozenset({"sdpa", "eager"}))
    refused = " ".join(run("train", "phi-2", "--loss", "chunked").err.split())
    assert "phi has not been measured with a loss in chunks" in refused
    assert "makes the logits of one chunk at a time" in " ".join(
        run("train", "llama-3.1-8b", "--loss", "chunked", "--keep-logits").err.split()
    )
    with pytest.raises(UsageError, match="loss is whole or chunked"):
        load("gpt2").train(loss="half")  # type: ignore[arg-type]


def test_fit_says_what_it_costs() -> None:
    """The head's forward FLOPs again."""
    llama = load("llama-3.1-8b")
    (change,) = (
        each for each in llama.train(ctx=8192, fit="80GiB").fit["changes"] if each["set"] == {"loss": "chunked"}
    )
    step = llama.flops(ctx=8192, train=True)
    head = next(line["forward_flops"] for line in step.lines if line["path"] == "lm_head")
    assert change["flops_ratio"] == pytest.approx(1 + head / step.total)
