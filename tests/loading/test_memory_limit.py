"""What fits: one rule for the memory of a device in every command, and no context past a learned position
embedding. Kind: golden, law, refusal.
"""

import pytest

from tests.helpers.cli import Run
from tfacct import load
from tfacct.base.errors import TfacctError
from tfacct.loading import presets
from tfacct.loading.memory_limit import MemoryLimit, memory_limit

H100 = 81_090 * 2**20
"""Bytes that torch reports."""
ROWS = ("max_decoder_position_embeddings", "n_positions", "max_position_embeddings", "max_target_positions", "n_ctx")
"""Fields of configs that say how many positions an embedding has."""


def test_the_rule_by_hand() -> None:
    serving, training = memory_limit("h100-sxm"), memory_limit("h100", training=True)
    assert serving is not None and training is not None
    assert serving.usable == 9 * H100 // 10 - 2 * 10**9 and training.usable == H100 - 2 * 10**9
    bare, shared = memory_limit("24GiB"), memory_limit("24GiB", 0.9, "1GB")
    assert bare == MemoryLimit(24 * 2**30) and bare.usable == 24 * 2**30 and bare.notes == []
    assert shared is not None and shared.usable == 24 * 2**30 * 9 // 10 - 10**9
    counted = memory_limit("2xh100-sxm", 1, "0")
    assert counted is not None and (counted.usable, counted.count) == (H100, 2)
    # Cards of 24 GB; with the rule of a card to serve, 0.9 · 24 − 2 = 19.6 GB.
    bare, ruled = memory_limit("2x24GB"), memory_limit("2 × 24 gb", 0.9, "2GB")
    assert bare is not None and ruled is not None
    assert (bare.usable, bare.count, bare.device, bare.where) == (24 * 10**9, 2, None, "in 2 × 24 GB")
    assert (ruled.usable, ruled.where) == (196 * 10**8, "in 2 × 19.6 GB")
    assert ruled.notes == ["Usable: 19.6 GB = 0.9 of 24 GB, less 2 GB for the runtime."]
    with pytest.raises(TfacctError, match="on='2x24GB' has 2 devices for a layout of 4 ranks"):
        bare.checked_for(4)
    with pytest.raises(TfacctError, match=r"size with its unit, not '24'\n24GB, 24GiB or 24xh100\?"):
        memory_limit("24")


@pytest.mark.parametrize(
    ("name", "dtype", "context", "cards"),
    [
        ("llama-3.3-70b", "fp8", 32_768, 2),
        ("llama-3.1-8b", "bf16", 8192, 1),
        ("llama-3.2-3b", "bf16", 65_536, 4),
        ("qwen3-30b-a3b", "bf16", 40_960, 2),
        ("gpt2-xl", "fp32", 1024, 1),
        ("mistral-7b-v0.1", "bf16", 30_000, 8),
    ],
)
@pytest.mark.parametrize("rule", [{}, {"use": 1, "reserve": 0}], ids=["serving", "all"])
def test_every_command_gives_one_answer(name: str, dtype: str, context: int, cards: int, rule: dict[str, int]) -> None:
    """How many requests of a context fit on so many devices."""
    model, on = load(name), f"{cards}xh100-sxm"
    one = model.memory(dtype=dtype, ctx=context, on=on, **rule)
    requests, usable = one.fit["largest_batch"], one.fit["budget_bytes"]
    assert usable == (H100 if rule else 9 * H100 // 10 - 2 * 10**9)
    each = model.memory(dtype=dtype, ctx=context, tp=cards)
    assert requests == (usable - each.weights_bytes) // each.kv_cache_bytes > 0
    served = model.serve(on=on, dtype=dtype, prompt=context - 1, new=1, requests=1, **rule)
    assert served.largest_requests == requests
    other = "qwen3-8b" if name == "llama-3.1-8b" else "llama-3.1-8b"
    assert model.compare(other, on=on, dtype=dtype, ctx=context, **rule).models[0]["requests"] == requests
    for batch, holds in ((requests, True), (requests + 1, False)):
        found = model.memory(dtype=dtype, ctx=context, batch=batch, on=on, **rule)
        assert found.fit["fits"] is holds and found.answer.startswith("Fits" if holds else "Does not fit")
        (line,) = model.fit(on="h100-sxm", dtype=dtype, ctx=context, batch=batch, **rule).lines
        assert line["usable_bytes"] == usable and (line["count"] is not None and line["count"] <= cards) is holds
        plan = model.plan(gpus=cards, on="h100-sxm", dtype=dtype, ctx=context, batch=batch, **rule)
        assert plan.budget_bytes == usable and any(one["tp"] == cards for one in plan.layouts) is holds
    if cards == 1:
        pytest.importorskip("sympy")
        solved = model.solve(unknown="batch", until=f"total_bytes={usable}B", ctx=context, dtype=dtype)
        assert solved.total == requests


def test_train_plan_and_time_give_one_answer() -> None:
    asked = {"ctx": 2048, "recompute": "full"}
    model = load("llama-3.2-1b")
    two, ranks = model.train(on="2xh100-sxm", **asked), model.train(on="h100-sxm", fsdp=2, **asked)
    assert two.mesh["fsdp"] == 2 and two.peak_bytes == ranks.peak_bytes < model.train(**asked).peak_bytes
    assert two.fit["budget_bytes"] == ranks.fit["budget_bytes"] == H100 - 2 * 10**9
    plan = model.plan(gpus=2, on="h100-sxm", train=True, ctx=2048, batch=2)
    assert plan.budget_bytes == two.fit["budget_bytes"]
    # With a reserve that leaves the peak of a step, and with one byte more.
    model, asked = load("llama-3.2-1b"), {"ctx": 2048, "recompute": "full"}
    peak = model.train(**asked, on="h100").peak_bytes
    for spare in (0, -1):
        rule = {"reserve": f"{H100 - peak - spare}B"}
        train, time = model.train(**asked, on="h100", **rule), model.train_time(on="h100", **asked, **rule)
        assert train.fit["budget_bytes"] == time.usable_bytes == peak + spare
        assert train.answer.startswith("Fits" if spare == 0 else "Does not fit")
        assert (time.fits is True) is (spare == 0)
        plan = model.plan(on="h100", train=True, **asked, **rule)
        assert plan.budget_bytes == peak + spare and bool(plan.layouts) is (spare == 0)


@pytest.mark.parametrize("paged", [{}, {"kv_block": 16}])
def test_weights_larger_than_the_budget_are_a_verdict(paged: dict[str, int], run: Run) -> None:
    """llama-3.1-70b: 70,553,706,496 parameters · 2 bytes = 131.4 GiB. At 131,072 tokens the cache takes 40 GiB more:
    half of both is 85.7 GiB, a quarter 42.9 GiB of 69.4 GiB."""
    found = load("llama-3.1-70b").memory(on="h100-sxm", **paged)
    assert found.answer == (
        "Does not fit on H100 SXM5 80GB: the weights alone need 131 GiB, and 69.4 GiB is usable."
        " It fits on 4 × h100-sxm (tp=4)."
    )
    assert not found.fit["fits"] and found.fit["largest_context"] == found.fit["largest_batch"] == 0
    assert found.pages is None
    ran = run("memory", "llama-3.1-70b", "--on", "h100-sxm", *(["--kv-block", "16"] if paged else []))
    assert (ran.code, ran.err) == (0, "") and found.answer in ran.out_line
    assert load("llama-3.1-70b").memory(on="4xh100-sxm", **paged).fit["fits"]
    assert not load("llama-3.1-70b").memory(on="2xh100-sxm", **paged).fit["fits"]


def test_what_an_engine_leaves_is_named_where_it_is_less() -> None:
    """The reserve is 10% and 2 GB; vLLM's buffers of 80 layers take more, and those of 32 layers less."""
    model, asked = load("llama-3.3-70b"), {"on": "h100", "dtype": "fp8"}
    counted, left = model.memory(**asked).fit, model.memory(**asked, engine="vllm").fit
    assert (counted["largest_batch"], left["largest_batch"]) == (0, 0)
    start = model.engine(**asked, max_model_len=2048)
    assert left["largest_context"] == start.blocks * start.block_size < counted["largest_context"]
    buffers, room = (
        "An engine's own buffers and page padding are not counted",
        f"room for ≈ {left['largest_context']:,} tokens",
    )
    less = f"vLLM 0.33, at 0.92 of the memory, would have {room} (engine='vllm')."
    assert f"{buffers}: {less}" in model.memory(**asked).notes
    assert buffers not in str(model.memory(**asked, engine="vllm").notes)
    asked |= {"on": "2xh100", "ctx": "32k"}
    requests = [model.memory(**asked, **engine).fit["largest_batch"] for engine in ({}, {"engine": "vllm"})]
    assert requests == [7, 6] and "room for ≈ 6 requests" in str(model.memory(**asked).notes)
    served = model.serve(on="h100", dtype="fp8", prompt=2000, new=300)
    assert served.largest_requests == 2 and "room for ≈ 1 request (" in str(served.notes)
    for others in ({"use": 0.95}, {"reserve": "3GB"}):  # a share of one's own is no guess at an engine's
        assert f"{buffers}: see `tfacct engine`." in model.memory(on="2xh100", dtype="fp8", **others).notes
    assert f"{buffers}: see `tfacct engine`." in load("llama-3.1-8b").memory(on="h100").notes
    for not_run in (load("t5-small").memory(on="h100"), load("gpt-oss-20b").memory(on="h100")):
        assert f"{buffers}." in not_run.notes
    assert "room for" not in str(load("llama-3.1-8b").serve(on="h100", prompt=2000, new=300).notes)


def test_no_context_is_longer_than_a_stored_position_embedding() -> None:
    """All decoders among the presets; the number of positions is a field of their configs."""
    stored, computed = [], []
    for model in presets.load_all({}):
        table = model.architecture.positions
        if table is None or not model.has_cache:
            continue
        found = load(model.name).memory(dtype="bf16", on="500TB").fit
        if table.stored:
            fields = {**model.defaulted, **model.raw}
            rows = next(fields[field] for field in ROWS if field in fields)
            assert found["largest_context"] == found["context_limit"] == rows, model.name
            stored.append(model.name)
        else:
            assert found["context_limit"] is None and found["largest_context"] > 10**6, model.name
            computed.append(model.name)
    assert len(stored) > 40 and {"gpt2-xl", "opt-13b", "starcoder", "bart-large", "pegasus-large"} <= set(stored)
    for name, limit in {"bert-base": 512, "roberta-base": 512, "llama-2-7b": None}.items():
        assert load(name).loaded.position_limit == limit
    assert len(computed) > 5 and {"xglm-564m", "m2m100-418m"} <= set(computed)


def test_a_step_past_it_cannot_run(run: Run) -> None:
    model = load("gpt2")
    found = model.memory(ctx=4096, on="24GiB")
    assert found.answer.startswith("Cannot run: context 4,096 is past the 1,024 positions of its position embedding.")
    assert not found.fit["fits"] and (found.fit["largest_context"], found.fit["largest_batch"]) == (1024, 0)
    assert model.memory(ctx=1024, on="24GiB").fit["fits"]
    assert load("xglm-564m").memory(ctx=4096, on="24GiB").fit["fits"]
    counted = run("flops", "gpt2-xl", "--ctx", "16384", "--json")
    assert counted.code == 0 and counted.models[0]["total_flops"] > 10**14


@pytest.mark.parametrize(("more", "replicas"), [({"zero": 1}, 8), ({"zero": 3}, 8), ({"zero": 2, "tp": 2}, 4)])
def test_zero_shards_over_all_devices(more: dict[str, int], replicas: int) -> None:
    model, asked = load("llama-3.2-1b"), {"ctx": 512, **more}
    found, given = model.train(**asked, on="8xh100"), model.train(**asked, dp=replicas, on="8xh100")
    assert found.peak_bytes == given.peak_bytes and found.mesh == given.mesh and found.mesh["ranks"] == 8


def test_strict_exits_with_1_if_a_model_does_not_fit(run: Run) -> None:
    for line, code in {
        "memory llama-3.1-70b --on h100": 0,
        "memory llama-3.1-70b --on h100 --strict": 1,
        "memory llama-3.1-8b --on h100 --strict": 0,
        "memory llama-3.1-8b llama-3.1-70b --on h100 --strict --json": 1,
        "train llama-3.1-8b --ctx 4k --on 4090 --strict": 1,
        "train llama-3.1-8b --ctx 4k --strict": 0,
    }.items():
        ran = run(*line.split())
        assert ran.code == code and ran.out, line
