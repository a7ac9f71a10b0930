"""`flops --train --recompute full`: layers run again in the backward pass. Kind: golden, output."""

import pytest

from tests.families import SHAPES
from tests.helpers.models import by_kind, tiny
from tfacct import load
from tfacct.accounts.step_flops import recomputed, recomputed_flops
from tfacct.ledger.workload import Request
from tfacct.loading.selection import workload
from tfacct.reports.flops import flops


def test_gpt2_by_hand(run) -> None:
    """Twelve whole layers again, because a dropout follows their last matmul: 8·T·D² + 4·T²·D + 16·T·D² FLOPs each,
    T 1,024 and D 768. torch's FlopCounterMode counts every linear layer of the class twice too, and the last one once
    if the dropout rate is 0."""
    again = 12 * (8 * 1024 * 768**2 + 4 * 1024**2 * 768 + 16 * 1024 * 768**2)
    without = load("gpt2", resid_pdrop=0).flops(ctx=1024, train=True, recompute="full")
    assert without.recomputed_flops == again - 12 * 8 * 1024 * 768**2
    ran = run("flops", "gpt2", "--ctx", "1k", "--train", "--recompute", "full", "--json")
    (facts,) = ran.models
    plain = load("gpt2").flops(ctx=1024, train=True)
    assert (facts["recompute"], facts["recomputed_flops"]) == ("full", again)
    assert facts["total_flops"] == plain.total + again
    assert sum(line["flops"] for line in facts["lines"]) == sum(facts["components"].values()) == facts["total_flops"]
    assert load("gpt2").flops(ctx=1024, train=True, recompute="full").document() == ran.document
    assert (plain.recompute, plain.recomputed_flops) == ("none", 0)
    assert plain.document() == load("gpt2").flops(ctx=1024, train=True, recompute="none").document()
    out = run("flops", "gpt2", "--ctx", "1k", "--train", "--recompute", "full").out_line
    assert "Recomputation ends at the last saved tensor." in out


def test_the_output_projection_of_bert_by_hand() -> None:
    """It runs again with attention: the dropout and the norm after it are in the same module. 8·T·D² + 4·T²·D FLOPs in
    each of twelve layers, T 512 and D 768, as torch's FlopCounterMode counts the class."""
    again = load("bert-base").flops(ctx=512, train=True, recompute="attention").recomputed_flops
    assert again == 12 * (8 * 512 * 768**2 + 4 * 512**2 * 768)


@pytest.mark.parametrize(("name", "part"), [("kimi_linear", "delta"), ("minimax", "lightning")])
def test_linear_attention_runs_again_up_to_its_output_projection(name: str, part: str) -> None:
    """In transformers' classes it is `self_attn`, as softmax attention is in the other layers."""
    model = tiny(name)
    at = workload(model, Request()).axes()
    flops = zip(model.ledger.products(at), recomputed(model.ledger, at, "attention"), strict=True)
    once = {each.path for each, again in flops if f".{part}." in each.path and again != each.forward}
    assert once == {f"blocks.*.{part}.out_proj"}


@pytest.mark.parametrize("name", by_kind(sorted(SHAPES)))
def test_every_shape_adds_the_flops_that_verify_compares_with_torch(name: str) -> None:
    model = tiny(name)
    at, ledger = workload(model, Request()).axes(), model.ledger
    again = recomputed_flops(ledger, at)
    report = flops([model], Request(), train=True, recompute="full")
    assert report.total == ledger.total_flops(at) + ledger.total_flops(at, backward=True) + again
    assert report.models[0]["recomputed_flops"] == again > 0
    assert sum(line["flops"] for line in report.lines) == report.total
    by_block = flops([model], Request(), train=True, recompute="full", by="layer")
    assert sum(row["flops"] for row in by_block.rows) == report.total


@pytest.mark.parametrize(("layout", "shares"), [({"cp": 2}, 2), ({"cp": 2, "tp": 2}, 4), ({"pp": 2}, 2)])
def test_a_rank_recomputes_its_share(layout: dict[str, int], shares: int) -> None:
    """Llama 3.1 8B: no part of its 32 layers is on several ranks."""
    model = load("llama-3.1-8b")
    whole, rank = (model.flops(ctx=1024, train=True, recompute="full", **how) for how in ({}, layout))
    assert rank.recomputed_flops * shares == whole.recomputed_flops > 0
