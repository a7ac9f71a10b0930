"""Training steps of encoder-decoders: saved activations of both sides, by hand, and phases. Kind: golden, refusal."""

import pytest

from tests.helpers.cli import Run
from tfacct import load
from tfacct.ledger.workload import Workload
from tfacct.reports.explore import training
from tfacct.training.memory import training_memory
from tfacct.training.recipe import Recipe

SIZES = {"d_model": 48, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 70, "decoder_ffn_dim": 50}
HEADS = {"encoder_attention_heads": 3, "decoder_attention_heads": 3, "activation_dropout": 0.0}
WORK = Workload(context=23, tokens=23, batch=2, source=31, new_source=31)


def test_sines_of_both_sides_are_buffers_without_gradients() -> None:
    """Rows of both sides, two more than there are positions, in the dtype of the weights."""
    fields = {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "max_position_embeddings": 64}
    model = load("nllb-200-distilled-600m", **SIZES, **HEADS, **fields).loaded
    found = training_memory(model, WORK, Recipe(optimizer="none"))
    parameters = 2 * sum(tensor.count * tensor.elements for tensor in model.ledger.tensors())
    assert found.step.weights - parameters == 2 * (64 + 2) * 48 * 2
    assert found.phases[-1].gradients == parameters


def test_stored_sines_are_frozen_weights() -> None:
    """Pegasus stores sines for each side: they are weights without gradients or optimizer state."""
    model = load("pegasus-large", **SIZES, **HEADS, max_position_embeddings=64).loaded
    found = training_memory(model, WORK, Recipe())
    parameters = sum(tensor.count * tensor.elements for tensor in model.ledger.tensors())
    trained = parameters - 2 * 64 * 48
    assert found.phases[-1].gradients == 2 * trained
    # Two numbers of 2 bytes for each, and a step of 4 bytes a tensor.
    assert 4 * trained <= found.step.optimizer.state < 4 * trained + 4 * 200


@pytest.mark.parametrize("name", ["bart-large", "gpt2"])
def test_no_more_tokens_fit_than_a_table_of_positions_holds(run: Run, name: str) -> None:
    """Both embeddings have 1,024 positions; by bytes alone far more tokens would fit."""
    shown = run("train", name, "--on", "80GiB", "-v").out_line
    assert "Longest context at batch 1: 1,024." in shown
    assert load(name).train(on="80GiB").fit["largest_context"] == 1024
    few = load(name).train(on=load(name).train(ctx=100).peak_bytes).fit["largest_context"]
    assert few is not None and 100 <= few < 1024
    assert "position embedding" not in run("train", "llama-3.2-1b", "--on", "80GiB", "-v").out


@pytest.mark.parametrize(("weights_dtype", "bytes_each"), [(None, 2), ("fp32", 4)])
def test_logits_with_a_bias_are_in_fp32_under_autocast(weights_dtype: str | None, bytes_each: int) -> None:
    """`final_logits_bias` is a buffer in the dtype of the weights: 5 · 300 tokens of 50,005 words."""
    plbart = load("plbart-base")
    asked = {"ctx": 300, "source": 320, "batch": 5, "weights_dtype": weights_dtype}
    plain, with_logits = (plbart.train(**asked, keep_logits=keep) for keep in (False, True))
    assert with_logits.peak_bytes - plain.peak_bytes == bytes_each * 5 * 300 * 50_005


def test_a_page_has_the_steps_of_one_device_and_of_ranks_that_share_weights() -> None:
    found = training(load("bart-base").loaded, laws=True)
    assert [ranks for ranks, *_ in found["steps"]][:2] == [1, 2]
    for ranks, exact, phase, *parts in found["steps"][:2]:
        facts = load("bart-base").train(**({"fsdp": ranks} if ranks > 1 else {})).models[0]
        assert (bool(exact), phase, sum(parts)) == (facts["exact"], facts["peak_phase"], facts["peak_bytes"])
    assert found["context"] == found["source"] == 1024
