"""Training steps of encoders that turn queries and keys, or add scores of distances, by hand."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tfacct import load
from tfacct.accounts.timeline import Timeline
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Workload
from tfacct.reports.training import step_of
from tfacct.training.recipe import Recipe


def test_a_gated_encoder_drops_numbers_inside_its_network() -> None:
    """GTE's network drops numbers of its product: a byte for each, and no more, for what is left stands in the place of
    the product. Nomic BERT, of the same sizes without dropout, has a byte less for each, and for each of two sums."""
    sizes = {"hidden_size": 48, "num_attention_heads": 6, "intermediate_size": 70, "num_hidden_layers": 3}
    kept = []
    for name, head in (("gte-base-en-v1.5", "GteForMaskedLM"), ("nomic-embed-text-v1.5", "NomicBertForMaskedLM")):
        model = load(name, **sizes, architectures=[head], hidden_act="gelu", attention_probs_dropout_prob=0.0).loaded
        step = step_of(model, Workload(context=23, tokens=23, batch=2), Recipe())
        kept.append(step.kept_in(step.run.blocks[0]))
    assert kept[1] == 2 * 23 * (2 * 48 * 4 + 2 * 48 * 4 + 4 * 6 + 2 * 70 * 4 + 16) + 24
    assert kept[0] - kept[1] == 2 * 23 * (70 + 2 * 48)


def test_scores_of_distances_are_made_once_and_their_gradient_waits() -> None:
    """MPNet keeps a bucket, 8 bytes, for each pair of positions; block 1, not the last, has the gradient of all scores
    beside it: B · N · T · T numbers of two bytes."""
    sizes = {"hidden_size": 48, "num_attention_heads": 3, "intermediate_size": 70, "num_hidden_layers": 3}
    model = load("mpnet-base", **sizes).loaded
    step = step_of(model, Workload(context=23, tokens=23, batch=2), Recipe(attention="eager"))
    front = {line.path: line.bytes({**step.run.front.axes, **step.at}, step.pass_) for line in step.run.front.run.kept}
    assert front["distances"] == 8 * 23 * 23
    whole = Timeline(step)
    places = whole.run.blocks[0].run.places
    nth = next(nth for nth, each in enumerate(places.moments) if each.at == "blocks.*.attn.scores")
    assert [whole.added_inside(number, places).at(nth) for number in (0, 1, 2)] == [2 * 2 * 3 * 23 * 23] * 3
    assert [whole.added_to(number) for number in (0, 1, 2)] == [2 * 2 * 3 * 23 * 23] * 2 + [0]


def test_blocks_that_share_weights_add_to_one_gradient() -> None:
    """Of ALBERT's three blocks the last makes the gradients. The others hold their own of the network's first product
    beside it, and, once that product's result is gone, the sum of both. Tables are as narrow as De = 20."""
    sizes = {"hidden_size": 48, "num_attention_heads": 3, "intermediate_size": 70, "num_hidden_layers": 3}
    model = load("albert-base-v2", **sizes, embedding_size=20, hidden_act="gelu").loaded
    step = step_of(model, Workload(context=23, tokens=23, batch=2), Recipe())
    whole = Timeline(step)
    assert [section.numbers for section in whole.run.blocks] == [range(2), range(2, 3)]
    others, last = whole.run.blocks
    weight, up = 2 * 48 * 70, "blocks.*.mlp.up_proj.weight"
    (made,) = (moment for moment in last.run.moments if moment.at == up)
    (beside,) = (moment for moment in others.run.moments if moment.at == up)
    (summed,) = (moment for moment in others.run.moments if moment.at == "blocks.*.mlp.up_proj.added")
    held = [whole.held(last, moment.held) for moment in (made, beside, summed)]
    row, wide = 2 * 2 * 23 * 48, 2 * 2 * 23 * 70
    assert held == [row + wide, row + wide + weight + 2 * 70, row + 2 * weight]
    assert whole.left(others) == 0 and whole.left(last) > weight
    lines = {line.path: line.bytes({**step.run.front.axes, **step.at}, step.pass_) for line in step.run.front.run.kept}
    assert lines["embed_norm"] == 2 * 2 * 23 * 20
    assert whole.all_gradients == 2 * model.parameters


def test_a_class_that_runs_no_block_again_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="the class of mpnet runs no block again") as told:
        step_of(load("mpnet-base").loaded, Workload(64, 64, 1), Recipe(attention="eager", recompute="full"))
    assert told.value.hint == "the step is counted without checkpoint"


def test_a_classifier_of_sequences_learns_from_one_label_of_each(run: Callable[..., Ran], tmp_path: Path) -> None:
    fields = {"model_type": "roberta", "hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 2}
    said = {}
    for head in ("SequenceClassification", "TokenClassification", "MaskedLM"):
        file = tmp_path / f"{head}.json"
        file.write_text(json.dumps({**fields, "architectures": [f"RobertaFor{head}"], "num_labels": 3}))
        said[head] = " ".join(run("train", str(file), "--ctx", "33", "-v").out.split())
    assert "Each sequence has one label." in said.pop("SequenceClassification")
    assert all("The labels are the tokens." in text for text in said.values())
