"""Attention that is run again in the backward pass: what is kept, the peak, and FLOPs, against the classes."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.conftest import Ran
from tests.training_configs import drawn
from tfacct import load
from tfacct.accounts.timeline import ends_of_stacks, peak, sums, timeline
from tfacct.base.errors import UsageError
from tfacct.families import config_class
from tfacct.ledger.workload import Request, Workload
from tfacct.loading.model import subject
from tfacct.reports.flops import flops
from tfacct.reports.training import refusal, step_of
from tfacct.training.recipe import Recompute

FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "mixtral", "qwen3_moe", "gemma")
FURTHER = (
    *("bloom", "cohere", "cohere2", "cwm", "deepseek_v3", "exaone4", "gemma2", "gemma3_text", "glm", "glm4", "gpt_neo"),
    *("glm4_moe", "gpt2", "gpt_neox", "gpt_oss", "granite", "helium", "hyperclovax", "kimi_k2", "ministral3"),
    *("nemotron", "olmo", "olmo2", "olmo3", "opt", "phi", "phi3", "qwen2_moe", "seed_oss", "smollm3"),
    *("stablelm", "starcoder2", "youtu", "granitemoe", "glm4_moe_lite", "minimax_m2"),
    *("dots1", "ernie4_5", "gpt_bigcode", "hunyuan_v1_dense", "olmoe", "vaultgemma"),
    *("arcee", "exaone_moe", "flex_olmo", "granitemoeshared", "hy_v3", "mellum"),
    *("ministral", "solar_open"),
)


def check(family: str, seed: int, *, accumulate: bool = False) -> None:
    from tfacct.reference import keeping

    config, recipe, work = drawn(family, seed)
    recipe = replace(recipe, recompute="attention", gradient_accumulation=1 + accumulate, keep_logits=seed % 3 == 0)
    model = subject(family, config, {}, None)
    if refusal(model, recipe) is not None:
        recipe = replace(recipe, dtype="bf16")
    step = step_of(model, work, recipe)
    run = keeping.trainable(model.of_class, recipe.attention, recipe.dtype, checkpoint="attention")
    saved = sum(each.bytes for each in keeping.kept(run, work.batch, work.tokens))
    held = {"accumulate": accumulate, "holds_logits": recipe.keep_logits}
    most = keeping.peak(run, work.batch, work.tokens, **held)
    assert step.kept() == saved, (config, recipe, work)
    found = peak(instant for instant in timeline(step) if instant.name != "optimizer step")
    assert found.total == most.bytes, (config, recipe, work, found, most)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_step_is_the_classes_own(family: str, seed: int) -> None:
    pytest.importorskip("transformers")
    check(family, seed)


@pytest.mark.parametrize("family", FURTHER)
def test_a_step_of_a_further_family_is_its_classes_own(family: str) -> None:
    pytest.importorskip("transformers")
    check(family, 3)


@pytest.mark.parametrize("seed", [146, 105])
def test_what_waits_behind_a_dropout_while_attention_runs_again(seed: int) -> None:
    """The gradient of attention's result, which is not the stream's there."""
    pytest.importorskip("transformers")
    check("opt", seed)


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("gpt2", 3),
        ("gpt_neo", 137),
        ("gpt_neo", 119),
        ("gpt_neo", 126),
        ("gpt_neo", 193),
        ("phi", 12),
        ("starcoder2", 20),
        ("starcoder2", 32),
        ("gpt_oss", 34),
        ("olmo", 117),
    ],
)
def test_what_attention_holds_while_it_runs_again(family: str, seed: int) -> None:
    """A dropout in its module; halves of heads that are joined; one head, which is no copy; the gradient of a bias
    beside what its product read; weights that the module gives back; angles in fp32. Of gpt_neo weights that the caller
    has of the block in front, if there is one, and queries and keys behind their product."""
    pytest.importorskip("transformers")
    check(family, seed, accumulate=seed in (32, 117, 137, 193))


@pytest.mark.parametrize(
    ("family", "seed"), [("llama", 19), ("llama", 28), ("vaultgemma", 25), ("gpt2", 29), ("deepseek_v3", 9)]
)
def test_a_copy_that_a_product_makes_is_gone_behind_it(family: str, seed: int) -> None:
    """No instant of the first forward pass is fuller than what was measured there: of queries, or of keys."""
    pytest.importorskip("transformers")
    from tfacct.reference import keeping

    config, recipe, work = drawn(family, seed)
    recipe = replace(recipe, recompute="attention", gradient_accumulation=2)
    model = subject(family, config, {}, None)
    if refusal(model, recipe) is not None:
        recipe = replace(recipe, dtype="bf16")
    run = keeping.trainable(model.of_class, recipe.attention, recipe.dtype, checkpoint="attention")
    most = keeping.forward_peak(run, work.batch, work.tokens, accumulate=True)
    step = step_of(model, work, recipe)
    whole = sums(step)
    inside = (instant for _, instant in whole.inside_blocks(list(ends_of_stacks(step))))
    assert max(int(one.total) for one in inside if one.name.endswith(", forward")) <= most, (config, recipe, work)


@pytest.mark.parametrize(
    ("family", "seed", "checkpoint"),
    [("deepseek_v3", 0, "none"), ("deepseek_v3", 6, "full"), ("deepseek_v3", 10, "attention"), ("phi", 2, "none")],
)
def test_one_token_lies_head_by_head_as_it_is(family: str, seed: int, checkpoint: Recompute) -> None:
    """So no copy of values is made; which other classes were not asked is said, and the peak is not exact."""
    pytest.importorskip("transformers")
    from tfacct.reference import keeping

    config, recipe, _ = drawn(family, seed)
    recipe = replace(recipe, recompute=checkpoint, gradient_accumulation=2, dtype="bf16")
    model, work = subject(family, config, {}, None), Workload(context=1, tokens=1, batch=2)
    step = step_of(model, work, recipe)
    run = keeping.trainable(model.of_class, recipe.attention, recipe.dtype, checkpoint=checkpoint)
    assert step.kept() == sum(each.bytes for each in keeping.kept(run, 2, 1))
    found = peak(instant for instant in timeline(step) if instant.name != "optimizer step")
    assert found.total == keeping.peak(run, 2, 1, accumulate=True).bytes
    said = load("gpt2").train(ctx=1)
    assert not said.exact and "A single token is laid out differently in memory" in str(said)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES + FURTHER)
def test_many_steps_are_the_classes_own(family: str) -> None:
    pytest.importorskip("transformers")
    for seed in range(100, 200):
        check(family, seed)


def test_llama_by_hand() -> None:
    """In bf16, a block keeps 4·N·H + 4·K·H + 4·N bytes a token less, and the kernel's seeds, 24 bytes: q, k, v and the
    values, 2 bytes each, and a sum's logarithm in fp32. The angles are handed over: 4·H bytes a token."""
    llama = load("llama-3.1-8b")
    plain, again = llama.train(ctx=4096), llama.train(ctx=4096, recompute="attention")
    heads, keys, size, tokens = 32, 8, 128, 4096
    block = tokens * (2 * 2 * heads * size + 2 * 2 * keys * size + 4 * heads) + 24
    assert plain.kept_bytes - again.kept_bytes == 32 * block + tokens * 2 * 2 * size
    assert again.peak_bytes < plain.peak_bytes


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_flops_are_what_torch_counts(family: str) -> None:
    """The classes' own steps, forward and backward, their attention under torch's checkpoint."""
    pytest.importorskip("transformers")
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from tfacct.reference import keeping

    config, _, _ = drawn(family, 1)
    model = subject(family, config, {}, None)
    totals = {}
    for checkpoint in ("none", "attention"):
        built = keeping.trainable(config, "eager", "bf16", checkpoint=checkpoint).to_empty(device="cpu")
        ids = torch.zeros((2, 5), dtype=torch.int64)
        with FlopCounterMode(display=False) as counter:
            built(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        totals[checkpoint] = counter.get_total_flops()
    report = flops([model], Request(ctx=5, batch=2), train=True, recompute="attention")
    assert report.models[0]["recomputed_flops"] == totals["attention"] - totals["none"] > 0


def test_flops_of_gpt2_by_hand(run: Callable[..., Ran]) -> None:
    """Twelve attentions again without their last product: 6·T·D² + 4·T²·D FLOPs each, T 1,024 and D 768."""
    again = 12 * (6 * 1024 * 768**2 + 4 * 1024**2 * 768)
    ran = run("flops", "gpt2", "--ctx", "1k", "--train", "--recompute", "attention")
    assert "training-step FLOPs with attention recomputed" in ran.out
    assert "runs attention again, all its products but the last: 82.1 G FLOPs." in " ".join(ran.out.split())
    (facts,) = json.loads(run("flops", "gpt2", "--ctx", "1k", "--train", "--recompute", "attention", "--json").out)[
        "models"
    ]
    assert (facts["recompute"], facts["recomputed_flops"]) == ("attention", again)
    assert facts["total_flops"] == load("gpt2").flops(ctx=1024, train=True).total + again
    with pytest.raises(UsageError, match="no attention that could run again"):
        load("mamba-130m").flops(train=True, recompute="attention")


def test_what_is_not_measured_is_refused(run: Callable[..., Ran]) -> None:
    ran = run("train", "gpt-j-6b", "--attention", "eager", "--recompute", "attention")
    assert ran.code == 2 and "gptj has not been measured with attention that runs again" in " ".join(ran.err.split())
    out = run("train", "llama-3.1-8b", "--recompute", "attention", "--ctx", "1k").out
    assert "attention checkpointed" in " ".join(out.split())
    with pytest.raises(UsageError, match="checkpoint is none, full or attention"):
        load("gpt2").train(recompute="half")  # type: ignore[arg-type]


def test_fit_names_it_where_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three percent more FLOPs: q, k, v, scores and values again, of all that a step of three passes does."""
    llama = load("llama-3.1-8b")
    changes = {json.dumps(each["set"]): each for each in llama.train(ctx=8192, fit="80GiB").fit["changes"]}
    attention = changes['{"recompute": "attention"}']
    again = llama.flops(ctx=8192, train=True, recompute="attention")
    assert attention["flops_ratio"] == 1 + again.recomputed_flops / (again.total - again.recomputed_flops)
    monkeypatch.setattr(config_class("gpt2"), "trains", frozenset({"sdpa", "eager"}))
    assert '{"recompute": "attention"}' not in json.dumps(load("gpt2").train(batch=64, fit="8GiB").fit["changes"])
