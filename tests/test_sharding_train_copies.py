"""A training step of one rank of fsdp, of models with parts that no rule divides: each rank computes what one device
would, and shares weights, gradients and moments. Against torch's own tracker of FSDP2 on real tensors."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.test_sharding_train import tracked, without_seeds
from tests.training_configs import drawn
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.timeline import peak, timeline
from tfacct.accounts.training import Step
from tfacct.base.errors import UsageError
from tfacct.ledger.kept import Kept, Section
from tfacct.loading.model import subject
from tfacct.reports import mesh as meshes
from tfacct.reports.training import step_of
from tfacct.training.bounds import row_of
from tfacct.training.recipe import Recipe

EAGER = ("cohere2", "falcon")
"""Whose classes hand sdpa a mask, which a CPU's kernel keeps in another dtype."""
PARALLEL = ("codegen", "cohere", "cohere2", "falcon", "gpt_neox", "gptj", "phi")
SCORES = ("bloom", "gpt_oss", "mpt")
MIXERS = ("lfm2", "lfm2_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next")
STATISTICS = (".mean", ".deviation")


def as_on_a_cpu(step: Step) -> Step:
    """A step whose attention keeps no seeds, and whose LayerNorms keep statistics in the dtype of what they read: so
    do the kernels of a CPU."""

    def narrow(line: Kept) -> Kept:
        return replace(line, role="work") if line.path.endswith(STATISTICS) and line.role == "full" else line

    def section(one: Section) -> Section:
        return one._replace(run=one.run._replace(kept=tuple(map(narrow, one.run.kept))))

    run = without_seeds(step).run
    blocks = tuple(map(section, run.blocks))
    return step._replace(run=run._replace(front=section(run.front), blocks=blocks, back=section(run.back)))


def again(model: Any) -> None:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def compared(family: str, seed: int) -> None:
    """Several blocks: of one alone, the forward pass can be fuller than what is told. Ranks that divide all rows."""
    config, recipe, work = drawn(family, seed)
    layers = next(name for name in ("num_hidden_layers", "n_layers", "n_layer", "num_layers") if name in config)
    config |= {name: 0.0 for name in config if "drop" in name}
    model, rng = subject(family, config, {}), random.Random(f"{family} {seed}")
    mixed = rng.choice((True, False))
    for ranks in rng.sample((2, 3, 4), 3):
        mesh = Mesh(fsdp=ranks)
        try:
            meshes.check_rows(model, mesh)
        except UsageError:
            continue
        break
    else:
        pytest.skip("no ranks divide all rows")
    if config[layers] == 1:
        pytest.skip("one block")
    work = replace(work, batch=max(2, work.batch))
    recipe = Recipe(
        optimizer="adamw-foreach",
        weights_dtype="fp32" if mixed else None,
        mesh=mesh,
        gradient_accumulation=1 + seed % 2,
        attention="eager" if family in EAGER else recipe.attention,
        recompute=recipe.recompute if "recompute-full" in row_of(model.family) else "none",
    )
    lend = again if recipe.recompute == "full" else lambda _: None
    counted = peak(timeline(as_on_a_cpu(step_of(model, work, recipe)))).total
    most, _ = tracked(config, ranks, work.batch, work.tokens, mixed, recipe.accumulates, lend, recipe.attention)
    if meshes.NORMS_FIRST in model.config.divided:  # as it is said
        assert most <= counted < 1.001 * most, (config, recipe, work)
        return
    assert counted == most, (config, recipe, work)


@pytest.mark.parametrize(("family", "seed"), [("phi", 2), ("bloom", 0), ("qwen3_5_text", 1)])
def test_a_rank_computes_what_one_device_would(family: str, seed: int) -> None:
    compared(family, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 15))
@pytest.mark.parametrize("family", [*PARALLEL, *SCORES, *MIXERS])
def test_every_kind_of_part_computes_what_one_device_would(family: str, seed: int) -> None:
    compared(family, seed)
