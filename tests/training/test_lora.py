"""LoRA: adapters of a frozen model and the activations that they save. Kind: golden, refusal."""

import pytest

from tests.helpers.cli import Run
from tests.helpers.models import tiny
from tests.helpers.training_step import PAIRS_AND_OTHERS
from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.training.lora import LoraTargets, adapter_parameters, lora_targets, target_modules
from tfacct.training.model_step import training_step
from tfacct.training.recipe import Recipe
from tfacct.training.step import TrainingStep
from tfacct.training.unsupported import refusal


def test_optimizer_and_gradients_are_those_of_the_adapters() -> None:
    """Rank 16 on llama-3.1-8b: per layer 16 · (2·(4096 + 4096) + 2·(4096 + 1024) + 3·(4096 + 14336)) parameters."""
    step = load("llama-3.1-8b").train(ctx=64, lora=16)
    params = 32 * 16 * (2 * 8192 + 2 * 5120 + 3 * 18432)
    assert step.lora_adapters is not None and step.lora_adapters["params"] == params == 41_943_040
    assert step.lora_adapters["bytes"] == step.gradients_bytes == 4 * params
    assert step.optimizer_bytes == 2 * 4 * params + 4 * 32 * 14  # AdamW counts the steps of each tensor
    narrow = load("llama-3.1-8b").train(ctx=64, lora="16:q_proj", adapter_dtype="bf16")
    assert narrow.lora_adapters is not None and narrow.lora_adapters["bytes"] == 2 * 32 * 16 * 8192
    assert narrow.lora_adapters["products"] == ["attn.q_proj"]
    assert narrow.lora_adapters["modules"] == ["model.layers.*.self_attn.q_proj"]
    assert load("llama-3.1-8b").train(ctx=64).lora is None


def test_a_product_that_a_class_has_in_one_has_one_adapter() -> None:
    """Of gpt2's c_attn: 16 · (768 + 3 · 768) parameters a layer, not three times 16 · (768 + 768)."""
    step = load("gpt2").train(ctx=64, lora="16:c_attn")
    assert step.lora_adapters is not None and step.lora_adapters["params"] == 12 * 16 * 4 * 768
    assert step.lora_adapters["products"] == ["attn.q_proj", "attn.k_proj", "attn.v_proj"]
    assert step.lora_adapters["modules"] == ["transformer.h.*.attn.c_attn"]


@pytest.mark.parametrize(
    ("name", "lora"), [("qwen3.5-35b-a3b", "8"), ("zamba2-1.2b", "8:q_proj"), ("mamba-130m", "8"), ("lfm2-1.2b", "8:x")]
)
def test_adapters_are_not_counted_where_peft_gives_others(name: str, lora: str) -> None:
    """Routed experts, shared layers, a projection that peft refuses, a name that no weight has."""
    assert adapter_parameters(load(name).loaded, lora_targets(lora)) is None


def test_products_of_latent_attention_by_the_classes_names() -> None:
    """Rank 16 on DeepSeek-V3's kv_b_proj, one layer of the class: 16 · (512 + 128 · (128 + 128)) parameters a block."""
    asked = "attn.q_a_proj attn.q_b_proj attn.kv_a_proj attn.k_b_proj attn.v_b_proj".split()
    step = load("deepseek-v3", quantization_config=None).train(ctx=64, lora="16:kv_b_proj")
    assert step.lora_adapters is not None and step.lora_adapters["params"] == 61 * 16 * (512 + 128 * 256)
    assert step.lora_adapters["products"] == ["attn.k_b_proj", "attn.v_b_proj"]
    every = "16:q_a_proj,q_b_proj,kv_a_proj_with_mqa,kv_b_proj"
    several = load("deepseek-v3", quantization_config=None).train(ctx=64, lora=every)
    assert several.lora_adapters is not None and several.lora_adapters["products"] == asked


def test_a_note_says_that_adapters_save_more_than_full_fine_tuning(run: Run) -> None:
    wide = run("train", "llama-3.1-8b", "--ctx", "4k", "--lora", "16").out_line
    more = (
        "LoRA needs more memory for saved activations than full fine-tuning, 38.0 GiB instead of 26.6 GiB."
        " fp32 adapters copy their inputs to fp32: try --adapters bf16."
    )
    assert more in wide and "Adapters: rank 16 in fp32, 41,943,040 parameters, 160 MiB." in wide
    narrow = run("train", "llama-3.1-8b", "--ctx", "4k", "--lora", "16", "--adapters", "bf16")
    assert narrow.code == 0 and "LoRA needs more" not in narrow.out
    timed = run("train", "llama-3.1-8b", "--ctx", "1k", "--lora", "16", "--on", "h100").out
    assert "tokens/s per GPU; the adapters' own matmuls are not included." in " ".join(timed.split())


def test_what_would_make_it_fit(run: Run) -> None:
    ran = run("train", "llama-3.1-8b", "--ctx", "8k", "--on", "80GiB", "--json")
    changes = {" ".join(each["set"].values()): each for each in ran.models[0]["fit"]["changes"]}
    peaks = {name: change["peak_bytes"] / 2**30 for name, change in changes.items() if "16" in name.split()}
    own = load("llama-3.1-8b").train(ctx="8k", qlora=True, recompute="full")
    assert changes["full 16 nf4"]["peak_bytes"] == own.peak_bytes and peaks.pop("full 16 nf4") < 20
    shown = {name: f"{peak:.1f}" for name, peak in peaks.items()}
    assert shown == {"16 bf16": "72.0", "16": "99.3", "full 16 bf16": "29.1"}
    assert changes["16 bf16"]["costs"] == "frozen weights" and changes["16 bf16"]["flops_ratio"] is None


def test_modules_are_named_whole_where_others_end_alike() -> None:
    """GPT-2's MLP has a c_proj too: by the end of the name alone, peft would put an adapter there."""
    assert target_modules(load("gpt2").loaded, lora_targets("8:o_proj")) == ("transformer.h.*.attn.c_proj",)
    assert target_modules(load("llama-3.1-8b").loaded, lora_targets("8:o_proj,q_proj")) == ("o_proj", "q_proj")


def test_ranks_and_products_as_they_are_written() -> None:
    assert lora_targets("16") == LoraTargets(16, ())
    assert lora_targets("8: q_proj, v_proj") == LoraTargets(8, ("q_proj", "v_proj"))
    with pytest.raises(UsageError):
        lora_targets("q_proj")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("deepseek-v3 --lora 16 --weights nf4", "--lora 16:q_a_proj,q_b_proj,kv_a_proj,kv_b_proj,o_proj is supported"),
        ("qwen1.5-moe-a2.7b --lora 16:up_proj", "--lora 16:up_proj,q_proj,k_proj,v_proj,o_proj is supported"),
    ],
)
def test_advice_names_the_products_to_type(run: Run, arguments: str, hint: str) -> None:
    assert hint in run("train", *arguments.split()).err_line
    wanted = hint.removesuffix(" is supported").split()
    assert run("train", *arguments.split(), *wanted, "--ctx", "64").code == 0


def test_the_number_of_adapters_parameters_is_known_of_each_of_these() -> None:
    def counts(model: LoadedModel) -> bool:
        return any(adapter_parameters(model, lora_targets(on)) for on in ("3", "3:in_proj", "3:q_proj"))

    assert all(counts(tiny(family)) for family in PAIRS_AND_OTHERS)


def test_a_name_that_modules_outside_the_layers_have_is_refused() -> None:
    model = tiny("bert")
    assert refusal(model, Recipe(dtype="bf16", lora="4:dense", attention="eager")) == (
        "peft would also adapt cls.predictions.transform.dense for 'dense': only adapters inside the layers are"
        " supported"
    )


def formula(name: str, recipe: Recipe, source: int = 0) -> TrainingStep:
    """A step by the formula, whether its family is answered or not."""
    model, work = load(name).loaded, Workload(context=64, tokens=64, batch=1, new_source=source)
    return training_step(model, work, recipe)


def test_what_frozen_weights_leave_saved() -> None:
    """A convolution's input stays saved, because torch needs it for the gradient of the input too; xielu's tensor for
    its learned parameters is not saved."""
    conv = formula("lfm2-1.2b", Recipe(lora="4"))
    later = next(group.graph for group in conv.graph.layers if 1 in group.numbers)
    assert "blocks.*.conv.conv.in" in {each.path for each in later.saved}
    whole, part = (
        {each.path for each in step.graph.layers[-1].graph.saved if ".mlp.act." in each.path}
        for step in (formula("apertus-8b", Recipe()), formula("apertus-8b", Recipe(lora="4")))
    )
    assert len(whole - part) == 1 and part < whole
