"""Steps under autocast of an encoder and a decoder: against the classes, and by hand."""

from dataclasses import replace

import pytest

from tests.test_autocast_written import check
from tests.test_training_pairs import HEADS, SIZES, WORK
from tfacct import load
from tfacct.accounts.timeline_pairs import PairTimeline
from tfacct.base.errors import UsageError
from tfacct.reports.training import step_of
from tfacct.training.recipe import Recipe

BARTS = ("bart", "m2m_100", "marian", "mbart", "pegasus")
T5S = ("mt5", "t5", "umt5")
RECIPE = Recipe(weights_dtype="fp32", optimizer="none")


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("bart", 102),  # the last block, backwards
        ("bart", 113),  # block 0 reads what no gradient needs
        ("bart", 101),  # blocks run again
        *(("mbart", 127), ("marian", 125), ("m2m_100", 126), ("pegasus", 125)),
        ("t5", 100),
        ("t5", 129),  # a mask of scores, padded, whose cast is gone
        *(("mt5", 131), ("umt5", 127), ("umt5", 137)),
    ],
)
def test_a_step_of_two_sides_is_its_classes_own(family: str, seed: int) -> None:
    pytest.importorskip("transformers")
    assert check(family, seed)


@pytest.mark.slow
@pytest.mark.parametrize("family", BARTS)
def test_many_steps_of_two_sides(family: str) -> None:
    pytest.importorskip("transformers")
    assert all(check(family, seed) for seed in range(100, 300))


@pytest.mark.slow
@pytest.mark.parametrize("family", T5S)
def test_many_steps_of_two_sides_that_add_scores_of_distances(family: str) -> None:
    pytest.importorskip("transformers")
    done = [check(family, seed) for seed in range(100, 300)]
    assert sum(done) >= 150  # one head whose rows need no padding is refused


def test_one_head_of_t5_whose_rows_need_no_padding_is_refused() -> None:
    """They lie as the table's rows do, so torch pads them all the same."""
    with pytest.raises(UsageError, match="no rule for one head whose scores of distances are rows of 8"):
        load("t5-small", num_heads=1).train(ctx=16, source=16, weights_dtype="fp32")


def test_a_block_of_t5_under_autocast_by_hand() -> None:
    """Eager, without dropouts. A norm: the stream in fp32, its root, what it scales: 8 bytes a number, 4 a token.
    A cast of what each product reads, 2 bytes; queries, keys, values and what is summed of them, 2 each; of scores the
    softmax in fp32, 4, and its cast, 2. The network's last product reads a cast of fp32, beside ReLU's result."""
    fields = {"d_model": 48, "d_kv": 20, "num_heads": 3, "d_ff": 70, "num_layers": 2, "dropout_rate": 0.0}
    step = step_of(load("t5-small", **fields).loaded, WORK, replace(RECIPE, attention="eager"))
    read = step.run.source[1]
    norm, heads = 8 * 48 + 4, 2 * 60
    attn = norm + 3 * 2 * 48 + 4 * heads + (4 + 2) * 3 * 31
    weights = 2 * (4 * 48 * 60 + 2 * 48 * 70)
    assert step.kept_in(read) == 2 * 31 * (attn + norm + 2 * 48 + 2 * 2 * 70) + weights


def test_both_sides_of_bart_under_autocast_by_hand() -> None:
    """A number of the stream, in each part: a cast of what each product reads, 2 bytes, queries, keys, values and what
    is summed of them, 2 each, a dropout's mask, 1, and the sum in fp32 that is normed, 4; 12 bytes a head, and 8 of a
    mean and a deviation for each token. The network before and behind its GELU. Casts of weights. Of the source, two
    casts of what the encoder gave in each of the decoder's blocks, and keys and values."""
    step = step_of(load("bart-base", **SIZES, **HEADS).loaded, WORK, RECIPE)
    read, write = step.run.source[1], step.run.blocks[0]
    source, target, seed = 2 * 31, 2 * 23, 24
    attn, mlp = (6 + 8 + 1 + 4) * 48 + 4 * 3 + 8, (2 + 1 + 4) * 48 + 8
    weights = 2 * 4 * 48 * 48
    assert step.kept_in(read) == source * (attn + mlp + 4 * 70) + seed + weights + 2 * 2 * 48 * 70
    cross = (2 + 2 + 2 + 1 + 4) * 48 + 4 * 3 + 8
    own = target * (attn + cross + mlp + 4 * 50) + source * 8 * 48 + 2 * seed
    assert step.kept_in(write) == own + 2 * weights + 2 * 2 * 48 * 50


def test_what_the_encoder_gave_is_there_while_the_decoder_runs_and_kept_by_none() -> None:
    model = load("bart-base", **SIZES, **HEADS).loaded
    step = step_of(model, WORK, RECIPE)
    assert "memory" not in {line.path for line in step.run.front.run.kept}
    assert PairTimeline(step).memory == 2 * 31 * 48 * 4
    again = step_of(model, WORK, Recipe(weights_dtype="fp32", optimizer="none", recompute="full"))
    assert [line.role for line in again.run.front.run.kept if line.path == "memory"] == ["full"]
    assert PairTimeline(again).memory == 0


def test_logits_to_which_a_bias_is_added_are_in_fp32() -> None:
    """BART's class adds a buffer in fp32; M2M100's has none, and its loss reads logits in 16 bits."""
    none = {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
    for name, fields, role in (("bart-base", {}, "full"), ("nllb-200-distilled-600m", none, "work")):
        step = step_of(load(name, **SIZES, **HEADS, **fields).loaded, WORK, RECIPE)
        assert step.run.logits.role == role
