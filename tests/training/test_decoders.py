"""Training steps of decoders with attention of their own, by hand. Kind: golden."""

from collections.abc import Callable

import pytest

from tests.helpers.cli import Ran
from tests.helpers.training_step import saved_in, step_of
from tfacct import load
from tfacct.ledger.workload import Workload
from tfacct.training.recipe import Recipe


def test_slices_of_one_product_stay_for_the_norms_of_queries_and_keys() -> None:
    """Persimmon's block keeps, in bf16, its two norms' inputs and results (8 bytes a number of the stream), queries,
    keys and values as they were made, and queries, keys and a result of attention head by head and in rows (14 bytes a
    number of the heads); a mean and a deviation of each head of queries and keys, the fused kernel's sums, two means
    and deviations of the stream, and of the network ReLU's result and its
    square."""
    sizes = {"hidden_size": 48, "num_attention_heads": 3, "intermediate_size": 70, "num_hidden_layers": 3}
    model = load("persimmon-8b", **sizes).loaded
    step = step_of(model, Workload(context=23, tokens=23, batch=2), Recipe())
    tokens = 2 * 23
    stream, heads, network = 8 * 48, 2 * 48 * (3 + 2 + 2), 2 * 70 * 2
    statistics = 2 * 2 * 4 * 3 + 4 * 3 + 2 * 2 * 4
    assert saved_in(step, step.graph.layers[0]) == tokens * (stream + heads + network + statistics) + 24


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--attention", "sdpa"), "the training step of mpt has not been measured with sdpa"),
        (("--set", 'attn_config={"attn_pdrop": 0.1}'), "has not been measured with attn_config.attn_pdrop = 0.1"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_the_class_of_mpt_does_not_run_is_refused(
    run: Callable[..., Ran], more: tuple[str, ...], why: str
) -> None:
    ran = run("train", "mpt-7b", *(() if "sdpa" in more else ("--attention", "eager")), *more)
    assert ran.code != 0 and why in " ".join(ran.err.split())
