"""`solve --for tp`, `sweep --tp --fsdp`: numbers of ranks as unknown and as axis. Kind: law, refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tfacct
from tests.helpers.cli import Ran
from tfacct.base.errors import TfacctError

LARGE = "llama-3.1-70b"


def test_the_fewest_ranks_of_tp() -> None:
    model = tfacct.load(LARGE)
    found = model.solve("tp", "total_bytes=80GB", ctx="8k")
    totals = {tp: model.memory(ctx="8k", tp=tp).total_bytes for tp in (1, 2, 4)}
    assert found.total == 2
    assert [(line["tp"], line["left"]) for line in found.lines] == [(2, totals[2]), (1, totals[1])]
    assert totals[2] <= 80 * 10**9 < totals[1]
    # Trained, on the way to the fewest ranks of fsdp beside eight of tp.
    step: dict[str, Any] = {"ctx": "8k", "recompute": "full", "tp": 8, "sp": True}
    fewest = model.solve("fsdp", "peak_bytes=16GB", **step).total
    assert model.train(**step, fsdp=fewest).peak_bytes <= 16 * 10**9 < model.train(**step, fsdp=fewest - 1).peak_bytes


def test_the_fewest_ranks_that_divide_experts() -> None:
    model = tfacct.load("mixtral-8x7b")
    for mesh in ({}, {"tp": 2}):
        found = model.solve("ep", "total_bytes=40GB", **mesh)
        totals = {ep: model.memory(ep=ep, **mesh).total_bytes for ep in (2, 4)}
        assert found.total == 4 and [(line["ep"], line["left"]) for line in found.lines] == [
            (4, totals[4]),
            (2, totals[2]),
        ]
        assert totals[4] <= 40 * 10**9 < totals[2]


def test_one_rank_may_be_enough(run: Callable[..., Ran]) -> None:
    out = run("solve", "gpt2", "--for", "tp", "--until", "total_bytes=80GB").out
    assert "One rank is enough: total_bytes stays within 80 GB." in out
    words = " ".join(run("solve", LARGE, "--for", "tp", "--until", "total_bytes=80GB", "--ctx", "8k").out.split())
    assert "The smallest tp is 2: total_bytes stays within 80 GB on each rank." in words
    assert "Each row counts one rank." in run("sweep", LARGE, "--tp", "1,2", "--metric", "total_bytes").out


def test_what_a_peak_holds_is_said(run: Callable[..., Ran]) -> None:
    peaks = ("sweep", "llama-3.1-8b", "--metric", "peak_bytes", "--ctx", "1k")
    said = "Peaks include communication buffers only for tp, where they were measured"
    assert said in " ".join(run(*peaks, "--tp", "1,2").out.split())
    assert said not in " ".join(run(*peaks, "--fsdp", "1,2").out.split())
    solved = ("solve", LARGE, "--for", "tp", "--ctx", "1k", "--until")
    assert said in " ".join(run(*solved, "peak_bytes=80GB").out.split())
    assert said not in " ".join(run(*solved, "total_bytes=80GB").out.split())


def test_metrics_of_one_rank_by_their_number() -> None:
    model = tfacct.load(LARGE)
    found = model.sweep("total_bytes", "kv_cache_bytes", ctx=[8192], tp=[1, 4, 16]).rows
    for row in found:
        one = model.memory(ctx="8k", tp=row["tp"])
        assert (row["total_bytes"], row["kv_cache_bytes"]) == (one.total_bytes, one.kv_cache_bytes)
    for row in model.sweep("peak_bytes", "saved_bytes", ctx=[4096], recompute="full", tp="1,8", fsdp=[1, 8]).rows:
        step = model.train(ctx=4096, recompute="full", tp=row["tp"], fsdp=row["fsdp"])
        assert (row["peak_bytes"], row["saved_bytes"]) == (step.peak_bytes, step.saved_bytes)


def test_a_number_of_ranks_that_does_not_go_is_skipped_by_name() -> None:
    found = tfacct.load(LARGE).sweep("total_bytes", tp=[2, 3])
    assert [row["total_bytes"] > 0 for row in found.rows] == [True]
    assert "does not divide" in found.skipped[0]["why"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (f"solve {LARGE} --for tp --until total_bytes=1GB", "no number of ranks is enough: total_bytes is still above"),
        (f"solve {LARGE} --for tp --tp 2 --until total_bytes=80GB", "leave --tp out"),
        (
            f"solve {LARGE} --for ctx --tp 2 --until total_bytes=80GB",
            "--tp and --fsdp are not supported with --for ctx",
        ),
        (f"solve {LARGE} --for fsdp --until total_bytes=80GB", "total_bytes does not change with --fsdp"),
        ("solve gpt2 --for ep --until total_bytes=1MB", "gpt2 has no experts for --ep to shard"),
        ("solve t5-base --for tp --until total_bytes=1MB", "still above 1 MB with --tp 12"),
        (f"sweep {LARGE} --fsdp 2,4 --metric total_bytes", "total_bytes does not change with --fsdp"),
        (f"sweep {LARGE} --tp 0 --metric total_bytes", "--tp"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(run: Callable[..., Ran], arguments: str, said: str) -> None:
    ran = run(*arguments.split())
    words = " ".join(ran.err.split())
    assert ran.code == 2 and said in words and "Traceback" not in words, words


@pytest.mark.parametrize("of", ["params", "kv", "flops"])
def test_letters_are_divided(of: Any) -> None:
    sympy = pytest.importorskip("sympy")
    model = tfacct.load(LARGE)
    axis_names, numbers = model.formula(of=of, tp="t"), model.formula(of=of, tp=8)
    legend = model.formula(of=of, ctx=8192).legend if of != "params" else model.formula(of=of).legend
    known = {axis: sympy.Symbol(axis) for axis in axis_names.legend}
    assert axis_names.legend["t"] == {"meaning": "ranks"} and "t" not in numbers.legend
    sizes = {known[axis]: about["value"] for axis, about in legend.items() if axis in known}
    total = sympy.sympify(axis_names.models[0]["total_formula"], locals=known).subs({**sizes, known["t"]: 8})
    expected = {
        "params": model.params(tp=8).rank_params,
        "kv": model.memory(ctx=8192, tp=8).kv_cache_bytes // 2,
        "flops": model.flops(ctx=8192).total // 8,
    }[of]
    assert total == expected


def test_the_formula_of_a_rank_is_said(run: Callable[..., Ran]) -> None:
    words = " ".join(run("formula", "llama", "--of", "params", "--tp", "t").out.split())
    assert "total = (D·(L·(3·F + 2·N·H + 2·K·H) + 2·V)) / t + D·(2·L + 1)" in words
    assert "t ranks shard K N F V" in words
    for arguments, said in {
        "--tp 3": "does not divide",
        "--tp 16": "--tp 16 does not divide K = 8 evenly",
        "--tp T": "or a lowercase letter, not 'T'",
        "--of saved --ep e": "--of saved does not work with --ep e",
    }.items():
        ran = run("formula", LARGE, *arguments.split())
        assert ran.code == 2 and said in " ".join(ran.err.split()), ran.err


def test_models_that_a_mesh_does_not_fit_are_left_out(run: Callable[..., Ran]) -> None:
    unfit = "falcon-7b", "the layout does not fit"  # 71 heads
    for command, (model, why) in {
        "memory": unfit,
        "params": unfit,
    }.items():
        ran = run(command, model, "gpt2", "--tp", "2")
        assert f"not included: {model} ({why}" in ran.err
        assert ran.out.startswith("gpt2: ")
    with pytest.raises(TfacctError, match="does not divide N = 71"):
        tfacct.load("falcon-7b").memory(tp=2)


def test_two_models_of_one_name_are_two_rows(run: Callable[..., Ran]) -> None:
    for command in ("memory", "params"):
        out = run(command, "gpt2", "gpt2", "--tp", "2", "--csv").out
        assert [row.split(",")[0] for row in out.splitlines()[1:]] == ["gpt2", "gpt2"]


def test_what_one_rank_holds_names_the_heads_that_others_have_too(run: Callable[..., Ran]) -> None:
    given = ("llama-3.1-8b", "--tp", "8", "--set", "num_key_value_heads=1")
    for command in ("memory", "params", "plan"):
        words = " ".join(run(command, *given, "-v").out.split())
        assert "The one key/value head is on 8 ranks: its weights and its cache." in words
    for command in ("memory", "params", "plan"):  # 50,257 rows of four ranks: 12,565 and 12,562
        words = " ".join(run(command, "gpt2", "--tp", "4", "-v").out.split())
        assert "V = 50,257 is not split evenly: the fullest rank has 12,565" in words
    assert "The fullest rank stores 31.7 M of 124 M parameters." in words


def test_biases_of_what_is_summed_are_whole_in_formulas() -> None:
    model = tfacct.load("starcoder2-3b")  # 24 and 2 heads, and a bias in every product
    found = model.formula(tp="t")
    values = {axis: value["value"] for axis, value in found.legend.items() if "value" in value} | {"t": 2}
    stored: dict[str, int] = {}
    for line in model.params(tp=2).lines:
        module = line["path"].rpartition(".")[0]
        stored[module] = stored.get(module, 0) + line["rank_params"]
    written = {line["path"]: line["params_formula"] for line in found.lines if line["params_formula"]}
    for path, code in written.items():
        assert eval(code.replace("/", "//"), {}, values) == stored[path], path
    assert sum("/t + " in code for code in written.values()) == 2  # o and down


def test_a_formula_of_one_rank_alone_is_that_of_the_model(run: Callable[..., Ran]) -> None:
    assert run("formula", "gpt2", "--tp", "1").out == run("formula", "gpt2").out
    assert "gpt2: --tp 2 does not divide V = 50,257 evenly" in run("formula", "gpt2", "--tp", "2").err


def test_the_fewest_ranks_are_among_all_that_divide_the_rows(run: Callable[..., Ran]) -> None:
    model = tfacct.load("gpt2")  # rows of 768: six ranks go, five do not
    peaks = {fsdp: model.train(fsdp=fsdp).peak_bytes for fsdp in (4, 6)}
    assert peaks[6] < 1_420_000_000 < peaks[4]
    assert model.solve("fsdp", "peak_bytes=1.42GB").total == 6
    said = run("solve", "gpt2", "--for", "fsdp", "--until", "peak_bytes=1GiB").err
    assert "still above 1 GiB with --fsdp 768" in " ".join(said.split())


def test_ranks_beside_the_unknown_ones_are_named(run: Callable[..., Ran]) -> None:
    given = ("llama-3.1-8b", "--for", "fsdp", "--until", "peak_bytes=52.5GB", "--ctx", "4k", "--tp", "2")
    words = " ".join(run("solve", *given).out.split())
    assert "smallest fsdp within peak_bytes = 52.5 GB, tp 2, context 4,096" in words
    assert "The smallest fsdp is 1: peak_bytes stays within 52.5 GB on each rank." in words  # there are two
    words = " ".join(run("solve", "phi-3-medium-4k", "--for", "tp", "--until", "kv_cache_bytes=200MB").out.split())
    assert "Not supported: 4." in words  # 40 query heads, 10 key/value heads
    asked = ("solve", "llama-3.1-8b", "--for", "tp", "--until")
    said = run(*asked, "peak_bytes=10GB", "--ctx", "4k").err
    assert "still above 10 GB with --tp 32" in " ".join(said.split())  # of which four have each key/value head
    said = run(*asked, "peak_bytes=1GB", "--ctx", "1k", "--lora", "8").err
    assert "with --tp 8; more ranks are not supported" in " ".join(said.split())  # adapters of common heads are not


def test_a_mesh_that_is_refused_is_not_called_unmeasured(run: Callable[..., Ran]) -> None:
    said = run("solve", "phi-2", "--for", "tp", "--until", "peak_bytes=8GB", "--ctx", "1k").err
    assert "hint: use --fsdp" in said and "have been measured" not in said


@pytest.mark.parametrize(
    ("mesh", "bound"), [("--cp 4", False), ("--pp 2", True), ("--tp 2", True), ("--dp 2 --zero 1", False)]
)
def test_layouts_without_a_measured_error_say_so(run: Callable[..., Ran], mesh: str, bound: bool) -> None:
    words = " ".join(run("train", "llama-3.2-1b", "--ctx", "2k", "--batch", "8", *mesh.split(), "-v").out.split())
    assert ("the error for this layout was not measured" in words) is not bound
    assert ("(measured on" in words) is bound


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("deepseek-v4-flash", "hyper-connections"),
        ("minimax-text-01", "lightning attention"),
        ("mamba2-130m", "Mamba-2"),
    ],
)
def test_a_part_without_a_rule_is_named_in_words(run: Callable[..., Ran], name: str, part: str) -> None:
    assert f"a parallel layout does not support {part}" in run("plan", name, "--tp", "2").err
