"""Expert parallelism by transformers' plans, with ranks that send nothing. Kind: oracle."""

import random
from typing import Any

import pytest

import tfacct
from tests.helpers.fake_expert_ranks import SIZES, accounted, random_config, witnessed
from tests.helpers.fake_ranks import built
from tests.helpers.lazy import lazy
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.shard_shapes import stored_elements

torch = lazy("torch")

MESHES = {
    "tp": Mesh(tp=2),
    "tp-4": Mesh(tp=4),
    "fsdp": Mesh(fsdp=3),
    "ep": Mesh(tp=2, ep=2),
    "ep-own": Mesh(fsdp=2, ep=2),
    "ep-copies": Mesh(fsdp=4, ep=2),
    "ep-all": Mesh(tp=2, fsdp=2, ep=4),
}


def compared(kind: str, mesh: str, seed: int, *, train: bool, bits: int = 32, recompute: bool = False) -> None:
    rng, own = random.Random(f"{kind} {mesh} {seed}"), MESHES[mesh]
    config = random_config(kind, rng, own)
    experts = next((config[field] for field, axis in SIZES[kind].items() if axis == "E"), 1)
    batch, tokens = 2, experts * own.tp * rng.randint(1, 2)
    model = built(config).to(torch.bfloat16 if bits == 16 else torch.float32)
    if recompute:
        model.train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    seen, local = witnessed(model, own, batch, tokens, train=train)
    again: dict[str, Any] = {"recomputed": "layers"} if recompute else {}
    assert accounted(config, own, batch, tokens, train=train, bits=bits, **again) == seen, config
    assert stored_elements(tfacct.load(config).loaded.ledger, own) == local


VIEW = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
"""Logits of `tp` are a view, of which FSDP warns."""


@VIEW
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable`")
@pytest.mark.parametrize(("kind", "mesh"), [("mixtral", "tp"), ("deepseek_v2", "tp"), ("deepseek_v2", "ep-all")])
def test_recomputed_layers_send_again_what_transformers_does(kind: str, mesh: str) -> None:
    """A sum of experts at the end of a layer does not run again; before a shared expert it does."""
    compared(kind, mesh, 0, train=True, recompute=True)


CASES = [("llama", "tp", True, 0), ("mixtral", "tp", True, 0), ("deepseek_v2", "tp", True, 0)]
CASES += [("qwen3_moe", "ep", False, 0), ("mixtral", "ep", True, 0), ("qwen3_moe", "ep-own", True, 0)]
FURTHER = [
    pytest.param(kind, mesh, train, seed, marks=pytest.mark.slow)
    for kind in SIZES
    for mesh in MESHES
    if "E" in SIZES[kind].values() or "tp" in mesh
    for seed in range(1, 4)
    for train in (False, True)
]


@VIEW
@pytest.mark.parametrize(("kind", "mesh", "train", "seed"), CASES + FURTHER)
def test_experts_send_what_transformers_does(kind: str, mesh: str, train: bool, seed: int) -> None:
    compared(kind, mesh, seed, train=train, bits=16 if seed == 3 else 32)
