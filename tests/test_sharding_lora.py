"""Adapters on products that ranks divide, against peft's own under torch's plans."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

import tfacct
from tests.test_pipeline_train import steps_of
from tests.test_sharding import built, fake_ranks, plan_of, random_config, watched
from tests.test_sharding import witnessed as sends_of
from tests.test_sharding_train import alive_on_a_rank, tracked, without_seeds
from tests.torch_stages import peak_in_flight
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.timeline import peak, timeline
from tfacct.ledger.workload import Workload
from tfacct.reports import mesh as meshes
from tfacct.reports.train_ranks_lora import sent as with_adapters
from tfacct.reports.training import Trained, trained
from tfacct.training.recipe import Recipe

pytest.importorskip("peft")

COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
PRODUCTS = (*COLUMNS, "o_proj", "down_proj")


def local(tensor: Any) -> Any:
    return getattr(tensor, "_local_tensor", tensor)


def divided(config: dict[str, Any], recipe: Recipe, names: list[str], rank: int) -> Any:
    """The class under torch's plan, with peft's adapters divided as peft divides them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    from tfacct.meta.lora import add_adapters
    from tfacct.meta.model import build_model

    assert recipe.mesh is not None
    model = build_model(tfacct.load(config).loaded.of_class, "sdpa", "bf16")
    ranks = init_device_mesh("cpu", (recipe.mesh.tp,))
    parallelize_module(model, ranks, plan_of(model, recipe.mesh))
    if config["tie_word_embeddings"]:
        model.lm_head.weight = model.model.embed_tokens.weight
    add_adapters(model, rank, names, fp32=recipe.adapter_dtype == "fp32", dropout=recipe.lora_dropout)
    plan: dict[str, Any] = {}
    for name, _ in model.named_modules():
        *_, product, which, leaf = ["", "", *name.split(".")]
        if leaf == "default" and which == "lora_B" and product in COLUMNS:
            plan[name] = ColwiseParallel()
        elif leaf == "default" and which == "lora_A" and product not in COLUMNS:
            plan[name] = RowwiseParallel()
    parallelize_module(model, ranks, plan)
    if recipe.recompute == "full":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    return model


def witnessed(model: Any, batch: int, tokens: int) -> tuple[int, int, dict[Any, Counter[int]]]:
    """Bytes that autograd saves, the most that are alive, and what is sent but for the loss."""
    import torch
    from torch.distributed.tensor.parallel import loss_parallel

    from tfacct.meta.cuda import cuda_kernels

    own = {local(tensor).untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
    found: dict[int, Any] = {}

    def save(tensor: Any) -> Any:
        storage = local(tensor).untyped_storage()
        if storage._cdata not in own:
            found[storage._cdata] = storage
        return tensor

    alive, ids = alive_on_a_rank(), torch.zeros(batch, tokens, dtype=torch.long, device="meta")
    sent: dict[Any, Counter[int]] = {}
    wraps = patch("torch.distributed._functional_collectives._maybe_wrap_tensor", lambda tensor: tensor)
    with cuda_kernels(), loss_parallel(), wraps:
        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor), watched(sent, "forward"):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        with watched(sent, "backward"):
            loss.backward()
        model.zero_grad()
        del loss
        for tensor in (*model.parameters(), *model.buffers(), ids):
            alive.add(local(tensor))
        with alive:
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    sent["tp", "forward", "all-reduce"].subtract({4 * batch * tokens: 3})  # of each token's loss
    return sum(storage.nbytes() for storage in found.values()), alive.peak.bytes, sent


def drawn(kind: str, seed: int) -> tuple[dict[str, Any], Recipe, list[str], int, Workload]:
    mesh = Mesh(tp=(2, 4)[seed % 2])
    rng = random.Random(f"lora {kind} {seed}")
    config = {**random_config(kind, rng, mesh), "head_dim": 8 * rng.randint(1, 3), "max_position_embeddings": 512}
    config["num_hidden_layers"] = rng.randint(2, 3)
    config["vocab_size"] = mesh.tp * (2 * config["hidden_size"] + rng.choice((0, 50, 500)))
    config["intermediate_size"] = mesh.tp * rng.choice((8, 100, 700))
    names = [*PRODUCTS] if seed % 3 == 0 else rng.sample(PRODUCTS, rng.randint(1, 6))
    rank, tokens = rng.choice((1, 4, 8)), mesh.tp * rng.choice((8, 40, 96))
    recipe = Recipe(
        optimizer="none",
        mesh=mesh,
        lora=f"{rank}:{','.join(names)}",
        adapter_dtype=rng.choice(("fp32", "bf16")),
        lora_dropout=rng.choice((0.0, 0.0, 0.1)),
        recompute="full" if seed % 4 == 1 else "none",
    )
    return config, recipe.checked(), names, rank, Workload(tokens, tokens, rng.randint(1, 3))


def sends(one: Trained) -> dict[Any, Counter[int]]:
    found: dict[Any, Counter[int]] = {}
    assert one.recipe.mesh is not None
    calls = meshes.calls(one.subject, one.recipe.mesh, one.work.axes(), 16, train=True)
    for each in with_adapters(one.subject, one.recipe, one.step, calls):
        found.setdefault((each.over, each.when, each.kind), Counter())[each.bytes // each.calls] += each.calls
    return found


def compared(kind: str, seed: int) -> None:
    config, recipe, names, rank, work = drawn(kind, seed)
    one = trained(tfacct.load(config).loaded, work, recipe)
    assert recipe.mesh is not None
    with fake_ranks(recipe.mesh.tp):
        model = divided(config, recipe, names, rank)
        kept, most, sent = witnessed(model, int(work.batch), int(work.tokens))
        trains = sum(local(weight).numel() for weight in model.parameters() if weight.requires_grad)
    assert one.step.kept() == kept, (config, recipe)
    assert max(int(each.total) for each in one.instants if each.name != "optimizer step") == most, (config, recipe)
    assert sum(adapter.copies * adapter.elements for adapter in one.step.adapters) == trains
    if recipe.recompute == "none":  # what blocks send when they run again is not counted
        assert sends(one) == {key: +sizes for key, sizes in sent.items() if +sizes}, (config, recipe)


@pytest.mark.parametrize(("kind", "seed"), [("llama", 0), ("llama", 1), ("qwen2", 2), ("qwen3", 3), ("gemma", 4)])
def test_adapters_of_a_rank_are_pefts_own(kind: str, seed: int) -> None:
    compared(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3", "gemma"])
def test_adapters_of_random_ranks_are_pefts_own(kind: str) -> None:
    for seed in range(4, 20):
        compared(kind, seed)


def lent(model: Any, rank: int, names: list[str], wide: bool, again: bool) -> None:
    """Puts peft's adapters on real weights."""
    import peft
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft.get_peft_model(model, peft.LoraConfig(r=rank, target_modules=names), autocast_adapter_dtype=wide).train()
        for layer in model.modules() if not wide else ():
            if isinstance(layer, peft.tuners.lora.LoraLayer):
                layer.to(torch.bfloat16)
        if again:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def gathered_compared(kind: str, seed: int) -> None:
    """A rank of fsdp: the peak as torch's tracker sees it, and every call."""
    rng = random.Random(f"lora fsdp {kind} {seed}")
    ranks, rank, wide, earlier, again = (
        rng.choice((2, 3, 4)),
        rng.choice((1, 4, 5)),
        bool(seed % 2),
        seed % 3 == 1,
        not seed % 4,
    )
    config = {**random_config(kind, rng, Mesh()), "num_hidden_layers": rng.choice((2, 3)), "head_dim": 8}
    config["hidden_size"] = config["num_attention_heads"] * rng.choice((4, 8, 11))
    config["vocab_size"] = 2 * config["hidden_size"] + rng.choice((1, 50, 300))
    config["intermediate_size"] = rng.choice((16, 97, 200))
    names = [*PRODUCTS] if seed % 3 == 0 else rng.sample(PRODUCTS, rng.randint(1, 5))
    batch, tokens = rng.randint(1, 3), rng.choice((8, 16, 32))
    recipe = Recipe(
        optimizer="adamw-foreach",
        mesh=Mesh(fsdp=ranks),
        gradient_accumulation=1 + earlier,
        lora=f"{rank}:{','.join(names)}",
        adapter_dtype="fp32" if wide else "bf16",
        recompute="full" if again else "none",
    ).checked()
    one = trained(tfacct.load(config).loaded, Workload(tokens, tokens, batch), recipe)
    most, parts = tracked(
        config, ranks, batch, tokens, False, earlier, lambda model: lent(model, rank, names, wide, again)
    )
    # Where blocks run again their first input is a leaf: the tracker's own hook keeps that of the step before, and its
    # gradient.
    most -= 2 * 2 * batch * tokens * config["hidden_size"] * again
    found = timeline(without_seeds(one.step))
    assert peak(found).total == most, (config, recipe)
    stored = parts[" BEF_PRE_FW"]
    assert stored["SHARDED_PARAM"] == one.step.parameters and stored["OPT"] == one.step.states
    model = built(config).bfloat16()
    lent(model, rank, names, wide, False)
    assert sends(one) == sends_of(model, Mesh(fsdp=ranks), batch, tokens), (config, recipe)


@pytest.mark.parametrize(("kind", "seed"), [("llama", 0), ("qwen3", 1)])
def test_adapters_that_ranks_gather_are_as_torchs_tracker_sees_them(kind: str, seed: int) -> None:
    gathered_compared(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_adapters_that_random_ranks_gather_are_as_torchs_tracker_sees_them(kind: str) -> None:
    for seed in range(2, 14):
        gathered_compared(kind, seed)


def test_adapters_of_a_rank_of_fsdp_by_hand() -> None:
    rank = tfacct.load("llama-3.1-8b").train(ctx="4k", fsdp=8, lora="16")
    # All rows are multiples of 8: 16 of each first matrix, and of the second ones what their products make.
    block = 16 * (6 * 4096 + 14336 + 3 * 4096 + 2 * 1024 + 2 * 14336)
    assert rank.gradients_bytes == 32 * 4 * block // 8 == rank.lora_adapters["bytes"]
    assert (
        rank.weights_bytes - rank.gradients_bytes == tfacct.load("llama-3.1-8b").train(ctx="4k", fsdp=8).weights_bytes
    )
    # Each block is gathered twice with its adapters, 218,112,000 weights of 2 bytes; scattered are theirs alone.
    whole = 2 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096) + 4 * block
    root = 2 * (2 * 128256 * 4096 + 4096)
    assert rank.sent_bytes == 7 * (32 * (2 * whole + 4 * block) + root) // 8
    both = tfacct.load("llama-3.1-8b").train(ctx="4k", fsdp=8, dp=2, lora="16")
    assert both.peak_bytes == rank.peak_bytes and both.sent_bytes == rank.sent_bytes + 32 * 4 * block // 8


def test_adapters_of_llama_by_hand() -> None:
    rank = tfacct.load("llama-3.1-8b").train(ctx="4k", tp=8, lora="16")
    # Of q, k, v, gate, up the first matrix is whole, 16 · 4,096, the second a part; of o and down the other way round.
    columns = 5 * 16 * 4096 + 16 * (4096 + 2 * 1024 + 2 * 14336) // 8
    rows = 2 * 16 * 4096 + 16 * (4096 + 14336) // 8
    assert rank.gradients_bytes == 4 * 32 * (columns + rows) == rank.lora_adapters["bytes"]
    assert (
        rank.weights_bytes
        == tfacct.load("llama-3.1-8b").train(ctx="4k", tp=8).weights_bytes + rank.lora_adapters["bytes"]
    )
    assert rank.exact and rank.whole["gradients_bytes"] == tfacct.load("llama-3.1-8b").train(lora="16").gradients_bytes


def staged_compared(kind: str, seed: int) -> None:
    """A rank of a pipeline, and what is alive there under torch's schedule."""
    from tfacct.meta.lora import add_adapters

    rng = random.Random(f"lora stages {kind} {seed}")
    pp, rank = rng.choice((2, 3, 4)), rng.choice((1, 4, 5))
    mesh = Mesh(pp=pp, schedule=("1f1b", "gpipe")[seed % 2], microbatches=rng.choice((pp, pp + 1, 2 * pp + 1)))  # type: ignore[arg-type]
    config = {**random_config(kind, rng, Mesh()), "head_dim": 8 * rng.randint(1, 2), "max_position_embeddings": 512}
    config["num_hidden_layers"], config["intermediate_size"] = rng.randint(pp, pp + 3), rng.choice((16, 80, 300))
    config["hidden_size"] = config["num_attention_heads"] * rng.choice((8, 16, 24))
    config["vocab_size"] = 2 * config["hidden_size"] + rng.choice((0, 97, 800))
    names = [*PRODUCTS] if seed % 3 == 0 else rng.sample(PRODUCTS, rng.randint(1, 5))
    wide, again = rng.choice((True, False)), seed % 4 == 1
    batch, tokens, stage = mesh.microbatches * rng.choice((1, 2)), rng.choice((8, 32)), rng.randrange(pp)
    recipe = {"recompute": "full" if again else "none", "gradient_accumulation": 1 + (seed % 5 == 4)}
    recipe["attention"] = "eager" if seed % 3 == 1 else "sdpa"
    lora = {"lora": f"{rank}:{','.join(names)}", "adapter_dtype": "fp32" if wide else "bf16"}
    steps = steps_of(config, mesh, stage, batch, tokens, **recipe, **lora)

    def lend(model: Any) -> None:
        add_adapters(model, rank, names, fp32=wide)
        if again:
            model.enable_input_require_grads()

    most = max(int(each.total) for step in steps for each in timeline(step) if each.name != "optimizer step")
    seen = peak_in_flight(config, mesh, stage, batch, tokens, {**recipe, "lend": lend})
    assert most == seen, (config, mesh, stage, batch, tokens, recipe, lora)


@pytest.mark.parametrize(("kind", "seed"), [("llama", 0), ("llama", 8), ("mistral", 14), ("qwen3", 1)])
def test_adapters_in_stages_are_what_is_alive_under_torchs_schedules(kind: str, seed: int) -> None:
    staged_compared(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3", "gemma"])
def test_adapters_in_random_stages_are_what_is_alive_under_torchs_schedules(kind: str) -> None:
    for seed in range(2, 17):
        staged_compared(kind, seed)


def test_adapters_in_stages_by_hand() -> None:
    found = tfacct.load("llama-3.1-8b").train(ctx="4k", pp=4, batch=8, lora="16")
    block, table = 218_112_000, 128_256 * 4096
    lent = 4 * 16 * (6 * 4096 + 14336 + 3 * 4096 + 2 * 1024 + 2 * 14336)  # of a block, in fp32
    at = next(each for each in found.phases if each["phase"] == "optimizer step")
    ends = {1: table, 4: table + 4096}
    assert found.weights_bytes - 2 * ends.get(found.stage, 0) == 8 * (2 * block + lent)
    assert at["gradients_bytes"] == 8 * lent == found.lora_adapters["bytes"]
    assert found.sent_bytes == 2 * 8 * 2 * 4096 * 4096  # a middle stage: 8 streams on, as many gradients back
    assert found.exact and found.peak_bytes < tfacct.load("llama-3.1-8b").train(ctx="4k", pp=4, batch=8).peak_bytes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "llama-3.1-8b --tp 8 --sp --lora 16",
            "adapters are counted with --tp, --fsdp and --dp, one of them or several, or with --pp, alone",
        ),
        ("llama-3.1-8b --pp 2 --dp 2 --lora 16", "or with --pp, alone or beside --tp or --fsdp, under torch's plan"),
        ("llama-3.1-8b --pp 2 --schedule zero-bubble --lora 16", "are counted under 1f1b and gpipe"),
        ("llama-3.1-8b --fsdp 8 --lora 16 --weights fp32", "in the pass's dtype hint: leave --weights out"),
        (
            "llama-3.1-8b --tp 2 --lora 16 --weights nf4",
            "in nf4 are not counted on a mesh hint: the step of one device",
        ),
        (
            "mixtral-8x7b --tp 2 --lora 16:q_proj",
            "beside experts are not counted on a mesh hint: the step of one device",
        ),
        ("llama-3.1-70b --tp 8 --lora 16", "twice the hidden size or more on a rank hint: --tp 4 is counted"),
    ],
)
def test_adapters_that_are_not_counted_are_refused_by_name(run: Any, arguments: str, said: str) -> None:
    ran = run("train", *arguments.split())
    assert ran.code == 2 and said in " ".join(ran.err.split()), ran.err


def test_a_plan_with_adapters_has_what_their_step_sends(run: Any) -> None:
    asked = "plan llama-3.1-8b --gpus 8 --fit 80GB --train --lora 16 --ctx 4k --batch 8 --json"
    rows = json.loads(run(*asked.split()).out)["models"][0]["divisions"]
    model = tfacct.load("llama-3.1-8b")
    for row in rows:
        own = {axis: row[axis] for axis in ("tp", "fsdp", "dp", "pp")}
        rank = model.train(ctx="4k", batch=row["batch"], lora="16", gradient_accumulation=row["times"], **own)
        assert row["bytes"] == rank.peak_bytes
        if row["dp"] == 1 or row["tp"] == row["fsdp"] == 1:  # copies reduce once, ranks of tp each time
            assert row["sent_bytes"] == (row["times"] if row["dp"] == 1 else 1) * rank.sent_bytes
    assert {row["tp"] for row in rows} >= {1, 8}
