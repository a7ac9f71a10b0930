"""`flops --generate`: the closed form, a loop over steps, and hand arithmetic. Kind: golden, refusal."""

from itertools import product

import pytest

from tests.families import SHAPES
from tests.helpers.models import by_kind, tiny
from tfacct import load
from tfacct.accounts.step_flops import decode_flops
from tfacct.base.errors import TfacctError
from tfacct.ledger.workload import Workload
from tfacct.loading import presets
from tfacct.loading.model import LoadedModel, load_model

DECODING = [name for name in SHAPES if tiny(name).ledger.together == 1]
"""Models that take a single token, unlike those that merge patches."""


def looped(model: LoadedModel, *, batch: int, prompt: int, steps: int, masked: bool = False) -> dict[str, int]:
    """Every decode step on its own, added up."""
    total = dict.fromkeys(model.ledger.flops(Workload(1, 1).axes()), 0)
    for i in range(1, steps + 1):
        for path, flops in model.ledger.flops(Workload(prompt + i, 1, batch).axes(), masked=masked).items():
            total[path] += flops
    return total


@pytest.mark.parametrize("name", [*by_kind(DECODING), "gpt2-xl", "llama-3.1-8b", "qwen2-7b"])
def test_the_closed_form_is_the_loop(name: str) -> None:
    model = tiny(name) if name in SHAPES else presets.load(name)
    for prompt, steps, masked in product((1, 5, 23), (0, 1, 2, 3, 59, 60), {False, model.has_cache}):
        closed = decode_flops(model.ledger, batch=3, prompt=prompt, steps=steps, masked=masked)
        assert closed == looped(model, batch=3, prompt=prompt, steps=steps, masked=masked), (prompt, steps, masked)
        assert all(isinstance(count, int) for count in closed.values())


def gpt2_decode(prompt: int, steps: int) -> int:
    """gpt2 by hand: 12 · 768² weights a layer and the head for each token, 2 · 2 · 768 · S a layer for its S keys."""
    weights = 12 * 12 * 768**2 + 768 * 50257
    keys = steps * prompt + steps * (steps + 1) // 2  # prompt + 1, prompt + 2, …, prompt + steps
    return 2 * weights * steps + 12 * 2 * 2 * 768 * keys


@pytest.mark.parametrize("steps", [1, 7, 10**12 - 5])
def test_any_number_of_steps_by_hand(steps: int) -> None:
    assert sum(decode_flops(presets.load("gpt2").ledger, batch=1, prompt=5, steps=steps).values()) == gpt2_decode(
        5, steps
    )


@pytest.mark.parametrize("tiny_model", by_kind(DECODING), indirect=True)
def test_the_sum_may_be_a_formula(tiny_model: LoadedModel) -> None:
    sympy = pytest.importorskip("sympy")
    prompt, steps = sympy.symbols("P n", positive=True, integer=True)
    formulas = decode_flops(tiny_model.ledger, batch=3, prompt=prompt, steps=steps)
    at = {prompt: 23, steps: 17}
    assert {path: sympy.sympify(formula).subs(at) for path, formula in formulas.items()} == looped(
        tiny_model, batch=3, prompt=23, steps=17
    )


def test_a_request_by_hand(run) -> None:
    """gpt2-xl, a prompt of 2,048 and 500 new tokens: 48 layers of 12 · 1600² weights, the head once a pass."""
    ran = run("flops", "gpt2-xl", "--ctx", "2k", "--generate", "500", "--json")
    facts = ran.models[0]
    block, head = 12 * 1600**2, 1600 * 50257
    prefill = 2 * (48 * block * 2048 + head) + 48 * 2 * 2 * 1600 * 2048**2
    keys = sum(range(2049, 2548))  # 499 steps
    decode = 2 * (48 * block + head) * 499 + 48 * 2 * 2 * 1600 * keys
    assert (facts["prefill_flops"], facts["decode_flops"]) == (prefill, decode)
    assert facts["total_flops"] == prefill + decode
    assert (facts["prompt_tokens"], facts["new_tokens"], facts["decode_steps"]) == (2048, 500, 499)
    assert facts["flops_per_new_token"] == decode / 499
    assert facts["flops_per_prompt_token"] == prefill / 2048
    assert facts["workload"]["logits"] == "last" and facts["workload"]["tokens"] == 2048


def test_per_token_is_by_the_tokens_of_all_sequences() -> None:
    one, three = (load("gpt2").generate(ctx=100, new_tokens=7, batch=batch).models[0] for batch in (1, 3))
    assert three["total_flops"] == 3 * one["total_flops"]
    for key in ("flops_per_prompt_token", "flops_per_new_token"):
        assert three[key] == one[key]
    assert load("gpt2").generate(ctx=100, new_tokens=1).models[0]["flops_per_new_token"] is None


def test_a_mask_changes_the_prefill_only() -> None:
    full, masked = (load("gpt2").generate(ctx=100, new_tokens=7, masked=masked).models[0] for masked in (False, True))
    # per layer and head 2 · 2 · 64 FLOPs for each of the pairs that are not counted
    assert full["prefill_flops"] - masked["prefill_flops"] == 12 * 12 * 2 * 2 * 64 * (100 * 100 - 100 * 101 // 2)
    assert full["decode_flops"] == masked["decode_flops"] > 0


@pytest.mark.parametrize("new_tokens", [0, 2.0, True, "five"])
def test_new_tokens_in_python_are_a_whole_number(new_tokens: object) -> None:
    with pytest.raises(TfacctError, match="new_tokens must be"):
        load("gpt2").generate(ctx=5, new_tokens=new_tokens)


def test_changed_fields_are_counted() -> None:
    """Half the layers cost half, but the head."""
    whole, half = (load_model("x", presets.load("gpt2").raw, {"n_layer": layers}).ledger for layers in (12, 6))
    more, less = (decode_flops(ledger, batch=1, prompt=9, steps=4) for ledger in (whole, half))
    assert more.pop("lm_head") == less.pop("lm_head")
    assert more == {path: 2 * flops for path, flops in less.items()}
