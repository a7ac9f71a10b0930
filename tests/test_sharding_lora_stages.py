"""Adapters in stages whose ranks share frozen weights: torch's schedules on modules of fully_shard, with peft's
adapters on real tensors, in a process group that sends nothing."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import tfacct
from tests import test_pipeline_fsdp as shared
from tests.test_sharding_lora import PRODUCTS, lent
from tfacct.accounts.sharding.adapters import of_units
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.sharding.stages import microbatches, stages
from tfacct.accounts.timeline import timeline
from tfacct.ledger.workload import Workload
from tfacct.reports import train_stages
from tfacct.reports.one_rank import on_ranks
from tfacct.reports.train_ranks import of_stages, on_stages
from tfacct.training.recipe import Recipe

pytest.importorskip("peft")
NEARLY = 0.04
"""Where frozen weights are gathered in the first microbatch, some peaks of small models are so much off."""


def steps_of(model: Any, asked: Recipe, rank: int, work: Workload) -> list[Any]:
    """The steps of one rank among which its fullest is, by the account."""
    mesh = asked.mesh
    assert mesh is not None

    def alone(subject: Any, mesh: Mesh, work: Workload, accumulate: bool, make: Any) -> Any:
        own = stages(int(model.config.num_hidden_layers), mesh)[rank]
        times = microbatches(mesh, work.axes(), train=True)
        return [(own, step) for step in train_stages._steps(mesh, rank, own, times, accumulate, make)]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(train_stages, "candidates", alone)
        (one,) = on_ranks([model], mesh.tp)
        return [on_stages(model, own, step, asked) for own, step in of_stages(one, work, asked)]


def compared(kind: str, seed: int) -> None:
    rng = random.Random(f"lora stages that share {kind} {seed}")
    mesh, config, again, earlier = shared.drawn(kind, rng, seed)
    config["vocab_size"] = 2 * config["hidden_size"] + rng.choice((0, 97, 400))
    config["tie_word_embeddings"] = False
    wide, size = bool(rng.randint(0, 1)), rng.choice((1, 4, 5))
    names = [*PRODUCTS] if seed % 3 == 0 else rng.sample(PRODUCTS, rng.randint(1, 5))
    batch, tokens, rank = mesh.microbatches * rng.choice((1, 2)), rng.choice((1, 8, 32)), rng.randrange(mesh.pp)
    built = shared.built

    def lending(config: dict[str, Any]) -> Any:
        model = built(config).bfloat16()
        lent(model, size, names, wide, again=False)
        model.to = lambda *_: model  # adapters are as wide as peft makes them
        return model

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shared, "built", lending)
        most, sent = shared.ran(config, mesh, rank, batch, tokens, again, earlier, wide=False)
    recipe: dict[str, Any] = {"recompute": "full" if again else "none", "gradient_accumulation": 1 + earlier}
    recipe |= {"lora": f"{size}:{','.join(names)}", "adapter_dtype": "fp32" if wide else "bf16"}
    asked = Recipe(optimizer="none", mesh=mesh, **recipe).checked()
    steps = steps_of(tfacct.load(config).loaded, asked, rank, Workload(tokens, tokens, batch))
    found = [(one, step) for step in steps for one in timeline(shared.bare(step)) if one.name != "optimizer step"]
    ours, fullest = max(found, key=lambda each: int(each[0].total))
    if fullest.stage.gathers:
        assert abs(int(ours.total) / most - 1) < NEARLY, (config, mesh, rank, batch, tokens, recipe)
    else:
        assert int(ours.total) == most, (config, mesh, rank, batch, tokens, recipe)
    theirs: dict[str, Counter[int]] = {}
    for one in of_units(fullest, mesh):
        theirs.setdefault(one.kind, Counter())[one.bytes // one.calls] += one.calls
    assert theirs == {kind: +sizes for kind, sizes in sent.items()}, (config, mesh, rank)


@pytest.mark.parametrize(("kind", "seed"), [("llama", 3), ("llama", 6)])
def test_adapters_in_stages_that_share_weights_are_pefts_own(kind: str, seed: int) -> None:
    compared(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_adapters_in_random_stages_that_share_weights_are_pefts_own(kind: str) -> None:
    for seed in range(16, 31):
        compared(kind, seed)


def test_adapters_of_llama_8b_in_stages_that_share_weights_by_hand() -> None:
    model = tfacct.load("llama-3.1-8b")
    asked: dict[str, Any] = {"ctx": "4k", "pp": 4, "batch": 8, "lora": "16"}
    rank, alone = model.train(fsdp=8, **asked), model.train(**asked)
    block, table = 2 * 218_112_000, 2 * 128_256 * 4096
    lent_ = 4 * 16 * (6 * 4096 + 14336 + 3 * 4096 + 2 * 1024 + 2 * 14336)  # of a block, in fp32
    assert rank.gradients_bytes == 8 * lent_ // 8 == alone.gradients_bytes // 8
    assert rank.weights_bytes == (8 * (block + lent_) + (table if rank.stage == 1 else 0)) // 8
    # The last stage sends most: it gathers the head and the norm too, once, and gives 8 gradients back.
    gathered = 8 * (block + lent_) + table + 2 * 4096
    assert rank.sent_bytes == (gathered + 8 * lent_) * 7 // 8 + 8 * 2 * 4096 * 4096
    assert rank.exact
