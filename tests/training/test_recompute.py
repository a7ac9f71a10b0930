"""Attention recomputed in the backward pass: saved bytes, the peak and FLOPs. Kind: golden, refusal."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.cli import Ran
from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Workload
from tfacct.training import bounds
from tfacct.training.measured import Measured
from tfacct.training.memory import training_memory
from tfacct.training.phases import Inside
from tfacct.training.recipe import Recipe
from tfacct.training.step import TrainingStep


def test_llama_by_hand() -> None:
    """In bf16, a layer saves 4·N·H + 4·K·H + 4·N bytes a token less, and the kernel's seeds, 24 bytes: q, k, v and the
    result, 2 bytes a number, and a log-sum in fp32. cos and sin are arguments of the recomputed module: 4·H bytes a
    token."""
    llama = load("llama-3.1-8b")
    plain, again = llama.train(ctx=4096), llama.train(ctx=4096, recompute="attention")
    heads, keys, size, tokens = 32, 8, 128, 4096
    block = tokens * (2 * 2 * heads * size + 2 * 2 * keys * size + 4 * heads) + 24
    assert plain.saved_bytes - again.saved_bytes == 32 * block + tokens * 2 * 2 * size
    assert again.peak_bytes < plain.peak_bytes


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


def test_a_list_under_autocast_saves_what_its_module_reads_in_fp32() -> None:
    """attention reads the norm's result: 4 bytes a number, in place of three 16-bit casts and four of weights."""
    layer = small("llama-3.2-1b", "attention", weights_dtype="fp32").graph.layers[0].graph
    (read,) = (each for each in layer.saved if each.path == "blocks.*.attn_norm")
    assert (read.axes, read.role) == ("B T D", "fp32")
    casts = {each.path.removeprefix("blocks.*.attn.") for each in layer.recomputed if each.path.endswith("_cast")}
    assert casts == {f"{which}_proj.weight_cast" for which in "qkvo"}


def test_flops_of_gpt2_by_hand(run: Callable[..., Ran]) -> None:
    """Twelve whole attentions again, because their module ends with a dropout: 8·T·D² + 4·T²·D FLOPs each, T 1,024 and
    D 768."""
    again = 12 * (8 * 1024 * 768**2 + 4 * 1024**2 * 768)
    without = load("gpt2", resid_pdrop=0).flops(ctx=1024, train=True, recompute="attention")
    assert without.recomputed_flops == again - 12 * 2 * 1024 * 768**2
    ran = run("flops", "gpt2", "--ctx", "1k", "--train", "--recompute", "attention")
    assert "training-step FLOPs with attention recomputed" in ran.out
    assert "runs attention again (96.6 G FLOPs), up to the last matmul that the backward pass needs." in " ".join(
        ran.out.split()
    )
    (facts,) = json.loads(run("flops", "gpt2", "--ctx", "1k", "--train", "--recompute", "attention", "--json").out)[
        "models"
    ]
    assert (facts["recompute"], facts["recomputed_flops"]) == ("attention", again)
    plain = load("gpt2").flops(ctx=1024, train=True)
    assert facts["total_flops"] == plain.total + again
    # q, k, v and the last matmul have T · D² FLOPs each: only the lines show which of them are recomputed.
    more = {
        new["path"]: new["flops"] - old["flops"]
        for new, old in zip(facts["lines"], plain.models[0]["lines"], strict=True)
    }
    leaves = {path.removeprefix("blocks.*.attn.") for path, flops in more.items() if flops}
    assert leaves == {"q_proj", "k_proj", "v_proj", "scores", "values", "o_proj"}
    with pytest.raises(UsageError, match="no attention to recompute"):
        load("mamba-130m").flops(train=True, recompute="attention")


def test_recomputed_attention_is_printed(run: Callable[..., Ran]) -> None:
    out = run("train", "llama-3.1-8b", "--recompute", "attention", "--ctx", "1k").out
    assert "attention recomputed" in " ".join(out.split())
    with pytest.raises(UsageError, match="recompute is none, full, attention, selective"):
        load("gpt2").train(recompute="half")  # type: ignore[arg-type]


def test_fit_names_it_where_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three percent more FLOPs: q, k, v, scores and values again, of all that a step of three passes does."""
    llama = load("llama-3.1-8b")
    changes = {json.dumps(each["set"]): each for each in llama.train(ctx=8192, on="80GiB").fit["changes"]}
    attention = changes['{"recompute": "attention"}']
    again = llama.flops(ctx=8192, train=True, recompute="attention")
    assert attention["flops_ratio"] == 1 + again.recomputed_flops / (again.total - again.recomputed_flops)
    monkeypatch.setattr(bounds, "row_of", lambda _: {"16-bit": Measured(0, 1)})
    assert '{"recompute": "attention"}' not in json.dumps(load("gpt2").train(batch=64, on="8GiB").fit["changes"])


@pytest.mark.parametrize(
    ("name", "asked", "peak"),
    [
        ("plbart-base", {"batch": 5, "ctx": 300, "source": 320}, 2_724_086_776),
        ("bart-base", {"batch": 2, "ctx": 256, "source": 256, "gradient_accumulation": 3}, 2_739_170_168),
        ("bert-base", {"batch": 5, "ctx": 256, "gradient_accumulation": 3}, 2_348_838_724),
        ("bert-base", {"batch": 5, "ctx": 256, "gradient_accumulation": 3, "keep_logits": True}, 2_348_838_724),
    ],
)
def test_autocast_over_layers_that_run_again(name: str, asked: dict[str, Any], peak: int) -> None:
    """Golden: transformers 5.23's classes on torch 2.13, as `--exact` runs them. Decoder layers read the encoder's
    output again, in fp32; the peak of the others is the loss in the forward pass, which reads the logits anyway.
    16-bit copies of biases, 0.01% of the peak, are not counted."""
    step = load(name).train(weights_dtype="fp32", recompute="full", **asked)
    assert step.peak_bytes == pytest.approx(peak, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "recipe", "batch", "peak"),
    [
        ("hunyuan-a13b", Recipe(recompute="full"), 4, 93_764_018_696),
        ("ernie-4.5-21b-a3b", Recipe(lora="16:q_proj,k_proj,v_proj,o_proj", loss="chunked"), 1, 9_026_796_784),
    ],
)
def test_results_of_experts_have_the_dtype_of_their_shares(name: str, recipe: Recipe, batch: int, peak: int) -> None:
    """Peaks of the classes with four layers. Shares in fp32 are 3.4% of HunYuan's peak; ERNIE casts them to 16 bits."""
    model = load(name, num_hidden_layers=4).loaded
    found = training_memory(model, Workload(context=4096, tokens=4096, batch=batch), recipe)
    assert found.peak.total == pytest.approx(peak, rel=0.002)


def test_a_causal_mask_is_an_argument_in_the_dtype_of_the_embeddings() -> None:
    """Golden: the classes, as `--exact` runs them. Eager attention adds a mask of B · T · S numbers, in fp32 under
    autocast; BERT's tokens see one another without a mask."""
    sizes = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2}
    llama = load({"model_type": "llama", **sizes, "intermediate_size": 1408, "vocab_size": 2048})
    asked: dict[str, Any] = {"batch": 2, "ctx": 1024, "attention": "eager", "optimizer": "none"}
    asked["weights_dtype"] = "fp32"
    assert llama.train(**asked, recompute="full").peak_bytes == 337_447_176
    assert llama.train(**asked, recompute="attention").peak_bytes == 465_541_384
    asked["weights_dtype"] = None  # below, with each MLP under torch.utils.checkpoint, which reads no mask
    assert llama.train(**asked, recompute="selective:mlp").peak_bytes == 629_624_072
    assert llama.train(**{**asked, "attention": "sdpa"}, recompute="selective:mlp").peak_bytes == 174_163_304
    bert = load("bert-base").train(batch=5, ctx=300, attention="eager", recompute="attention")
    assert bert.peak_bytes == 1_262_599_192


def test_no_class_runs_megatrons_modules_or_every_second_matmul() -> None:
    """So their error is not measured, and no step is called equal to the class."""
    found = load("gpt2").train(ctx=1024, recompute="selective:op")
    assert found.error_bound is None and not found.exact
    assert "≈: the error with recompute='selective:op' was not measured." in found.notes


def test_a_chunked_loss_computes_the_gradients_of_the_whole_head() -> None:
    """Golden: CamemBERT's class with its head in chunks. Its dense layer and norm have 768² + 3 · 768 numbers."""
    step = load("camembert-base").train(batch=5, ctx=512, loss="chunked", recompute="full", weights_dtype="fp32")
    assert step.peak_bytes == 1_967_156_128
