"""`train --exact`: a training step of the class on the meta device. Kind: oracle."""

import json
import sys
from inspect import signature
from typing import Any

import pytest

from tests.families import TINY
from tests.helpers.class_bytes import bytes_of_row, step_of_row
from tests.helpers.cli import Run
from tests.helpers.lazy import lazy
from tfacct import Model, load
from tfacct.commands.train import TrainOptions
from tfacct.ledger.workload import Workload
from tfacct.training.exact import exact
from tfacct.training.recipe import Recipe

torch, autocast, hooks = lazy("torch"), lazy("tfacct.meta.autocast"), lazy("tfacct.meta.hooks")

SMALL: dict[str, Any] = {
    **{"model_type": "llama", "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3, "vocab_size": 512},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
}
STEPS = [
    *("llama-3.1-8b ctx=4096", "llama-3.1-8b ctx=4096 recompute=full", "llama-3.1-8b ctx=4096 attention=eager"),
    *(f"llama-3.1-8b ctx=4096 {how}" for how in ("weights_dtype=fp32", "lora=16", "lora=16 weights_dtype=nf4")),
    *("gpt2 ctx=1024 batch=8 dtype=fp32 attention=eager", "mixtral-8x7b ctx=2048"),
    "mistral-7b-v0.3 ctx=4096",  # its null says that there is no window, where the class has one of 4,096 by default
]
FURTHER = [
    *("llama-3.2-1b ctx=2048 batch=4", "qwen2.5-7b ctx=4096", "qwen3-8b ctx=4096", "gpt2-xl ctx=1024 dtype=fp32"),
    *("gpt2-xl ctx=1024 batch=4 attention=eager", "gpt-oss-20b ctx=4096 attention=eager"),
]
"""Rows of class_bytes.toml."""


@pytest.mark.parametrize("row", [*STEPS, *(pytest.param(row, marks=pytest.mark.slow) for row in FURTHER)])
def test_bytes_of_a_step_of_the_class(row: str) -> None:
    model, asked = step_of_row("measured", row)
    found = model.train(exact=True, **asked)
    assert (found.saved_bytes, found.peak_bytes) == bytes_of_row("measured", row)
    assert sum(line["bytes"] for line in found.lines) == found.saved_bytes and found.exact


def test_an_mlp_by_hand() -> None:
    """B = 3, T = 40, F = 56 in bf16, in two layers: `down_proj` saves what it reads, the activation its input, and the
    product of both their results what it multiplies: 1, 1 and 2 tensors of B · T · F."""
    sizes = {"hidden_size": 24, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 3}
    tiny = load({"model_type": "llama", "num_key_value_heads": 3, "vocab_size": 88, "head_dim": 8, **sizes})
    found = tiny.train(exact=True, ctx=40, batch=3, optimizer="sgd")
    saved = {line["module"]: line["bytes"] for line in found.lines}
    tensor = 2 * 2 * 3 * 40 * 56
    assert saved["model.layers.*.mlp.down_proj"] == saved["model.layers.*.mlp.act_fn"] == tensor
    assert saved["model.layers.*.mlp"] == 2 * tensor
    assert found.weights_bytes == found.gradients_bytes == 2 * tiny.params().total_params
    assert found.optimizer_bytes == 0


def test_grouped_heads_in_fp32_run_the_math_kernel() -> None:
    """CUDA's other kernels take no grouped heads in fp32: a softmax of B · N · T · T is saved."""
    sizes = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 1, "vocab_size": 56, "head_dim": 8}
    of = {"model_type": "llama", "num_attention_heads": 4, **sizes}
    grouped, whole = (
        load({**of, "num_key_value_heads": keys}).train(exact=True, ctx=72, batch=2, dtype="fp32") for keys in (2, 4)
    )
    softmax, module = 4 * 2 * 4 * 72 * 72, "model.layers.*.self_attn"
    by_grouped, by_whole = ({line["module"]: line["bytes"] for line in each.lines}[module] for each in (grouped, whole))
    assert by_grouped >= softmax > by_whole


def test_optimizer_state_is_of_the_classes_own_parameters() -> None:
    """Qwen3.5 with more value heads than key heads: 2 · 2 bytes a parameter, and 4 a tensor."""
    given = load(TINY["qwen3_5_text"], linear_num_key_heads=2, linear_num_value_heads=4)
    found = given.train(exact=True, ctx=72, batch=2)
    tensors = (found.optimizer_bytes - 2 * found.weights_bytes) / 4
    assert found.weights_bytes == 2 * given.params().total_params and tensors == int(tensors) > 0


def test_muon_leaves_an_embedding_in_a_layer_to_adamw() -> None:
    """T5's first layers have one of 32 distances for 8 heads. An encoder layer has 12 · 512² numbers in matrices, a
    decoder layer 16 · 512², with one number of state each; AdamW's 15 tensors have two, and a step count."""
    t5 = load("t5-small", num_layers=2, num_decoder_layers=2)
    asked = {"ctx": 24, "source": 40, "optimizer": "muon"}
    others = 32_128 * 512 + 2 * 32 * 8 + 12 * 512
    for found in (t5.train(**asked), t5.train(exact=True, **asked)):
        assert found.optimizer_bytes == 2 * 2 * (12 + 16) * 512**2 + 2 * 2 * others + 15 * 4


@pytest.mark.parametrize(
    ("asked", "changes"),
    [
        ({"gradient_accumulation": 4}, "peak_bytes"),
        ({"keep_logits": True}, "peak_bytes"),
        ({"loss": "chunked"}, "saved_bytes"),
        ({"recompute": "attention"}, "saved_bytes"),
        ({"optimizer": "muon"}, "optimizer_bytes"),
        ({"optimizer": "adamw-8bit"}, "optimizer_bytes"),
    ],
)
def test_recipes_change_their_figures(asked: dict[str, Any], changes: str) -> None:
    plain, found = (load(SMALL).train(exact=True, ctx=56, batch=2, **each) for each in ({}, asked))
    assert found.models[0][changes] != plain.models[0][changes]
    assert found.formula_error is not None and abs(found.formula_error) < 0.01


def test_the_batch_is_there_in_the_optimizer_step() -> None:
    """fp32 master weights put the peak there, and 24 more tokens have 8 bytes each."""
    one, two = (load(SMALL).train(exact=True, ctx=24, batch=batch, master_weights="fp32") for batch in (1, 2))
    assert one.peak_phase == two.peak_phase == "optimizer step" and one.formula_error == two.formula_error == 0
    assert two.peak_bytes - one.peak_bytes == 8 * 24


def test_dropout_of_adapters_saves_its_mask() -> None:
    """Of B · T · N · H elements, all that `o_proj` reads. In the second layer a byte each for the mask, and 2 for what
    is left next to what attention itself saves. In the first no gradient goes beyond the adapter: what is left
    replaces what it read."""
    llama = load({**TINY["llama"], "num_hidden_layers": 2, "vocab_size": 512})
    asked = {"ctx": 24, "batch": 3, "lora": "2:o_proj", "adapter_dtype": "bf16"}
    plain, dropped = (llama.train(exact=True, lora_dropout=share, **asked) for share in (0.0, 0.1))
    width = TINY["llama"]["num_attention_heads"] * TINY["llama"]["head_dim"]
    assert dropped.saved_bytes - plain.saved_bytes == (1 + 2) * 3 * 24 * width


def test_a_head_stays_unquantized() -> None:
    """Llama 4's class has another base model than its head's input: 202,048 · 5,120 numbers in 2 bytes each, or in half
    a byte."""
    scout = load("llama-4-scout-text", num_hidden_layers=2, layer_types=None)
    asked = {"ctx": 24, "lora": "16:q_proj,k_proj,v_proj,o_proj", "weights_dtype": "nf4"}
    formula, found = (scout.train(exact=each, **asked) for each in (False, True))
    assert abs(formula.weights_bytes - found.weights_bytes) < 202_048 * 5_120 / 10


def test_a_model_without_a_class_runs_as_the_reference_model() -> None:
    """The loss saves log-probabilities of B · T tokens in fp32, by the model itself."""
    mine = load("cs336-gpt2-small")
    found = mine.train(exact=True, ctx=24, batch=2, optimizer="sgd-momentum")
    saved = {line["module"]: line["bytes"] for line in found.lines}
    assert found.class_name == "the reference model" and [*found.versions] == ["torch"]
    assert saved["the reference model"] >= 4 * 2 * 24 * 50257
    assert found.weights_bytes == found.optimizer_bytes == 2 * mine.params().total_params
    assert found.formula_error is None and "no class" in found.formula_reason
    again = mine.train(exact=True, ctx=24, batch=2, recompute="full", weights_dtype="fp32")
    assert again.weights_bytes == 2 * found.weights_bytes and "blocks.*.mlp.act" not in str(again.lines)


def test_the_json_and_the_first_line(run: Run) -> None:
    ran = run("train", "gpt2", "--exact", "--ctx", "64", "--on", "2GiB", "--json")
    assert ran.code == 0, ran.err
    document = ran.document
    (facts,) = document["models"]
    assert facts["exact"] and facts["fit"]["fits"] and facts["formula_error"] == 0.0
    assert facts["formula_peak_bytes"] == facts["peak_bytes"] == load("gpt2").train(ctx=64).peak_bytes
    assert {*facts["versions"]} == {"torch", "transformers"} and facts["seconds"] > 0
    assert document["answer"].startswith(f"Fits in 2 GiB: peak 1.07 GiB ({facts['peak_bytes']:,} bytes)")
    close = "It may run out of memory: the CUDA allocator reserved 17–24% more"  # 1.07 GiB · 1.17 is 1.25 GiB
    assert not any(close in note for note in facts["notes"])
    assert any(close in note for note in load("gpt2").train(exact=True, ctx=64, on="1.2GiB").notes)
    sizes = "Largest sizes in the step: weights 237 MiB, gradients 237 MiB, optimizer state 475 MiB."
    assert f"The peak is in the backward pass of transformer.wte. {sizes}" in facts["notes"]
    early = load("gpt2").train(exact=True, ctx=512).notes
    assert f"The peak is while computing the loss. {sizes}" in early


def test_a_package_that_is_not_installed_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import tfacct.meta.model  # so that it is an attribute of its package

    monkeypatch.setitem(sys.modules, "tfacct.meta.model", None)
    monkeypatch.delattr(tfacct.meta, "model")
    ran = run("train", "gpt2", "--exact")
    assert ran.code == 2 and "pip install '.[measure]'" in ran.err and "pip install transformers" in ran.err


def test_a_slow_class_is_announced(run: Run) -> None:
    mamba = TINY["mamba"]
    ran = run("train", "-", "--exact", "--ctx", "8", stdin=json.dumps(mamba).encode())
    assert ran.code == 0 and "loops over the tokens in Python" in ran.err
    assert "The formula does not cover this step" in ran.out_line


def test_progress_is_reported_once_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = []
    gpt2 = load("gpt2", n_layer=1).loaded
    clock = iter(range(10**6))
    monkeypatch.setattr("tfacct.training.exact.time.perf_counter", lambda: next(clock))
    exact(gpt2, Workload(8, 8, 2), Recipe(), progress=lambda *at: reported.append(at))
    names, done, of = zip(*reported, strict=True)
    assert {*names} == {"gpt2"} and len({*of}) == 1 and [*done] == sorted(done) and done[-1] <= of[0]


def test_type_checkers_know_every_option() -> None:
    assert {*signature(Model.train).parameters} - {"self", "exact"} == {*TrainOptions.__annotations__}


def test_work_outside_every_submodule_is_the_loss() -> None:
    """Modules that run are listed from the outside: nothing, the model (""), then its submodules."""
    running = hooks.Running(lambda: None)
    assert running.phase == "loss, forward"
    running.modules.append("")
    assert running.phase == "loss, forward"
    running.modules.append("h.0")
    assert running.phase == "h.0, forward"
    running.leave()
    assert running.phase == "loss, forward"
    running.start_backward()
    assert running.phase == "loss, backward"


def test_the_loss_of_16_bit_logits_is_fp32_under_autocast() -> None:
    """torch.autocast on CUDA: log_softmax in 16 bits, then nll_loss in fp32. Without autocast the loss has 16 bits."""
    logits = torch.empty(6, 11, device="meta", dtype=torch.bfloat16)
    labels = torch.empty(6, device="meta", dtype=torch.long)
    with autocast.autocast(torch.bfloat16):
        assert torch.nn.functional.cross_entropy(logits, labels).dtype == torch.float32
        for enabled, dtype in ((True, torch.bfloat16), (False, torch.float32)):
            with torch.autocast("meta", enabled=enabled):
                assert torch.matmul(logits.float(), logits.float().T).dtype == dtype
    assert torch.nn.functional.cross_entropy(logits, labels).dtype == torch.bfloat16


@pytest.mark.parametrize("trained", [True, False])
def test_a_weight_that_runs_twice_is_cast_as_often_as_torch_casts_it(trained: bool) -> None:
    """Once if it is trained: layers that share weights save one copy of them."""
    linear = torch.nn.Linear(4, 4, bias=False).requires_grad_(trained)

    def saved(region: Any) -> int:
        found: list[Any] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda one: found.append(one) or one, lambda one: one), region:
            linear(linear(torch.ones(2, 4, requires_grad=True)))
        return len({one.untyped_storage().data_ptr() for one in found})

    assert saved(autocast.autocast(torch.bfloat16)) == saved(torch.autocast("cpu", torch.bfloat16)) == 2 + trained
