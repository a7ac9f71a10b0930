"""Training memory of one rank of a parallel layout, by hand. Kind: golden, refusal."""

from __future__ import annotations

from typing import Any

import pytest

import tfacct
from tests.helpers.training_layouts import LLAMA, memory
from tfacct.base.combinations import Options, matrix
from tfacct.ledger.workload import Workload
from tfacct.parallel import support
from tfacct.parallel.mesh import Mesh
from tfacct.training import layouts, unsupported
from tfacct.training.layouts import in_flight
from tfacct.training.memory import TrainingMemory, training_memory
from tfacct.training.phases import phases
from tfacct.training.recipe import RECIPES, Recipe
from tfacct.training.unsupported import refusal

FIRST = "layer 0, backward"


def saved(one: TrainingMemory) -> dict[str, int]:
    """Bytes of each saved tensor."""
    found: dict[str, int] = {}
    for group in one.step.graph.groups:
        tensors = one.step.saved_in(group)
        for tensor, size in zip(tensors, one.step.bytes_in(group).each(tensors), strict=True):
            found[tensor.path] = found.get(tensor.path, 0) + group.count * size
    return found


def phase(one: TrainingMemory, name: str) -> Any:
    return next(each for each in one.phases if each.name == name)


# By hand.


def test_megatron_gathers_the_input_of_a_matmul_again_for_the_gradient_of_its_weight() -> None:
    """Temporaries of the first layer: 4 sequences of 4,096 tokens of 4,096 numbers in 2 bytes more than in torch."""
    recipe: dict[str, Any] = {"ctx": 4096, "batch": 4, "tp": 8, "sp": True, "recompute": "full"}
    narrow = tfacct.load("llama-3.1-8b", intermediate_size=4096)
    torch, megatron = (narrow.train(**recipe, tp_plan=plan) for plan in ("torch", "megatron"))
    sizes = [each["temporary_bytes"] for one in (torch, megatron) for each in one.phases if each["phase"] == FIRST]
    assert sizes[1] - sizes[0] == 4 * 4096 * 4096 * 2


def test_buckets_of_gradients_are_there_in_the_optimizers_step() -> None:
    """Two embeddings of 640 x 96; in 4 layers q and o of 96 x 128, k and v of 96 x 64, three matrices of 96 x 200, two
    norms; one more: 501,600 gradients in 2 bytes, which DDP has in buckets as well."""
    parameters = 2 * 640 * 96 + 4 * (2 * 96 * 128 + 2 * 96 * 64 + 3 * 96 * 200 + 2 * 96) + 96
    ddp, alone = (phase(memory(LLAMA, 64, 3, **how), "optimizer step") for how in ({"dp": 2}, {}))
    assert (ddp.temporary, alone.temporary, ddp.gradients) == (2 * parameters, 0, 2 * parameters)


@pytest.mark.parametrize(
    ("model", "recipe", "gradients"),
    [
        # Rank 16 in fp32 on all linear layers: 41,943,040 numbers, as peft prints.
        ("llama-3.1-8b", {"lora": "16", "weights_dtype": "nf4"}, 41_943_040 * 4),
        # Rank 16 in fp32 on q, k, v and o of 32 layers, whose k and v have 1,024 outputs.
        ("mixtral-8x7b", {"lora": "16"}, 32 * 16 * 2 * (4096 + 4096 + 4096 + 1024) * 4),
        ("llama-3.1-8b", {"weights_dtype": "fp32"}, 8_030_261_248 * 4),
        ("llama-3.1-8b", {"optimizer": "adamw-8bit"}, 8_030_261_248 * 2),
    ],
)
def test_a_replica_runs_the_step_of_one_device_next_to_buckets_of_its_gradients(
    model: str, recipe: dict[str, Any], gradients: int
) -> None:
    replica, alone = (memory(model, 512, 4, **recipe, **how) for how in ({"dp": 4}, {}))
    assert {one.total - other.total for one, other in zip(replica.phases, alone.phases, strict=True)} == {gradients}


def test_ranks_of_fsdp_share_the_rows_of_adapters() -> None:
    """Of A's 4 rows of 96 one of three ranks has 2, and of B's 128 rows of 4 it has 43: 364 numbers of 4 bytes in each
    of 4 layers. AdamW has two for each, and 4 bytes for each of 8 tensors."""
    rank = memory(LLAMA, 64, 3, fsdp=3, lora="4:q_proj").step
    assert rank.adapter_bytes == 4 * 364 * 4
    assert rank.optimizer.state == 2 * 4 * 364 * 4 + 8 * 4


@pytest.mark.parametrize("plan", ["torch", "megatron"])
def test_sequence_parallelism_shards_tokens_of_the_residual_stream(plan: Any) -> None:
    rank, sharded = (saved(memory(LLAMA, 64, 3, tp=2, **more)) for more in ({}, {"sp": True, "plan": plan}))
    halves = {path for path, size in rank.items() if 2 * sharded[path] == size}
    norms = ("blocks.*.attn_norm", "blocks.*.mlp_norm", "final_norm")
    expected = {f"{norm}.{name}" for norm in norms for name in ("upcast", "rms", "scaled")}
    # What matmuls read is gathered once in torch; Megatron gathers it again for the weight's gradient.
    assert halves == expected | ({*norms} if plan == "megatron" else set())
    assert all(sharded[path] == size for path, size in rank.items() if path not in halves)


def test_megatron_saves_less_of_llama_70b() -> None:
    torch, megatron = (memory("llama-3.1-70b", 8192, tp=8, sp=True, plan=plan) for plan in ("torch", "megatron"))
    # 80 layers: what q, k and v read, and gate and up, of 8,192 tokens in bf16; what the head reads.
    fewer = (2 * 80 + 1) * 8192 * 8192 * 2 * 7 // 8
    assert torch.step.saved_bytes() - megatron.step.saved_bytes() == fewer
    assert round(torch.step.saved_bytes() / 2**30, 1) == 48.5


def test_context_parallelism_shards_tokens() -> None:
    part, alone = memory("llama-3.1-8b", 8192, cp=4), memory("llama-3.1-8b", 2048)
    copies = 32 * 2048 * 32 * 128 * 2  # o_proj reads a copy of attention's result: L T N H in bf16
    assert part.step.saved_bytes() == alone.step.saved_bytes() + copies
    gathered = memory("llama-3.1-8b", 8192, cp=4, cp_method="gather")
    assert gathered.step.saved_bytes() == alone.step.saved_bytes()
    assert memory("llama-3.1-8b", 8192, cp=4, fsdp=2).step.parameters * 8 == alone.step.parameters
    halves = memory("llama-3.1-8b", 4096, tp=2).step.saved_bytes()  # as many heads and twice the tokens
    assert memory("llama-3.1-8b", 8192, ulysses=2, tp=2).step.saved_bytes() == halves + copies


def test_expert_parallelism_of_mixtral() -> None:
    one = memory("mixtral-8x7b", 4096, fsdp=8, ep=8)
    # 32 layers of one expert, whole, and an eighth of the rest of 46,702,792,704 parameters.
    expert = 3 * 4096 * 14336
    stored = 2 * (32 * expert + (46_702_792_704 - 32 * 8 * expert) // 8)
    assert one.step.parameters == one.phases[-1].gradients == stored
    # The rest of a layer is gathered next to that of the layer before it. In no layer: embedding, head, norm.
    layer, root = 2 * 4096 * (4096 + 1024) + 8 * 4096 + 2 * 4096, 2 * 32000 * 4096 + 4096
    assert phase(one, "layer 31, backward").gathered == 2 * (root + 2 * layer)
    # Each token goes to two experts, and as many rows come from other ranks.
    even, uneven = (saved(memory("mixtral-8x7b", 4096, fsdp=8, ep=8, **more)) for more in ({}, {"imbalance": 2}))
    assert even["blocks.*.mlp.experts.sent"] == 32 * 2 * 4096 * 4096 * 2
    assert uneven["blocks.*.mlp.experts.act"] == 2 * even["blocks.*.mlp.experts.act"]
    assert uneven["blocks.*.mlp.experts.down_proj"] == even["blocks.*.mlp.experts.down_proj"]
    # Ranks of tp have the same tokens, and send a part of them each.
    shared = saved(memory("mixtral-8x7b", 4096, tp=4, ep=4))
    assert shared["blocks.*.mlp.experts.sent"] * 4 == even["blocks.*.mlp.experts.sent"]


def test_llama_70b_under_fsdp_tp_and_sp() -> None:
    mesh = {"tp": 8, "sp": True, "fsdp": 8}
    one = memory("llama-3.1-70b", 8192, recompute="full", weights_dtype="fp32", **mesh)
    # 80 layers of 855,654,400 parameters, of which two norms are whole on each rank of tp; embedding, head, a norm.
    layer = (855_654_400 - 2 * 8192) // 8 + 2 * 8192
    root = 2 * 128_256 * 8192 // 8 + 8192
    stored = (80 * layer + root) // 8
    assert one.step.parameters == one.phases[-1].gradients == 4 * stored
    # Two numbers of each element, and a counter of each of 9 tensors of a layer, the embedding, the norm and the head.
    assert one.step.optimizer.state == 8 * stored + 4 * (80 * 9 + 3)
    # What is in no layer stays gathered, and the last layer is gathered while the loss runs backwards.
    assert phase(one, "loss, backward").gathered == 2 * (root + layer)
    assert phase(one, "layer 1, backward").gathered == 2 * (root + 2 * layer)
    assert phase(one, "optimizer step").gathered == 0


def test_the_peak_at_the_loss_under_fsdp() -> None:
    one, ranks, vocabulary = memory("llama-3.1-8b", 4096, fsdp=8, weights_dtype="fp32"), 8, 128_256
    layer, root = 218_112_000, 2 * vocabulary * 4096 + 4096
    shards = (32 * layer + root) // ranks
    loss = phase(one, "loss, backward")
    # Weights and Adam's two numbers in fp32, counters, frequencies that the class stores twice.
    assert loss.weights + loss.optimizer_state == 12 * shards + 4 * (32 * 9 + 3) + 2 * 4 * 64
    # Gathered weights are in bf16. The gradient of the log-probabilities is next to them, in fp32.
    assert loss.gathered == 2 * (root + layer) and loss.gradients == 0
    assert loss.temporary == 8 * vocabulary * 4096 + 2 * 4
    assert one.peak == loss and 0 <= one.step.saved_bytes() - loss.saved < 9 * 4096  # the targets


@pytest.mark.parametrize(("tied", "times"), [(False, 2 + 1 + 2), (True, 1 + 1 + 2 + 1 + 1)])
def test_torchs_embedding_computes_the_gradient_of_all_rows(tied: bool, times: int) -> None:
    # 65,536 rows of 64 numbers in bf16, half of them on each of 2 ranks. Untied: embedding and head, the head's
    # gradient, and the embedding's of all rows. Tied: the embedding, the head's gradient, the embedding's of all rows,
    # its own rows, the sum.
    rows = 65536 // 2 * 64 * 2
    config = {**LLAMA, "hidden_size": 64, "vocab_size": 65536, "num_hidden_layers": 1, "tie_word_embeddings": tied}
    one = memory(config, 2, optimizer="none", tp=2)
    assert one.peak.name == "embedding, backward" and 0 <= one.peak.total - times * rows < rows // 10


def test_a_chunk_of_the_loss_has_a_rank_s_part_of_the_vocabulary() -> None:
    one = memory("llama-3.1-8b", 8192, tp=8, loss="chunked")
    chunk = 8192 // 8 * (128_256 // 8)  # tokens of one of eight chunks, and an eighth of the vocabulary
    gradient, others = 2 * 128_256 * 4096 // 8, 2 * 7 * 1024 * 4096  # of the head, and of what it read before
    # Log-probabilities, their gradient and both of its terms in fp32, and a few numbers of each token.
    assert 0 <= phase(one, "loss, backward").temporary - (4 * 4 * chunk + gradient + others) < 64 * 8192


# Pipelines.


def most_in_flight(mesh: Mesh, rank: int = 0, times: int = 32) -> int:
    return max(sum(start.counts) for start in in_flight(mesh, rank, times))


def test_micro_batches_in_flight_as_published() -> None:
    # GPipe: all; 1F1B: as many as there are stages after it, and its own (2104.04473, section 2.2.1).
    assert most_in_flight(Mesh(pp=8, schedule="gpipe")) == 32
    assert [most_in_flight(Mesh(pp=8), rank) for rank in range(8)] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert most_in_flight(Mesh(pp=8), times=3) == 3
    # Interleaved: 1 + (p − 1)/(p · m) times as much on the first rank (2205.05198, section 4.2.3).
    assert most_in_flight(Mesh(pp=8, schedule="interleaved", chunks=4)) == 8 * 4 + 7
    assert most_in_flight(Mesh(pp=35, schedule="interleaved", chunks=3), times=280) == 35 * 3 + 34
    # Zero bubble: what waits for gradients of weights makes up for what is no longer in flight (2401.10241, table 2).
    for rank in range(8):
        starts = in_flight(Mesh(pp=8, schedule="zero-bubble"), rank, 32)
        assert max(sum(start.counts) + start.waiting for start in starts) == 8


@pytest.mark.parametrize(("schedule", "chunks", "flying", "layers"), [("1f1b", 1, 4, 8), ("interleaved", 4, 19, 2)])
def test_stages_of_llama_8b(schedule: Any, chunks: int, flying: int, layers: int) -> None:
    one = memory("llama-3.1-8b", 4096, 16, pp=4, schedule=schedule, chunks=chunks, microbatches=16)
    layer, embedding, stage = 218_112_000, 128_256 * 4096, one.step.stage
    assert stage is not None and (stage.rank, stage.in_flight) == (0, flying)
    assert one.step.parameters == 2 * (8 * layer + embedding)
    assert one.step.optimizer.state == 2 * one.step.parameters + 4 * (8 * 9 + 1)
    # Of each micro-batch the layers save as much as on one device, and cos and sin; the first stage has the tokens.
    whole = saved(memory("llama-3.1-8b", 4096))
    each = layers * sum(size for path, size in whole.items() if path.startswith("blocks.")) // 32
    first = {"1f1b": 4, "interleaved": 8}[schedule]  # micro-batches in flight in the first stage
    assert one.step.saved_bytes() + stage.saved == flying * (each + 2 * 2 * 4096 * 128) + first * 8 * 4096
    # Gradients of 16 micro-batches to receive into for each stage, the streams that later stages receive, all tokens.
    assert stage.buffers == (chunks + chunks - 1) * 16 * 2 * 4096 * 4096 + 16 * 8 * 4096
    assert stage.passed_on == flying * 2 * 4096 * 4096 - first * 8 * 4096
    assert chunks > 1 or one.peak.name == f"layer {layers - 1}, backward"


def test_what_waits_for_gradients_of_weights() -> None:
    one = memory("llama-3.1-8b", 4096, 16, pp=4, schedule="zero-bubble")
    width, keys, mlp, rows, tokens = 4096, 1024, 14_336, 128_256, 4096
    # A layer's weights read two norms, scaled and not, attention's result and the MLP's; they make two norms, q, k, v,
    # o, gate, up and down. After the layers: a norm and the head.
    read, made = 4 * width + width + mlp, 2 * width + width + 2 * keys + width + 2 * mlp + width
    after = 2 * width + width + rows
    assert one.step.stage is not None and one.step.stage.rank == 3
    assert one.step.stage.saved == 3 * 2 * tokens * (8 * (read + made) + after)


def test_the_rank_with_the_highest_peak_is_chosen_with_the_optimizer_state_on_the_host() -> None:
    # All layers of rank 1 have experts, so it has more weights and state; rank 0 has one micro-batch more in flight.
    on_device, on_host = (memory("deepseek-v3", 4096, 8, pp=2, offload=offload) for offload in (None, "optimizer"))
    assert [one.step.stage.rank for one in (on_device, on_host) if one.step.stage] == [1, 0]
    ranks = layouts.steps_of_ranks(on_device.model, on_device.work, on_device.recipe)
    without_state = (each.total - each.optimizer_state for step in ranks for each in phases(step)[:-1])
    assert on_host.peak.total == max(map(int, without_state))


def test_stages_that_share_weights() -> None:
    rank, alone = (memory("llama-3.1-8b", 4096, 8, pp=4, **more) for more in ({"fsdp": 8}, {}))
    weights = 2 * (8 * 218_112_000 + 128_256 * 4096)  # all rows are multiples of 8
    assert (rank.step.parameters, alone.step.parameters) == (weights // 8, weights)
    # The same phases next to a share of the weights, which are gathered once for all micro-batches.
    state = alone.step.optimizer.state - rank.step.optimizer.state
    assert rank.peak.total == alone.peak.total - state + weights // 8
    assert {each.gathered for each in rank.phases} == {weights, 0}


def test_layers_of_a_stage_have_their_numbers_in_the_model() -> None:
    one = memory("llama-3.1-8b", 4096, 4, pp=4, recompute="full")
    assert one.step.stage is not None and one.step.stage.rank == 3  # the loss decides
    assert {each.name for each in one.phases} >= {"layer 31, backward", "layer 24, backward", "loss, backward"}


# Steps that are not supported.

VIT = {"architectures": ["ViTForImageClassification"]}
CASES: dict[str, tuple[str | dict[str, Any], dict[str, Any]]] = {
    "unsupported_part": ("bamba-9b", {"fsdp": 2, "lora": "4"}),
    "encoder cp": ("bert-base", {"cp": 2}),
    "encoder ulysses": ("bert-base", {"ulysses": 2}),
    "encoder pp other_axes": ("bert-base", {"pp": 2, "dp": 2}),
    "encoder_decoder zero2": ("t5-base", {"dp": 2, "zero": 2}),
    "encoder_decoder fsdp fp32_weights": ("t5-base", {"fsdp": 2, "weights_dtype": "fp32"}),
    "encoder lora sharded": ("bert-base", {"tp": 2, "lora": "4"}),
    "parallel_sublayers lora sharded": ("phi-2", {"fsdp": 2, "lora": "4"}),
    "parallel_sublayers computes": ("phi-2", {"tp": 2}),
    "odd_attention lora sharded": ("bloom-560m", {"fsdp": 2, "lora": "4"}),
    "odd_attention computes": ("bloom-560m", {"tp": 2}),
    "lora uneven": ("gemma-2b", {"tp": 2, "lora": "4"}),
    "sp ep shared_expert": ("deepseek-v3", {"fsdp": 2, "tp": 2, "sp": True, "ep": 2}),
    "ep expert_bias": ("gpt-oss-20b", {"fsdp": 2, "ep": 2}),
    "ep recompute_part": ("mixtral-8x7b", {"fsdp": 8, "ep": 8, "recompute": "attention"}),
    "lora experts computes": ("mixtral-8x7b", {"ep": 2, "fsdp": 2, "lora": "4"}),
    "lora mla sharded": ("minicpm3-4b", {"fsdp": 2, "lora": "4"}),
    "lora tp norm_over_heads": ("olmo-2-1b", {"tp": 2, "lora": "4"}),
    "lora cp": ("llama-3.1-8b", {"cp": 2, "lora": "4"}),
    "lora ulysses": ("llama-3.1-8b", {"ulysses": 2, "lora": "4"}),
    "lora zero": ("llama-3.1-8b", {"dp": 2, "zero": 1, "lora": "4"}),
    "lora megatron": ("llama-3.1-8b", {"tp": 2, "plan": "megatron", "lora": "4"}),
    "lora pp tp fsdp": ("llama-3.1-8b", {"pp": 2, "tp": 2, "fsdp": 2, "lora": "4"}),
    "lora sp": ("llama-3.1-8b", {"tp": 2, "sp": True, "lora": "4"}),
    "lora pp dp": ("llama-3.1-8b", {"pp": 2, "dp": 2, "lora": "4"}),
    "lora pp other_schedule": ("llama-3.1-8b", {"pp": 2, "schedule": "zero-bubble", "lora": "4"}),
    "lora fsdp fp32_weights": ("llama-3.1-8b", {"fsdp": 2, "lora": "4", "weights_dtype": "fp32"}),
    "lora nf4 sharded": ("llama-3.1-8b", {"tp": 2, "lora": "4", "weights_dtype": "nf4"}),
    "lora narrow": ("llama-3.1-70b", {"tp": 8, "lora": "4"}),
    "autocast sharded": ("llama-3.1-8b", {"tp": 2, "weights_dtype": "fp32"}),
    "packing computes": ("llama-3.1-8b", {"tp": 2, "packing": True}),
    "offload_activations pp": ("llama-3.1-8b", {"pp": 2, "offload": "activations", "recompute": "full"}),
    "eager cp": ("llama-3.1-8b", {"cp": 2, "attention": "eager"}),
    "eager ulysses": ("llama-3.1-8b", {"ulysses": 2, "attention": "eager"}),
    "eager sp": ("llama-3.1-8b", {"tp": 2, "sp": True, "attention": "eager"}),
    "whole_tensor_optimizer sharded": ("llama-3.1-8b", {"fsdp": 2, "optimizer": "adafactor"}),
    "no_class": ("cs336-gpt2-large", {}),
    "other_class": ("bart-large-mnli", {}),
    "head_and_classes": ({"model_type": "bert", "architectures": ["BertForPreTraining"]}, {}),
    "no_loss": ("bge-base-en-v1.5", {}),
    "other_loss": ("electra-base", {}),
    "regression": ("bge-reranker-v2-m3", {}),
    "unverified_field": ("falcon-rw-1b", {}),
    "other_activation": ({**LLAMA, "hidden_act": "gelu_new"}, {}),  # the gate of the class saves 4 tensors, not 1
    "bidirectional_decoder": ("llada-moe-7b-a1b", {}),
    "partial_patches": ({"model_type": "vit", "image_size": 225, "num_labels": 3, **VIT}, {}),
    "fp16 encoder_decoder": ("bart-base", {"dtype": "fp16"}),
    "fp16 experts": ("mixtral-8x7b", {"dtype": "fp16"}),
    "quantized lora not_nf4": ("bitnet-b1.58-2b-4t", {"lora": "4"}),
    "sdpa odd_heads": ({**LLAMA, "head_dim": 12}, {}),
    "sdpa fp32 grouped_heads": ("llama-3.1-8b", {"dtype": "fp32"}),
    "packing no_packing": ("bert-base", {"packing": True}),
    "autocast adapters_16bit": (LLAMA, {"lora": "4", "weights_dtype": "fp32", "adapter_dtype": "bf16"}),
    "lora not_linear": ("llama-3.1-8b", {"lora": "4:Wqkv", "fsdp": 2}),
    "lora unknown_targets": ("phi-3-mini-4k", {"lora": "4:q_proj", "fsdp": 2}),
    "lora experts no_attention_adapters": ("qwen1.5-moe-a2.7b", {"lora": "4:up_proj"}),
    "lora one_layer": ({**LLAMA, "num_hidden_layers": 1}, {"lora": "4"}),
    "lora small_vocabulary": ({**LLAMA, "vocab_size": 100}, {"lora": "4"}),
    "unmeasured": ("mamba-130m", {}),
}
"""By their features, models and recipes, with axes of the layout among them."""
CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "chunked keep_logits": {"loss": "chunked", "keep_logits": True},
    "adapters no_lora": {"lora_dropout": 0.1},
    "nf4 no_lora": {"weights_dtype": "nf4"},
    "nf4 fp32": {"weights_dtype": "nf4", "lora": "4", "dtype": "fp32"},
    "master_weights trains_fp32": {"master_weights": "fp32", "dtype": "fp32"},
    "gradients_fp32 no_master_weights": {"gradient_dtype": "fp32"},
    "offload_activations not_recomputed": {"offload": "activations"},
}
"""Recipes that contradict themselves."""


@pytest.mark.parametrize("features", CONTRADICTIONS)
def test_recipes_that_contradict_themselves_are_refused_by_name(features: str) -> None:
    recipe = Recipe(**CONTRADICTIONS[features])
    with pytest.raises(tfacct.TfacctError) as raised:
        recipe.checked()
    (row,) = (row for row in RECIPES if row.features == features)
    assert raised.value.message == row.reason.format_map(Options())


@pytest.mark.parametrize("features", CASES)
def test_unsupported_steps_are_refused_by_name(features: str) -> None:
    named, recipe = CASES[features]
    axes = {axis: recipe[axis] for axis in Mesh.__dataclass_fields__ if axis in recipe}
    mesh = Mesh(**axes) if axes else None
    how = Recipe(mesh=mesh, **{key: value for key, value in recipe.items() if key not in axes}).checked()
    model = tfacct.load(named).loaded
    found = unsupported.unsupported(model, how)
    assert found is not None and found.features == features
    with pytest.raises(tfacct.TfacctError) as raised:
        training_memory(model, Workload(model.context, model.context, 4), how)
    assert raised.value.hint and raised.value.message == f"{model.name}: {found.reason}"


def test_every_row_has_a_case_and_names_features_that_there_are() -> None:
    rows = {row.features for row in unsupported.UNSUPPORTED}
    assert {row.features for row in RECIPES} == {*CONTRADICTIONS}
    # No family that is supported has layers of such kinds.
    assert rows - {*CASES} - {*CONTRADICTIONS} == {"lora bare_layers sharded"}
    assert {*CASES} <= rows
    assert unsupported.FEATURES.keys() == {name for row in rows for name in row.split()}
    for one in (unsupported, support):  # the documentation words every row
        assert len(matrix(one.UNSUPPORTED, one.FEATURES)) == len(one.UNSUPPORTED)


@pytest.mark.parametrize("mesh", [Mesh(fsdp=2), Mesh(dp=2, zero=1), Mesh(pp=2)], ids=str)
def test_what_is_refused_on_one_device_is_refused_on_ranks(mesh: Mesh) -> None:
    model = tfacct.load({**LLAMA, "model_type": "qwen2", "architectures": ["Qwen2ForRewardModel"]}).loaded
    assert refusal(model, Recipe(mesh=mesh)) == refusal(model, Recipe()) is not None
    with pytest.raises(tfacct.TfacctError):
        training_memory(model, Workload(64, 64, 2), Recipe(mesh=mesh))


def test_what_fits_is_what_ranks_divide() -> None:
    model = tfacct.load("llama-3.2-1b")
    fit = model.train(ctx="8k", cp=2, tp=2, sp=True, on="20GiB").fit
    assert fit["largest_context"] % 8 == 0 and fit["largest_context"] > 8192
    assert model.train(ctx="8k", pp=2, batch=8, microbatches=4, on="60GiB").fit["largest_batch"] % 4 == 0
    many = model.train(ctx="8k", pp=2, batch=8, on="60GiB").fit["largest_batch"]
    peaks = [model.train(ctx="8k", pp=2, batch=batch).peak_bytes for batch in (many, many + 1)]
    assert peaks[0] <= 60 * 2**30 < peaks[1]
