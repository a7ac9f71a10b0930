"""Every axis of a mesh in `flops`, `params` and `memory`: one rank and the full model. Kind: law, refusal."""

from typing import Any

import pytest

import tfacct
from tests.helpers.cli import Run
from tfacct.base.errors import TfacctError

LARGE = "llama-3.1-70b"
ALL: dict[str, Any] = {"tp": 8, "sp": True, "fsdp": 8, "pp": 4, "cp": 2}
SOME = ("llama-3.1-8b", "qwen3-0.6b", "gpt2", "gemma-2-9b", "mixtral-8x7b")


def test_a_whole_mesh_by_hand() -> None:
    model = tfacct.load(LARGE)
    flops = model.flops(ctx=8192, **ALL)
    assert flops.mesh["ranks"] == 8 * 8 * 4 * 2 and flops.stage == 4
    at = {line["path"]: line["flops"] for line in flops.lines}
    # 20 layers, 4,096 queries of 8 heads of 128 numbers, and 8,192 keys; 16,032 rows of the head.
    assert at["blocks.*.attn.q_proj"] == 20 * 2 * 4096 * 8192 * 1024
    assert at["blocks.*.attn.scores"] == 20 * 2 * 4096 * 8192 * 8 * 128
    assert at["lm_head"] == 2 * 4096 * 8192 * 16_032
    assert flops.whole["total_flops"] == model.flops(ctx=8192).total
    # 8.21 M of the head, 20 layers of 855,654,400 less two norms of 8,192, on 8 ranks of tp, then all on 8 · 2 others.
    block = (855_654_400 - 2 * 8192) // 8 + 2 * 8192
    params = (20 * block + 128_256 * 8192 // 8 + 8192) // 16
    assert model.params(**ALL).rank_params == params
    memory = model.memory(ctx=8192, **ALL)
    assert memory.weights_bytes == 2 * params
    # Keys and values of one head of 128 numbers and 4,096 tokens in 20 layers, in bf16.
    assert memory.kv_cache_bytes == 20 * 2 * 4096 * 128 * 2 == model.kv(ctx=8192, **ALL).kv_cache_bytes
    assert memory.total_bytes == memory.weights_bytes + memory.kv_cache_bytes
    assert memory.kv_bytes_next_token == 20 * 2 * 128 * 2  # on the rank that takes it
    moved = {line["path"]: line for line in model.traffic(ctx=8192, **ALL).lines}["blocks.*.attn.scores"]
    # Queries of 4,096 tokens in 8 heads and keys of 8,192 in one; scores of both in 8 heads.
    assert moved["read_bytes"] == 20 * 2 * (4096 * 8 + 8192) * 128
    assert moved["written_bytes"] == 20 * 2 * 8 * 4096 * 8192


@pytest.mark.parametrize("name", SOME)
def test_stages_and_parts_do_the_whole_work(name: str) -> None:
    model = tfacct.load(name)
    whole = model.flops(ctx=256)
    parts = model.flops(ctx=256, cp=4)
    assert 4 * parts.total == whole.total and 4 * parts.models[0]["flops_per_token"] * 64 == whole.total
    assert model.flops(ctx=256, train=True, cp=2).total * 2 == model.flops(ctx=256, train=True).total


def test_pairs_under_the_causal_mask_are_shared_evenly() -> None:
    model = tfacct.load("llama-3.1-8b")
    at = {line["path"]: line["flops"] for line in model.flops(ctx=64, masked=True, cp=4).lines}
    # Eight pieces of 8 tokens: of the first, 8 · 9 / 2 pairs; of the last, 7 · 8 · 8 more. The rank has both.
    pairs = 2 * 8 * 9 // 2 + 7 * 8 * 8
    assert at["blocks.*.attn.scores"] == 32 * 2 * 32 * 128 * pairs
    # The other ranks' pieces: (1, 6), (2, 5), (3, 4).
    assert {8 * 9 + (i + 7 - i) * 64 for i in range(4)} == {pairs}
    with pytest.raises(TfacctError, match="ranks have unequal numbers of pairs"):
        tfacct.load("gemma-2-9b").flops(ctx=64, masked=True, cp=4)
    assert tfacct.load("gemma-2-9b").flops(ctx=64, cp=4).total * 4 == tfacct.load("gemma-2-9b").flops(ctx=64).total


def test_experts_are_sharded() -> None:
    model = tfacct.load("mixtral-8x7b")
    at = {line["path"]: line for line in model.flops(ctx=1024, tp=4, ep=8).lines}
    bank = at["blocks.*.mlp.experts.gate_proj"]
    # 1,024 tokens go to 2 experts each; each rank of a batch has a quarter of the pairs.
    assert (bank["m"], bank["k"], bank["n"], bank["times"]) == (512, 4096, 14336, 32)
    assert bank["flops"] == 2 * 512 * 4096 * 14336 * 32
    alone = {line["path"]: line["flops"] for line in model.flops(ctx=1024, ep=8).lines}
    assert alone == {line["path"]: line["flops"] for line in model.flops(ctx=1024).lines}  # a batch on each rank
    rank = model.memory(ctx=1024, tp=4, ep=8, pp=2)
    # A stage has 16 layers, and of each one of eight experts of three matrices.
    experts = 16 * 3 * 4096 * 14336
    assert rank.mesh["ranks"] == 16 and {line["what"]: line["elements"] for line in rank.lines}["mlp"] == (
        experts + 16 * 4096 * 8
    )


def test_bytes_of_sharded_experts() -> None:
    """By hand: 1,024 tokens go to 2 experts each, rows of 4,096 numbers in bf16; an expert has matrices of 4,096 ×
    14,336."""
    model, matrix = tfacct.load("mixtral-8x7b"), 4096 * 14336 * 2
    for axes, rows in (({"ep": 8}, 2048), ({"tp": 4, "ep": 8}, 512), ({"ep": 2}, 2048)):
        own = model.traffic(ctx=1024, **axes)
        at = {line["path"]: line for line in own.lines}
        gate, down = (at[f"blocks.*.mlp.experts.{name}_proj"] for name in ("gate", "down"))
        experts = 8 // axes["ep"]
        assert gate["read_bytes"] == 32 * (rows * 4096 * 2 + experts * matrix), axes
        assert gate["written_bytes"] == 32 * rows * 14336 * 2
        assert down["read_bytes"] == 32 * (rows * 14336 * 2 + experts * matrix)
        assert down["written_bytes"] == 32 * rows * 4096 * 2
        (row,) = model.sweep("total_moved_bytes", ctx=[1024], **{axis: [size] for axis, size in axes.items()}).rows
        assert row["total_moved_bytes"] == own.total_moved_bytes
    # Of one token's 2 rows a rank of 8 experts' 2 halves touches no more than 2.
    token = {line["path"]: line for line in model.traffic(ctx=1024, tokens=1, ep=2).lines}
    assert token["blocks.*.mlp.experts.up_proj"]["read_bytes"] == 32 * (2 * 4096 * 2 + 2 * matrix)


def test_a_latent_is_cached_by_the_rank_of_its_token() -> None:
    model = tfacct.load("deepseek-v3")
    assert 4 * model.kv(ctx=8192, cp=4).kv_cache_bytes == model.kv(ctx=8192).kv_cache_bytes
    with pytest.raises(TfacctError, match="does not support latent attention"):
        model.flops(ctx=8192, cp=4)


def test_the_largest_context_of_context_parallel_ranks() -> None:
    model = tfacct.load("llama-3.1-8b")
    found = model.memory(ctx="8k", cp=4, on="24GiB").fit
    one, longest = model.memory(ctx="8k", on="24GiB").fit, found["largest_context"]
    assert longest % 8 == 0 and longest // 4 in (one["largest_context"], one["largest_context"] - 1)
    budget = 24 * 2**30
    assert model.memory(ctx=longest, cp=4).total_bytes + found["context_slack_bytes"] == budget
    assert model.memory(ctx=longest + 8, cp=4).total_bytes > budget


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b"])
@pytest.mark.parametrize("command", ["flops", "flops --bytes", "params", "memory", "memory --kv"])
def test_every_axis_is_answered_or_refused_by_name(run: Run, command: str, name: str) -> None:
    first, *more = command.split()
    sized = [] if first == "params" else ["--ctx", "512"]
    for axis in ("--tp 2", "--tp 2 --sp", "--fsdp 2", "--tp 2 --ep 2", "--pp 2", "--cp 2", "--tp 2 --pp 2 --cp 2"):
        ran = run(first, *more, name, *sized, *axis.split())
        message = ran.err_line
        if "--ep" in axis and name == "llama-3.1-8b":
            assert ran.code == 2 and "has no experts" in message
        else:
            assert ran.code == 0 and "of" in ran.out and "rank" in ran.out, (command, axis, message)


def test_an_axis_that_divides_nothing_here_changes_nothing() -> None:
    alone = tfacct.load("llama-3.1-8b")
    assert alone.flops(ctx=512, fsdp=8).total == alone.flops(ctx=512).total
    assert alone.params(tp=2, sp=True).rank_params == alone.params(tp=2).rank_params
    assert alone.params(cp=2).rank_params == alone.params().total


def test_sweeps_over_every_axis() -> None:
    model = tfacct.load("mixtral-8x7b")
    found = model.sweep("total_flops", "kv_cache_bytes", "total_bytes", ctx=[1024], tp=[1, 2], cp=[1, 2], pp=[1, 2])
    assert len(found.rows) == 8
    for row in found.rows:
        axes = {axis: row[axis] for axis in ("tp", "cp", "pp")}
        rank = model.memory(ctx=1024, **axes)
        assert row["total_flops"] == model.flops(ctx=1024, **axes).total, row
        assert (row["kv_cache_bytes"], row["total_bytes"]) == (rank.kv_cache_bytes, rank.total_bytes), row
    for row in model.sweep("total_flops", "total_bytes", ctx=[1024], tp=[4], ep=[1, 4, 8], masked=True).rows:
        axes = {"tp": 4, "ep": row["ep"]}
        assert row["total_flops"] == model.flops(ctx=1024, masked=True, **axes).total
        assert row["total_bytes"] == model.memory(ctx=1024, **axes).total_bytes
    for row in model.sweep("total_moved_bytes", ctx=[1024], cp=[1, 4]).rows:
        assert row["total_moved_bytes"] == model.traffic(ctx=1024, cp=row["cp"]).total_moved_bytes
    model = tfacct.load("llama-3.1-8b")
    for row in model.sweep("peak_bytes", ctx=[512], pp=[1, 2], cp=[1, 2]).rows:
        assert row["peak_bytes"] == model.train(ctx=512, pp=row["pp"], cp=row["cp"]).peak_bytes


def test_a_sweep_skips_contexts_that_ranks_do_not_divide() -> None:
    found = tfacct.load("llama-3.1-8b").sweep("total_flops", ctx=[512, 513], cp=[1, 2])
    assert [(row["ctx"], row["cp"]) for row in found.rows] == [(512, 1), (513, 1), (512, 2)]
    assert found.skipped[0]["why"] == "4 pieces do not divide 513 tokens"


@pytest.mark.parametrize(
    ("name", "metric", "gigabytes", "step"),
    [
        (LARGE, "total_bytes", 40, {"ctx": "8k", "tp": 2}),
        ("llama-3.1-8b", "peak_bytes", 24, {"ctx": "4k", "batch": 8, "recompute": "full"}),
    ],
)
def test_the_fewest_stages(name: str, metric: str, gigabytes: int, step: dict[str, Any]) -> None:
    """The solution is enough, and one fewer is not."""
    model = tfacct.load(name)
    count = model.solve("pp", f"{metric}={gigabytes}GB", **step).total
    counted = model.memory if metric == "total_bytes" else model.train
    sizes = [counted(**step, pp=stages).models[0][metric] for stages in (count, count - 1)]
    assert sizes[0] <= gigabytes * 10**9 < sizes[1]


def _numbers(found: Any, **axis_names: int) -> int:
    """The total of a formula, its symbols replaced by their sizes."""
    values = {axis: value["value"] for axis, value in found.legend.items() if "value" in value} | axis_names
    return int(eval(found.models[0]["total_formula"].replace("/", "//"), {}, values))


def test_formulas_are_divided_along_every_axis() -> None:
    model, large = tfacct.load("llama-3.1-8b"), {"tp": 2, "pp": 4, "cp": 2}
    axis_names = model.formula(ctx=1024, tp="t", pp="p", cp="c")
    assert _numbers(axis_names, t=2, p=4, c=2) == model.flops(ctx=1024, **large).total
    assert {axis_names.legend[axis]["meaning"] for axis in "tpc"} == {"ranks", "stages", "context-parallel ranks"}
    assert axis_names.lines[0]["flops_formula"].endswith("/(t*p*c)") and axis_names.lines[-1]["flops_formula"].endswith(
        "/(t*c)"
    )
    assert axis_names.lines[0]["params_formula"].endswith("/(t*p)")
    assert _numbers(model.formula(of="params", tp="t"), t=8) == model.params(tp=8).rank_params
    assert 2 * _numbers(model.formula(of="kv", ctx=1024, tp="t"), t=8) == model.kv(ctx=1024, tp=8).kv_cache_bytes
    cached = model.formula(of="kv", ctx=1024, **large)
    assert 2 * cached.kv_cache_elements == cached.kv_cache_bytes == model.kv(ctx=1024, **large).kv_cache_bytes
    train = model.formula(of="train", ctx=1024, pp=4, cp="c")
    assert _numbers(train, c=2) == model.flops(ctx=1024, train=True, pp=4, cp=2).total


@pytest.mark.parametrize(("name", "where"), [("gpt2", "first"), ("llama-3.1-8b", "last"), ("llama-3.2-1b", "last")])
def test_the_total_of_stages_is_that_of_the_fullest(run: Run, name: str, where: str) -> None:
    model = tfacct.load(name)
    found = model.formula(of="params", pp="p")
    assert _numbers(found, p=4) == model.params(pp=4).rank_params
    words = run("formula", name, "--of", "params", "--pp", "4").out_line
    assert f"4 pipeline stages split the layers. The total is that of the {where} stage, with the modules" in words


@pytest.mark.parametrize(("tp", "ep"), [(1, 4), (2, 2), (2, 8)])
@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v2-lite"])
def test_formulas_of_experts_are_divided(name: str, tp: int, ep: int) -> None:
    model = tfacct.load(name)
    axes: dict[str, Any] = {"tp": "t", "ep": "e"} if tp > 1 else {"ep": "e"}
    written = model.formula(ctx=1024, **axes)
    assert _numbers(written, t=tp, e=ep) == model.flops(ctx=1024, tp=tp, ep=ep).total
    assert model.formula(ctx=1024, tp=tp, ep=ep).total_flops == model.flops(ctx=1024, tp=tp, ep=ep).total
    stored = model.formula(of="params", **axes)
    weights = model.memory(ctx=1024, tp=tp, ep=ep).weights_bytes
    assert 2 * _numbers(stored, t=tp, e=ep) == weights
    by_path = {line["path"]: line["params_formula"] for line in stored.lines}
    assert by_path["blocks.*.mlp.experts.up_proj.weight"].endswith(")/e")  # each expert is whole
    assert "/" not in by_path["blocks.*.mlp.router.weight"]
    assert "e" not in model.formula(of="kv", ctx=1024, **axes).legend


@pytest.mark.parametrize("mesh", [{"tp": 2, "ep": 2}, {"tp": 2, "ep": 4}, {"tp": 2}, {"ep": 8}, {"cp": 2}])
def test_the_rule_of_thumb_is_of_what_a_rank_computes(mesh: dict[str, int]) -> None:
    model = tfacct.load("mixtral-8x7b")
    rank, whole = model.flops(ctx=1024, **mesh), model.flops(ctx=1024)
    of_model = {"active_params": whole.active_params, "rule_of_thumb_flops": whole.rule_of_thumb_flops}
    assert rank.whole == {"total_flops": whole.total_flops, **of_model}
    # 2 · active parameters · tokens is as far from the count as it is of the whole model: 26.4 of 26.7 T.
    ratios = [one.total_flops / one.rule_of_thumb_flops for one in (rank, whole)]
    assert abs(ratios[0] - ratios[1]) < 0.001
    share = 1 if "ep" in mesh and "tp" not in mesh else 2
    assert abs(share * rank.rule_of_thumb_flops / whole.rule_of_thumb_flops - 1) < 0.001


def test_a_picture_names_the_rank() -> None:
    model = tfacct.load("llama-3.1-8b")
    for report in (model.kv(ctx=4096, tp=4), model.flops(ctx=4096, tp=4), model.memory(ctx=4096, tp=4)):
        assert " one of 4 ranks" in report._chart().title


def test_ranks_share_states_and_their_pages() -> None:
    """2 key/value heads, 32 value heads of 128 × 128 in 36 layers, and convolutions of 8,192 channels, on 2 ranks."""
    model = tfacct.load("qwen3-next-80b-a3b")
    one = model.kv(ctx="4k", tp=2)
    states = 36 * (16 * 128 * 128 * 4 + 4096 * 4 * 2)
    assert one.kv_cache_bytes == states + 12 * 4096 * 2 * 256 * 2 == one.whole["kv_cache_bytes"] // 2
    paged = model.memory(ctx="4k", on="2xh200", engine="vllm")
    assert paged.kv_block == 544 and paged.whole["kv_cache_bytes"] == 2 * paged.kv_cache_bytes
