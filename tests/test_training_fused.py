"""Megatron's kernels as algebra: the equations of Korthikanti et al. (arXiv 2205.05198), by hand."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Ran
from tfacct import load
from tfacct.base.errors import UsageError


@pytest.mark.parametrize(("name", "a", "h", "layers"), [("gpt2", 12, 768, 12), ("gpt2-xl", 25, 1600, 48)])
@pytest.mark.parametrize(("checkpoint", "squares"), [("none", 5), ("attention", 0)])
def test_a_gpt_keeps_what_the_paper_says(name: str, a: int, h: int, layers: int, checkpoint: str, squares: int) -> None:
    s, b, v = 1_024, 4, 50_257
    # Section 4.1: s·b·h·(34 + 5·a·s/h) a layer; section 5: without the second term. In front of the layers the mask of
    # a dropout, s·b·h; behind them what norm and head read, 2·s·b·h each, and logits in fp32, 4·s·b·v.
    layer = 34 * s * b * h + squares * a * s * s * b
    step = load(name).train(as_="fused", recompute=checkpoint, ctx=s, batch=b)
    assert step.kept_bytes == layers * layer + 5 * s * b * h + 4 * s * b * v
    assert ("scores and softmax again" in " ".join(str(step).split())) == (checkpoint == "attention")
    assert step.peak_bytes is None and step.exact is False


@pytest.mark.parametrize(("checkpoint", "squares"), [("none", 5), ("attention", 0)])
def test_every_part_of_a_layer_keeps_what_the_paper_says(checkpoint: str, squares: int) -> None:
    """Section 4.1: attention 11·s·b·h + 5·a·s²·b, the network 19·s·b·h, norms 4·s·b·h; here s = 64, b = 2."""
    a, h, layers, s, b = 12, 768, 12, 64, 2
    lines = load("gpt2").train(as_="fused", recompute=checkpoint, ctx=s, batch=b).models[0]["lines"]
    taken = dict.fromkeys(("attn", "mlp", "norms"), 0)
    for line in lines:
        name = line["path"].removeprefix("blocks.*.").split(".")[0].removesuffix("_norm")
        if line["path"].startswith("blocks.*."):
            taken[name if name in ("attn", "mlp") else "norms"] += line["bytes"]
    each = {"attn": 11 * s * b * h + squares * a * s * s * b, "mlp": 19 * s * b * h, "norms": 4 * s * b * h}
    assert taken == {name: layers * size for name, size in each.items()}


def test_every_output_says_that_it_is_algebra(run: Callable[..., Ran]) -> None:
    for words in (["train", "gpt2"], ["formula", "gpt2", "--of", "kept"]):
        ran = run(*words, "--as", "fused", "--ctx", "64")
        assert "algebra that was not measured here" in " ".join(ran.out.split())
        assert "was not measured" in json.loads(run(*words, "--as", "fused", "--ctx", "64", "--json").out)["convention"]


@pytest.mark.parametrize("name", ["llama-3.2-1b", "bert-base", "mamba-130m", "opt-125m", "pythia-70m", "bart-base"])
def test_what_is_no_gpt_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="Megatron's algebra is of a GPT"):
        load(name).train(as_="fused", ctx=64)


@pytest.mark.parametrize("given", [{"dtype": "fp32"}, {"checkpoint": "full"}, {"hold_logits": True}, {"fit": "1GiB"}])
def test_what_the_paper_does_not_say_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        load("gpt2").train(as_="fused", ctx=64, **given)
