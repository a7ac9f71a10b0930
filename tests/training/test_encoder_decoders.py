"""Training steps of encoder-decoders: saved activations of both sides, by hand, and phases. Kind: golden, refusal."""

import pytest

from tests.helpers.cli import Run
from tests.helpers.training_step import saved_in, step_of
from tfacct import load
from tfacct.ledger.workload import Workload
from tfacct.reports.explore import training
from tfacct.training.memory import training_memory
from tfacct.training.phases import phases
from tfacct.training.recipe import Recipe

SIZES = {"d_model": 48, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 70, "decoder_ffn_dim": 50}
HEADS = {"encoder_attention_heads": 3, "decoder_attention_heads": 3, "activation_dropout": 0.0}
WORK = Workload(context=23, tokens=23, batch=2, source=31, new_source=31)


def test_both_sides_of_bart_by_hand() -> None:
    """A layer saves what BERT's does: its input, two sums and a norm's result, together 8 bytes per number of the
    residual stream; a byte for each of two dropouts; queries, keys, values and the result of attention; the MLP before
    and after its GELU; two means and deviations. The decoder's also saves a third sum, norm and dropout, and keys and
    values of the source. The encoder's output is saved once."""
    step = step_of(load("bart-base", **SIZES, **HEADS).loaded, WORK, Recipe())
    read, write = step.graph.encoder_layers[1], step.graph.layers[0]
    source, target, seed = 2 * 31, 2 * 23, 24
    assert saved_in(step, read) == source * (8 * 48 + 2 * 48 + 8 * 48 + 4 * 3 + 4 * 70 + 16) + seed
    own = 12 * 48 + 3 * 48 + 8 * 48 + 4 * 3 + 4 * 48 + 4 * 3 + 4 * 50 + 24
    assert saved_in(step, write) == target * own + source * 4 * 48 + 2 * seed
    memory = [each for each in step.graph.before.graph.saved if each.path == "memory"]
    assert step.bytes_in(step.graph.before).of(memory) == source * 48 * 2


def test_a_table_of_both_sides_has_one_gradient() -> None:
    """Two bytes per parameter; all gradients of the decoder exist during the encoder's backward pass."""
    model = load("bart-base", **SIZES, **HEADS).loaded
    parameters = 2 * sum(tensor.count * tensor.elements for tensor in model.ledger.tensors())
    named = {phase.name: phase for phase in training_memory(model, WORK, Recipe(optimizer="none")).phases}
    assert named["encoder, layer 0, backward"].gradients > named["layer 0, backward"].gradients
    assert named["optimizer step"].gradients == parameters


def test_a_longer_source_takes_more_and_the_source_is_printed(run: Run) -> None:
    model = load("bart-large").loaded
    sides = [Workload(64, 64, 1, "all", n, n) for n in (256, 512, 1024)]
    most = [training_memory(model, work, Recipe()).peak.total for work in sides]
    assert most == sorted(set(most))
    ran = run("train", "bart-large", "--ctx", "64", "--source", "256")
    title = "bart-large: a training step in bf16 (8 bytes per parameter), context 64, source 256"
    assert title in ran.out_line
    assert "encoder, layer 11, 0.757" in ran.out_line


def test_layer_dropout_of_the_class_may_be_set_to_0(run: Run) -> None:
    """M2M100Config's encoder_layerdrop and decoder_layerdrop are 0.05 by default."""
    none = ("--set", "encoder_layerdrop=0", "--set", "decoder_layerdrop=0")
    assert run("train", "nllb-200-distilled-600m", *none, "--ctx", "64").code == 0


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
    assert 4 * trained <= found.step.optimizer_state < 4 * trained + 4 * 200


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


def test_the_source_is_printed_for_models_that_read_one(run: Run) -> None:
    both, one = (run("train", "bart-base", other).out_line for other in ("bart-large", "gpt2"))
    assert ", source 1,024, batch 1" in both and ", source 1,024 if any, batch 1" in one


def test_a_page_has_the_steps_of_one_device_and_of_ranks_that_share_weights() -> None:
    found = training(load("bart-base").loaded, laws=True)
    assert [ranks for ranks, *_ in found["steps"]][:2] == [1, 2]
    for ranks, exact, phase, *parts in found["steps"][:2]:
        facts = load("bart-base").train(**({"fsdp": ranks} if ranks > 1 else {})).models[0]
        assert (bool(exact), phase, sum(parts)) == (facts["exact"], facts["peak_phase"], facts["peak_bytes"])
    assert found["context"] == found["source"] == 1024


def test_both_sides_of_t5_by_hand() -> None:
    """A norm saves the residual stream, an fp32 copy of it, 1/rms and what it scales: 8 bytes a number and 4 a token.
    Attention saves queries, keys, values, its result and a softmax in the dtype of the pass; ReLU its result, which
    down reads. Distances are one integer for each query and key of a side."""
    fields = {"d_model": 48, "d_kv": 20, "num_heads": 3, "d_ff": 70, "num_layers": 2, "dropout_rate": 0.0}
    step = step_of(load("t5-small", **fields).loaded, WORK, Recipe(attention="eager"))
    read, write = step.graph.encoder_layers[1], step.graph.layers[0]
    source, target = 2 * 31, 2 * 23
    norm, heads, scores = 8 * 48 + 4 + 2 * 48, 2 * 60, 2 * 3
    assert saved_in(step, read) == source * (2 * norm + 4 * heads + scores * 31 + 2 * 70)
    own = 3 * norm + 4 * heads + scores * 23 + 2 * heads + scores * 31 + 2 * 70
    assert saved_in(step, write) == target * own + source * 2 * heads
    ids = [each for each in step.graph.before.graph.saved if each.path == "rel_bias.ids"]
    assert step.bytes_in(step.graph.before).of(ids) == 23 * 23 * 8
    assert phases(step)[-1].gradients == 2 * load("t5-small", **fields).loaded.parameters
