"""Saved activations in symbols: by hand, and evaluated at other sizes. Kind: golden, refusal."""

from random import Random
from typing import Any

import pytest

from tests.families import random_config
from tests.helpers.cli import Run
from tfacct import load
from tfacct.ledger.workload import Request, Workload
from tfacct.loading.model import load_model
from tfacct.reports.formula import formula
from tfacct.reports.metrics import Counting
from tfacct.training.memory import training_memory
from tfacct.training.unsupported import refusal

sympy = pytest.importorskip("sympy")


def polynomial(text: str, facts: dict[str, Any]) -> Any:
    return sympy.expand(sympy.sympify(text, locals={axis: sympy.Symbol(axis) for axis in facts["legend"]}))


def test_a_layer_of_llama_by_hand(run: Run) -> None:
    """Two norms save an fp32 copy, the scaled copy and 1/rms, 6·D + 4 bytes each, and matmuls their results, 2·D each:
    16·D + 8. Queries and the result of attention are 2·N·H each, keys and values 2·K·H each, 4 for the logsum of each
    query head; the MLP saves four tensors of F. The seed of the kernel is 24 bytes."""
    (facts,) = run("formula", "llama", "--of", "saved", "--json").models
    (layer,) = facts["saved_by_layer"]
    by_hand = "B*T*(16*D + 4*N*H + 4*K*H + 8*F + 4*N + 8) + 24"
    assert polynomial(layer["bytes_formula"], facts) == polynomial(by_hand, facts)
    assert layer["text"] == "B·T·(16·D + 4·N·H + 4·N + 4·K·H + 8·F + 8) + 24"
    # After the layers: a norm and the input of the head, fp32 log-probabilities, targets, a weight; cos and sin before.
    assert polynomial(facts["total_formula"], facts) == polynomial(
        f"L*({by_hand}) + B*T*(8*D + 4*V + 20) + 4*T*H + 4", facts
    )


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "mixtral", "qwen3", "gemma", "olmo2"])
def test_formulas_hold_at_other_sizes(family: str, dtype: str) -> None:
    """At the model's own sizes, each line's formula and the total are those of `train`."""
    for seed in range(20, 26):
        pick = Random(seed)
        model = load_model(family, random_config(family, seed))
        attention = pick.choice(["sdpa", "eager"])
        trained = tuple({"recompute": pick.choice(["none", "full"]), "attention": attention}.items())
        terms = Counting(dtype, trained=trained)
        if refusal(model, terms.recipe) is not None:
            continue
        work = Workload(tokens := pick.choice([5, 16, 17, 33]), tokens, pick.choice([1, 2, 3]))
        request = Request(ctx=work.context, batch=work.batch)
        (facts,) = formula(model, request, of="saved", terms=terms).models
        axis_names = {sympy.Symbol(axis): about["value"] for axis, about in facts["legend"].items()}
        assert facts["saved_bytes"] == training_memory(model, work, terms.recipe).step.saved_bytes()
        assert polynomial(facts["total_formula"], facts).subs(axis_names) == facts["saved_bytes"]
        assert sum(line["bytes_value"] for line in facts["lines"]) == facts["saved_bytes"]
        for line in facts["lines"]:
            assert polynomial(line["bytes_formula"], facts).subs(axis_names) == line["bytes_value"], line["path"]


def test_dtypes_and_levers_change_the_polynomial() -> None:
    llama = load("llama-3.1-8b")
    again = llama.formula(of="saved", ctx=4096, recompute="full")
    assert again.saved_by_layer == [{"kind": "", "bytes_formula": "2*B*T*D", "text": "2·B·T·D"}]
    assert again.total == again.saved_bytes == llama.train(ctx=4096, recompute="full").saved_bytes
    cast = llama.formula(of="saved", ctx=4096, weights_dtype="fp32")
    sizes = {sympy.Symbol(axis): about["value"] for axis, about in cast.legend.items()}
    trained = llama.train(ctx=4096, weights_dtype="fp32").saved_bytes
    assert polynomial(cast.models[0]["total_formula"], cast.models[0]).subs(sizes) == cast.saved_bytes == trained


@pytest.mark.parametrize("context", [4095, 4096, 4128])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_windows_are_laid_out_in_two_ways(attention: Any, context: int) -> None:
    """Formulas of either hold for their own contexts. A kernel pads the tokens of a window to multiples of 32."""
    mistral = load("mistral-7b-v0.1")
    report = mistral.formula(of="saved", ctx=context, attention=attention)
    axis_names = {sympy.Symbol(axis): about["value"] for axis, about in report.legend.items()}
    saved = mistral.train(ctx=context, attention=attention).saved_bytes
    assert polynomial(report.total_formula, report.models[0]).subs(axis_names) == report.saved_bytes == saved
    contexts = "contexts below 4,096" if context < 4096 else "contexts of at least 4,096"
    assert any(contexts in note for note in report.notes)
