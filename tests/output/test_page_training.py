"""Phases of training steps on the page, whose bytes are functions of batch and context. Kind: law."""

import random
from typing import Any

import pytest

from tfacct.base.errors import TfacctError
from tfacct.ledger.workload import Request
from tfacct.loading import presets, selection
from tfacct.parallel.mesh import mesh_of
from tfacct.reports.explore import training
from tfacct.reports.train import train
from tfacct.training.laws import _excess, value
from tfacct.training.memory import training_memory
from tfacct.training.phases import PARTS, MemoryTimeline, peak, phases
from tfacct.training.recipe import Recipe

SAMPLE = ("llama-3.1-8b", "gpt2", "gemma-3-27b-text", "mixtral-8x7b", "olmo-2-7b", "bert-base", "deepseek-v2-lite")


def test_an_operation_is_the_peak() -> None:
    """The peak of all operations is the peak of the phases."""
    for name in SAMPLE:
        rng, ours = random.Random(name), presets.load(name)
        for ranks in (1, 2, 64):
            work = selection.workload(ours, Request(ctx=rng.randint(1, 9000), batch=rng.choice((1, 2, 7))))
            recipe = Recipe("bf16", mesh=mesh_of(fsdp=ranks)).checked()
            try:
                step = training_memory(ours, work, recipe).step
            except TfacctError:
                continue
            one, known = peak(MemoryTimeline(step, every_operation=True).phases()), peak(phases(step))
            assert (one.name, one.total) == (known.name, known.total), (name, ranks, work)


def fullest(rank: dict[str, Any], batch: int, context: int) -> list[Any]:
    """The phase that decides by its laws, and the bytes of its parts."""
    each = [[name, *rank["always"], *laws] for name, *laws in rank["phases"]]
    found = [[name, *(value(law, batch, context) for law in laws)] for name, *laws in each]
    return max(found, key=lambda one: sum(one[1:]))


QUICK = ("gpt2", "mistral-7b-v0.1")
FURTHER = [pytest.param(name, 6, marks=pytest.mark.slow) for name in SAMPLE]


@pytest.mark.parametrize(("name", "steps"), [*((name, 1) for name in QUICK), *FURTHER])
def test_laws_are_those_of_train(name: str, steps: int) -> None:
    """Steps at random places of every region, on every number of ranks, by their laws and by `train`. A kernel pads
    tokens in fp32 and inside windows."""
    rng, ours = random.Random(f"laws {name}"), presets.load(name)
    for region in training(ours, laws=True)["laws"]:
        first_batch, first, last = region["of"]
        for rank in region["ranks"]:
            for _ in range(steps):
                batch = 1 if first_batch == 1 else rng.choice((2, 3, 64))
                context = rng.randint(first, last or ours.position_limit or first + 100_000)
                context = max(first, context // 32 * 32) if region["dtype"] == "fp32" or first > 1 else context
                recipe = Recipe(region["dtype"], mesh=mesh_of(fsdp=rank["ranks"]))
                (facts,) = train([ours], Request(ctx=context, batch=batch), recipe).models
                peak = max(facts["phases"], key=lambda phase: phase["total_bytes"])
                wanted = [facts["peak_phase"], *(peak[f"{part.removesuffix('_state')}_bytes"] for part in PARTS)]
                assert fullest(rank, batch, context) == wanted, (name, region["of"], rank["ranks"], batch, context)
                assert rank["sent"] == (facts["sent_bytes"] or 0)


@pytest.mark.parametrize(
    ("name", "context", "exact"),
    [("gpt2", 777, True), ("gpt2", 200, False), ("gemma-3-270m", 777, False), ("gemma-3-270m", 800, True)],
)
def test_a_law_is_exact_where_it_says_so(name: str, context: int, exact: bool) -> None:
    """Error bounds hold from 256 tokens on, and kernels pad the tokens of a window mask."""
    ours, sizes = presets.load(name), Request(ctx=context, batch=7)
    laws = [law for law in training(ours, laws=True)["laws"] if law["dtype"] == "bf16" and law["of"][0] == 2]
    (rank, *_), *_ = [law["ranks"] for law in laws if law["of"][1] <= context <= (law["of"][2] or context)]
    (facts,) = train([ours], sizes, Recipe("bf16")).models
    known = context >= rank["exact_from"] and context % rank["exact_every"] == 0
    assert known == exact
    assert not exact or (facts["exact"] and sum(fullest(rank, 7, context)[1:]) == facts["peak_bytes"])


def test_laws_are_compared_by_their_growth() -> None:
    law, batch, context = [3, 5, 7, 11, 13, 17], 2, 300
    one, s, r, rs, ss, rss = _excess(law, batch, context, several=True)
    for more, longer in ((0, 0), (0, 9), (4, 0), (4, 9)):
        growth = s * longer + r * more + rs * more * longer + ss * longer**2 + rss * more * longer**2
        assert value(law, batch + more, context + longer) == one + growth
    assert _excess(law, 1, context, several=False) == [*_excess(law, 1, context, several=True)[:2], 0, 0, 13 + 17, 0]


def test_a_window_has_laws_of_its_own() -> None:
    """Shorter sequences of Mistral 7B see all keys; longer ones get a mask."""
    found = [law["of"] for law in training(presets.load("mistral-7b-v0.1"), laws=True)["laws"]]
    assert found == [[1, 1, 4095], [1, 4096, 0], [2, 1, 4095], [2, 4096, 0]]


def test_a_step_that_is_not_counted_says_why() -> None:
    assert "the formula for mamba is off by up to" in training(presets.load("mamba-130m"), laws=True)["why"]
    assert set(training(presets.load("gpt2"), laws=False)) == {"context", "steps"}
