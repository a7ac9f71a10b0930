"""Estimates as shown: never like a count, with an interval and what it was measured on. Kind: output, refusal."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.helpers.cli import Run
from tfacct.base.errors import TfacctError
from tfacct.loading.links import Links
from tfacct.timing import measured_runs
from tfacct.timing.kernel_time import CONSTANTS

LLAMA = tfacct.load("llama-3.1-70b")
SPEEDS = "requests,prompt,new,tokens_per_second"
"""Columns of measured runs."""


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_answer_says_what_limits_the_step() -> None:
    model = tfacct.load("llama-3.1-8b")
    for prefill, limit, attention, others in (
        (False, "memory", "KV cache", "weights"),
        (True, "compute", "attention", "matmuls"),
    ):
        step = model.time(on="h100", ctx="8k", batch=2, prefill=prefill)
        share = {one["kernel"]: one["seconds"] / step.value_seconds for one in step.kernels if one["limit"] == limit}
        of_attention, of_all = share["attn.attention"], sum(share.values())
        of_others = sum(share[name] for name in share if name not in ("embed", "pointwise", "attn.attention"))
        parts = f"{others} {of_others:.0%}, {attention} {of_attention:.0%}"
        assert step.answer.endswith(f" tokens/s in all. {of_all:.0%} {limit}-bound: {parts}.")
    assert tfacct.load("gpt2").time(on="h100", ctx=64).answer.endswith("% CPU-bound (the engine).")
    assert "bound" not in model.time(on="h100", ctx="8k", lower_bound=True).answer


def test_only_the_bound_of_several_tokens_on_few_experts_needs_them_all_to_take_the_same_ones() -> None:
    mixtral, step = tfacct.load("mixtral-8x7b"), {"on": "2xh100", "ctx": 1024}
    noted = [
        {note.key for note in mixtral.time(**step, **more).notes} & {"experts"}
        for more in ({}, {"batch": 3}, {"prefill": True})
    ]
    assert noted == [set(), {"experts"}, {"experts"}]
    assert not {note.key for note in LLAMA.time(on="4xh100", ctx=1024, batch=3).notes} & {"experts"}


def test_a_step_re_adds_to_its_kernels() -> None:
    step = LLAMA.time(on="4xh100-sxm", dtype="fp8", ctx="8k", batch=32)
    assert step.estimate is True
    assert sum(one["seconds"] for one in step.kernels) + step.engine_seconds == pytest.approx(step.value_seconds)
    low, high = step.interval_80_seconds
    assert step.bound_seconds < low < step.value_seconds < high
    assert step.tokens_per_second == pytest.approx(32 / step.value_seconds)
    assert step.assumptions["bend"] == CONSTANTS.bend
    assert [step.validation[f"points_{of}"] for of in ("on_device", "in_dtype")] == [385, 535]
    # FLOPs on four devices are those of `flops --masked --decode`.
    whole = LLAMA.flops(ctx="8k", decode=True, batch=32, masked=True).total_flops
    assert 4 * sum(one["flops"] for one in step.kernels) == whole


def test_a_bound_is_no_estimate() -> None:
    # Llama-3.1-8B in bf16, one token at context 8,192: 15,009,849,344 bytes of weights are read, all but the table of
    # 128,256 · 4,096 tokens of 2 bytes, and 8,192 · 131,072 of cache, over 3.35 TB/s.
    step = tfacct.load("llama-3.1-8b").time(on="h100-sxm", ctx="8k", bound_only=True)
    assert step.estimate is False and step.value_seconds is step.validation is step.interval_80_seconds is None
    assert step.bound_seconds == pytest.approx((16_060_522_496 - 128_256 * 4096 * 2 + 8192 * 131_072) / 3.35e12)
    assert "≈" not in step.answer


SERVED = ("serve", "llama-3.1-70b", "--on", "4xh100", "--dtype", "fp8", "--prompt", "2k", "--new", "256")


def served(**asked: Any) -> Any:
    return LLAMA.serve(on="4xh100-sxm", dtype="fp8", prompt=2048, new=256, **asked)


def test_users_share_the_devices() -> None:
    # 71,609,681,920 bytes of weights in fp8, tables and norms in bf16, a quarter of the matrices on each device; a
    # request caches 2,304 tokens of 80 · 2 · 2 · 128 · 2 bytes on each: 188,743,680.
    report = served(price=2.5)
    free = int(85_029_027_840 * 0.9) - 2 * 10**9
    norms, matrices, tables = 161 * 8192 * 2, 68_451_041_280, 2 * 2 * 128_256 * 8192
    assert report.largest_requests == (free - norms - (matrices + tables) // 4) // 188_743_680 == 298
    for line in report.lines:
        low, high = line["token_seconds"]
        assert low < high
        assert line["bound_seconds"] < line["interval_80_seconds"][0] < line["value_seconds"]
        assert line["tokens_per_second"] == pytest.approx(line["requests"] * 256 / line["value_seconds"])
        assert line["cost_per_million"] == pytest.approx(4 * 2.5 * 10**6 / (3600 * line["tokens_per_second"]))
        assert line["first_token_seconds"][1] < line["value_seconds"]
    rates = [line["tokens_per_second"] for line in report.lines]
    assert rates == sorted(rates)


def test_users_within_a_time() -> None:
    within = served(requests=1, within="50ms").within
    assert within["seconds"] == 0.05 and 1 < within["requests_least"] < within["requests_most"] <= 298
    line = served(requests=within["requests_least"]).lines[0]
    assert line["token_seconds"][1] <= 0.05


def test_throughput_within_a_time_is_that_of_these_requests(run: Run) -> None:
    report = served(within="50ms")
    slow = report.within["requests_least"]
    (line,) = (line for line in report.lines if line["requests"] == slow)
    out = run(*SERVED, "--within", "50ms").out_line
    low, high = (line["value_seconds"] / end * line["tokens_per_second"] for end in line["interval_80_seconds"][::-1])
    rate = f"≈ {line['tokens_per_second']:,.0f} output tokens/s (80% interval {low:,.0f} … {high:,.0f})"
    rate += f" or {line['tokens_per_second'] / 256:.3g} requests/s"
    assert f"≈ {slow} requests within 50.0 ms per token: {rate}. Memory has room for 298 requests." in out
    few = run(*SERVED, "--within", "1ms").out_line
    assert "No request is within 1.00 ms per token; 298 requests fit at once:" in few


def test_requests_that_fit_are_answered_where_others_do_not(run: Run) -> None:
    """A token of Qwen3 30B A3B caches 2 · 48 · 4 · 128 numbers: 33,024 take 3.02 GiB in bf16, and the weights leave
    12.5 of 69.4: 4 requests."""
    asked = ("serve", "qwen3-30b-a3b", "--on", "h100", "--prompt", "32k", "--requests", "1,4,8")
    report = tfacct.load("qwen3-30b-a3b").serve(on="h100", prompt="32k", requests=[1, 4, 8])
    assert [line["requests"] for line in report.lines] == [1, 4] and report.largest_requests == 4
    ran = run(*asked)
    assert ran.code == 0 and "8 requests do not fit: at most 4 do." in words(ran.out)
    narrow = run(*asked, "--kv-dtype", "fp8").out
    assert "H100 SXM5 80GB, bf16, fp8 cache, prompts of 32,768" in words(narrow) and "do not fit" not in narrow
    assert run(*asked[:-1], "9").code == 2


def test_one_new_token_has_no_time_per_token(run: Run) -> None:
    report = tfacct.load("llama-3.1-8b").serve(on="h100", prompt="2k", new=1, requests=[1, 8])
    assert [line["token_seconds"] for line in report.lines] == [None, None]
    assert [column.key for column in report.columns][:2] == ["requests", "first_token_seconds"]
    out = run("serve", "llama-3.1-8b", "--on", "h100", "--prompt", "2k", "--new", "1", "-v").out_line
    first = "First token: from one prompt on an idle server to the last prompt if all arrive at once"
    assert "Time per token" not in out and first in out
    with pytest.raises(TfacctError, match="after the first, and new=1 has none"):
        tfacct.load("llama-3.1-8b").serve(on="h100", prompt="2k", new=1, within="50ms")


def test_a_range_of_one_number_has_both_ends_in_the_rows() -> None:
    report = tfacct.load("llama-3.1-8b").serve(on="rtx-4090", dtype="q4_k_m", prompt="2k", new=256, requests=1)
    (row,), (line,) = report.rows, report.lines
    assert [row["token_seconds_low"], row["token_seconds_high"]] == line["token_seconds"]
    assert row["first_token_seconds_low"] == row["first_token_seconds_high"] == line["first_token_seconds"][1]
    assert "…" not in str(report).partition("\n\n")[2].partition("\n\n")[0]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"requests": []}, "requests has no values"),
        ({"price": "2"}, "price must be a number above 0 and at most 1,000,000, not '2'"),
        ({"price": 1_000_001}, "price must be a number above 0 and at most 1,000,000, not 1000001"),
        ({"within": [1]}, r"within must be a number above 0, not \[1\]"),
    ],
)
def test_values_in_python_that_are_none_of_an_option(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(TfacctError, match=message):
        served(**asked)


def test_requests_that_an_engine_runs_at_once() -> None:
    """`vllm serve` runs 256 requests at once on cards of less than 70 GiB (engine/arg_utils.py), even if more fit."""
    asked: dict[str, Any] = {"on": "rtx-4090", "prompt": 256, "new": 64, "within": "1s"}
    model, note = tfacct.load("llama-3.2-1b"), "runs at most 256 requests at once unless --max-num-seqs is larger"
    served = model.serve(**asked, engine="vllm")
    assert served.largest_requests > 256 == served.lines[-1]["requests"] == served.within["requests_least"]
    assert note in served.notes[1] and note not in str(model.serve(**asked))
    assert model.serve(**asked, engine="vllm", requests=300).lines[0]["requests"] == 300


def test_the_largest_batch_that_memory_counts_is_timed() -> None:
    """Other commands: tests/loading/test_memory_limit.py."""
    asked: dict[str, Any] = {"on": "2xh100-sxm", "ctx": 2304}
    batch = LLAMA.memory(**asked).fit["largest_batch"]
    assert LLAMA.time(**asked, batch=batch).value_seconds
    with pytest.raises(TfacctError, match="GiB of cache exceed the usable 69"):
        LLAMA.time(**asked, batch=batch + 1)
    assert LLAMA.time(**asked, batch=batch + 1, use=1, reserve=0).value_seconds


def test_the_hint_of_a_step_that_does_not_fit_is_about_the_same_step(run: Run) -> None:
    """It has the figures of `memory` for these devices and for as many as it fits on."""
    asked = ["llama-3.1-8b", "--ctx", "8192", "--batch", "128", "--dtype", "fp8", "--set", "num_hidden_layers=40"]
    hint = run("time", *asked, "--on", "h100", "--use", "0.8").err.rpartition("hint: ")[2]
    lines = run("memory", *asked, "--on", "all", "--use", "0.8", "--json").models[0]["lines"]
    count = next(line["count"] for line in lines if line["device"] == "h100-sxm")
    fit = run("memory", *asked, "--on", "h100", "--use", "0.8", "--json").models[0]["fit"]
    assert hint.startswith(
        f"it fits on {count} × h100-sxm (tp={count}); the most that fits here is {fit['largest_batch']:,} requests; "
    )


def test_how_many_devices_hold_a_model() -> None:
    # Llama-3.1-405B in fp8: on each of 8 devices an eighth of the 8 key/value heads' cache; 16 hold each twice.
    fitting = tfacct.load("llama-3.1-405b").fit(dtype="fp8", ctx="32k", batch=16)
    found = {line["device"]: line for line in fitting.lines}
    assert {name: found[name]["count"] for name in ("h100-sxm", "h200-sxm", "mi300x", "t4")} == {
        "h100-sxm": 16, "h200-sxm": 8, "mi300x": 4, "t4": None
    }  # fmt: skip
    assert fitting.kv_cache_bytes == 16 * 32_768 * 126 * 2 * 8 * 128 * 2
    assert found["h200-sxm"]["kv_cache_bytes_each"] * 8 == fitting.kv_cache_bytes
    assert found["h100-sxm"]["kv_cache_bytes_each"] * 8 == fitting.kv_cache_bytes
    for line in fitting.lines:
        if line["count"]:
            assert line["weights_bytes_each"] + line["kv_cache_bytes_each"] <= line["usable_bytes"]
            assert line["weights_bytes_each"] * line["count"] >= fitting.weights_bytes
    assert "≈" not in fitting.answer and "stimate" not in str(fitting)


def test_a_device_without_a_link_is_asked_about_alone() -> None:
    fitting = tfacct.load("llama-3.1-70b").fit(on=["rtx-pro-6000", "m3-ultra"], dtype="fp8", ctx="8k")
    assert {line["device"]: line["count"] for line in fitting.lines} == {"rtx-pro-6000": 1, "m3-ultra": 1}
    fitting = tfacct.load("llama-3.1-405b").fit(on=["m3-max", "rtx-pro-6000"], dtype="fp8")
    assert {line["device"]: line["count"] for line in fitting.lines} == {"m3-max": None, "rtx-pro-6000": 8}


def test_the_longest_context_of_one_request_on_the_devices_in_use() -> None:
    """llama-3.1-8b on an H100: 74,526,125,056 usable bytes without 16,060,522,496 of weights, 131,072 a token; on more
    devices, what `memory` prints for them."""
    (one,) = tfacct.load("llama-3.1-8b").fit(on="h100", batch=7, ctx=512).lines
    assert one["largest_context"] == (74_526_125_056 - 16_060_522_496) // 131_072 == 446_057
    large = tfacct.load("llama-3.1-70b")
    longest = {line["count"]: line["largest_context"] for line in large.fit(on="h100,h200").lines}
    on = {4: "4xh100", 2: "2xh200"}
    assert longest == {count: large.memory(on=on[count]).fit["largest_context"] for count in (4, 2)}
    fewest, exact = large.fit(on="h100,h200"), large.fit(on="1xh100,1xh200", dtype="fp8", ctx="8k")
    assert fewest.answer == "It fits on 2 × h200-sxm, 4 × h100-sxm."
    assert "longest request" in str(fewest) and "own context is 131,072 tokens" in str(fewest)
    # One byte of each of 70,553,706,496 weights, two of embedding, head and norms; 80 layers × 2 × 8 × 128 × 2 a token.
    weights = 70_553_706_496 + 2 * 128_256 * 8192 + (2 * 80 + 1) * 8192
    alone = [large.memory(on=one, dtype="fp8", ctx="8k").fit for one in ("h100", "h200")]
    assert [line["largest_context"] for line in exact.lines] == [fit["largest_context"] for fit in alone]
    assert exact.lines[0]["largest_context"] == (74_526_125_056 - weights) // 327_680 == 5706
    assert [line["count"] for line in exact.lines] == [None, 1]
    assert [line["count"] for line in large.fit(on="4xh100,2xh200", dtype="fp8", ctx="8k").lines] == [4, 2]
    assert exact.answer == "It fits on 1 × h200-sxm, not on 1 × h100-sxm."
    assert large.fit(on="h100,h200", dtype="fp8").answer == "It fits on 1 × h200-sxm, 2 × h100-sxm."
    with pytest.raises(TfacctError, match="3 devices do not divide the 64 query heads"):
        large.fit(on="3xh100,h200")
    # Apertus 70B on 2 cards: 80 layers × 2 × 4 of 8 heads × 128 × 2 bytes a token on each.
    (one,) = tfacct.load("apertus-70b").fit(on="h100", ctx=64).lines
    assert one["largest_context"] == (74_526_125_056 - one["weights_bytes_each"]) // 163_840 == 23_955
    # A norm over all heads: the devices shard the cache, while each rank of transformers' plan has all of it.
    normed = tfacct.load("olmo-2-7b")
    (shared,) = normed.fit(on="4090", ctx="128k").lines
    on, planned = normed.memory(on="4x4090", ctx="128k"), normed.memory(tp=4, ctx="128k")
    assert shared["count"] == 4 and shared["largest_context"] == on.fit["largest_context"]
    assert on.kv_cache_bytes == shared["kv_cache_bytes_each"] == 131_072 * 32 * 2 * 4096 * 2 // 4
    assert planned.kv_cache_bytes == 4 * on.kv_cache_bytes and on.weights_bytes == shared["weights_bytes_each"]
    assert "With transformers' plan, each rank has the whole cache" in " ".join(on.models[0]["notes"])
    # 16 devices, but the plan divides its 8 key/value heads, and its published format into fewer shards.
    spread = tfacct.load("minimax-m2").fit(on="a100", ctx="32k", dtype="fp32", kv_dtype="fp32", use=0.8)
    assert [line["count"] for line in spread.lines] == [16] and "memory(tp=2)" in " ".join(spread.models[0]["notes"])
    assert tfacct.load("minimax-m2").memory(tp=2).kv_cache_bytes == tfacct.load("minimax-m2").kv().total


def test_no_number_without_a_known_link_is_recommended() -> None:
    """llama-3.1-405b at 131,072 tokens: 819 GiB. Usable: 87.5 GiB of an m3-max, 18.0 of an a10, which has no network
    beyond the 8 of a node."""
    model = tfacct.load("llama-3.1-405b")
    fitting = model.fit(on=["a10", "h100-sxm", "m3-max", "t4"])
    assert {line["device"]: (line["count"], line["reason"]) for line in fitting.lines} == {
        "a10": (None, "needs 128, no link"), "h100-sxm": (16, None), "m3-max": (None, "needs 16, no link"),
        "t4": (None, "too small at 128"),
    }  # fmt: skip
    assert model.fit(on="a10").answer == "It does not fit on a10."
    for on in ("128xa10", "8xm3-max"):
        with pytest.raises(TfacctError, match=r"no .* is known for"):
            model.time(on=on)
    for ask in (model.memory, model.train):
        with pytest.raises(TfacctError, match="no link between devices is known for m3-max"):
            ask(fit="8xm3-max", ctx=1024)


def test_the_largest_number_with_a_known_link() -> None:
    rates = (None, 10**9)
    for one_way, domain, pcie, network in product(rates, (2, 8, 72), rates, rates):
        links = Links("", one_way, domain, pcie, network)
        for count in (2, 3, 8, 9, 72, 73, 9216):
            try:
                links.between(count, "mine")
            except TfacctError:
                assert not links.known(count)
            else:
                assert links.known(count)
        assert links.known(1)


@pytest.mark.parametrize("ask", ["memory", "serve", "time"])
def test_blocks_of_weights_that_devices_would_cut_are_refused_alike(ask: str) -> None:
    """minimax-m2: blocks of 128 in experts 1,536 wide. 4 devices have 3 whole blocks each; 8 have 192 / 128."""
    more = {"serve": {"prompt": 1000, "new": 100}}.get(ask, {})
    where = "fit" if ask == "memory" else "on"
    model = tfacct.load("minimax-m2")
    with pytest.raises(TfacctError, match="cuts quantization blocks of fp8-block in mlp"):
        getattr(model, ask)(**{where: "8xh100-sxm"}, **more)
    getattr(model, ask)(**{where: "4xh100-sxm"}, **more)
    if ask != "memory":
        getattr(model, ask)(on="8xh100-sxm", ep=8, **more)


def test_numbers_that_cut_blocks_are_no_answer() -> None:
    """261 GiB: 4 of 18 GiB do not hold it, 16 would, whose experts' share is 96 wide."""
    model = tfacct.load("minimax-m2")
    assert [row["reason"] for row in model.fit(on="l4").rows] == ["cuts quantized blocks"]
    assert [line["count"] for line in model.fit(on=["l4", "h100-sxm"]).lines] == [None, 4]
    assert model.fit(on="a100-sxm-40gb", ep=8).lines[0]["count"] == 8  # whole experts


@pytest.mark.parametrize(
    ("on", "reach", "kind", "rate", "words"),
    [
        ("8xh100-sxm", "domain", "NVLink4", 450e9, "NVLink4 (450 GB/s one way)"),
        ("16xgb200", "domain", "NVLink5 (72-way)", 900e9, "NVLink5 (72-way) (900 GB/s one way)"),
        ("2xl40s", "node", "PCIe", 32e9, "PCIe (32.0 GB/s one way)"),
        ("8xh100-pcie", "node", "PCIe", 64e9, "PCIe (64.0 GB/s one way)"),
        ("64xh100-sxm", "network", "network", 400e9, "nodes of 8 (400 GB/s one way from each node)"),
    ],
)
def test_estimates_say_which_link_they_use(run: Run, on: str, reach: str, kind: str, rate: float, words: str) -> None:
    """Runs were measured over NVLink and PCIe, training steps over NVLink and a network: no other error is claimed."""
    large = ["time llama-3.1-405b --dtype fp8", "serve llama-3.1-405b --dtype fp8 --prompt 1k --new 100 --requests 1"]
    serving = ["time llama-3.1-8b --ctx 8k"] if on == "2xl40s" else large
    for command in (*serving, "time llama-3.2-1b --train --ctx 1k"):
        asked, train = command.split(), "--train" in command
        shown = run(*asked, "--on", on, "-v").out_line
        (facts,) = run(*asked, "--on", on, "--json").models
        link = facts["link"] if train else facts["on"]["link"]
        assert link == {"devices": int(on.split("x")[0]), "reach": reach, "kind": kind, "bytes_per_second": rate}
        assert f"Link between {link['devices']} devices: " in shown and f"{words}." in shown, shown
        measured = reach == "domain" or reach == ("network" if train else "node")
        assert ("was measured, so its error is not known" in shown) is not measured
        if not measured:
            assert facts["validation"] is None and "80% interval" not in shown
    alone = run("time", "gpt2", "--on", "l4", "--json").models[0]
    assert alone["on"]["link"] is None


def test_plans_by_time_say_their_links(run: Run) -> None:
    asked = ["plan", "llama-3.1-8b", "--gpus", "4", "--on", "l40s", "--by", "time", "--ctx", "4k", "--batch", "4"]
    assert "Link between 4 devices: PCIe (32.0 GB/s one way)." in run(*asked, "-v").out_line
    (facts,) = run(*asked, "--json").models
    timed = [row for row in facts["layouts"] if row["seconds"] is not None]
    assert {(row["tp"], *(link["kind"] for link in row["links"])) for row in timed} >= {(1,), (2, "PCIe"), (4, "PCIe")}
    assert all(row["links"] == [] for row in facts["layouts"] if row["seconds"] is None)


def test_requests_that_fit_are_counted_beyond_a_million() -> None:
    # A request caches 2 tokens of 12 layers · 2 · 768 elements · 2 bytes: 73,728 bytes.
    report = tfacct.load("gpt2").serve(on="b300-hgx", prompt=1, new=1, requests=1)
    assert 1_000_000 < report.largest_requests < 288 * 2**30 // 73_728


def test_weights_in_tf32_are_multiplied_in_units_of_their_own() -> None:
    # 494.7 against 989.4 TFLOP/s: the bound of a long prefill is twice that in bf16.
    model = tfacct.load("gpt2")
    wide, narrow = (model.time(on="h100-sxm", dtype=name, batch=8, prefill=True) for name in ("tf32", "bf16"))
    assert wide.bound_seconds == pytest.approx(2 * narrow.bound_seconds, rel=0.15)


def test_an_error_on_amd_is_that_of_the_device_that_was_measured() -> None:
    model = tfacct.load("qwen3-8b")
    step = model.time(on="mi300x", ctx=1024, dtype="fp8")
    assert step.validation["class"] == "amd" and step.validation["points_on_device"] == 19
    assert step.interval_80_seconds[0] < step.value_seconds < step.interval_80_seconds[1]
    assert "none of them with bf16 weights" in words(" ".join(model.time(on="mi300x", ctx=1024).notes))
    assert tfacct.load("qwen3-30b-a3b").time(on="mi300x", ctx=1024).validation is None
    assert model.time(on="16xmi300x", ctx=1024, dtype="fp8").validation is None  # a network between nodes


def test_no_interval_of_a_request_goes_below_its_bound() -> None:
    # Each kernel takes at least 1 / 0.769 of its bytes and its FLOPs at the peaks, and 0.83 of that is above 1.
    for model in ("qwen2.5-7b", "pythia-160m", "llama-3.1-8b", "granite-3.1-1b-a400m"):
        for line in tfacct.load(model).serve(on="h100-sxm", prompt=64, new=4096).lines:
            assert line["bound_seconds"] < line["interval_80_seconds"][0] < line["value_seconds"]


def test_without_a_known_error_a_token_ranges_over_schedules() -> None:
    (line,) = tfacct.load("qwen3-8b").serve(on="gaudi3", prompt=128, new=32, requests=[8]).lines
    low, high = line["token_seconds"]
    prefill = line["first_token_seconds"][1] - CONSTANTS.request
    assert line["interval_80_seconds"] is None and high - low == pytest.approx(7 / 31 * prefill / 8)


def test_mixtures_of_llama_cpp_are_estimated_on_one_device() -> None:
    # Weights are those of `memory`, with a type for each layer.
    model = tfacct.load("llama-3.1-8b")
    step = model.time(on="h100-sxm", dtype="q4_k_m", ctx=1024)
    assert step.bound_seconds < step.value_seconds
    fitting = model.fit(on=["h100-sxm", "t4"], dtype="q4_k_m", ctx=1024)
    assert fitting.weights_bytes == model.memory(dtype="q4_k_m", ctx=1024).weights_bytes
    assert [line["count"] for line in fitting.lines] == [1, 1]
    with pytest.raises(TfacctError, match="sharding is not supported for q4_k_m weights"):
        model.time(on="2xh100-sxm", dtype="q4_k_m", ctx=1024)
    large = tfacct.load("llama-3.1-70b").fit(on="t4", dtype="q4_k_m", ctx=1024)
    assert large.answer == "It does not fit on t4."


@pytest.mark.parametrize(
    ("name", "on", "dtype", "why"),
    [
        *(("qwen3-8b", on, None, "was measured, so its error") for on in ("mi325x", "tpu-v5p", "gaudi3", "m3-ultra")),
        *(("qwen3-8b", "h100", dtype, f"No run with {dtype} weights was measured") for dtype in ("fp32", "q4_k_m")),
        ("qwen3-next-80b-a3b", "4xh100-sxm", "fp8", None),
        ("deepseek-v3.2", "16xh200-sxm", "fp8", "between nodes"),
        ("deepseek-v3.2", "8xb200-hgx", "fp8", None),
        ("qwen3-next-80b-a3b", "4xl40s", "fp8", "over PCIe"),  # dense models alone were measured over PCIe
        ("qwen3-next-80b-a3b", "4xb200-hgx", "mxfp4", "mxfp4 weights"),
        ("qwen3.5-9b", "h100-sxm", "bf16", "Only recurrent models with experts"),
        ("kimi-linear-48b-a3b", "8xh100-sxm", "bf16", "without latent attention"),
        ("deepseek-v4-flash", "4xb200-hgx", None, "prefix cache"),
        ("hy4-preview", "8xb200-hgx", "nvfp4", "residual streams"),
        ("minimax-m3", "8xb200-hgx", "nvfp4", "only those with latent attention"),
        ("llama-3.2-1b", "t4", "fp16", "without bf16 units"),
        ("llama-3.2-1b", "v100-sxm-32gb", "fp16", "without bf16 units"),
        ("llama-3.2-1b", "mi300x", "fp8", None),
    ],
)
def test_an_interval_is_printed_if_such_runs_were_measured(
    name: str, on: str, dtype: str | None, why: str | None
) -> None:
    report = tfacct.load(name).time(on=on, ctx=1024, dtype=dtype)
    assert (report.interval_80_seconds is None) == (why is not None) == (report.validation is None)
    assert (why is None or why in " ".join(report.notes)) and report.value_seconds > 0


@pytest.mark.parametrize("requests", [[1], [8], [4, 298]])
def test_a_first_token_at_its_latest_is_that_of_the_json(requests: list[int]) -> None:
    report = served(requests=requests)
    for row, line in zip(report.rows, report.lines, strict=True):
        low, high = row["first_token_seconds_low"], row["first_token_seconds_high"]
        assert low < high == line["first_token_seconds"][1] and line["first_token_seconds"] == [low, high]
        if line["requests"] == 1:  # the ends of the interval of one prompt
            assert high / low == pytest.approx(1.14 / 0.87)
        low, high = line["token_seconds"]
        assert high / low == pytest.approx(1.22 / 0.77)
    assert "The 80% interval of the time per token is 0.77 to 1.22 × the estimate." in report.notes[0]


def test_measured_runs_correct_the_estimate(tmp_path: Path) -> None:
    plain = {line["requests"]: line["value_seconds"] for line in served(requests=[8, 64]).lines}
    file = tmp_path / "runs.csv"
    # Both measured runs took 1.25 times as long; the estimate counts as a third run: 1.25^(2/3).
    rows = [f"{requests},2048,256,{requests * 256 / (1.25 * plain[requests])}" for requests in (8, 64)]
    file.write_text("\n".join([SPEEDS, *rows]))
    report = served(requests=[8, 64], measured=str(file))
    for line in report.lines:
        assert line["value_seconds"] == pytest.approx(1.25 ** (2 / 3) * plain[line["requests"]], rel=0.01)
    assert report.assumptions["pace"] == pytest.approx(1.25 ** (2 / 3)) and report.validation["metric"] == "request"
    assert "Times are scaled by 1.16 to fit 2 runs of your own." in words(" ".join(report.notes))
    # A third run, by its TTFT and TPOT: 0.5 s + 255 · 10 ms.
    third = f"64,2048,256,,500,{(1.25 * plain[64] - 0.5) / 255 * 1e3}"
    file.write_text("\n".join([f"{SPEEDS},ttft_ms,tpot_ms", *(f"{row},," for row in rows), third]))
    report = served(requests=8, measured=str(file))
    assert report.assumptions["pace"] == pytest.approx(1.25 ** (3 / 4)) and report.validation["metric"] == "corrected"


def test_measured_runs_that_scatter_widen_the_interval(tmp_path: Path) -> None:
    # No run of a dense model on one L40S was measured.
    model, file = tfacct.load("llama-3.1-8b"), tmp_path / "runs.csv"
    asked = {"on": "l40s", "prompt": "2k", "new": 256, "requests": [8]}
    seconds = model.serve(**asked).lines[0]["value_seconds"]

    def corrected(*factors: float) -> Any:
        rows = [f"8,2048,256,{8 * 256 / (factor * seconds)}" for factor in factors]
        file.write_text("\n".join([SPEEDS, *rows]))
        return model.serve(**asked, measured=str(file))

    alike = corrected(1, 1, 1)
    assert alike.validation["metric"] == "corrected"
    assert "on 611 measured runs, none of them on this device." in words(" ".join(alike.notes))
    # Factors 0.8, 1 and 1.25: their mean is 1, so these are the ends of the interval.
    report = corrected(0.8, 1, 1.25)
    (line,) = report.lines
    ends = [end / line["value_seconds"] for end in line["interval_80_seconds"]]
    assert ends == pytest.approx([0.8, 1.25]) and report.validation is None
    notes = words(" ".join(report.notes))
    assert "Your times are 0.80 … 1.25 × the scaled ones, and the ranges include them." in notes
    assert "on this device" not in notes and "median error" not in notes
    # One of six outside is within what 80% allow.
    assert corrected(1, 1, 1, 1, 1, 1.3).validation["metric"] == "corrected"


def test_two_speeds_of_a_run_that_agree_are_one_speed(tmp_path: Path) -> None:
    # 8 · 256 / 640 = 3.2 s; 0.1 + 255 · 0.012 = 3.16 s
    (file := tmp_path / "runs.csv").write_text(f"{SPEEDS},ttft_ms,tpot_ms\n8,2048,256,640,100,12")
    assert measured_runs.read(str(file)) == (measured_runs.MeasuredRun(8, 2048, 256, 3.2),)


@pytest.mark.parametrize("separator", [",", ", ", ";", "; ", "\t"])
def test_measured_runs_of_a_spreadsheet(tmp_path: Path, separator: str) -> None:
    rows = [SPEEDS.split(","), ("8", "2048", "256", "700.5")]
    text = "\n" + "".join(separator.join(row) + "\r\n" for row in rows)
    (file := tmp_path / "runs.csv").write_bytes(text.encode("utf-8-sig"))
    assert measured_runs.read(str(file)) == (measured_runs.MeasuredRun(8, 2048, 256, 8 * 256 / 700.5),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0 runs, not 1 to 1,000"),
        (SPEEDS, "0 runs, not 1 to 1,000"),
        ("requests,prompt,new\n1,2,3", "run 1 has no speed"),
        (f"{SPEEDS}\n8,2048,256,1,200", "run 1 has more cells than the first line has names"),
        (f"{SPEEDS},requests\n1,2,3,4,5", "two columns have the name requests"),
        ("requests,prompt,new,tpot_ms\n1,2,3,4", "run 1 has no speed"),
        ("requests,new,tokens_per_second\n1,2,3", "run 1 has no prompt"),
        (f"{SPEEDS}\n1,,3,4", "run 1 has no prompt"),
        (f"{SPEEDS},ttft_ms,tpot_ms\n1,2,3,,4,", "run 1 has no speed"),
        (f"{SPEEDS}\n1,2,3," + 200_000 * "4", "line 2 is not CSV: field larger"),
        (f"{SPEEDS}\n8,2048,256,700\n5000,2048,256,9e3", "run 2 has 5,000 requests of 2,304"),
        (f"{SPEEDS}\n1,2,3,4\n1,2,3,fast", "run 2 must be a number above 0, not 'fast'"),
        (f"{SPEEDS}\n1,2,3,-4", "must be a number above 0"),
        (f"{SPEEDS}\n1.5,2,3,4", "requests of run 1 must be a whole number"),
        # 256 steps of 17.4 GB of weights and 8 · 2,176 · 81,920 bytes of cache take 1.44 s at 3.35 TB/s: 8 · 256 / 1.44
        # is 1,425 tokens/s, and the prefills read a little more.
        (
            f"{SPEEDS}\n8,2048,256,700\n8,2048,256,1e5",
            r"run 2 has 100,000 tokens/s, but the peaks of 4 × H100 SXM5 80GB limit llama-3.1-70b to 1,4\d\d",
        ),
        (f"{SPEEDS}\n8,2048,256,5", "run 1 has 5.00 tokens/s, less than 1/10 of the"),
        (  # 8 · 256 / 500 = 4.10 s; 0.1 + 255 · 0.012 = 3.16 s
            f"{SPEEDS},ttft_ms,tpot_ms\n8,2048,256,500,100,12",
            "speeds of run 1 disagree: a request takes 4.10 s by tokens_per_second, 3.16 s by ttft_ms and tpot_ms",
        ),
    ],
)
def test_invalid_measured_runs_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (file := tmp_path / "runs.csv").write_text(text)
    with pytest.raises(TfacctError, match=message):
        served(measured=str(file))
    with pytest.raises(TfacctError, match="cannot read"):
        served(measured=str(tmp_path))


def test_a_bound_holds_for_any_routing() -> None:
    # Mixtral in bf16 on one device, context 1: all weights that are read, with 2 of 8 experts a token. 32 layers of
    # 3 · 4,096 · 14,336 elements an expert; a token's keys and values take 131,072 bytes.
    model = tfacct.load("mixtral-8x7b")
    expert = 3 * 4096 * 14_336 * 2
    weights = model.memory(dtype="bf16", ctx=1).weights_bytes - 32_000 * 4096 * 2
    for batch in (1, 64):
        step = model.time(on="b300-hgx", ctx=1, batch=batch, bound_only=True)
        assert step.bound_seconds == pytest.approx((weights - 32 * 6 * expert + batch * 131_072) / 7.75e12)
        shown = sum(one["bytes"] for one in step.kernels)
        assert shown / 7.75e12 == pytest.approx(step.bound_seconds)
