"""Estimated time of training steps. Kind: golden, output."""

from dataclasses import replace
from math import prod
from typing import Any

import pytest

import tfacct
from tests.families import TINY
from tfacct.accounts.metrics import Recompute
from tfacct.base.errors import TfacctError
from tfacct.ledger.workload import Workload
from tfacct.loading import devices
from tfacct.loading.find import find
from tfacct.parallel.mesh import Mesh
from tfacct.timing.kernels import Kernel
from tfacct.timing.step_estimate import Memory, memory
from tfacct.timing.training_time import (
    MEGATRON,
    MPT,
    RECENT,
    Sent,
    Trained,
    TrainingConstants,
    Work,
    sent_by,
    sharded,
    step,
    work_of,
)
from tfacct.training.recipe import Recipe

A100 = devices.load("a100-sxm-80gb")
USABLE = 83_029_027_840
"""Bytes of an H100 less 2 GB."""
RECOMPUTE: tuple[Recompute, ...] = ("none", "full")
MPT_7B = tfacct.load("mpt-7b")


def trained(mesh: Mesh | None = None, **how: Any) -> Trained:
    """A step of one token."""
    return Trained(Workload(1, 1), mesh or Mesh(), **how)


def test_a_step_by_hand() -> None:
    # Products of one second at the peak, attention of one, the head of one, shares of 1 and nothing else: 3 + 3.5 + 3;
    # with recomputation 4 + 4.5 + 3.
    peak = A100.peak["bf16"]
    forward = [
        Kernel("mlp.up_proj", "gemm", 1, flops=peak),
        Kernel("attn.attention", "attention", 1, flops=peak),
        Kernel("lm_head", "gemm", 1, flops=peak),
    ]
    free = replace(MPT, products=1.0, attention=1.0, launch=0.0, optimizer=0.0, step=0.0)
    for how, seconds in ((trained(), 9.5), (trained(recompute="full"), 11.5), (trained(accumulate=2), 19)):
        assert step(Work(forward), A100, how, free).seconds == pytest.approx(seconds)


def test_what_runs_again_by_hand() -> None:
    """On an H100, matmuls take 0.77 of 989.4 TFLOP/s. Attention runs q, k and v of 32 layers again, next to scores and
    values, as Megatron's selective recomputation does alone; a chunked loss the head. Attention also rotates queries
    and keys again: it reads and writes 2 bytes of each, at 4.27 times the time of 3.35 TB/s."""
    times = {"on": "8xh100", "ctx": "4k"}
    whole = tfacct.load("llama-3.1-8b").train_time(**times).parts_seconds
    more = {"recompute": "selective"}, {"recompute": "attention"}, {"loss": "chunked"}
    selective, attention, chunked = (
        tfacct.load("llama-3.1-8b").train_time(**times, **how).parts_seconds for how in more
    )
    rate = 0.77 * 989.4e12
    assert selective["products"] == whole["products"]
    assert selective["attention"] == attention["attention"] == pytest.approx(whole["attention"] * 4.5 / 3.5)
    projections = 32 * 2 * 4096 * 4096 * (4096 + 1024 + 1024)
    assert attention["products"] - whole["products"] == pytest.approx(projections / rate)
    rotated = 32 * 4096 * (4096 + 1024) * 2 * 2
    assert attention["pointwise"] - whole["pointwise"] == pytest.approx(4.27 * rotated / 3.35e12)
    assert selective["pointwise"] == whole["pointwise"]
    assert chunked["head"] - whole["head"] == pytest.approx(2 * 4096 * 4096 * 128_256 / rate)


def test_gathers_by_hand() -> None:
    # Llama 3.1 8B has 218,112,000 parameters in each of 32 layers, and 1,050,677,248 outside. 8 devices gather layers
    # twice and the others once, and scatter all gradients: of 2 bytes each, less their own eighth, at 300 GB/s.
    ledger, free = find("llama-3.1-8b").ledger, replace(RECENT, link=1.0)
    layers, others = 2 * 32 * 218_112_000, 2 * 1_050_677_248

    def gathers(c: TrainingConstants = free, **how: Any) -> float:
        one = Trained(Workload(64, 64), **how)
        return step(work_of(ledger, one), A100, one, c)["gathers"]

    each = 7 / 8 * (3 * layers + 2 * others) / 300e9
    assert gathers(mesh=Mesh(fsdp=8)) == pytest.approx(each)
    assert gathers(mesh=Mesh(fsdp=8), accumulate=3) == pytest.approx(3 * each)
    assert gathers() == 0
    # Frozen weights have no gradients.
    assert gathers(mesh=Mesh(fsdp=8), frozen=True) == pytest.approx(7 / 8 * (2 * layers + others) / 300e9)
    # 16 are in two nodes: at half of the 200 GB/s that the 8 network cards of a DGX A100 carry.
    far = gathers(replace(free, link_far=0.5), mesh=Mesh(fsdp=16))
    assert far == pytest.approx(15 / 16 * (3 * layers + 2 * others) / 100e9)
    # Pipeline stages gather and scatter their half once, for any number of micro-batches.
    staged = gathers(mesh=Mesh(fsdp=4, pp=2), accumulate=3)
    assert staged == pytest.approx(3 / 4 * 2 * (layers + others) / 2 / 300e9)


def test_sums_and_exchanges_by_hand() -> None:
    """mixtral-8x7b with 128 tokens: a residual stream of 1 MiB, of which two tp ranks send half to one another."""
    ledger, half, routing = find("mixtral-8x7b").ledger, 2**19, 128 * 2 * 2 // 2
    counts = 8 * 8 // 2
    for mesh, recompute, halves, over_tp, over_ep in (
        # Attention and experts gather and scatter the stream, or sum it, which sends as much.
        (Mesh(tp=2, sp=True), "none", 8, 8 * half, 0),
        (Mesh(tp=2, sp=True), "full", 12, 12 * half, 0),
        (Mesh(tp=2), "none", 10, 8 * half + 2 * routing, 0),
        # Whole experts: 64 tokens go to 2 experts and back, forward and backward, half of them to the other rank.
        (Mesh(tp=2, sp=True, ep=2), "none", 4, 4 * half, 4 * half + counts),
        # Without sp, the results are gathered, and backward their gradients and those of the routing weights.
        (Mesh(tp=2, ep=2), "none", 7, 6 * half + routing, 4 * half + counts),
    ):
        # The embedding's sum is sent forward, that of the head's gradient backward; sp scatters and gathers both.
        sent = sent_by(ledger, Trained(Workload(128, 128), mesh, recompute=recompute))
        assert (sent.each["tp"], sent.each["ep"]) == (32 * over_tp + 4 * half, 32 * over_ep), mesh
        assert sent.halves == 32 * halves + 4


@pytest.mark.parametrize(
    ("size", "on", "step", "tokens_per_second"),
    [
        ((768, 12, 12), "8xa100-sxm-40gb", (2048, 26, 3, "none"), 136_334),
        ((768, 12, 12), "128xa100-sxm-40gb", (2048, 26, 1, "none"), 123_936),
        ((1024, 16, 24), "8xa100-sxm-80gb", (512, 128, 2, "none"), 69_330),
        ((1024, 16, 24), "8xa100-sxm-80gb", (32768, 2, 2, "none"), 13_652),
        ((8192, 64, 80), "128xa100-sxm-40gb", (2048, 4, 1, "full"), 376),
        ((2048, 16, 24), "8xh100-sxm", (512, 56, 4, "none"), 52_275),
        ((4096, 32, 32), "8xh100-sxm", (2048, 6, 1, "none"), 10_643),
        ((4096, 32, 32), "8xh100-sxm", (65536, 1, 2, "full"), 1_956),
        ((5120, 40, 40), "16xh100-sxm", (2048, 2, 1, "none"), 4_767),
        ((5120, 40, 40), "512xh100-sxm", (2048, 16, 1, "full"), 4_952),
        ((2048, 16, 24), "8xh100-sxm fp8", (512, 56, 4, "none"), 70_315),
    ],
)
def test_published_steps_of_mpt(
    size: tuple[int, int, int], on: str, step: tuple[int, int, int, Recompute], tokens_per_second: int
) -> None:
    """Tokens a second on each device, as llm-foundry's benchmarks publish them: 90 % of the steps are within 6 %."""
    (hidden, heads, layers), (ctx, batch, times, recompute), (on, *dtype) = size, step, on.split()
    mpt = tfacct.load("mpt-7b", d_model=hidden, n_heads=heads, n_layers=layers, max_seq_len=ctx, vocab_size=50368)
    found = mpt.train_time(
        on=on, ctx=ctx, batch=batch, gradient_accumulation=times, recompute=recompute, dtype=(dtype or [None])[0]
    )
    assert found.tokens_per_second_each == pytest.approx(tokens_per_second, rel=0.07)


def test_notes_of_a_step() -> None:
    step = MPT_7B.train_time(
        on="8xa100-sxm-40gb", ctx="2k", batch=6, gradient_accumulation=4, recompute="full", total_tokens=10**12
    )
    assert sum(step.parts_seconds.values()) == pytest.approx(step.value_seconds)
    assert step.tokens_per_second_each == pytest.approx(4 * 6 * 2048 / step.value_seconds)
    assert step.days == pytest.approx(10**12 / (8 * step.tokens_per_second_each) / 86_400)
    # The same as `mfu` has it: FLOPs of a training step for each token, over 312 TFLOP/s.
    flops = MPT_7B.flops(ctx=2048, train=True).total_flops / 2048
    assert step.mfu == pytest.approx(flops * step.tokens_per_second_each / 312e12)
    assert step.constant_utilization_seconds == pytest.approx(step.value_seconds * step.mfu / 0.463)
    assert step.estimate is True and step.interval_80_seconds[0] < step.value_seconds < step.interval_80_seconds[1]
    notes = " ".join(step.notes)
    assert "78 steps on this device were fitted" in notes and "Baseline: the time if every step ran at" in notes
    assert step.answer.startswith("≈")


def test_recomputation_and_fp8_change_the_step() -> None:
    times = [MPT_7B.train_time(on="8xh100-sxm", ctx=2048, batch=4, **how).value_seconds for how in (
        {"dtype": "fp8"}, {}, {"recompute": "full"})]  # fmt: skip
    assert times == sorted(times)


SCORED = {**TINY["qwen2"], "architectures": ["Qwen2ForRewardModel"]}
"""Its class has a training step that was measured, but not with the loss of these scores."""


@pytest.mark.parametrize(
    ("model", "counted"), [("gpt2", True), ("mpt-7b", True), ("jais-2-8b", True), (SCORED, False)], ids=range(4)
)
def test_the_first_note_says_whether_the_step_fits(model: Any, counted: bool) -> None:
    step = tfacct.load(model).train_time(on="8xh100-sxm")
    assert step.notes[0].startswith("Fits: needs" if counted else "Whether the step fits is not known")
    assert step.fits is (True if counted else None) and (step.needed_bytes is not None) == counted


@pytest.mark.parametrize(
    ("model", "asked", "options"),
    [
        (
            "llama-3.1-70b",
            {"on": "8xh100-sxm", "ctx": "8k"},
            "on='16xh100-sxm', recompute='full'",
        ),
        ("llama-3.1-405b", {"on": "rtx-4090"}, None),
        ("jais-2-8b", {"on": "rtx-4090"}, None),  # a step that is not counted has a least all the same
        ("llama-3.1-70b", {"on": "8xh100-sxm", "tp": 8, "ctx": "8k", "batch": 8}, None),
    ],
    ids=range(4),
)
def test_a_step_that_does_not_fit_has_no_seconds(model: str, asked: dict[str, Any], options: str | None) -> None:
    step = tfacct.load(model).train_time(**asked)
    assert step.fits is False and step.least_bytes > step.usable_bytes
    assert step.answer.startswith("Does not fit: needs at least ")
    for name in ("value_seconds", "interval_80_seconds", "mfu", "tokens_per_second_each", "parts_seconds", "days"):
        assert getattr(step, name) is None, name
    if options is not None:
        assert step.answer.endswith(f"; try {options.replace(', ', ' ')}.")
        peaks = (tfacct.load(model).train(ctx="8k", fsdp=ranks, recompute="full").peak_bytes for ranks in (16, 8))
        assert next(peaks) <= step.usable_bytes < next(peaks)


def test_the_least_memory_of_a_step_by_hand() -> None:
    """Llama 3.1 8B: 6 bytes per parameter, and the larger of 2 bytes of gradient per parameter and of activations: per
    token and layer the layer's input, q, k, v, attention's result, gate and up, in 2 bytes."""
    layer = 4096 + 4096 + 1024 + 1024 + 4096 + 2 * 14336
    work = Workload(context=512, tokens=512, batch=3)
    llama = tfacct.load("llama-3.1-8b").loaded
    parameters, saved = 8_030_261_248, 2 * 32 * layer * 512 * 3
    plain, fsdp = Recipe(), Recipe(mesh=Mesh(fsdp=8))
    assert memory(llama, work, plain, USABLE).least == 6 * parameters + 2 * parameters  # gradients: 16 GB for 4.4
    assert memory(llama, work, fsdp, USABLE).least == 6 * parameters // 8 + saved  # 2 for 4.4
    again, parts = replace(fsdp, recompute="full"), replace(fsdp, gradient_accumulation=2)
    assert memory(llama, work, again, USABLE).least == 8 * parameters // 8  # 2 for 0.4
    assert memory(llama, work, parts, USABLE).least == 8 * parameters // 8 + saved  # gradients of the first stay
    # Of 4 stages the first has 4 of 7 micro-batches in flight; replicas hold weights and gradients whole.
    staged, state = Recipe(mesh=Mesh(tp=2, sp=True, pp=4, dp=2, microbatches=7)), 8 * parameters
    least = memory(llama, replace(work, batch=21), staged, USABLE).least
    assert least == state // 2 // 8 + state // 2 // 16 + layer * 32 * 512 * 3


@pytest.mark.parametrize(
    ("model", "asked", "layout"),
    [
        ("opt-66b", {"on": "4xh200-sxm", "ctx": "2k"}, {"fsdp": 4}),
        ("llama-3.1-70b", {"on": "4xb200-hgx", "ctx": "4k", "tp": 4, "sp": True}, {"tp": 4, "sp": True}),
    ],
    ids=["fsdp", "tp"],
)
def test_the_least_is_no_more_than_train_counts(model: str, asked: dict[str, Any], layout: dict[str, Any]) -> None:
    step, loaded = tfacct.load(model).train_time(**asked), tfacct.load(model)
    counted = loaded.train(ctx=asked["ctx"], on=asked["on"], **layout)
    assert step.needed_bytes == counted.peak_bytes and step.least_bytes <= step.needed_bytes
    assert step.fits is counted.fit["fits"] is True


def test_a_step_that_train_refuses_says_so_first() -> None:
    llama = tfacct.load("llama-3.1-8b")
    step = llama.train_time(on="8xh100-sxm", ctx="4k", batch=4)
    counted = llama.train(ctx="4k", batch=4, fsdp=8, on="h100-sxm")
    assert counted.fit["fits"] is False and step.fits is None and step.needed_bytes == counted.peak_bytes
    assert step.answer.startswith(
        "Does not fit with transformers' kernels (needs 130 GiB, and 77.3 GiB is usable). If it fits with kernels that"
    )


def test_attention_of_other_models_than_mpt_is_faster_where_the_device_has_fp8_units() -> None:
    on, how = devices.load("h100-sxm"), Trained(Workload(4096, 4096, 2), Mesh(fsdp=8))
    work = work_of(find("llama-3.1-8b").ledger, how)
    old, new = (step(work, on, how, c)["attention"] for c in (MPT, RECENT))
    assert old / new == pytest.approx(0.35 / 0.178)
    parts = tfacct.load("llama-3.1-8b").train_time(on="8xh100-sxm", ctx=4096, batch=2).parts_seconds
    assert parts["attention"] == pytest.approx(new)


GB = 10**9


def test_a_divided_step_by_hand() -> None:
    # On 16 devices of 4 × 2, two copies: products of one second at the peak, each stage half of them, thrice, in two
    # micro-batches: 3 s; one micro-batch's 1.5 s is waited for, half of that where a stage has two parts. Blocks again:
    # 4 of 4. Sums send 900 GB at 300 GB/s, half of it per stage, in both micro-batches: 3 s, and one waits 0.1 s twice.
    peak = A100.peak["bf16"]
    forward = [Kernel("mlp.up_proj", "gemm", 1, flops=peak)]
    free = replace(MEGATRON, products=1.0, link=1.0, card=0.5, launch=0.0)
    work, how = Work(forward, layers=4), trained(Mesh(tp=4, pp=2, dp=2), accumulate=2)
    both = work._replace(sent=Sent({"tp": 900 * GB}, {"dp": 4 * GB}))
    parts = step(both, A100, how, free)
    assert parts["products"] == pytest.approx(3) and parts["sums"] == pytest.approx(2 * 1.5)
    assert parts["waiting"] == pytest.approx(1.5 + 1.5)
    waits = step(work._replace(sent=Sent({"tp": 900 * GB}, halves=4)), A100, how, replace(free, reduce=0.05))
    assert waits["sums"] == pytest.approx(2 * (1.5 + 0.1))
    # Of 4 GB of gradients, each stage sends half over half of a card of 200 Gb/s, 12.5 GB/s, or NVLink in one node.
    assert parts["gradients"] == pytest.approx(2 / 12.5)
    node = step(both, A100, replace(how, mesh=Mesh(tp=4, dp=2)), free)
    assert node["gradients"] == pytest.approx(4 / 300)
    two = step(both, A100, replace(how, mesh=replace(how.mesh, chunks=2)), free)
    assert two["waiting"] == pytest.approx(parts["waiting"] / 2)
    assert step(work, A100, replace(how, recompute="full"), free)["products"] == pytest.approx(4)
    # A head of one second at the peak: thrice, in both micro-batches, shared by two stages; no layer recomputes it.
    head = work._replace(forward=[*forward, Kernel("lm_head", "gemm", 1, flops=peak)])
    for recompute in RECOMPUTE:
        assert step(head, A100, replace(how, recompute=recompute), free)["head"] == pytest.approx(3)


def test_experts_by_hand() -> None:
    # Experts' matmuls of one second at the peak run at 0.4 of the rate of others: 3 / 0.4 s, a quarter in each stage.
    free = replace(MEGATRON, products=1.0, link=1.0)
    forward = [Kernel("mlp.experts.up_proj", "experts", 0, flops=A100.peak["bf16"])]
    work = Work(forward, layers=4, weights=GB, sent=Sent({"ep": 600 * GB}))
    parts = step(work, A100, trained(Mesh(ep=2, pp=4, dp=2)), free)
    assert parts["experts"] == pytest.approx(3 / 0.4 / 4) and parts["exchange"] == pytest.approx(600 / 300 / 4)
    assert parts["optimizer"] == pytest.approx(1e9 * MPT.optimizer / A100.bandwidth)
    # Experts that `ep` shares are whole: of two tp ranks each has half of them, and half of the other weights. FSDP
    # over 4 devices shards these, replicas only the optimizer's state.
    model = find("mixtral-8x7b")
    for mesh, weights, state in (Mesh(tp=2, ep=2, dp=2), 2, 4), (Mesh(tp=2, ep=2, fsdp=4), 8, 8):
        found = sharded(model.ledger, trained(mesh))
        assert found == pytest.approx((model.parameters / weights, model.parameters / state))


def test_gradients_of_experts_by_hand() -> None:
    """mixtral-8x7b: two tp ranks share the experts and half of the other weights, of which norms and routers are whole.
    Two replicas send half of their gradients twice; there is one copy of the experts with ep=4, two with ep=2."""
    model = find("mixtral-8x7b")
    experts = 8 * 3 * 4096 * 14336 * 32
    whole = 65 * 4096 + 32 * 8 * 4096
    for ep, copied in (2, experts // 2), (4, 0):
        one = Trained(Workload(128, 128), Mesh(tp=2, ep=ep, dp=2))
        dense = (model.parameters - experts - whole) // 2 + whole
        assert sent_by(model.ledger, one).once["dp"] == 2 * (dense + copied)


def test_the_least_memory_of_experts_by_hand() -> None:
    """mixtral-8x7b: 46,702,792,704 parameters, of which 8 · 3 · 4,096 · 14,336 · 32 are those of experts. Weights,
    gradients and AdamW's two states take 8 bytes of each; activations come on top."""
    model = tfacct.load("mixtral-8x7b")
    experts = 8 * 3 * 4096 * 14336 * 32
    dense = 46_702_792_704 - experts
    options: dict[str, Any] = {"ctx": 128, "gradient_accumulation": 2, "recompute": "full"}
    for layout, least in (
        ({"fsdp": 8}, 8 * (dense + experts) // 8),
        ({"fsdp": 8, "ep": 8}, 8 * (dense + experts) // 8),
        ({"tp": 2, "ep": 2, "dp": 4}, (4 + 4 // 4) * (dense // 2 + experts // 2)),  # experts are whole
    ):
        found = model.train_time(on="8xb200", **layout, **options).least_bytes
        assert least < found < least + 32 * 128 * 4096 * 2 * 2, layout


def test_adapters_and_shards_of_sequences_and_weights_by_hand() -> None:
    peak = A100.peak["bf16"]
    forward = [Kernel("mlp.up_proj", "gemm", 0, flops=peak), Kernel("attn.attention", "attention", 0, flops=peak)]
    free = replace(MEGATRON, products=1.0, attention=1.0, link=1.0)
    work = Work(forward, layers=4, weights=8 * GB, sent=Sent({"cp": 9 * GB}, {"dp": 6 * GB, "cp": 6 * GB}))
    whole, halves = (step(work, A100, trained(mesh), free) for mesh in (Mesh(tp=2, dp=4), Mesh(tp=2, cp=2, dp=2)))
    for name in ("products", "attention"):
        assert halves[name] == pytest.approx(whole[name] / 2)
    assert whole["gradients"] == pytest.approx(12 / 300)
    # Frozen weights have no gradients: two of three matmuls, of the head too, nothing to sum or to update.
    head = work._replace(forward=[*forward, Kernel("lm_head", "gemm", 0, flops=peak)])
    whole, frozen = (step(head, A100, trained(Mesh(tp=2, dp=4), frozen=each), free) for each in (False, True))
    for name in ("products", "head"):
        assert frozen[name] == pytest.approx(2) and whole[name] == pytest.approx(3)
    assert frozen["attention"] == whole["attention"] and frozen["optimizer"] == 0
    one = Trained(Workload(64, 64), Mesh(tp=2, dp=4), frozen=True)
    assert "dp" not in sent_by(find("llama-3.1-8b").ledger, one).once


@pytest.mark.parametrize(
    ("model", "options", "steps"),
    [
        ("mixtral-8x7b", {"fsdp": 8, "ep": 8, "recompute": "full"}, "of MoE models with balanced routing"),
        ("llama-3.1-8b", {"lora": 16}, "of LoRA"),
        ("llama-3.1-8b", {"cp": 2, "fsdp": 4, "recompute": "full"}, "with context parallelism"),
        ("llama-3.1-8b", {"tp": 2, "fsdp": 4}, "under FSDP with TP or PP (torchtitan"),
        ("llama-3.1-8b", {"dtype": "nvfp4"}, "in nvfp4"),
    ],
)
def test_newer_steps_name_the_steps_that_their_error_is_of(model: str, options: dict[str, Any], steps: str) -> None:
    step = tfacct.load(model).train_time(on="8xb200", ctx=4096, **options)
    assert f" steps {steps}" in " ".join(" ".join(step.notes).split()) and step.validation is None
    assert [end / step.value_seconds for end in step.interval_80_seconds] == pytest.approx([0.7, 1.45])
    assert sum(step.parts_seconds.values()) == pytest.approx(step.value_seconds)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"batch": 6, "pp": 2}, (1, 6)),
        ({"batch": 6, "pp": 2, "microbatches": 2}, (3, 2)),
        ({"batch": 3, "pp": 2, "gradient_accumulation": 4}, (3, 4)),
        ({"micro_batch_size": 3, "pp": 2, "global_batch_size": 60}, (3, 4)),  # 60 over 5 replicas
        ({"batch": 6, "pp": 2, "schedule": "interleaved", "pp_chunks": 3, "microbatches": 6}, (1, 6)),
        ({"batch": 3, "gradient_accumulation": 4}, (3, 4)),
        ({"global_batch_size": 60, "gradient_accumulation": 2}, (3, 2)),
    ],
    ids=str,
)
def test_time_and_train_run_the_same_step(options: dict[str, Any], expected: tuple[int, int]) -> None:
    model, on = tfacct.load("gpt2-xl"), "10xa100-sxm-80gb"
    step, memory = (run(on=on, ctx=1024, recompute="full", **options) for run in (model.train_time, model.train))
    assert (step.workload["batch"], step.accumulate) == expected
    assert (memory.micro_batch_size, memory.gradient_accumulation) == expected
    assert step.needed_bytes == memory.peak_bytes
    assert memory.global_batch_size * 1024 == round(10 * step.tokens_per_second_each * step.value_seconds)


def test_a_layout_is_timed_on_all_of_its_ranks() -> None:
    """`on` may name one device for its memory alone, as in `train`."""
    gpt2 = tfacct.load("gpt2-xl")
    for layout in ({"fsdp": 4}, {"tp": 5, "dp": 2}):
        one, every = (
            gpt2.train_time(on=on + "a100-sxm-80gb", ctx=1024, **layout) for on in ("", f"{prod(layout.values())}x")
        )
        assert one.value_seconds == every.value_seconds and one.devices == prod(layout.values())


def test_notes_of_a_step_in_a_layout() -> None:
    model = tfacct.load("gpt2-xl")
    step = model.train_time(
        on="10xa100-sxm-80gb", tp=5, pp=2, sp=True, ctx=1020, gradient_accumulation=8, recompute="full"
    )
    assert sum(step.parts_seconds.values()) == pytest.approx(step.value_seconds)
    assert step.tokens_per_second_each == pytest.approx(8 * 1020 / 10 / step.value_seconds)
    assert (step.tp, step.pp, step.sp, step.pp_chunks) == (5, 2, True, 1)
    assert step.validation["class"] == "divided" and step.validation["points"] == 18
    assert step.interval_80_seconds[0] < step.value_seconds < step.interval_80_seconds[1]
    assert step.assumptions["products"] == MEGATRON.products and step.assumptions["logits"] == MPT.logits
    # 8 sequences, blocks run again, on 10 devices at 45.6 % of 312 TFLOP/s
    flops = 8 * model.flops(ctx=1020, train=True, recompute="full").total_flops
    assert step.constant_utilization_seconds == pytest.approx(flops / (10 * 0.456 * 312e12))
    notes = " ".join(" ".join(step.notes).split())
    assert "18 of them on this device" in notes and "Its median error on runs of Megatron-LM is 10.2%" in notes
    other = model.train_time(on="10xh100-sxm", tp=5, pp=2, ctx=1024)
    assert [end / other.value_seconds for end in other.interval_80_seconds] == pytest.approx([0.7, 1.45])
    notes = " ".join(" ".join(other.notes).split())
    steps = "17 steps with TP and PP (Megatron-Bridge, 2024 to 2026); no constant was fitted to these steps."
    assert other.validation is None and f"Median error 13.1% on {steps}" in notes
    forty = model.train_time(on="10xa100-sxm-40gb", tp=5, pp=2, ctx=1024)
    assert forty.interval_80_seconds is None and "its error here is not known" in " ".join(
        " ".join(forty.notes).split()
    )


def test_fp8_under_tensor_parallelism_by_hand() -> None:
    # Matmuls of layers at 0.657 of the fp8 peak, the head at that of bf16, attention at 0.35 of the bf16 peak.
    on, step = devices.load("h100-sxm"), tfacct.load("llama-3.1-8b").train_time
    wide, narrow = (step(on="2xh100-sxm", tp=2, ctx="4k", dtype=name).parts_seconds for name in ("bf16", "fp8"))
    bf16 = on.peak["bf16"] * MEGATRON.products * MPT.products_hot / MPT.products
    assert wide["products"] / narrow["products"] == pytest.approx(on.peak["fp8"] * MPT.fp8 / bf16)
    assert wide["head"] == narrow["head"] and wide["attention"] == narrow["attention"]
    pairs = 2 * 2 * 32 * 128 * (4096 * 4097 // 2) * 32 // 2  # 32 layers, half of 32 heads, the visible pairs
    assert wide["attention"] == pytest.approx(3.5 * pairs / (RECENT.attention_hot * on.peak["bf16"]))


def test_a_step_at_a_stated_utilization_by_hand() -> None:
    """8,192 tokens of 57,912,852,480 FLOPs each (test_mfu.py) at half of 989.4 TFLOP/s take 0.95901 s."""
    report = at_mfu("llama-3.1-8b", 0.5, total_tokens=10**12, gradient_accumulation=3)
    facts = report.models[0]
    seconds = 3 * 8_192 * 57_912_852_480 / (0.5 * 989.4e12)
    assert facts["value_seconds"] == pytest.approx(seconds, rel=1e-12)
    assert facts["mfu"] == pytest.approx(0.5, rel=1e-12)
    assert facts["days"] == pytest.approx(1e12 * 57_912_852_480 / (8 * 0.5 * 989.4e12) / 86_400, rel=1e-12)
    assert facts["assumptions"] == {"mfu": 0.5}
    assert facts["interval_80_seconds"] is facts["validation"] is facts["constant_utilization_seconds"] is None
    assert "50.0% MFU is your assumption, not an estimate." in report.notes


def test_a_stated_utilization_needs_no_measured_step() -> None:
    """Experts, and devices that no step was measured on; but the step must fit."""
    assert at_mfu("mixtral-8x7b", 0.4, "32xh100").models[0]["value_seconds"] > 0
    assert at_mfu("llama-3.2-1b", 0.4, "mi300x").models[0]["value_seconds"] > 0
    too_large = at_mfu("llama-3.1-70b", 0.4)
    assert too_large.answer.startswith("Does not fit: needs at least 152 GiB on each device, and 77.3 GiB is usable")
    assert too_large.models[0]["value_seconds"] is None
    for share in (0, 1.5, 40):
        with pytest.raises(TfacctError, match=r"^mfu must be a number above 0 and at most 1"):
            at_mfu("llama-3.1-8b", share)


def at_mfu(model: str, mfu: float, on: str = "8xh100", **how: Any) -> Any:
    return tfacct.load(model).train_time(ctx=8192, on=on, mfu=mfu, **how)


@pytest.mark.parametrize("layout", [{}, {"tp": 2, "sp": True, "pp": 2, "gradient_accumulation": 2}])
def test_memory_is_approximate_where_that_of_train_is(layout: dict[str, Any]) -> None:
    model = tfacct.load("llama-3.1-8b")
    step = model.train_time(on="8xh100", ctx="2k", batch=4, recompute="full", **layout)
    mesh = {"tp": 2, "sp": True, "pp": 2, "dp": 2} if layout else {"fsdp": 8}
    times = {"gradient_accumulation": 2} if layout else {}
    trained = model.train(on="8xh100", ctx="2k", batch=4, recompute="full", **mesh, **times)
    approximate = "peak ≈ " in trained.answer
    assert ("Fits: needs ≈ " in step.notes[0]) is approximate is bool(layout)
    assert step.needed_bytes == trained.peak_bytes


def test_a_step_that_fills_the_memory_to_the_byte_fits() -> None:
    """`least` decides that nothing fits, `counted` that transformers' class does; between them kernels decide."""
    cases = {(10, 10): True, (10, None): None, (9, 11): None, (11, 12): False, (11, None): False}
    assert {case: Memory(*case, usable=10).fits for case in cases} == cases


def test_lora_has_no_utilization() -> None:
    """Its formulas count the gradients of all weights, which LoRA does not compute."""
    found = tfacct.load("llama-3.1-8b").train_time(on="h100", ctx=4096, lora=8)
    assert found.value_seconds and found.mfu is found.mfu_palm is found.constant_utilization_seconds is None
    assert "MFU" not in found.answer
    with pytest.raises(TfacctError, match=r"mfu=0.5 counts gradients of all weights, and lora computes few of them"):
        tfacct.load("llama-3.1-8b").train_time(on="h100", ctx=4096, lora=8, mfu=0.5)
