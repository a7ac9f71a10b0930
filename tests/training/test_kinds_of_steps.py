"""Steps of layers with attention of their own, of a loss in chunks, and without a bound. Kind: golden, output."""

from __future__ import annotations

import pytest

from tests.helpers.cli import Run
from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.training import bounds
from tfacct.training.measured import Measured


def test_a_classifier_of_sequences_learns_from_one_label_of_each() -> None:
    """Log-probabilities of 3 classes in 16 bits, of 7 sequences or of their 33 tokens; or of the vocabulary."""
    fields = {"model_type": "roberta", "hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 2}
    labels = {"SequenceClassification": 7 * 3, "TokenClassification": 7 * 33 * 3, "MaskedLM": 7 * 33 * 50_265}
    for head, numbers in labels.items():
        model = load({**fields, "architectures": [f"RobertaFor{head}"], "num_labels": 3})
        sizes = {line["path"]: line["bytes"] for line in model.train(ctx=33, batch=7).lines}
        assert sizes["loss.log_probabilities"] == 2 * numbers, head


@pytest.mark.usefixtures("presets_apart")
def test_a_chunked_loss_is_printed_or_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    out = run("train", "llama-3.1-8b", "--loss", "chunked", "--ctx", "1k", "-v").out_line
    assert "loss in chunks" in out
    monkeypatch.setattr(bounds, "row_of", lambda _: {"16-bit": Measured(0, 1)})
    refused = run("train", "phi-2", "--loss", "chunked").err_line
    assert "phi has not been measured with a chunked loss" in refused and "--exact" in refused
    kept = run("train", "llama-3.1-8b", "--loss", "chunked", "--keep-logits").err_line
    assert "computes logits chunk by chunk" in kept
    with pytest.raises(UsageError, match="loss must be one of whole, chunked"):
        load("gpt2").train(loss="half")  # type: ignore[arg-type]


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_what_a_chunked_loss_costs(recompute: str) -> None:
    """The head's forward FLOPs again, relative to the step as it was asked for."""
    llama = load("llama-3.1-8b")
    found = llama.train(ctx=8192, batch=4, on="80GiB", recompute=recompute).fit["changes"]
    (change,) = (each for each in found if each["set"] == {"loss": "chunked"})
    step = llama.flops(ctx=8192, train=True, recompute=recompute)
    head = next(line["forward_flops"] for line in step.lines if line["path"] == "lm_head")
    assert change["flops_ratio"] == pytest.approx(1 + head / step.total)
