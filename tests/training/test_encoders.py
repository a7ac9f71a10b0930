"""Training steps of encoders with rotary embeddings or scores of distances, by hand. Kind: golden, refusal."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.cli import Ran
from tests.helpers.training_step import saved_in, step_of
from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Workload
from tfacct.training.recipe import Recipe


def test_a_gated_encoder_drops_numbers_inside_its_network() -> None:
    """GTE's network drops numbers of its product: a byte for each, and no more, for what is left stands in the place of
    the product. Nomic BERT, of the same sizes without dropout, has a byte less for each, and for each of two sums."""
    sizes = {"hidden_size": 48, "num_attention_heads": 6, "intermediate_size": 70, "num_hidden_layers": 3}
    kept = []
    for name, head in (("gte-base-en-v1.5", "GteForMaskedLM"), ("nomic-embed-text-v1.5", "NomicBertForMaskedLM")):
        model = load(name, **sizes, architectures=[head], hidden_act="gelu", attention_probs_dropout_prob=0.0).loaded
        step = step_of(model, Workload(context=23, tokens=23, batch=2), Recipe())
        kept.append(saved_in(step, step.graph.layers[0]))
    assert kept[1] == 2 * 23 * (2 * 48 * 4 + 2 * 48 * 4 + 4 * 6 + 2 * 70 * 4 + 16) + 24
    assert kept[0] - kept[1] == 2 * 23 * (70 + 2 * 48)


def test_a_class_that_runs_no_block_again_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="has not been measured with full recomputation") as raised:
        step_of(load("mpnet-base").loaded, Workload(64, 64, 1), Recipe(attention="eager", recompute="full"))
    assert "the step is supported without recompute" in raised.value.hint


def test_a_classifier_of_sequences_learns_from_one_label_of_each(run: Callable[..., Ran], tmp_path: Path) -> None:
    fields = {"model_type": "roberta", "hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 2}
    said = {}
    for head in ("SequenceClassification", "TokenClassification", "MaskedLM"):
        file = tmp_path / f"{head}.json"
        file.write_text(json.dumps({**fields, "architectures": [f"RobertaFor{head}"], "num_labels": 3}))
        said[head] = " ".join(run("train", str(file), "--ctx", "33", "-v").out.split())
    assert "One label per sequence." in said.pop("SequenceClassification")
    assert all("Labels: the input tokens." in text for text in said.values())
