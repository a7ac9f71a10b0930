"""A training step on a rank of a pipeline: what autograd keeps of the microbatches in flight while torch's schedules
run a class's blocks, the published figures, and a step by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import tfacct
from tests.conftest import Ran
from tests.test_sharding import random_config
from tests.torch_stages import peak_in_flight, saved_in_flight
from tfacct.accounts.sharding.flights import instants
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.sharding.stages import stages
from tfacct.accounts.timeline import peak, timeline
from tfacct.ledger.workload import Workload
from tfacct.reports import train_stages
from tfacct.reports.training import step_of
from tfacct.training.recipe import Recipe

SIZES = {
    "hidden_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "intermediate_size": 40,
    "vocab_size": 50,
    "num_hidden_layers": 7,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}


def steps_of(config: dict[str, Any], mesh: Mesh, rank: int, batch: int, tokens: int, **recipe: Any) -> list[Any]:
    """The steps of one rank among which its fullest is, by the account."""
    steps: list[Any] = []
    real = train_stages._steps

    def alone(mesh: Mesh, _: int, *more: Any) -> Any:
        steps.extend(real(mesh, rank, stages(config["num_hidden_layers"], mesh)[rank], *more[1:]))
        return iter(steps)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(train_stages, "_steps", alone)
        asked = Recipe(optimizer="none", mesh=mesh, **recipe)
        step_of(tfacct.load(config).loaded, Workload(tokens, tokens, batch), asked)
    return steps


def counted(config: dict[str, Any], mesh: Mesh, rank: int, batch: int, tokens: int) -> int:
    """The most that a rank keeps, by the account."""
    each = 8 * batch // mesh.microbatches * tokens  # the batch is one tensor, of which microbatches are parts

    def kept(step: Any) -> int:
        batches = sum(times for run, times in step.passes if any(line.path == "tokens" for line in run.front.run.kept))
        return int(step.kept()) - each * batches

    return max(map(kept, steps_of(config, mesh, rank, batch, tokens)))


def peak_compared(kind: str, seed: int) -> None:
    """A random rank's peak and that of torch's schedule."""
    rng = random.Random(f"stages {kind} {seed}")
    pp, schedule = rng.choice((2, 3, 4)), ("1f1b", "gpipe", "interleaved")[seed % 3]
    chunks = rng.choice((2, 3)) if schedule == "interleaved" else 1
    times = pp * rng.choice((1, 2, 3)) if chunks > 1 else rng.choice((pp, pp + 1, 2 * pp + 1))
    mesh = Mesh(pp=pp, schedule=schedule, chunks=chunks, microbatches=times)  # type: ignore[arg-type]
    like = kind if kind in ("llama", "mistral", "qwen2", "qwen3", "starcoder2", "gemma") else "llama"
    config = {**random_config(like, rng, Mesh()), "model_type": kind, "head_dim": 8 * rng.randint(1, 2)}
    config |= {"num_hidden_layers": rng.randint(pp * chunks, pp * chunks + 3), "max_position_embeddings": 512}
    config |= {"vocab_size": rng.choice((24, 97, 800)), "intermediate_size": rng.choice((16, 80, 300))}
    config["hidden_size"] = config["num_attention_heads"] * rng.choice((8, 16, 24))
    if kind in ("starcoder2", "olmo", "olmo2", "granite"):
        config["head_dim"] = config["hidden_size"] // config["num_attention_heads"]
    batch, tokens, rank = times * rng.choice((1, 2)), rng.choice((8, 32)), rng.randrange(pp)
    recipe = {"recompute": rng.choice(("none", "full")), "gradient_accumulation": 1 + (seed % 5 == 4)}
    recipe["attention"] = "eager" if kind == "gemma" or seed % 3 == 1 else "sdpa"
    steps = steps_of(config, mesh, rank, batch, tokens, **recipe)
    most = max(int(one.total) for step in steps for one in timeline(step) if one.name != "optimizer step")
    seen = peak_in_flight(config, mesh, rank, batch, tokens, recipe)
    near = seen // 100 if chunks > 1 else 0  # of interleaved stages forward passes are no instants of their own
    assert abs(most - seen) <= near, (config, mesh, rank, batch, tokens, recipe)


@pytest.mark.parametrize(
    ("kind", "seed"), [("llama", 0), ("qwen2", 1), ("llama", 2), ("mistral", 3), ("starcoder2", 4), ("gemma", 5)]
)
def test_a_peak_in_a_pipeline_is_what_is_alive_under_torchs_schedule(kind: str, seed: int) -> None:
    peak_compared(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["llama", "mistral", "qwen2", "qwen3", "starcoder2", "gemma", "olmo", "olmo2", "granite"]
)
def test_random_peaks_in_a_pipeline_are_what_is_alive_under_torchs_schedules(kind: str) -> None:
    for seed in range(6, 21):
        peak_compared(kind, seed)


SCHEDULES = [("gpipe", 1, 4), ("1f1b", 1, 4), ("interleaved", 2, 4), ("interleaved", 3, 6)]


@pytest.mark.parametrize(("schedule", "chunks", "times"), SCHEDULES)
@pytest.mark.parametrize("rank", [0, 1])
def test_what_is_in_flight_is_what_autograd_keeps(schedule: Any, chunks: int, times: int, rank: int) -> None:
    mesh = Mesh(pp=2, schedule=schedule, chunks=chunks, microbatches=times)
    config = {"model_type": "llama", **SIZES}
    assert counted(config, mesh, rank, 2 * times, 16) == saved_in_flight(config, mesh, rank, 2 * times, 16)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral"])
@pytest.mark.parametrize(("schedule", "chunks", "times"), SCHEDULES)
def test_stages_of_other_classes_and_more_ranks(kind: str, schedule: Any, chunks: int, times: int) -> None:
    config = {"model_type": kind, **SIZES, "num_hidden_layers": 13, "tie_word_embeddings": False}
    mesh = Mesh(pp=4, schedule=schedule, chunks=chunks, microbatches=2 * times)
    for rank in range(4):
        assert counted(config, mesh, rank, 4 * times, 16) == saved_in_flight(config, mesh, rank, 4 * times, 16)


def test_microbatches_in_flight_as_published() -> None:
    def most(mesh: Mesh, rank: int = 0, times: int = 32) -> int:
        return max(sum(start.flying) for start in instants(mesh, rank, times))

    # GPipe: all; 1F1B: as many as there are stages behind, and its own (2104.04473, section 2.2.1).
    assert most(Mesh(pp=8, schedule="gpipe")) == 32
    assert [most(Mesh(pp=8), rank) for rank in range(8)] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert most(Mesh(pp=8), times=3) == 3
    # Interleaved: 1 + (p − 1)/(p · m) times as much on the first rank (2205.05198, section 4.2.3), here 39/32.
    assert most(Mesh(pp=8, schedule="interleaved", chunks=4)) == 8 * 4 + 7
    # There GPT-3 has p = 8, m = 3, the 530B model p = 35, m = 3.
    assert most(Mesh(pp=8, schedule="interleaved", chunks=3)) == 31 == 8 * 3 + 7
    assert most(Mesh(pp=35, schedule="interleaved", chunks=3), times=280) == 139 == 35 * 3 + 34
    # Zero bubble: what waits for gradients of weights makes up for what is no more in flight (2401.10241, table 2).
    for rank in range(8):
        starts = instants(Mesh(pp=8, schedule="zero-bubble"), rank, 32)
        assert max(sum(start.flying) + start.waiting for start in starts) == 8


@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 1), ("interleaved", 4)])
def test_llama_8b_by_hand(schedule: Any, chunks: int) -> None:
    model = tfacct.load("llama-3.1-8b")
    pipe: dict[str, Any] = {"pp": 4, "schedule": schedule, "pp_chunks": chunks, "microbatches": 16, "batch": 16}
    found, whole = model.train(ctx=4096, **pipe), model.train(ctx=4096)
    block, table = 218_112_000, 128_256 * 4096
    assert found.weights_bytes == 2 * (8 * block + table)
    # Two moments, and a counter for each of 9 tensors of a block and the table.
    assert found.optimizer_state_bytes == 2 * found.weights_bytes + 4 * (8 * 9 + 1)
    # Of each microbatch what the blocks keep, their angles (two of 4,096 · 128 in bf16), and the first stage's tokens:
    # those of two rounds of four, where the rank has more stages.
    kept = sum(line["bytes"] for line in whole.lines if line["path"].startswith("blocks.")) // 32
    flying, blocks, first = {"1f1b": (4, 8, 4), "interleaved": (3 * 4 + 2 * 3 + 1, 2, 8)}[schedule]
    each = blocks * kept + 2 * 2 * 4096 * 128
    assert (found.stage, found.in_flight) == (1, flying)
    assert found.saved_bytes == flying * each + first * 8 * 4096
    assert found.exact == (schedule == "1f1b") and found.bubble_ratio == 3 / (16 * chunks)
    # Beside: gradients of 16 microbatches to receive into for each stage, what stages gave on of those in flight, and
    # all tokens; the other stages of the rank receive 16 streams each too. In the last block up to its first sum the
    # gradient of the stream is the one received.
    stream, stages_ = 2 * 4096 * 4096, chunks
    others = (stages_ - 1) * 16
    fullest = next(each for each in found.phases if each["phase"] == found.peak_phase)
    alone = next(each for each in whole.phases if each["phase"].startswith("layer 31"))
    assert found.peak_phase == f"block {blocks - 1}, backward"
    stays = (stages_ * 16 + others + flying) * stream + (16 - first) * 8 * 4096
    assert stays < fullest["temporary_bytes"] <= stays + alone["temporary_bytes"]
    # Where blocks run again the loss decides, on the last stage.
    assert model.train(ctx=4096, recompute="full", **pipe).stage == 4


def test_what_gradients_of_weights_wait_with_by_hand() -> None:
    found = tfacct.load("llama-3.1-8b").train(ctx=4096, pp=4, batch=16, schedule="zero-bubble")
    width, keys, network, rows, tokens = 4096, 1024, 14_336, 128_256, 4096
    # A block's weights read two norms, scaled and multiplied, the values and the network's product; they make two
    # norms, q, k, v, o, gate, up and down. Behind the blocks: a norm and the head.
    read, made = 4 * width + width + network, 2 * width + width + 2 * keys + width + 2 * network + width
    behind = 2 * width + width + rows
    waiting = next(line["bytes"] for line in found.lines if line["path"] == "waiting")
    assert found.stage == 4 and waiting == 3 * 2 * tokens * (8 * (read + made) + behind)


def test_of_one_stage_the_step_is_that_of_the_model() -> None:
    model, work = tfacct.load("gpt2").loaded, Workload(64, 64, 4)
    whole = step_of(model, work, Recipe())
    ends = [step_of(model, work, Recipe(mesh=Mesh(pp=pp, microbatches=1))) for pp in (2, 12)]
    assert all(int(peak(timeline(end)).total) < int(peak(timeline(whole)).total) for end in ends)
    # The last stage: a block, the final norm, the head, and the loss.
    assert "loss" in peak(timeline(ends[1])).name


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("llama-3.1-8b --pp 2 --fsdp 2 --schedule interleaved", "is counted under 1f1b and gpipe, not interleaved"),
        ("llama-3.1-8b --pp 33", "--pp 33 does not divide L = 32 (blocks)"),
        ("llama-3.1-8b --pp 2 --dp 2 --zero 2", "--zero 2 is not counted beside --pp: DeepSpeed refuses"),
        ("llama-3.1-8b --cp 2 --attention eager", "eager attention is not counted beside --cp"),
        ("llama-3.1-8b --cp 2 --ctx 4098", "--cp 2 does not divide T = 4,098"),
        ("llama-3.1-8b --ulysses 16", "does not divide K = 8 (key/value heads)"),
    ],
)
def test_a_step_that_is_not_counted_is_refused_by_name(run: Callable[..., Ran], arguments: str, said: str) -> None:
    ran = run("train", *arguments.split())
    words = " ".join(ran.err.split())
    assert ran.code == 2 and said in words and "Traceback" not in words, words


def test_the_table_and_its_notes(run: Callable[..., Ran]) -> None:
    ran = run(
        "train", "llama-3.1-8b", "--ctx", "8k", "--pp", "4", "--tp", "2", "--batch", "8", "--schedule", "zero-bubble"
    )
    words = " ".join(ran.out.split())
    assert "a training step on one of 8 ranks" in words and "in flight" in words
    assert "a stage waits (P − 1) · (F + B − W)/(M · (F + B + W)) of the time that it computes." in words
    assert "layer 7, backward" in run("train", "llama-3.1-8b", "--ctx", "8k", "--pp", "4", "--batch", "8").out


def test_what_fits_is_what_ranks_divide(run: Callable[..., Ran]) -> None:
    model = tfacct.load("llama-3.2-1b")
    fit = model.train(ctx="8k", cp=2, tp=2, sp=True, fit="20GiB").fit
    assert fit["largest_context"] % 8 == 0 and fit["largest_context"] > 8192
    fit = model.train(ctx="8k", pp=2, batch=8, microbatches=4, fit="60GiB").fit
    assert fit["largest_batch"] % 4 == 0
    many = model.train(ctx="8k", pp=2, batch=8, fit="60GiB").fit["largest_batch"]  # each is received into its own
    peaks = [model.train(ctx="8k", pp=2, batch=batch).peak_bytes for batch in (many, many + 1)]
    assert peaks[0] <= 60 * 2**30 < peaks[1]
    out = " ".join(
        run("train", "llama-3.2-1b", "--ctx", "8k", "--pp", "2", "--batch", "8", "--fit", "60GiB").out.split()
    )
    assert f"or {many:,} sequences" in out


def test_a_part_of_a_sequence_keeps_a_part() -> None:
    model = tfacct.load("llama-3.1-8b")
    parts, alone = model.train(ctx="8k", cp=4), model.train(ctx="2k")
    copies = 32 * 2048 * 32 * 128 * 2  # what attention gives, once more for o_proj: L T N H in bf16
    assert parts.saved_bytes == alone.saved_bytes + copies and not parts.exact
    assert model.train(ctx="8k", cp=4, cp_method="gather").saved_bytes == alone.saved_bytes
    # Copies of the weights reduce gradients in buckets, which stay beside them.
    assert parts.peak_bytes > alone.peak_bytes
    assert model.train(ctx="8k", cp=4, fsdp=2).weights_bytes * 8 == alone.weights_bytes
    halves = model.train(ctx="4k", tp=2).saved_bytes
    assert model.train(ctx="8k", ulysses=2, tp=2).saved_bytes == halves + copies  # twice the tokens, half the heads
