"""Published tables that docs/sharding-rules.md derives: Megatron's operators, ZeRO's stages, GSPMD's layout. Kind:
golden.
"""

from __future__ import annotations

from collections import Counter

import pytest

import tfacct

LLAMA = "llama-3.1-8b"


def test_megatrons_operators_follow_from_letters() -> None:
    """f in front of attention and network reduces backwards, g behind them forwards; table and logits by V."""
    step = tfacct.load(LLAMA).comms(tp=8, tp_plan="megatron", train=True)
    rows = {row["when"]: row for row in step.collectives}
    assert {row["kind"] for row in step.collectives} == {"all-reduce"}
    found = {
        when: Counter({(line["what"], line["because"]): line["calls"] for line in row["lines"]})
        for when, row in rows.items()
    }
    block = "blocks.*."
    forward = {(f"{block}attn.o_proj", "N"): 32, (f"{block}mlp.down_proj", "F"): 32, ("embed", "V"): 1}
    assert found["forward"] == Counter(forward)
    axis_names = Counter[str]()
    for (_, because), calls in found["backward"].items():
        axis_names[because] += calls
    assert axis_names == Counter({"N": 32, "F": 32, "V": 1}) and rows["backward"]["calls"] == 2 * 32 + 1
    both = tfacct.load(LLAMA).comms(tp=8, sp=True, train=True)
    calls = Counter({(row["kind"], row["when"]): row["calls"] for row in both.collectives if row["of"] == "stream"})
    assert set(calls.values()) == {2 * 32 + 1} and len(calls) == 4
    # As many bytes in a ring: those of the stream are the same, sums of norms' gradients come to them.
    stream = sum(row["sent_bytes"] for row in both.collectives if row["of"] == "stream")
    assert stream == step.sent_bytes


PUBLISHED = {0: 120, 1: 31.4, 2: 16.6, 3: 1.9}
"""GB of weights, gradients and Adam of a model of 7.5 B parameters on 64 devices (arXiv 1910.02054, figure 1)."""


@pytest.mark.parametrize("stage", PUBLISHED)
def test_stages_of_zero_divide_what_they_say(stage: int) -> None:
    copies = 64

    def needs(weights: float, gradients: float, moments: float) -> float:
        """Bytes of a parameter, by the table."""
        lives = [moments, gradients, weights]
        return sum(size / copies if stage > place else size for place, size in enumerate(lives))

    assert round(7.5 * needs(2, 2, 12), 1) == PUBLISHED[stage]
    rank = tfacct.load(LLAMA).train(ctx="1k", dp=copies, **({"zero": stage} if stage else {}))
    counters = 4 * (32 * 9 + 3)  # one of each tensor
    ours = (rank.weights_bytes, rank.gradients_bytes, rank.optimizer_bytes - counters)
    parameters = 8_030_261_248
    assert sum(ours) == needs(2, 2, 4) * parameters
    places = ((2, 2), (2, 1), (4, 0))
    assert ours == tuple(size * parameters // (copies if stage > place else 1) for size, place in places)


def test_stages_of_zero_send_what_they_say() -> None:
    """2 Ψ, and 3 Ψ where weights are divided: of these what is in no block is gathered once, not twice."""
    model, copies, parameters = tfacct.load(LLAMA), 64, 8_030_261_248
    ring = 2 * parameters * (copies - 1) // copies
    for zero in (1, 2):
        assert model.comms(dp=copies, zero=zero, train=True).sent_bytes == 2 * ring
    assert model.comms(dp=copies, train=True).sent_bytes == pytest.approx(2 * ring, rel=1e-6)
    ends = 2 * (2 * 128_256 * 4096 + 4096) * (copies - 1) // copies
    assert model.comms(dp=copies, zero=3, train=True).sent_bytes == 3 * ring - ends


def test_gspmds_two_axes_are_ranks_of_fsdp_and_tp() -> None:
    step = tfacct.load(LLAMA).comms(tp=4, sp=True, fsdp=8, train=True, ctx="4k")
    found = {(row["over"], row["of"], row["when"], row["kind"]) for row in step.collectives}
    gathers = {("forward", "all-gather"), ("backward", "all-gather")}
    scatters = {("forward", "reduce-scatter"), ("backward", "reduce-scatter")}
    of_weights = {("fsdp", "weights", *one) for one in gathers | {("backward", "reduce-scatter")}}
    of_stream = {("tp", "stream", *one) for one in gathers | scatters}
    assert found == of_weights | of_stream | {("tp", "shared weights", "backward", "all-reduce")}  # of norms
    # A product's weights lie on both axes, and nothing of attention's own products is sent.
    rows = {line["path"]: line["rank_params"] for line in tfacct.load(LLAMA).params(tp=4, fsdp=8).lines}
    assert rows["blocks.*.mlp.up_proj.weight"] == 32 * 4096 * 14336 // 32
    whats = {line["what"] for row in step.collectives for line in row["lines"]}
    assert not any(what.endswith((".scores", ".values")) for what in whats)
