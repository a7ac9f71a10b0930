"""What fully_shard holds while it gathers a unit's weights and scatters its gradients, against torch's own tracker."""

from __future__ import annotations

import random
import warnings
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("transformers")

import tfacct
from tests.test_sharding import built, fake_ranks
from tests.test_sharding_train import without_seeds
from tests.training_configs import drawn
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.timeline import peak, timeline
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Workload
from tfacct.reference.ranks import blocks_of
from tfacct.reports.training import trained
from tfacct.training.recipe import Recipe

SIZES = {"vocab_size": 997, "max_position_embeddings": 64, "attention_dropout": 0.0, "tie_word_embeddings": False}
LLAMA = {
    **SIZES,
    **{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 96, "intermediate_size": 70, "head_dim": 24},
    **{"num_attention_heads": 2, "num_key_value_heads": 1},
}
GEMMA = {**LLAMA, "model_type": "gemma", "tie_word_embeddings": True}
MIXTRAL = {
    **LLAMA,
    **{"model_type": "mixtral", "hidden_size": 120, "intermediate_size": 16, "sliding_window": None},
    **{"num_local_experts": 4, "num_experts_per_tok": 1},
}
# One layer of experts in front of a dense one: its weights are most of the model.
QWEN = {
    **SIZES,
    **{"model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 70, "head_dim": 8},
    **{"num_attention_heads": 2, "num_key_value_heads": 1, "moe_intermediate_size": 200, "num_experts": 6},
    **{"num_experts_per_tok": 1, "decoder_sparse_step": 1, "mlp_only_layers": [1]},
}
# A dense layer in front of three of experts, each gathered from fp32 while the one behind it runs.
GLM = {
    **SIZES,
    **{"model_type": "glm4_moe", "num_hidden_layers": 4, "hidden_size": 24, "intermediate_size": 70, "head_dim": 16},
    **{"num_attention_heads": 8, "num_key_value_heads": 2, "moe_intermediate_size": 200, "n_routed_experts": 4},
    **{"num_experts_per_tok": 1, "n_shared_experts": 1, "first_k_dense_replace": 1, "partial_rotary_factor": 0.5},
    "tie_word_embeddings": True,
}


def tracked(config: dict[str, Any], recipe: Recipe, batch: int, tokens: int) -> int:
    """The most bytes that torch's tracker sees of a second step without its update, on real tensors."""
    import torch
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    assert recipe.mesh is not None
    cpu, mesh, mixed = torch.device("cpu"), recipe.mesh, recipe.weights_dtype == "fp32"
    with fake_ranks(mesh.ranks), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = built(config)
        wide = {name: buffer for name, buffer in model.named_buffers() if "inv_freq" in name or "correction" in name}
        if not mixed:
            model = model.to(torch.bfloat16)
        for name, buffer in wide.items():  # which a checkpoint in bf16 is loaded beside
            holder, _, last = name.rpartition(".")
            model.get_submodule(holder)._buffers[last] = buffer
        if recipe.recompute == "full":
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
        ranks = init_device_mesh("cpu", (mesh.dp, mesh.fsdp), mesh_dim_names=("copies", "shares"))
        own = ranks if mesh.dp > 1 else ranks["shares"]
        policy = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16)} if mixed else {}
        for unit in (*blocks_of(model), model):
            fully_shard(unit, mesh=own, **policy)
        ids = torch.zeros(batch, tokens, dtype=torch.long)
        tracker = FSDPMemTracker(model, None)
        tracker.track_inputs((ids,))
        with tracker:
            for first in (True, False):
                model(input_ids=ids, labels=ids).loss.backward()
                if not (first and recipe.accumulates):
                    model.zero_grad()
                if first:
                    tracker.reset_mod_stats()
        return int(tracker.get_tracker_snapshot("peak")[cpu]["Total"])


def compared(config: dict[str, Any], recipe: Recipe, batch: int, tokens: int) -> tuple[str, str]:
    """The instant that decides, and its operation, once its bytes are those that the tracker sees."""
    one = trained(tfacct.load(config).loaded, Workload(tokens, tokens, batch), recipe)
    fullest = peak(each for each in timeline(without_seeds(one.step)) if each.name != "optimizer step")
    assert int(fullest.total) == tracked(config, recipe, batch, tokens), (config, recipe, batch, tokens)
    return fullest.name, fullest.operation


@pytest.mark.parametrize(
    ("config", "recipe", "decides"),
    [
        (LLAMA, {"fsdp": 2, "weights_dtype": "fp32"}, ("table, backward", "reduce-scatter")),
        (
            LLAMA,
            {"fsdp": 2, "weights_dtype": "fp32", "gradient_accumulation": 2},
            ("table, backward", "reduce-scatter"),
        ),
        (LLAMA, {"fsdp": 2, "dp": 2, "weights_dtype": "fp32"}, ("table, backward", "reduce-scatter")),
        (GEMMA, {"fsdp": 2, "weights_dtype": "fp32"}, ("table, backward", "embed")),
        (QWEN, {"fsdp": 2, "weights_dtype": "fp32"}, ("block 0, backward", "reduce-scatter")),
        (QWEN, {"fsdp": 2, "weights_dtype": "fp32", "recompute": "full"}, ("block 0, backward", "reduce-scatter")),
        (GLM, {"fsdp": 2, "weights_dtype": "fp32"}, ("block 2, backward", "all-gather")),
        (MIXTRAL, {"fsdp": 4, "recompute": "full"}, ("first block gathered", "all-gather")),
    ],
)
def test_a_unit_is_gathered_and_scattered(
    config: dict[str, Any], recipe: dict[str, Any], decides: tuple[str, str]
) -> None:
    mesh = Mesh(fsdp=recipe.pop("fsdp"), dp=recipe.pop("dp", 1))
    asked = Recipe(optimizer="none", mesh=mesh, attention="sdpa", **recipe)
    assert compared(config, asked, 2, 16) == decides


@pytest.mark.slow
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize(
    "kind",
    ["llama", "gemma", "gemma2", "gemma3_text", "granite", "smollm3", "mixtral", "qwen3_moe", "glm4_moe"],
)
def test_random_units_are_gathered_and_scattered(kind: str, copies: int) -> None:
    counted = 0
    for seed in range(16):
        rng, (config, *_) = random.Random(f"units {kind} {seed}"), drawn(kind, seed)
        layers = max(2, config["num_hidden_layers"])
        window = 64 if kind in ("gemma2", "gemma3_text") else None
        config |= {"vocab_size": 997, "num_hidden_layers": layers, "sliding_window": window, "attention_dropout": 0.0}
        config.pop("layer_types", None)
        mixed, again = rng.choice((None, "fp32")), rng.choice(("none", "none", "full"))
        mesh, attention = Mesh(fsdp=rng.choice((2, 4)), dp=copies), "eager" if kind == "gemma2" else "sdpa"
        recipe = Recipe(optimizer="none", weights_dtype=mixed, mesh=mesh, attention=attention, recompute=again)
        try:
            compared(config, replace(recipe, gradient_accumulation=1 + (rng.random() < 0.3)), 2, rng.choice((16, 32)))
        except UsageError as error:
            assert "pads" in str(error)
            continue
        counted += 1
    assert counted > 8
