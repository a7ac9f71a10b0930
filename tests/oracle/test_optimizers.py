"""Optimizers on random tensors: bytes of their state, and the peak of a step. Kind: oracle."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.families import TINY
from tests.helpers.classes import alike, causal, class_parameters, shapes_of
from tests.helpers.cli import Run
from tests.helpers.lazy import lazy
from tests.helpers.models import in_whole_rows, tiny
from tfacct import load
from tfacct.ledger.torch_parameters import TorchParameter
from tfacct.loading.model import load_model
from tfacct.training.bounds import answered_groups
from tfacct.training.model_step import stored
from tfacct.training.optimizers import optimizer, optimizers

tracker, torch, nn, transformers = lazy("tfacct.meta.tracker"), lazy("torch"), lazy("torch.nn"), lazy("transformers")
optimization, meta_optimizer = lazy("transformers.optimization"), lazy("tfacct.meta.optimizer")
OPTIMIZERS = optimizers()


def torchs(name: str, **fields: Any) -> Callable[[list[Any]], list[Any]]:
    def made(parameters: list[Any]) -> list[Any]:
        return [getattr(torch.optim, name)(parameters, lr=1e-3, **fields)]

    return made


def transformers_adafactor(**fields: Any) -> Callable[[list[Any]], list[Any]]:
    def made(parameters: list[Any]) -> list[Any]:
        return [optimization.Adafactor(parameters, **fields)]  # type: ignore[no-untyped-call]

    return made


def muon(parameters: list[Any]) -> list[Any]:
    """The first and the last are an embedding and a head."""
    hidden = [parameter for parameter in parameters[1:-1] if parameter.ndim == 2]
    others = [parameter for parameter in parameters if all(parameter is not each for each in hidden)]
    return [torch.optim.Muon(hidden), torch.optim.AdamW(others, fused=True)]


MADE = {
    "adamw": torchs("AdamW", fused=True),
    "adamw-foreach": torchs("AdamW", foreach=True),
    "adamw-for-loop": torchs("AdamW", foreach=False),
    "adamw-amsgrad": torchs("AdamW", amsgrad=True, fused=True),
    "adafactor": torchs("Adafactor"),
    "adafactor-transformers": transformers_adafactor(),
    "adafactor-transformers-beta1": transformers_adafactor(beta1=0.9),
    "muon": muon,
    "rmsprop": torchs("RMSprop", foreach=True),
    "adagrad": torchs("Adagrad", foreach=True),
    "adamax": torchs("Adamax", foreach=True),
    "nadam": torchs("NAdam", foreach=True),
    "sgd": torchs("SGD", fused=True, weight_decay=0.1),
    "sgd-foreach": torchs("SGD", foreach=True, weight_decay=0.1),
    "sgd-momentum": torchs("SGD", momentum=0.9, fused=True, weight_decay=0.1),
    "sgd-momentum-foreach": torchs("SGD", momentum=0.9, foreach=True, weight_decay=0.1),
    "none": lambda _: [],
}
QUANTIZED = {
    "adamw-8bit": "AdamW8bit", "paged-adamw-8bit": "PagedAdamW8bit", "adamw-8bit-trainer": "AdamW8bit",
    "adamw-32bit": "AdamW32bit", "paged-adamw-32bit": "PagedAdamW32bit", "ademamix-8bit": "AdEMAMix8bit",
    "lion-8bit": "Lion8bit", "paged-lion-8bit": "PagedLion8bit", "lion-8bit-trainer": "Lion8bit",
    "lion-32bit": "Lion32bit", "paged-lion-32bit": "PagedLion32bit",
}  # fmt: skip


def drawn(seed: int) -> tuple[list[TorchParameter], list[tuple[int, ...]]]:
    """Parameters of a small model: a table, blocks of matrices, vectors and banks, a norm and a head."""
    pick = random.Random(seed).choice
    width, block = pick([7, 24, 64]), list[tuple[int, ...]]()
    for _ in range(pick([2, 4, 6])):
        wide = pick([5, 33, 100, 300])
        convolution = pick([(wide, 1, pick([2, 3, 4])), (wide, 3, 2, 2)])
        block.append(pick([(width,), (wide,), (wide, width), (width, wide), (pick([2, 3]), wide, width), convolution]))
    table, layers = (pick([50, 500]), width), pick([1, 2, 3])
    inside = [TorchParameter(shape, layers, 0) for shape in block]
    ends = TorchParameter((width,)), TorchParameter(table)
    shapes = [table, *block * layers, (width,), table]
    return [TorchParameter(table, embedding=True), *inside, *ends], shapes


def updated(make: Callable[[list[Any]], list[Any]], shapes: Sequence[tuple[int, ...]], dtype: Any) -> tuple[int, int]:
    """Bytes of the state of optimizers of real parameters of these shapes, and the peak of temporaries in a second
    step."""
    parameters = [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    made = make(parameters)
    for each in made:
        each.step()
    live = tracker.LiveBytes("cpu")
    live.add(*parameters, *(parameter.grad for parameter in parameters))
    without = live.now
    for each in made:
        live.add(*meta_optimizer.tensors(each))
    before = live.now
    with live:
        for each in made:
            each.step()
    return before - without, max(live.peak.bytes - before, 0)


def quantized(made: Any) -> int:
    """Bytes of the state that an optimizer of bitsandbytes makes, without a step."""
    made.check_overrides()
    for number, group in enumerate(made.param_groups):
        for index, parameter in enumerate(group["params"]):
            made.init_state(group, parameter, number, index)
    storages = [tensor.untyped_storage() for tensor in meta_optimizer.tensors(made)]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


@pytest.mark.parametrize("name", MADE)
def test_states_and_steps_are_the_optimizers_own(name: str) -> None:
    for seed in range(4):
        tensors, shapes = drawn(seed)
        for dtype in (torch.bfloat16, torch.float32):
            if name == "muon" and not any(tensor.hidden_matrix for tensor in tensors):
                continue
            state, temporary = updated(MADE[name], shapes, dtype)
            expected = OPTIMIZERS[name].step_memory(tensors, dtype.itemsize)
            assert OPTIMIZERS[name].state_bytes(tensors, dtype.itemsize) == state, (name, shapes)
            on_meta = nn.ParameterList(torch.empty(shape, dtype=dtype, device="meta") for shape in shapes)
            assert meta_optimizer.state_bytes(on_meta, name) in (None, state), (name, shapes)
            assert expected.least <= temporary <= expected.most, (name, seed, dtype, shapes, expected)


@pytest.mark.filterwarnings("ignore:Paged optimizers are not supported on CPU")
@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_states_are_the_optimizers_own(name: str) -> None:
    optim = pytest.importorskip("bitsandbytes.optim")
    for seed in range(6):
        tensors, shapes = drawn(seed)
        parameters = [nn.Parameter(torch.zeros(shape, dtype=torch.bfloat16)) for shape in shapes]
        made = getattr(optim, QUANTIZED[name])(parameters, lr=1e-3)
        manager = optim.GlobalOptimManager.get_instance()
        if name.endswith("trainer"):  # as transformers' Trainer registers a module's table
            holder = nn.Module()
            holder.weight = parameters[0]
            manager.register_module_override(holder, "weight", {"optim_bits": 32})
        try:
            assert OPTIMIZERS[name].state_bytes(tensors, 2) == quantized(made), (name, shapes)
        finally:
            manager.initialize()


def test_parameters_are_in_the_order_of_the_class() -> None:
    """Phi-3's class declares o_proj, then qkv_proj: a loop's variable still names the one at the other."""
    sizes = [parameter.elements for parameter in stored(load("phi-3-mini-4k").loaded)]
    assert sizes.index(3072 * 3072) == sizes.index(3 * 3072 * 3072) - 1


def test_every_optimizer_is_measured() -> None:
    assert [*OPTIMIZERS] == sorted([*MADE, *QUANTIZED], key=[*OPTIMIZERS].index)


def test_the_smallest_tensor_in_8_bits() -> None:
    """A tensor of 5,000 numbers has 20 blocks of 256; bitsandbytes stores the state of one of 4,095 in fp32, no codes
    of it on the card."""
    large, small = TorchParameter((50, 100)), TorchParameter((4095,), 2)
    adamw, lion = OPTIMIZERS["adamw-8bit"], OPTIMIZERS["lion-8bit"]
    assert adamw.state_bytes([large, small], 2) == 2 * (5000 + 4 * 20) + 2 * 8 * 4095 + 2048
    assert lion.state_bytes([large, small], 2) == 5000 + 4 * 20 + 2 * 4 * 4095 + 1024
    assert adamw.state_bytes([small], 2) == 2 * 8 * 4095


def test_states_of_gpt2_as_bitsandbytes_makes_them() -> None:
    """253,494,680 and 995,518,464 bytes, measured on the library; q, k and v are one tensor in the class."""
    gpt2 = stored(load("gpt2").loaded)
    assert optimizer("adamw-8bit").state_bytes(gpt2, 4) == 253_494_680
    assert optimizer("adamw-32bit").state_bytes(gpt2, 2) == optimizer("adamw-32bit").state_bytes(gpt2, 4) == 995_518_464


@pytest.mark.parametrize("family", sorted(name for name in TINY if answered_groups(tiny(name).family)))
def test_parameters_are_the_classes_own(family: str) -> None:
    """Shapes of all parameters: fused projections, convolutions of any dimension, banks of experts."""
    ours = tiny(family)
    assert shapes_of(ours) == alike(parameter.shape for parameter in class_parameters(ours)), family


@pytest.mark.parametrize("family", ["lfm2", "qwen3_5_text", "qwen3_next", "qwen3_moe"])
def test_muon_of_real_models_has_the_matrices_of_their_blocks(family: str) -> None:
    """Bytes of its state after a step of the class on the CPU, in bf16: convolutions of three dimensions, fused heads
    of two sizes, and banks of experts are AdamW's."""
    config = in_whole_rows(TINY[family])
    built = causal(config, dtype=torch.bfloat16, attn_implementation="eager")
    ids = torch.arange(32).reshape(2, 16) % config["vocab_size"]
    built(ids, labels=ids).loss.backward()
    trained = dict(built.named_parameters())
    hidden = [each for at, each in trained.items() if each.ndim == 2 and any(map(str.isdigit, at.split(".")))]
    others = [each for each in trained.values() if all(each is not one for one in hidden)]
    states = 0
    for own in (torch.optim.Muon(hidden), torch.optim.AdamW(others, fused=True)):
        own.step()
        states += sum(tensor.numel() * tensor.element_size() for tensor in meta_optimizer.tensors(own))
    assert optimizer("muon").state_bytes(stored(load_model(family, config)), 2) == states


@pytest.mark.parametrize("family", ["falcon_mamba", "jamba", "mamba", "zamba2"])
def test_convolutions_of_recurrences_have_three_dimensions(family: str) -> None:
    """Their steps are not counted yet, but their shapes are those of the classes."""
    model = tiny(family)
    theirs = alike(parameter.shape for parameter in class_parameters(model))
    ours, of_class = ([one for one in shapes if len(one) == 3 and one[1] == 1] for shapes in (shapes_of(model), theirs))
    assert ours == of_class != []


def test_adafactor_has_rows_and_columns_of_a_convolution() -> None:
    """torch.optim.Adafactor stores of a convolution of D × 1 × K, D numbers by rows and D · K by columns."""
    assert load("lfm2-1.2b").train(ctx=512, optimizer="adafactor").optimizer_bytes == 1_824_848
    assert optimizer("adafactor").state_bytes([TorchParameter((2048, 1, 3))], 2) == 2 * (2048 + 2048 * 3) + 4
    assert optimizer("adafactor").state_bytes([TorchParameter((768, 3, 16, 14))], 2) == 2 * 768 * 3 * (16 + 14) + 4


def test_an_order_that_decides_is_an_interval(run: Run) -> None:
    """The largest tensors of llama-3.1-8b are its table and its head: two copies of one, and a third of another."""
    llama = load("llama-3.1-8b")
    loop = llama.train(ctx=64, optimizer="adamw-for-loop", recompute="full")
    fused = llama.train(ctx=64, recompute="full")
    table = 2 * 128_256 * 4096
    step = fused.phases[-1]["total_bytes"]
    assert not loop.exact and loop.peak_phase == "optimizer step"
    assert loop.peak_least_bytes == step + 2 * table <= loop.peak_bytes <= step + 3 * table
    assert fused.peak_least_bytes == fused.peak_bytes
    ran = run("train", "llama-3.1-8b", "--ctx", "64", "--optimizer", "adamw-for-loop", "--recompute", "full")
    assert "Peak: between " in ran.out and "The optimizer's temporary memory depends on the parameter order." in ran.out
    assert "Optimizer state is paged" in run("train", "gpt2", "--optimizer", "paged-adamw-8bit", "-v").out


def test_an_unknown_optimizer_lists_the_known(run: Run) -> None:
    message = run("train", "gpt2", "--optimizer", "zzz").err_line
    assert [name for name in OPTIMIZERS if name not in message] == []
    known = run("train", "--help-all", columns=120).out_line.replace("- ", "-")
    assert [name for name in OPTIMIZERS if name not in known] == []  # options.py lists them
