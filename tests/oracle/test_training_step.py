"""Parts of a training step, compared with peft, bitsandbytes and the transformers class. Kind: oracle."""

import re
from fractions import Fraction
from typing import Any, Literal

import pytest

from tests.families import TINY
from tests.helpers.classes import ClassRefusesError, of_the_class
from tests.helpers.lazy import lazy
from tests.helpers.models import by_kind, every_other, tiny
from tests.helpers.training_step import PAIRS_AND_OTHERS, SMALL
from tfacct import load
from tfacct.accounts.step_flops import recomputed_flops
from tfacct.ledger.storage import Stored, storage
from tfacct.ledger.workload import Request, Workload
from tfacct.loading.model import LoadedModel, load_model
from tfacct.reports.flops import flops
from tfacct.training.exact import build, exact
from tfacct.training.lora import CODEBOOKS, adapter_parameters, lora_targets, target_modules
from tfacct.training.memory import changes, training_memory
from tfacct.training.recipe import Recipe

EAGER = {"attention": "eager"}
EAGER_AUTOCAST = EAGER | {"weights_dtype": "fp32"}
ATTENTION_LORA = {"lora": "16:q_proj,k_proj,v_proj,o_proj", "loss": "chunked"}

torch, flop_counter, meta_model = lazy("torch"), lazy("torch.utils.flop_counter"), lazy("tfacct.meta.model")
cuda = lazy("tfacct.meta.cuda")


def test_a_layer_of_bitsandbytes_itself() -> None:
    """70 × 130 numbers, neither a multiple of 64: their bytes on the library's own layer, quantized here."""
    bitsandbytes: Any = pytest.importorskip("bitsandbytes")
    layer = bitsandbytes.nn.Linear4bit(130, 70, bias=False, quant_type="nf4").to(torch.bfloat16).to("cpu")
    state = layer.weight.quant_state
    made = (layer.weight.data, state.absmax, state.code, state.offset, state.state2.absmax, state.state2.code)
    each = Stored("matrix", 70 * 130, 130)
    assert sum(tensor.nbytes for tensor in made) == storage("nf4").bytes(each) + CODEBOOKS


@pytest.mark.parametrize("family", ("llama", *PAIRS_AND_OTHERS))
@pytest.mark.parametrize("lora", ["3", "3:q_proj", "3:in_proj", "3:k_proj,down_proj"])
def test_adapters_have_as_many_parameters_as_pefts(family: str, lora: str) -> None:
    model, targets = tiny(family), lora_targets(lora)
    found = adapter_parameters(model, targets)
    if found is None:
        return
    built = meta_model.build_model(model.of_class, "eager", "bf16", auto=model.config.task_head.auto)
    built = meta_model.with_lora(built, targets.rank, target_modules(model, targets))
    assert found == sum(one.numel() for one in built.parameters() if one.requires_grad)


@pytest.mark.parametrize(
    "recipe", [{}, {"recompute": "full"}, {"attention": "eager"}, {"weights_dtype": "fp32"}, {"master_weights": "fp32"}]
)
def test_a_packed_row_is_the_classes_own(recipe: dict[str, Any]) -> None:
    """4 sequences of 96 tokens in one row, with a mask: what the class saves, and its peak, on meta."""
    model, asked = load(SMALL), Recipe(packing=True, **recipe).checked()
    work = Workload(context=96, tokens=96, batch=4)
    found = exact(model.loaded, work, asked)
    formula = model.train(ctx=96, batch=4, packing=True, **recipe)
    assert formula.saved_bytes == found.saved_bytes
    assert formula.peak_bytes == pytest.approx(found.peak_bytes, rel=0.003)


@pytest.mark.parametrize(
    ("name", "sets", "recipe", "ctx", "batch"),
    [
        ("bloom-560m", {"n_layer": 4, "vocab_size": 640}, EAGER | {"loss": "chunked"}, 128, 4),
        ("bloom-560m", {"n_layer": 4, "vocab_size": 2_048}, EAGER | {"lora": "16", "loss": "chunked"}, 1_000, 8),
        ("falcon-7b", {"num_hidden_layers": 6, "vocab_size": 3_000}, EAGER | {"recompute": "full"}, 2_048, 8),
        ("falcon-7b", {"num_hidden_layers": 6, "vocab_size": 3_000}, EAGER | {"recompute": "attention"}, 2_048, 8),
        ("qwen3-30b-a3b", {"num_hidden_layers": 2, "vocab_size": 8_000}, ATTENTION_LORA, 2_048, 16),
        ("distilroberta-base", {"num_hidden_layers": 4, "vocab_size": 1_500}, EAGER_AUTOCAST, 512, 8),
        ("bart-base", {"decoder_layers": 2, "encoder_layers": 2, "vocab_size": 1_500}, EAGER_AUTOCAST, 768, 4),
        ("mpnet-base", {"num_hidden_layers": 4, "vocab_size": 1_600}, {"lora": "16"}, 512, 8),
    ],
)
def test_a_peak_inside_a_layer_is_that_of_the_class(
    name: str, sets: dict[str, Any], recipe: dict[str, Any], ctx: int, batch: int
) -> None:
    """Few layers and a small vocabulary: the peak is inside a layer, mostly in its forward pass."""
    model, asked = load(name, **sets), {"ctx": ctx, "batch": batch, **recipe}
    found = model.train(**asked, exact=True)
    assert re.search(r"\.\d+\.", found.peak_phase)
    assert model.train(**asked).peak_bytes == pytest.approx(found.peak_bytes, rel=0.01)


@pytest.mark.parametrize(
    ("family", "recompute", "sets"),
    [
        ("llama", "attention", {}),
        ("qwen3", "attention", {}),
        ("gpt2", "attention", {}),
        ("gpt2", "attention", {"resid_pdrop": 0.0}),
        ("gpt2", "full", {}),
        ("gpt2", "full", {"resid_pdrop": 0.0}),
        ("opt", "full", {}),
        ("opt", "full", {"dropout": 0.0}),
        ("albert", "attention", {}),
        ("bert", "attention", {"hidden_dropout_prob": 0.0}),
        ("deberta-v2", "attention", {}),
        ("roberta-prelayernorm", "attention", {"hidden_dropout_prob": 0.0}),
        ("jetmoe", "attention", {}),
        ("biogpt", "full", {}),
        ("xglm", "full", {}),
        ("esm", "full", {}),
        ("esm", "attention", {}),
        ("openai-gpt", "attention", {}),
        ("modernbert", "attention", {"attention_dropout": 0.1}),
        ("ernie4_5_moe", "full", {}),
        ("longcat_flash", "full", {}),
    ],
)
def test_flops_are_what_torch_counts(
    family: str, recompute: Literal["full", "attention"], sets: dict[str, Any]
) -> None:
    """The classes' own steps, forward and backward, with layers or their attention under torch's checkpoint."""
    model = tiny(family).with_fields(sets)
    report = flops([model], Request(ctx=5, batch=2), train=True, recompute=recompute)
    counted = flops_of_class(model, recompute) - flops_of_class(model, "none")
    assert report.models[0]["recomputed_flops"] == counted > 0


def flops_of_class(model: LoadedModel, recompute: str) -> int:
    """What torch counts in a step of two sequences of five tokens."""
    how = {"recompute": recompute, "auto": model.config.task_head.auto}
    built = meta_model.build_model(model.of_class, "eager", "fp32", **how).to_empty(device="cpu")
    if built._can_set_experts_implementation():
        built.set_experts_implementation("eager")
    for tensor in (*built.parameters(), *built.buffers()):
        tensor.data.zero_()
    ids = torch.zeros((2, 5), dtype=torch.int64)
    with flop_counter.FlopCounterMode(display=False) as counter:
        built(input_ids=ids, use_cache=False)[0].sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize(
    ("name", "sets"),
    [("camembert-base", {"num_hidden_layers": 2}), ("opt-350m", {}), ("llama-3.2-1b", {"num_hidden_layers": 2})],
)
def test_flops_of_a_chunked_loss_are_what_torch_counts(name: str, sets: dict[str, Any]) -> None:
    """The head of a chunk runs again with its transform, but not a projection in front of the head."""
    model, work = load(name, **sets).loaded, Workload(context=512, tokens=512, batch=8)
    found = training_memory(model, work, Recipe(attention="eager"))
    counted = []
    for loss in "whole", "chunked":
        step = build(model, work, Recipe(attention="eager", loss=loss))
        with cuda.cuda_kernels(), flop_counter.FlopCounterMode(display=False) as counter:
            step.forward(step.model, step.batch).loss.backward()
        counted.append(counter.get_total_flops())
    (change,) = (each for each in changes(found, None) if each["set"] == {"loss": "chunked"})
    assert change["flops_ratio"] == Fraction(counted[1], counted[0])


DROPOUT = re.compile("drop(out)?(_prob|_rate)?$")
OTHER_ATTENTION = {
    "mobilebert": "two projections before attention are in a module of their own",
    "rwkv": "its time mixing is called attention",
}
"""Families whose class has other matmuls in its module of attention."""


@pytest.mark.parametrize(("family", "recompute"), every_other(by_kind(sorted(TINY)), ["full", "attention"]))
def test_recomputation_of_every_family_is_what_torch_counts(
    family: str, recompute: Literal["full", "attention"]
) -> None:
    """Every dropout of the class has a rate, known here or not. Classes with other matmuls than counted, or whose
    attention has another name, are no examples."""
    try:
        with of_the_class():
            fields = meta_model.config_of(tiny(family).of_class).to_dict()
            drops = {name: 0.1 for name, rate in fields.items() if DROPOUT.search(name) and isinstance(rate, float)}
            model = load_model(family, {**TINY[family], **drops}, {})
            plain, again = flops_of_class(model, "none"), flops_of_class(model, recompute)
    except ClassRefusesError as refused:
        pytest.skip(str(refused))
    at, ledger = Workload(context=5, tokens=5, batch=2).axes(), model.ledger
    named = again > plain and not (family in OTHER_ATTENTION and recompute == "attention")
    if not named or plain != ledger.total_flops(at) + ledger.total_flops(at, backward=True):
        pytest.skip("another step")
    assert recomputed_flops(ledger, at, recompute) == again - plain
