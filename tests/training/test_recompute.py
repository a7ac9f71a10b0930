"""Attention recomputed in the backward pass: saved bytes, the peak and FLOPs. Kind: golden, refusal."""

import json
from typing import Any

import pytest

from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Workload
from tfacct.training import bounds
from tfacct.training.measured import Measured
from tfacct.training.memory import training_memory
from tfacct.training.phases import Inside
from tfacct.training.recipe import Recipe
from tfacct.training.step import TrainingStep


def small(name: str, recompute: str, **recipe: Any) -> TrainingStep:
    """A step of two layers: D 48, N 6, K 2, H 16, F 70, two sequences of 23 tokens."""
    fields = {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16}
    model = load(name, **fields, intermediate_size=70, num_hidden_layers=2, vocab_size=200).loaded
    return training_memory(model, Workload(context=23, tokens=23, batch=2), Recipe(recompute=recompute, **recipe)).step


D, Q, K, F, SCORES = 48, 6 * 16, 2 * 16, 70, 6 * 23
"""Numbers of a token: of the residual stream, its queries, its keys, its MLP and its scores."""
LISTS = [
    # sdpa saves its result for o_proj anyway: its logsum and the state of its random numbers go.
    ("selective", "sdpa", 4 * 6, 24),
    # Eager: the fp32 softmax and its cast, keys and values copied for each query head; keys and values stay as made.
    ("selective:core_attn", "eager", (4 + 2) * SCORES + 2 * 2 * Q - 2 * 2 * K, 0),
    ("selective:attention", "sdpa", 2 * (2 * Q + 2 * K) + 4 * 6, 24),
    # Of each norm: the fp32 input, a number a row, what is scaled, the result; the residual stream that it reads stays.
    ("selective:layernorm", "sdpa", 2 * (4 * D + 4 + 2 * D + 2 * D - 2 * D), 0),
    ("selective:mlp", "sdpa", 2 * 4 * F, 0),  # gate, up, act(gate) and their product
    ("selective:moe", "sdpa", 0, 0),  # no experts
    ("selective:mlp, core_attn", "sdpa", 2 * 4 * F + 4 * 6, 24),
    # Saved: the input, q, v, gate and down of q, k, v, o, gate, up, down; sdpa's result, logsum and state.
    ("selective:op", "sdpa", 16 * D + 4 * Q + 4 * K + 8 * F + 8 - 2 * (D + Q + K + F + D + Q), 0),
]


@pytest.mark.parametrize(("recompute", "attention", "each", "once"), LISTS, ids=lambda value: str(value))
def test_lists_of_modules_by_hand(recompute: str, attention: Any, each: int, once: int) -> None:
    """Bytes that each layer of Llama saves less, of a token and of a layer."""

    def saved(step: TrainingStep) -> int:
        (group,) = step.graph.layers
        return int(step.bytes_in(group).of(group.graph.saved))

    plain, again = (small("llama-3.2-1b", how, attention=attention) for how in ("none", recompute))
    assert saved(plain) - saved(again) == 2 * 23 * each + once


def test_an_activation_of_experts_runs_again_for_the_matmul_after_it() -> None:
    """Megatron's moe_act: act(gate) and act(gate) · up are recomputed, for both experts of a token."""
    plain, again = (small("mixtral-8x7b", how).graph.layers[0].graph for how in ("none", "selective:moe_act"))
    recomputed = {each.path for each in plain.saved} - {each.path for each in again.saved}
    assert recomputed == {"blocks.*.mlp.experts.act", "blocks.*.mlp.experts.act.gate"}
    ((*_, last),) = again.recomputed_parts
    assert last == "blocks.*.mlp.experts.down_proj.weight"


def test_recomputed_tensors_are_there_while_their_part_runs_backwards() -> None:
    """After attention's last matmul all of them come back at once: q, k, v, the result, logsum and state."""
    step = small("llama-3.2-1b", "attention")
    (group,) = step.graph.layers
    found = {each.at.removeprefix("blocks.*."): each.saved for each in Inside(step, group, group.graph, {}).operations}
    assert found["attn.o_proj.weight"] - found["attn_add"] == 2 * 23 * (2 * (2 * Q + 2 * K) + 4 * 6) + 24
    assert found["attn_norm.weight"] < found["attn_add"]


def test_flops_of_gpt2_by_hand() -> None:
    """Twelve whole attentions again, because their module ends with a dropout: 8·T·D² + 4·T²·D FLOPs each, T 1,024 and
    D 768. Their lines show it."""
    again = 12 * (8 * 1024 * 768**2 + 4 * 1024**2 * 768)
    without = load("gpt2", resid_pdrop=0).flops(ctx=1024, train=True, recompute="attention")
    assert without.recomputed_flops == again - 12 * 2 * 1024 * 768**2
    plain, found = (load("gpt2").flops(ctx=1024, train=True, recompute=how) for how in ("none", "attention"))
    assert found.recomputed_flops == again == found.total - plain.total
    masked = load("gpt2").flops(ctx=1024, train=True, recompute="attention", masked=True)
    assert again - masked.recomputed_flops == 12 * 4 * 768 * (1024**2 - 1024 * 1025 // 2)
    more = {new["path"]: new["flops"] - old["flops"] for new, old in zip(found.lines, plain.lines, strict=True)}
    leaves = {path.removeprefix("blocks.*.attn.") for path, flops in more.items() if flops}
    assert leaves == {"q_proj", "k_proj", "v_proj", "scores", "values", "o_proj"}
    with pytest.raises(UsageError, match="no attention to recompute"):
        load("mamba-130m").flops(train=True, recompute="attention")


@pytest.mark.usefixtures("presets_apart")
def test_fit_names_it_where_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three percent more FLOPs: q, k, v, scores and values again, of all that a step of three passes does."""
    llama = load("llama-3.1-8b")
    changes = {json.dumps(each["set"]): each for each in llama.train(ctx=8192, on="80GiB").fit["changes"]}
    attention = changes['{"recompute": "attention"}']
    again = llama.flops(ctx=8192, train=True, recompute="attention")
    assert attention["flops_ratio"] == 1 + again.recomputed_flops / (again.total - again.recomputed_flops)
    monkeypatch.setattr(bounds, "row_of", lambda _: {"16-bit": Measured(0, 1)})
    assert '{"recompute": "attention"}' not in json.dumps(load("gpt2").train(batch=64, on="8GiB").fit["changes"])


def test_no_class_runs_megatrons_modules_or_every_second_matmul() -> None:
    """So their error is not measured, and no step is called equal to the class."""
    found = load("gpt2").train(ctx=1024, recompute="selective:op")
    assert found.error_bound is None and not found.exact
    assert "≈: the error with recompute='selective:op' was not measured." in found.notes
