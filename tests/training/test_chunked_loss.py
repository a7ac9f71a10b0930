"""A loss in chunks of tokens: saved bytes, the peak and the FLOPs of recomputation. Kind: golden, refusal."""

from collections.abc import Callable

import pytest

from tests.helpers.cli import Ran
from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.training import bounds
from tfacct.training.measured import Measured


def test_llama_by_hand() -> None:
    """The log-probabilities of 4,096 tokens over 128,256 words in fp32 are not kept, nor a weight of 4 bytes. The
    head's backward is fullest where the weight's gradients of two chunks are added: three of 2 · V · D bytes."""
    llama = load("llama-3.1-8b")
    whole, chunked = llama.train(ctx=4096), llama.train(ctx=4096, loss="chunked")
    assert whole.saved_bytes - chunked.saved_bytes == 4 * 4096 * 128_256 + 4
    head = next(each for each in chunked.phases if each["phase"] == "head, backward")
    table, rows = 2 * 128_256 * 4096, 2 * 4096 * 4096
    assert head["gradients_bytes"] == table
    assert head["temporary_bytes"] == pytest.approx(2 * table + rows * 7 // 8, abs=16)  # and numbers of the loss
    assert chunked.peak_bytes < whole.peak_bytes


def test_what_is_said_and_refused(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    out = " ".join(run("train", "llama-3.1-8b", "--loss", "chunked", "--ctx", "1k", "-v").out.split())
    assert "loss in chunks" in out and "Output head and loss run in 8 token chunks." in out
    monkeypatch.setattr(bounds, "row_of", lambda _: {"16-bit": Measured(0, 1)})
    refused = " ".join(run("train", "phi-2", "--loss", "chunked").err.split())
    assert "phi has not been measured with a chunked loss" in refused and "--exact" in refused
    assert "computes logits chunk by chunk" in " ".join(
        run("train", "llama-3.1-8b", "--loss", "chunked", "--keep-logits").err.split()
    )
    with pytest.raises(UsageError, match="loss must be one of whole, chunked"):
        load("gpt2").train(loss="half")  # type: ignore[arg-type]


def test_fit_says_what_it_costs() -> None:
    """The head's forward FLOPs again."""
    llama = load("llama-3.1-8b")
    (change,) = (
        each for each in llama.train(ctx=8192, on="80GiB").fit["changes"] if each["set"] == {"loss": "chunked"}
    )
    step = llama.flops(ctx=8192, train=True)
    head = next(line["forward_flops"] for line in step.lines if line["path"] == "lm_head")
    assert change["flops_ratio"] == pytest.approx(1 + head / step.total)
