"""Training memory of one rank, compared with torch's ranks in a process group that sends nothing. Kind: oracle."""

import warnings
from collections import Counter
from typing import Any

import pytest

import tfacct
from tests.helpers.lazy import lazy
from tests.helpers.torch_ranks import MATMULS, add_peft, decoder, peak_of_fsdp, real_tokens, saved_and_peak
from tests.helpers.torch_stages import peak_of_stages
from tests.helpers.training_layouts import LLAMA, memory
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.model_collectives import stage_collectives
from tfacct.training.memory import training_memory
from tfacct.training.phases import phases
from tfacct.training.recipe import Recipe
from tfacct.training.step import TrainingStep

lora, torch, transformers = lazy("tfacct.meta.lora"), lazy("torch"), lazy("transformers")

NEAR = 0.01
"""How far the formula may be from torch, as a share of the peak."""


def without_seeds(step: TrainingStep) -> TrainingStep:
    """A step whose attention saves no seeds: kernels of a CPU do not."""

    def bare(group: Any) -> Any:
        own = tuple(each for each in group.graph.saved if each.role != "seed" and ".seed." not in each.path)
        return group._replace(graph=group.graph._replace(saved=own))

    return step._replace(graph=step.graph._replace(layers=tuple(map(bare, step.graph.layers))))


def peak_before_update(step: TrainingStep) -> int:
    return max(int(each.total) for each in phases(step)[:-1])


MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 1, "sliding_window": None}


@pytest.mark.parametrize(
    ("config", "mesh", "recipe"),
    [
        (LLAMA, {"fsdp": 2}, {"weights_dtype": "fp32"}),
        (LLAMA, {"fsdp": 4}, {"recompute": "full"}),
        ({**LLAMA, "intermediate_size": 1000}, {"fsdp": 4}, {}),  # the layer before the last decides
        (LLAMA, {"fsdp": 2, "dp": 2}, {"weights_dtype": "fp32", "gradient_accumulation": 2}),
        (LLAMA, {"fsdp": 2, "tp": 2}, {}),
        ({**LLAMA, "model_type": "qwen3"}, {"fsdp": 3}, {"gradient_accumulation": 2}),
        ({**LLAMA, "model_type": "gemma", "tie_word_embeddings": True}, {"fsdp": 2}, {}),
        (MIXTRAL, {"fsdp": 4}, {"recompute": "full"}),  # the first layer decides, while it is gathered
        (LLAMA, {"fsdp": 2}, {"lora": "8"}),
        (LLAMA, {"fsdp": 4}, {"lora": "8", "adapter_dtype": "bf16"}),
        (MIXTRAL, {"fsdp": 4}, {"lora": "8"}),
    ],
)
def test_a_rank_of_fsdp_has_the_peak_that_torchs_tracker_sees(
    config: dict[str, Any], mesh: dict[str, int], recipe: dict[str, Any]
) -> None:
    one = memory(config, 64, 2, optimizer="none", **mesh, **recipe)
    fp32 = one.recipe.weights_dtype == "fp32"
    model = decoder(config, fp32_weights=fp32, recompute=one.recipe.recompute == "full")
    if one.recipe.lora:
        add_peft(model, 8, fp32=one.recipe.adapter_dtype == "fp32")
    seen = peak_of_fsdp(
        model,
        lambda model: next(each for name, each in model.named_modules() if name.endswith("layers")),
        Mesh(**mesh),
        real_tokens(2, 64),
        fp32_weights=fp32,
        accumulates=one.recipe.accumulates,
    )
    assert peak_before_update(without_seeds(one.step)) == pytest.approx(seen, rel=NEAR)


@pytest.mark.parametrize("vocabulary", [1024, 8192])
def test_an_encoder_decoder_of_fsdp_has_the_peak_that_torchs_tracker_sees(vocabulary: int) -> None:
    """While the decoder's embedding runs backwards, the encoder's last layer is gathered already."""
    sizes: dict[str, Any] = {"vocab_size": vocabulary, "max_position_embeddings": 128, "d_model": 64}
    for side, mlp in ("encoder", 1024), ("decoder", 512):
        sizes |= {f"{side}_layers": 2, f"{side}_attention_heads": 2, f"{side}_ffn_dim": mlp}
    config = {**sizes, **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0), "pad_token_id": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.BartForConditionalGeneration(
            transformers.BartConfig(**config, attn_implementation="eager", use_cache=False)
        )
        model = model.to(torch.bfloat16).train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    ids, source = torch.zeros(2, 32, dtype=torch.long), torch.zeros(2, 48, dtype=torch.long)
    seen = peak_of_fsdp(
        model,
        lambda model: (*model.model.encoder.layers, *model.model.decoder.layers),
        Mesh(fsdp=4),
        {"input_ids": source, "labels": ids},
    )
    named = {"model_type": "bart", "architectures": ["BartForConditionalGeneration"], **config}
    how = Recipe(optimizer="none", attention="eager", recompute="full", mesh=Mesh(fsdp=4))
    work = Workload(32, 32, 2, source=48, new_source=48)
    one = training_memory(tfacct.load(named).loaded, work, how)
    assert peak_before_update(one.step) == pytest.approx(seen, rel=NEAR)


@pytest.mark.parametrize(
    ("kind", "mesh", "recipe"),
    [
        ("llama", {"tp": 2}, {}),
        ("llama", {"tp": 2, "sp": True}, {}),
        ("llama", {"tp": 2, "sp": True}, {"recompute": "full"}),
        ("qwen2", {"tp": 4, "plan": "megatron"}, {"accumulates": True}),
        ("qwen3", {"tp": 4, "sp": True}, {}),
        ("gemma", {"tp": 2}, {}),
        ("olmo2", {"tp": 2}, {}),  # norms over all heads: queries, keys and values are gathered
        ("olmo2", {"tp": 4}, {"recompute": "full"}),
        ("llama", {"tp": 2}, {"lora": 8}),
    ],
)
def test_a_tp_rank_saves_and_peaks_as_under_torchs_plan(
    kind: str, mesh: dict[str, Any], recipe: dict[str, Any]
) -> None:
    config = {**LLAMA, "model_type": kind, "tie_word_embeddings": kind == "gemma"}
    own = {"recompute": recipe.get("recompute", "none"), "gradient_accumulation": 1 + recipe.get("accumulates", False)}
    own |= {"lora": str(recipe["lora"])} if "lora" in recipe else {}
    one = memory(config, 256, 2, optimizer="none", **mesh, **own)
    seen, most = saved_and_peak(config, Mesh(**mesh), 2, 256, **recipe)
    assert one.step.saved_bytes() == pytest.approx(seen, rel=NEAR)
    assert peak_before_update(one.step) == pytest.approx(most, rel=NEAR)


PP = {**LLAMA, "num_hidden_layers": 7, "intermediate_size": 300}


@pytest.mark.parametrize(
    ("schedule", "chunks", "recipe"),
    [
        ("1f1b", 1, {}),
        ("gpipe", 1, {"recompute": "full"}),
        ("1f1b", 1, {"attention": "eager", "gradient_accumulation": 2}),
        ("interleaved", 2, {}),
        ("1f1b", 1, {"lora": "8"}),
    ],
)
def test_a_stage_peaks_as_under_torchs_schedule(schedule: Any, chunks: int, recipe: dict[str, Any]) -> None:
    mesh = {"pp": 2, "schedule": schedule, "chunks": chunks, "microbatches": 4}
    one = memory(PP, 128, 8, optimizer="none", **mesh, **recipe)
    assert one.step.stage is not None

    def lend(model: Any) -> None:
        if "lora" in recipe:
            lora.add_adapters(model, 8, list(MATMULS))

    how = {"attention": "sdpa", **recipe, "lend": lend}
    seen, _ = peak_of_stages(PP, Mesh(**mesh), one.step.stage.rank, 8, 128, how)
    assert peak_before_update(one.step) == pytest.approx(seen, rel=2 * NEAR)


@pytest.mark.parametrize(("schedule", "recompute"), [("1f1b", "none"), ("gpipe", "full")])
def test_a_stage_of_fsdp_ranks_peaks_and_sends_as_torchs_does(schedule: Any, recompute: str) -> None:
    axes = {"pp": 2, "fsdp": 3, "schedule": schedule, "microbatches": 4}
    one = memory(PP, 128, 8, optimizer="none", recompute=recompute, **axes)
    assert one.step.stage is not None
    most, sent = peak_of_stages(PP, Mesh(**axes), one.step.stage.rank, 8, 128, {"recompute": recompute})
    assert peak_before_update(without_seeds(one.step)) == pytest.approx(most, rel=2 * NEAR)
    counted: dict[str, Counter[int]] = {}
    for each in stage_collectives(one.model, Mesh(**axes), one.work.axes(), 16, train=True)[one.step.stage.rank]:
        if each.over == "fsdp":
            counted.setdefault(each.kind, Counter())[each.bytes // each.calls] += each.calls
    assert counted == sent
