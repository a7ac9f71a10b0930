"""Picture files: the tables' content, and no half-written or overwritten file. Kind: output, refusal."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.charts import GPT2, charted, of_sweep
from tfacct import load
from tfacct.base.atomic_files import atomic_write
from tfacct.base.errors import TfacctError
from tfacct.commands.sweep import sweep
from tfacct.ledger.workload import Request, Workload
from tfacct.output import plot
from tfacct.output.look import Look
from tfacct.parallel.mesh import Mesh
from tfacct.reports.charts import flops_chart, of_one_rank
from tfacct.reports.flops import flops

pytest.importorskip("matplotlib")


def components(name: str, **work: int) -> dict[str, float]:
    facts = load(name).flops(**work).models[0]
    return {part: count / facts["total_flops"] for part, count in facts["components"].items()}


def test_a_layout_draws_one_rank() -> None:
    model, drawn = load("llama-3.1-8b").loaded, list[Any]()
    for mesh in (None, Mesh(tp=2)):
        of_one_rank(drawn.append, [model], mesh, "flops")  # type: ignore[arg-type]
    (whole,), (half,) = drawn
    at = Workload(1024, 1024).axes()
    flops, on_rank = (one.ledger.total_flops(at) for one in (whole, half))
    assert whole is model and 2 * on_rank == flops


@pytest.mark.parametrize("decode", [False, True])
def test_shares_against_the_context_are_those_of_the_table(decode: bool) -> None:
    chart = charted("gpt2-xl", ctx=4096, decode=decode)
    assert chart.kind == "areas" and chart.marks == [(10_124, "half from 10,124"), (4096, "context 4,096")]
    labels = {
        "scores + values": "attn_scores_values",
        "attention projections": "attn_projections",
        "mlp": "mlp",
        "head": "lm_head",
    }
    assert list(chart.series) == list(labels)
    for place in (0, len(chart.x) // 2, len(chart.x) - 1):
        expected = components("gpt2-xl", ctx=chart.x[place], decode=decode)
        assert {labels[name]: values[place] for name, values in chart.series.items()} == pytest.approx(expected)
    assert list(chart.x) == sorted(set(chart.x)) and chart.x[-1] >= 8 * 10_124
    after = next(place for place, x in enumerate(chart.x) if x >= 10_124)
    assert chart.series["scores + values"][after - 1] < 0.5 < chart.series["scores + values"][after]
    assert ("1 new token" in chart.title) == decode and "full T × S attention" in chart.caption


def test_components_by_model_are_those_of_the_table() -> None:
    chart = charted(*GPT2, ctx=1024)
    assert chart.kind == "bars" and list(chart.x) == list(GPT2)
    for place, name in enumerate(GPT2):
        expected = components(name, ctx=1024)
        assert chart.series["mlp"][place] == expected["mlp"]
        assert sum(values[place] for values in chart.series.values()) == pytest.approx(1)


def test_kv_by_kv_heads() -> None:
    chart = of_sweep("llama-3.1-8b", ctx="1k..128k", num_key_value_heads="1..32")
    assert chart.kind == "lines" and chart.unit == "bytes" and chart.x[-1] == 131_072
    assert list(chart.series) == [f"num_key_value_heads {n}" for n in (1, 2, 4, 8, 16, 32)]
    assert chart.series["num_key_value_heads 8"][-1] == 16 * 2**30
    assert chart.series["num_key_value_heads 1"][0] == 2**24
    assert "KV cache in bf16" in chart.caption
    one = of_sweep("llama-3.1-8b", ctx="8k", num_key_value_heads="1..32")  # of one context the field is the axis
    assert list(one.x) == [1, 2, 4, 8, 16, 32] and one.x_label == "num_key_value_heads"


def test_a_sweep_draws_flops_and_the_share_of_attention_as_smooth_curves(tmp_path: Path, run) -> None:
    chart = sweep([load("gpt2-xl").loaded], ctx="1k..32k").chart()
    (shares,) = chart.side_charts
    assert (chart.y_label, shares.unit, len(chart.x)) == ("FLOPs", "share", 5 * 8 + 1)
    at = list(chart.x).index(16_384)
    assert chart.series["FLOPs"][at] == 133_416_668_364_800 and round(shares.series[shares.y_label][at], 3) == 0.618
    flops_axes, _ = plot.draw(chart).axes
    assert flops_axes.get_yticks()[-1] == 5e14 > 432e12 > flops_axes.get_yticks()[-2]
    ran = run("sweep", "gpt2-xl", "--ctx", "1k..4k", "-o", str(tmp_path / "x.png"))
    assert "x.png: FLOPs and share of scores + values in all FLOPs of gpt2-xl against the context" in ran.err


def test_every_metric_that_is_asked_for_has_a_panel() -> None:
    model = [load("gpt2").loaded]
    chart = sweep(model, metric=["total_params, kv_cache_bytes"], ctx="1k,2k").chart()
    assert [chart.unit, *(each.unit for each in chart.side_charts)] == ["params", "bytes"]
    assert chart.title == "Parameters and KV cache of gpt2 against the context"
    with pytest.raises(TfacctError, match="5 metrics are too many"):
        sweep(model, metric=["total_params,kv_cache_bytes,share.mlp,share.attn,flops.mlp"], ctx="1k,2k").chart()


def test_areas_are_drawn_on_a_log_axis_with_the_crossover_and_the_context() -> None:
    (axes,) = plot.draw(charted("gpt2-xl", ctx=16384)).axes
    assert axes.get_xscale() == "log" and axes.get_ylim() == (0, 1)
    marked = {line.get_xdata()[0] for line in axes.lines}
    assert marked == {10_124, 16_384}
    assert {"half from 10,124", "context 16,384"} <= {text.get_text() for text in axes.texts}


@pytest.mark.parametrize(
    ("command", "ending", "start"),
    [
        ("flops gpt2-xl --ctx 16384", "png", b"\x89PNG"),
        ("flops gpt2-xl --ctx 16384", "svg", b"<?xml"),
        ("flops gpt2-xl --ctx 16384", "pdf", b"%PDF"),
        (f"flops {' '.join(GPT2)} --ctx 1k", "svg", b"<?xml"),
        ("sweep gpt2 --ctx 1k..8k --batch 1,8 --metric kv_cache_bytes", "svg", b"<?xml"),
        ("memory gpt2 --on 24GiB", "svg", b"<?xml"),
        ("kv gpt2 t5-small", "svg", b"<?xml"),
        ("params gpt2", "svg", b"<?xml"),
    ],
)
def test_commands_draw(command: str, ending: str, start: bytes, tmp_path: Path, run) -> None:
    file = tmp_path / f"x.{ending}"
    ran = run(*command.split(), "--output", str(file))
    assert ran.code == 0 and f"drew {file}" in ran.err and len(ran.out.splitlines()) > 5
    assert file.read_bytes().startswith(start) and list(tmp_path.iterdir()) == [file]


def test_the_same_chart_is_the_same_file(tmp_path: Path) -> None:
    files = [tmp_path / "a.svg", tmp_path / "b.svg"]
    chart = of_sweep("llama-3.1-8b", ctx="1k..128k", num_key_value_heads="1..32")
    for file in files:
        plot.save(chart, file)
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("linked", [False, True])
def test_a_picture_is_not_overwritten_without_force(tmp_path: Path, run, linked: bool) -> None:
    """Nor is a link replaced."""
    asked, file = tmp_path / "x.png", tmp_path / ("real.png" if linked else "x.png")
    if linked:
        asked.symlink_to(file)
    else:
        file.write_text("mine")
    ran = run("flops", "gpt2", "--output", str(asked))
    assert ran.code == 2 and "exists" in ran.err and "--force" in ran.err and ran.out == ""
    assert linked or file.read_text() == "mine"
    assert run("flops", "gpt2", "--output", str(asked), "--force").code == 0
    assert file.read_bytes().startswith(b"\x89PNG") and asked.is_symlink() == linked


@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"], ["--markdown"]])
def test_a_failed_drawing_prints_nothing_and_leaves_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run, form: list[str]
) -> None:
    def broken(self, file, **_options):
        Path(file).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    file = tmp_path / "x.png"
    file.write_text("mine")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", broken)
    asked = ("--output", str(file), "--output", str(tmp_path / "x.html"), "--force")
    ran = run("flops", "gpt2", *asked, *form)
    assert (ran.code, ran.out) == (2, "") and "No space left" in ran.err
    assert file.read_text() == "mine" and list(tmp_path.iterdir()) == [file]


def test_force_alone_and_axes_that_are_no_numbers(tmp_path: Path, run) -> None:
    for flag in ("--force", "--style dark", "--style print"):
        assert f"{flag} needs --output FILE" in run("flops", "gpt2", *flag.split()).err
    file = str(tmp_path / "x.png")
    for arguments in (("--set", "tie_word_embeddings=true,false"), ("--ctx", "1k")):
        ran = run("sweep", "gpt2", *arguments, "--output", file)
        assert ran.code == 2 and "to plot against" in ran.err and not Path(file).exists() and ran.out == ""


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = run("flops", "gpt2", "--output", str(tmp_path / "x.png"))
    assert ran.code == 2 and "pip install '.[plot]' in a tfacct checkout" in ran.err


def test_a_small_models_crossover_is_in_the_picture() -> None:
    """Width 8, heads of 16: attention overtakes at 16 tokens, within a context of 32."""
    sizes = {"hidden_size": 8, "head_dim": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 11}
    sizes |= {"intermediate_size": 16, "num_hidden_layers": 2, "max_position_embeddings": 32}
    models = [load({"model_type": "llama", "tie_word_embeddings": False, **sizes}).loaded]
    chart = flops_chart(models, Request(), flops(models, Request()))
    assert chart.marks[0][0] == 16 and chart.x[0] < 16 and chart.x[-1] >= 8 * 16


def test_attention_that_is_larger_from_the_start_has_no_crossover() -> None:
    model, request = load("gpt2-xl").loaded, Request(ctx=200_000, tokens=100_000)
    assert flops_chart([model], request, flops([model], request)).marks == [(200_000, "context 200,000")]


def test_lines_are_distinguished() -> None:
    """In print, 8 of 64 points have a marker."""
    chart = of_sweep("llama-3.1-8b", ctx="1k..64k:1k", num_key_value_heads="1..32")
    for look in (Look(), Look(dark=True), Look(printed=True)):
        (axes,) = plot.draw(chart, look).axes
        looks = {(line.get_linestyle(), line.get_marker(), line.get_color()) for line in axes.lines}
        assert len(looks) == 6 and all(line.get_markevery() == (8 if look.printed else None) for line in axes.lines)


def test_files_of_a_killed_process_are_removed_and_those_of_others_are_not(tmp_path: Path, run) -> None:
    """The child dies as by `kill -9`, in the middle of a file; this process writes another one meanwhile."""
    script = (
        "import os, pathlib; from tfacct.base.atomic_files import atomic_write\n"
        f"with atomic_write(pathlib.Path({str(tmp_path / 'y.html')!r})) as half:\n"
        "    half.write_text('half'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 9
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".writing-")
    with atomic_write(tmp_path / "z.html") as written:
        assert not left.exists()
        written.write_text("whole")
        assert run("params", "gpt2", "--output", str(tmp_path / "x.html")).code == 0
        assert written.read_text() == "whole"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.html", "z.html"]


def test_traffic_says_its_convention() -> None:
    assert "unfused kernels" in of_sweep("gpt2", ctx="1k..4k", metrics=("total_read_bytes",)).caption


def test_odd_places(tmp_path: Path, run) -> None:
    for file in ("/proc/x.png", str(tmp_path / ("a" * 300 + ".png"))):
        ran = run("flops", "gpt2", "--output", file)
        assert ran.code == 2 and "error: --output" in ran.err and "Traceback" not in ran.err
    assert run("flops", "gpt2", "--output", str(tmp_path / ("a" * 248 + ".png"))).code == 0
