"""Gated DeltaNet: chunks and their padding, and tensors that stay in fp32. Kind: golden, refusal."""

from tfacct import load
from tfacct.ledger.workload import Workload


def test_one_token_more_than_a_chunk_costs_another() -> None:
    """2 · 64 · 64 · 128 FLOPs for each of 32 heads, 36 blocks and chunk; none for the token of a decode step."""
    model = load("qwen3-next-80b-a3b").loaded.ledger
    for tokens, context, chunks in ((64, 64, 1), (65, 65, 2), (65, 900, 2), (1, 900, 0)):
        at = Workload(context, tokens).axes()
        assert model.flops(at)["blocks.*.delta.key_pairs"] == 2 * 64 * 64 * 128 * 32 * 36 * chunks


def test_the_states_are_counted_in_fp32_and_said_so(run) -> None:
    """36 blocks of 32 heads of 128 × 128 numbers, 4 bytes each, at every dtype of the cache."""
    held = 36 * 32 * 128 * 128 * 4
    for dtype in ("bf16", "fp8"):
        kept = load("qwen3-next-80b-a3b").memory(ctx=1000, kv_dtype=dtype).models[0]["lines"]
        (state,) = (line for line in kept if line["what"] == "delta.delta_state")
        assert (state["dtype"], state["bytes"]) == ("fp32", held)
    ran = run("memory", "--kv", "qwen3-next-80b-a3b", "-v")
    assert "36 · 1 · 32 · 128 · 128 · 4" in " ".join(ran.out.split())
    assert "delta.delta_state is stored in fp32, independent of the cache dtype." in " ".join(ran.out.split())


def test_a_training_step_has_no_rule_for_it_and_says_so(run) -> None:
    ran = run("train", "kimi-linear-48b-a3b", "--ctx", "128")
    assert ran.code == 2 and "Traceback" not in ran.err
