"""LoRA under tensor parallelism: peft's adapters under torch's plans, with fake collectives. Kind: oracle."""

import random
from collections import Counter
from typing import Any

import pytest

import tfacct
from tests.helpers.fake_ranks import built, fake_ranks, plan_of, random_config, watched, witnessed
from tests.helpers.lazy import lazy
from tests.helpers.torch_ranks import MATMULS, add_peft, divide_peft
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.training import layouts
from tfacct.training.recipe import FP32, Recipe

cuda, lora, torch = lazy("tfacct.meta.cuda"), lazy("tfacct.meta.lora"), lazy("torch")
meta_model = lazy("tfacct.meta.model")
device_mesh, parallel = lazy("torch.distributed.device_mesh"), lazy("torch.distributed.tensor.parallel")


def counted(model: Any, recipe: Recipe, batch: int, tokens: int) -> dict[Any, Counter[int]]:
    found: dict[Any, Counter[int]] = {}
    for each in layouts.collectives(model, Workload(tokens, tokens, batch), recipe):
        found.setdefault((each.over, each.when, each.kind), Counter())[each.bytes // each.calls] += each.calls
    return found


def drawn(mesh: Mesh, seed: int) -> tuple[dict[str, Any], Recipe]:
    """A config, and a recipe with adapters on some of its matmuls."""
    rng = random.Random(f"lora {mesh} {seed}")
    config = {**random_config(("llama", "qwen3")[seed % 2], rng, mesh), "head_dim": 8, "tie_word_embeddings": False}
    config["vocab_size"] = mesh.tp * (2 * config["hidden_size"] + rng.choice((1, 50, 300)))
    lora = f"{rng.choice((1, 4, 5))}:{','.join(MATMULS)}"
    return config, Recipe(optimizer="none", mesh=mesh, lora=lora, adapter_dtype=rng.choice(("fp32", "bf16"))).checked()


@pytest.mark.parametrize("seed", [0, 1])
def test_adapters_of_ranks_of_tp_send_what_pefts_do(seed: int) -> None:
    mesh = Mesh(tp=2)
    config, recipe = drawn(mesh, seed)
    sent: dict[Any, Counter[int]] = {}
    with fake_ranks(2), cuda.cuda_kernels(), parallel.loss_parallel():
        model, ranks = (
            meta_model.build_model(tfacct.load(config).loaded.of_class, "sdpa", "bf16"),
            device_mesh.init_device_mesh("cpu", (2,)),
        )
        parallel.parallelize_module(model, ranks, plan_of(model, mesh))
        lora.add_adapters(
            model, int((recipe.lora or "").partition(":")[0]), list(MATMULS), fp32=recipe.adapter_dtype == FP32
        )
        divide_peft(model, ranks)
        ids = torch.zeros(2, 16, dtype=torch.long, device="meta")
        with watched(sent, "forward"):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        with watched(sent, "backward"):
            loss.backward()
    sent["tp", "forward", "all-reduce"].subtract({4 * 2 * 16: 3})  # of each token's loss
    theirs = {key: +sizes for key, sizes in sent.items() if +sizes}
    assert counted(tfacct.load(config).loaded, recipe, 2, 16) == theirs, (config, recipe)


@pytest.mark.parametrize("seed", [0, 1])
def test_adapters_of_ranks_of_fsdp_send_what_pefts_do(seed: int) -> None:
    mesh = Mesh(fsdp=(2, 3)[seed])
    config, recipe = drawn(mesh, seed)
    model = built(config).bfloat16()
    add_peft(model, int((recipe.lora or "").partition(":")[0]), fp32=recipe.adapter_dtype == FP32)
    assert counted(tfacct.load(config).loaded, recipe, 2, 8) == witnessed(model, mesh, 2, 8), (config, recipe)
