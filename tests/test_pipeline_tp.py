"""Stages whose ranks divide heads and widths: torch's schedules on modules under torch's plan, with peft's adapters and
without, on meta, in a process group that sends nothing."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

import tfacct
from tests.test_sharding import fake_ranks, plan_of, random_config, watched
from tests.test_sharding_lora import PRODUCTS
from tests.test_sharding_lora_stages import steps_of
from tests.test_sharding_lora_two import adapters_plan
from tests.test_sharding_train import alive_on_a_rank
from tests.torch_stages import alone, blocks_of
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.sharding.stages import stages
from tfacct.accounts.timeline import timeline
from tfacct.ledger.workload import Workload
from tfacct.reports.mesh import by_stage
from tfacct.reports.train_ranks_lora import sent as with_adapters
from tfacct.training.recipe import Recipe

NEARLY = 0.06
"""Three of 110 peaks of small models with adapters were up to so much higher."""


def ran(
    config: dict[str, Any], mesh: Mesh, rank: int, batch: int, tokens: int, recipe: dict[str, Any], lend: Any
) -> tuple[int, Any]:
    """The most bytes alive on a rank in its second step up to its last gradient, and what it sends over tp in its
    first, but for the loss. `lend`: puts adapters on the model."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe
    from torch.distributed.pipelining import schedules as torchs
    from torch.distributed.tensor.parallel import loss_parallel, parallelize_module

    from tfacct.meta.cuda import cuda_kernels
    from tfacct.meta.model import build_model

    (stage,), each = stages(config["num_hidden_layers"], mesh)[rank], batch // mesh.microbatches
    model = build_model(config, recipe.get("attention", "sdpa"), "bf16")
    like: dict[str, Any] = {"dtype": torch.bfloat16, "device": "meta", "requires_grad": True}
    stream = torch.zeros(each, tokens, config["hidden_size"], **like)
    logits = torch.zeros(each, tokens, config["vocab_size"], **like)
    ids = torch.zeros(batch, tokens, dtype=torch.long, device="meta")
    sent: dict[Any, Counter[int]] = {}

    def loss(made: Any, target: Any) -> Any:
        return model.loss_function(logits=made, labels=target, vocab_size=config["vocab_size"])

    wraps = patch("torch.distributed._functional_collectives._maybe_wrap_tensor", lambda tensor: tensor)
    ahead = patch.object(torchs, "_batch_p2p", lambda ops, desc=None: [])  # noqa: ARG005
    with fake_ranks(mesh.pp * mesh.tp, rank * mesh.tp), wraps, ahead, loss_parallel():
        ranks = init_device_mesh("cpu", (mesh.pp, mesh.tp), mesh_dim_names=("pp", "tp"))
        plan = plan_of(model, mesh)
        lend(model)
        within = {name: hasattr(model.get_submodule(name), "base_layer") for name in plan}
        whole = {f"{name}.base_layer" if within[name] else name: how for name, how in plan.items()}
        parallelize_module(model, ranks["tp"], {**whole, **adapters_plan(model)})
        if any(within.values()):
            for name, weight in model.named_parameters():  # torch's plan of norms makes new ones, which are trained
                weight.requires_grad_("lora_" in name)
        if recipe["recompute"] == "full":  # behind the plan: peft's hook makes what is summed require a gradient
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            if any(within.values()):
                model.enable_input_require_grads()
        part = blocks_of(model, stage, tokens)
        given, made = (ids[:each] if stage.first else stream,), (logits if stage.last else stream,)
        own = alone(part, rank, mesh.pp, torch.device("meta"), given, made, group=ranks["pp"].get_group())
        kinds: dict[str, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
        schedule = kinds[mesh.schedule](own, mesh.microbatches, loss_fn=loss, scale_grads=False)

        def step() -> None:
            whole = (ids,) if stage.first else ()
            with cuda_kernels():
                schedule.step(*whole, target=ids if stage.last else None, return_outputs=False)

        with watched(sent, "step"):
            step()
        alive = alive_on_a_rank()
        for weight in part.parameters():
            weight.grad = weight.grad if recipe.get("gradient_accumulation", 1) > 1 else None
            if weight.grad is not None:
                alive.add(local(weight.grad))
        received = (*own.args_recv_info.values(), *own.grad_recv_info.values())
        buffers = (one.buffer for each in received for one in each if one.buffer is not None)
        for tensor in (*part.parameters(), *part.buffers(), *buffers, *((ids,) if rank in (0, mesh.pp - 1) else ())):
            alive.add(local(tensor))
        with alive:
            step()
    return alive.peak.bytes, sent


def local(tensor: Any) -> Any:
    return getattr(tensor, "_local_tensor", tensor)


def compared(kind: str, seed: int, lora: bool) -> None:
    """A random rank's peak and what it sends over tp, and those under torch's schedule."""
    from tfacct.meta.lora import add_adapters

    rng = random.Random(f"stages tp {kind} {seed} {lora}")
    pp, tp, size = rng.choice((2, 3)), (2, 4)[seed % 5 == 4], rng.choice((1, 4, 5))
    mesh = Mesh(tp=tp, pp=pp, schedule=("1f1b", "gpipe")[seed % 2], microbatches=rng.choice((pp, pp + 1, 2 * pp + 1)))  # type: ignore[arg-type]
    config = {**random_config(kind, rng, mesh), "head_dim": 8 * rng.randint(1, 2), "max_position_embeddings": 512}
    config["num_hidden_layers"], config["intermediate_size"] = rng.randint(pp, pp + 3), tp * rng.choice((8, 40, 150))
    config["hidden_size"] = config["num_attention_heads"] * rng.choice((8, 16, 24))
    config["vocab_size"] = tp * (2 * config["hidden_size"] + rng.choice((0, 97, 800)))
    config["tie_word_embeddings"] = False
    names = [*PRODUCTS] if seed % 3 == 0 else rng.sample(PRODUCTS, rng.randint(1, 5))
    wide, again = rng.choice((True, False)), seed % 4 == 1
    batch, tokens, stage = mesh.microbatches * rng.choice((1, 2)), rng.choice((8, 32)), rng.randrange(pp)
    recipe: dict[str, Any] = {"recompute": "full" if again else "none", "gradient_accumulation": 1 + (seed % 5 == 3)}
    if lora:
        recipe |= {"lora": f"{size}:{','.join(names)}", "adapter_dtype": "fp32" if wide else "bf16"}
    asked = Recipe(optimizer="none", mesh=mesh, **recipe).checked()
    model, work = tfacct.load(config).loaded, Workload(tokens, tokens, batch)
    steps = steps_of(model, asked, stage, work)

    def lend(model: Any) -> None:
        if lora:
            add_adapters(model, size, names, fp32=wide)

    most = max(int(each.total) for step in steps for each in timeline(step) if each.name != "optimizer step")
    seen, sent = ran(config, mesh, stage, batch, tokens, recipe, lend)
    near = NEARLY if lora else 0
    assert abs(most / seen - 1) <= near, (config, mesh, stage, batch, tokens, recipe)
    if recipe["recompute"] == "none":  # what blocks send when they run again is not counted
        found = by_stage(model, mesh, work.axes(), 16, train=True)[stage]
        if lora:
            found = with_adapters(model, asked, steps[0], found, mesh.microbatches)
        ours = Counter[int]()
        for one in found:
            ours += Counter({one.bytes // one.calls: one.calls} if one.over == "tp" else {})
        theirs = sum((sizes for (over, _, _), sizes in sent.items() if over == "tp"), Counter[int]())
        theirs.subtract({4 * batch // mesh.microbatches * tokens: 3 * mesh.microbatches * (stage == pp - 1)})
        assert ours == +theirs, (config, mesh, stage, batch, tokens, recipe)


@pytest.mark.parametrize(
    ("kind", "seed", "lora"), [("llama", 5, False), ("gemma", 4, False), ("llama", 3, True), ("qwen3", 1, True)]
)
def test_stages_that_tp_divides_are_as_torchs_schedules_run_them(kind: str, seed: int, lora: bool) -> None:
    compared(kind, seed, lora)


@pytest.mark.slow
@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3", "gemma", "starcoder2"])
def test_random_stages_that_tp_divides_are_as_torchs_schedules_run_them(kind: str, lora: bool) -> None:
    for seed in range(6, 20) if (kind, lora) != ("starcoder2", True) else ():
        compared(kind, seed, lora)


def test_adapters_in_stages_that_tp_divides_by_hand() -> None:
    model = tfacct.load("llama-3.1-8b")
    asked: dict[str, Any] = {"ctx": "4k", "batch": 8, "lora": "16", "pp": 4}
    rank, alone_ = model.train(tp=2, **asked), model.train(**asked)
    # Of q, k, v, gate, up the first matrix, 16 · 4,096, is whole on ranks of tp, of o and down the second.
    whole, halves = 7 * 16 * 4096, 16 * (4096 + 2 * 1024 + 2 * 14336 + 4096 + 14336) // 2
    assert rank.gradients_bytes == 4 * 8 * (whole + halves) == rank.lora_adapters["bytes"]
    assert rank.peak_bytes < alone_.peak_bytes and not rank.exact and alone_.exact
    # A stage has 8 of 32 blocks and 8 microbatches of 4,096 tokens; an all-reduce of two ranks sends its result once.
    stream, narrow = 2 * 4096 * 4096, 4 * 4096 * 16
    block = (2 + 5) * stream + (2 + 5) * narrow  # o and down forwards, the five others backwards, and their adapters
    # A stage between others hands each microbatch on and its gradient back; the last sums the head's in place of that.
    assert rank.sent_bytes == 8 * (8 * block + 2 * stream)
    assert model.train(ctx="4k", batch=8, pp=4, tp=2).exact


def test_a_plan_has_adapters_in_stages_that_tp_divides() -> None:
    model = tfacct.load("llama-3.1-8b")
    found = model.plan(gpus=8, fit="80GB", train=True, ctx="4k", batch=8, recipe={"lora": "16"})
    rows = [row for row in found.divisions if row["pp"] > 1]
    assert any(row["tp"] > 1 for row in rows)
    for row in rows:
        step = model.train(ctx="4k", batch=8, lora="16", tp=row["tp"], pp=row["pp"])
        assert (step.peak_bytes, step.sent_bytes) == (row["bytes"], row["sent_bytes"])
