"""Attention that is recomputed in the backward pass: saved bytes, the peak, and FLOPs."""

import json
from collections.abc import Callable

import pytest

from tests.conftest import Ran
from tests.training_configs import drawn
from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.families import config_class
from tfacct.ledger.workload import Request
from tfacct.loading.model import subject
from tfacct.reports.flops import flops


def test_llama_by_hand() -> None:
    """In bf16, a block keeps 4·N·H + 4·K·H + 4·N bytes a token less, and the kernel's seeds, 24 bytes: q, k, v and the
    values, 2 bytes each, and a sum's logarithm in fp32. The angles are handed over: 4·H bytes a token."""
    llama = load("llama-3.1-8b")
    plain, again = llama.train(ctx=4096), llama.train(ctx=4096, recompute="attention")
    heads, keys, size, tokens = 32, 8, 128, 4096
    block = tokens * (2 * 2 * heads * size + 2 * 2 * keys * size + 4 * heads) + 24
    assert plain.kept_bytes - again.kept_bytes == 32 * block + tokens * 2 * 2 * size
    assert again.peak_bytes < plain.peak_bytes


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_flops_are_what_torch_counts(family: str) -> None:
    """The classes' own steps, forward and backward, their attention under torch's checkpoint."""
    pytest.importorskip("transformers")
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from tfacct.meta.model import build_model

    config, _, _ = drawn(family, 1)
    model = subject(family, config, {}, None)
    totals = {}
    for checkpoint in ("none", "attention"):
        built = build_model(config, "eager", "bf16", recompute=checkpoint).to_empty(device="cpu")
        ids = torch.zeros((2, 5), dtype=torch.int64)
        with FlopCounterMode(display=False) as counter:
            built(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        totals[checkpoint] = counter.get_total_flops()
    report = flops([model], Request(ctx=5, batch=2), train=True, recompute="attention")
    assert report.models[0]["recomputed_flops"] == totals["attention"] - totals["none"] > 0


def test_flops_of_gpt2_by_hand(run: Callable[..., Ran]) -> None:
    """Twelve attentions again without their last product: 6·T·D² + 4·T²·D FLOPs each, T 1,024 and D 768."""
    again = 12 * (6 * 1024 * 768**2 + 4 * 1024**2 * 768)
    ran = run("flops", "gpt2", "--ctx", "1k", "--train", "--recompute", "attention")
    assert "training-step FLOPs with attention recomputed" in ran.out
    assert "runs attention again, all its products but the last: 82.1 G FLOPs." in " ".join(ran.out.split())
    (facts,) = json.loads(run("flops", "gpt2", "--ctx", "1k", "--train", "--recompute", "attention", "--json").out)[
        "models"
    ]
    assert (facts["recompute"], facts["recomputed_flops"]) == ("attention", again)
    assert facts["total_flops"] == load("gpt2").flops(ctx=1024, train=True).total + again
    with pytest.raises(UsageError, match="no attention that could run again"):
        load("mamba-130m").flops(train=True, recompute="attention")


def test_what_is_not_measured_is_refused(run: Callable[..., Ran]) -> None:
    ran = run("train", "gpt-j-6b", "--attention", "eager", "--recompute", "attention")
    assert ran.code == 2 and "gptj has not been measured with attention that runs again" in " ".join(ran.err.split())
    out = run("train", "llama-3.1-8b", "--recompute", "attention", "--ctx", "1k").out
    assert "attention recomputed" in " ".join(out.split())
    with pytest.raises(UsageError, match="recompute is none, full or attention"):
        load("gpt2").train(recompute="half")  # type: ignore[arg-type]


def test_fit_names_it_where_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three percent more FLOPs: q, k, v, scores and values again, of all that a step of three passes does."""
    llama = load("llama-3.1-8b")
    changes = {json.dumps(each["set"]): each for each in llama.train(ctx=8192, fit="80GiB").fit["changes"]}
    attention = changes['{"recompute": "attention"}']
    again = llama.flops(ctx=8192, train=True, recompute="attention")
    assert attention["flops_ratio"] == 1 + again.recomputed_flops / (again.total - again.recomputed_flops)
    monkeypatch.setattr(config_class("gpt2"), "trains", frozenset({"sdpa", "eager"}))
    assert '{"recompute": "attention"}' not in json.dumps(load("gpt2").train(batch=64, fit="8GiB").fit["changes"])
