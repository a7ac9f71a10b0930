"""Stages whose ranks share weights: torch's schedules on modules of fully_shard, real tensors on a CPU, in a process
group that sends nothing."""

from __future__ import annotations

import random
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import tfacct
from tests.conftest import Ran
from tests.test_pipeline_train import steps_of
from tests.test_sharding import built, fake_ranks, random_config, watched
from tests.test_sharding_train import without_seeds
from tests.torch_stages import alone, blocks_of
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.sharding.stages import stages
from tfacct.accounts.timeline import timeline
from tfacct.accounts.timeline_stage import SCATTERED
from tfacct.accounts.training import Step
from tfacct.ledger.workload import Workload
from tfacct.reports.mesh import by_stage
from tfacct.reports.train_ranks import on_stages
from tfacct.training.recipe import Recipe


def sizes() -> Any:
    """A mode that sees bytes of all storages after every operation, as large as they are then: fully_shard resizes."""
    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
        most = 0

        def __init__(self) -> None:
            super().__init__()
            self.seen: weakref.WeakSet[Any] = weakref.WeakSet()

        def add(self, tensor: Any) -> None:
            self.seen.add(getattr(tensor, "_local_tensor", tensor).untyped_storage())

        def __torch_dispatch__(self, operator: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = operator(*args, **(kwargs or {}))
            for leaf in tree_leaves((args, kwargs, result)):
                if isinstance(leaf, Tensor):
                    self.add(leaf)
            self.most = max(self.most, sum(storage.nbytes() for storage in list(self.seen)))
            return result

    return Sizes()


def ran(
    config: dict[str, Any], mesh: Mesh, rank: int, batch: int, tokens: int, again: bool, earlier: bool, wide: bool
) -> tuple[int, dict[str, Counter[int]]]:
    """The most bytes in a rank's second step up to the scatter of its gradients, and what it gathers and scatters in
    its first. `again`: blocks run again; `earlier`: the gradients of the first step stay; `wide`: weights are stored in
    fp32 and cast as they are gathered."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe
    from torch.distributed.pipelining import schedules as torchs

    (stage,) = stages(config["num_hidden_layers"], mesh)[rank]
    model, each = built(config).to(torch.float32 if wide else torch.bfloat16).train(), batch // mesh.microbatches
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if wide else MixedPrecisionPolicy()
    for module in model.modules():  # frequencies stay as they are where weights are made in bf16
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = buffer.float()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if again:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    like: dict[str, Any] = {"dtype": torch.bfloat16, "requires_grad": True}
    stream = torch.zeros(each, tokens, config["hidden_size"], **like)
    logits = torch.zeros(each, tokens, config["vocab_size"], **like)
    ids, sent = torch.zeros(batch, tokens, dtype=torch.long), dict[Any, Counter[int]]()

    def loss(made: Any, target: Any) -> Any:
        return model.loss_function(logits=made, labels=target, vocab_size=config["vocab_size"])

    with fake_ranks(mesh.ranks, rank * mesh.fsdp), pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patched.setattr(torchs, "_batch_p2p", lambda ops, desc=None: [])  # noqa: ARG005
        ranks = init_device_mesh("cpu", (mesh.pp, mesh.fsdp), mesh_dim_names=("pp", "fsdp"))
        part = blocks_of(model, stage, tokens)
        for module in (*part.layers, part):
            fully_shard(module, mesh=ranks["fsdp"], reshard_after_forward=False, mp_policy=policy)
        given = (ids[:each] if stage.first else stream,)
        made = (logits if stage.last else stream,)
        own = alone(part, rank, mesh.pp, torch.device("cpu"), given, made, group=ranks["pp"].get_group())
        kinds: dict[str, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
        schedule = kinds[mesh.schedule](own, mesh.microbatches, loss_fn=loss, scale_grads=False)

        def step() -> None:
            whole = (ids,) if stage.first else ()
            schedule.step(*whole, target=ids if stage.last else None, return_outputs=False)

        with watched(sent, "step"):
            step()
        received = (*own.args_recv_info.values(), *own.grad_recv_info.values())
        alive = sizes()
        for weight in part.parameters():
            weight.grad = weight.grad if earlier else None
            alive.add(weight)
            if weight.grad is not None:
                alive.add(weight.grad)
        for tensor in (*part.buffers(), *(one.buffer for each in received for one in each)):
            if tensor is not None:
                alive.add(tensor)
        if stage.first or stage.last:
            alive.add(ids)
        with alive:
            step()
    return alive.most, {kind: found for (_, _, kind), found in sent.items()}


def bare(step: Step) -> Step:
    """A step whose attention keeps no seeds, in none of its microbatches."""
    assert step.stage is not None
    passes = tuple((without_seeds(step._replace(run=run)).run, times) for run, times in step.stage.passes)
    return without_seeds(step)._replace(stage=step.stage._replace(passes=passes))


def drawn(kind: str, rng: random.Random, seed: int) -> tuple[Mesh, dict[str, Any], bool, bool]:
    """A mesh of stages whose ranks share weights, a config but for its vocabulary, and whether blocks run again, and
    gradients of earlier batches are there."""
    pp, fsdp, again, earlier = rng.choice((2, 3)), rng.choice((2, 3, 4)), seed % 4 == 1, seed % 3 == 2
    times = rng.choice((pp, pp + 1, 2 * pp + 1))
    mesh = Mesh(pp=pp, fsdp=fsdp, schedule=("1f1b", "gpipe")[seed % 2], microbatches=times)  # type: ignore[arg-type]
    config = {**random_config(kind, rng, Mesh()), "head_dim": 8 * rng.randint(1, 2), "max_position_embeddings": 512}
    config["num_hidden_layers"], config["intermediate_size"] = rng.randint(pp, pp + 3), rng.choice((16, 80, 301))
    config["hidden_size"] = config["num_attention_heads"] * rng.choice((8, 11, 16))
    return mesh, config, again, earlier


def compared(kind: str, seed: int, wide: bool = False) -> None:
    rng = random.Random(f"stages that share {kind} {seed}")
    mesh, config, again, earlier = drawn(kind, rng, seed)
    config["vocab_size"] = rng.choice((24, 97, 400))
    batch, tokens, rank = mesh.microbatches * rng.choice((1, 2)), rng.choice((1, 8, 32)), rng.randrange(mesh.pp)
    recipe = {
        "recompute": "full" if again else "none",
        "gradient_accumulation": 1 + earlier,
        "weights_dtype": "fp32" if wide else None,
    }
    most, sent = ran(config, mesh, rank, batch, tokens, again, earlier, wide)
    model, own = tfacct.load(config).loaded, stages(config["num_hidden_layers"], mesh)[rank]
    asked = Recipe(optimizer="none", mesh=mesh, **recipe).checked()  # type: ignore[arg-type]
    steps = [on_stages(model, own, step, asked) for step in steps_of(config, mesh, rank, batch, tokens, **recipe)]
    found = [one for step in steps for one in timeline(bare(step)) if one.name != "optimizer step"]
    ours = max(found, key=lambda one: int(one.total))
    if wide and ours.name == SCATTERED:  # what schedules hold of their last microbatch is not counted there
        assert ours.total <= most <= 1.02 * ours.total, (config, mesh, rank, batch, tokens, recipe)
    else:
        assert int(ours.total) == most, (config, mesh, rank, batch, tokens, recipe)
    theirs: dict[str, Counter[int]] = {}
    for one in by_stage(model, mesh, Workload(tokens, tokens, batch).axes(), 16, train=True)[rank]:
        if one.over == "fsdp":
            theirs.setdefault(one.kind, Counter())[one.bytes // one.calls] += one.calls
    assert theirs == sent, (config, mesh, rank)


@pytest.mark.parametrize(
    ("kind", "seed", "wide"), [("llama", 0, False), ("qwen3", 1, False), ("llama", 2, True), ("llama", 5, True)]
)
def test_stages_that_share_weights_are_torchs(kind: str, seed: int, wide: bool) -> None:
    compared(kind, seed, wide)


@pytest.mark.slow
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_random_stages_that_share_weights_are_torchs(kind: str, wide: bool) -> None:
    for seed in range(3, 15):
        compared(kind, seed, wide)


def test_stages_of_llama_8b_that_share_weights_by_hand() -> None:
    model = tfacct.load("llama-3.1-8b")
    asked: dict[str, Any] = {"ctx": "4k", "pp": 4, "batch": 8}
    rank, alone = model.train(fsdp=8, **asked), model.train(**asked)
    block, table = 218_112_000, 128_256 * 4096
    weights = 2 * (8 * block + table)  # all rows are multiples of 8
    assert rank.weights_bytes == weights // 8 and alone.weights_bytes == weights
    # The same instants, beside a share of the weights; moments are shares, 9 tensors of each block and the table.
    assert rank.optimizer_state_bytes == 2 * weights // 8 + 4 * (8 * 9 + 1)
    moments = alone.optimizer_state_bytes - rank.optimizer_state_bytes
    assert rank.peak_bytes == alone.peak_bytes - moments + weights // 8 and rank.exact
    assert {one["gathered_bytes"] for one in rank.phases} == {weights, 0}
    # The last stage has a norm besides: its weights are gathered once and scattered once, 8 gradients are sent back.
    sent = model.comms(fsdp=8, train=True, **asked)
    assert sent.sent_bytes == 2 * (weights + 2 * 4096) * 7 // 8 + 8 * 2 * 4096 * 4096 == rank.sent_bytes


def test_what_is_said_of_stages_that_share_weights(run: Callable[..., Ran]) -> None:
    for command in (("train",), ("comms", "--train")):
        words = " ".join(run(*command, "llama-3.2-1b", "--pp", "2", "--fsdp", "4", "--batch", "4").out.split())
        assert "Weights are gathered once for all microbatches, gradients scattered after the last, as torch's" in words
    for given, said in {
        "--pp 2 --fsdp 2 --schedule zero-bubble": "--fsdp beside --pp is counted under 1f1b and gpipe",
        "--pp 2 --tp 2 --dp 2 --lora 16": "adapters are counted with --tp, --fsdp and --dp",
    }.items():
        found = run("train", "llama-3.2-1b", *given.split())
        assert found.code == 2 and said in " ".join(found.err.split()), found.err
