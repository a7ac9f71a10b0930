"""What the page knows of training steps: instants whose bytes are laws of the batch and the context."""

from __future__ import annotations

import random

from tfacct.accounts.candidates import candidates
from tfacct.accounts.timeline import peak, timeline
from tfacct.base.errors import TfacctError
from tfacct.ledger.workload import Request
from tfacct.loading import presets
from tfacct.reports import counting
from tfacct.reports.ranks import mesh_of
from tfacct.reports.training import Recipe, step_of

SAMPLE = ("llama-3.1-8b", "gpt2", "gemma-3-27b-text", "mixtral-8x7b", "olmo-2-7b", "bert-base", "deepseek-v2-lite")


def test_the_candidates_hold_the_peak() -> None:
    """Of any step the fullest of all that can be is the fullest of the timeline, with its name."""
    for name in SAMPLE:
        rng, ours = random.Random(name), presets.load(name)
        for ranks in (1, 2, 64):
            work = counting.workload(ours, Request(ctx=rng.randint(1, 9000), batch=rng.choice((1, 2, 7))))
            recipe = Recipe("bf16", mesh=mesh_of(fsdp=ranks)).checked()
            try:
                step = step_of(ours, work, recipe)
            except TfacctError:
                continue
            one, known = peak(candidates(step)), peak(timeline(step))
            assert (one.name, one.total) == (known.name, known.total), (name, ranks, work)
