"""Pictures of every command: the tables' numbers, readable labels that do not overlap. Kind: output."""

import json
from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

from tests.helpers.charts import GPT2, charted, of_sweep
from tfacct import load
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Request
from tfacct.loading.memory_limit import memory_limit
from tfacct.output.chart import Chart
from tfacct.reports.charts import kv_chart, memory_chart, params_chart, train_chart
from tfacct.reports.memory import kv, memory
from tfacct.reports.params import params
from tfacct.reports.train import train
from tfacct.training.recipe import Recipe

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from tfacct.output import labels, plot, scales
from tfacct.output.look import Look

MIXED = ("gpt2-xl", "t5-small", "bert-base", "mamba-130m", "deepseek-v3")
GIB = 1024**3


def of_memory(*names: str, fit: int | None = None, dtype: str | None = "bf16", **work: int) -> Chart:
    models, request = [load(name).loaded for name in names], Request(**work)
    return memory_chart(models, request, memory(models, request, fit=memory_limit(fit), dtype=dtype))


def of_train(*names: str) -> Chart:
    models = [load(name).loaded for name in names]
    return train_chart(models, train(models, Request(ctx=4096), Recipe(), fit=memory_limit(64 * 1024**3)))


def of_kv(*names: str, **work: int) -> Chart:
    models, request = [load(name).loaded for name in names], Request(**work)
    return kv_chart(models, request, kv(models, request))


def of_params(*names: str) -> Chart:
    models = [load(name).loaded for name in names]
    return params_chart(models, params(models))


CHARTS = {
    **{f"flops {name}": lambda name=name: charted(name) for name in ("gpt2-xl", "t5-small", "deepseek-v3")},
    "flops ctx": lambda: charted("gpt2-xl", ctx=16384),
    "flops several": lambda: charted(*MIXED, ctx=512),
    "flops masked": lambda: charted(*GPT2, ctx=1024, masked=True),
    **{f"memory {name}": lambda name=name: of_memory(name) for name in ("bert-base", "mamba-130m", "deepseek-v3")},
    "memory fit": lambda: of_memory("llama-3.1-8b", ctx=8192, fit=24 * GIB),
    "memory several": lambda: of_memory(*MIXED, fit=40 * GIB),
    **{f"kv {name}": lambda name=name: of_kv(name) for name in ("llama-3.1-8b", "gemma-3-27b-text", "falcon-7b")},
    **{f"kv {name}": lambda name=name: of_kv(name) for name in ("t5-small", "mamba-130m")},
    "train": lambda: of_train("llama-3.1-8b"),
    "train several": lambda: of_train("llama-3.1-8b", "qwen3-8b", "mistral-7b-v0.3"),
    "kv several": lambda: of_kv("gpt2", *MIXED, ctx=8192),
    **{f"params {name}": lambda name=name: of_params(name) for name in ("t5-small", "deepseek-v3")},
    "params several": lambda: of_params(*MIXED),
    "sweep kv": lambda: of_sweep("llama-3.1-8b", ctx="1k..128k", num_key_value_heads="1..32"),
    "sweep share": lambda: of_sweep("gpt2-xl", "cs336-gpt2-xl", ctx="1k..64k", metrics=("share.attn",)),
    "sweep per token": lambda: of_sweep("gpt2-xl", ctx="1k..16k", metrics=("flops_per_token",)),
    "sweep nothing": lambda: of_sweep("bert-base", ctx="128, 512"),
}
CHARTS = {name: cache(make) for name, make in CHARTS.items()}  # several tests draw each; none changes it
LOOKS = {"light": Look(), "dark": Look(dark=True), "printed": Look(printed=True)}


@cache
def drawn(make: Callable[[], Chart], look: Look) -> Figure:
    """A chart's picture, which no test changes."""
    return plot.draw(make(), look)


# A look changes colours and hatches: what all have of each chart, some show in the other looks.
LOOKED_AT = [
    pytest.param(make, look, marks=(pytest.mark.slow,) if place and number % 8 else (), id=f"{name}-{which}")
    for number, (name, make) in enumerate(CHARTS.items())
    for place, (which, look) in enumerate(LOOKS.items())
]


@pytest.mark.parametrize(("make", "look"), LOOKED_AT)
def test_everything_can_be_read(make, look: Look) -> None:
    """No text is smaller than 9 points, cut or overlapping; every series has a name, every axis a name and a unit."""
    from matplotlib.text import Text

    chart = make()
    figure = drawn(make, look)
    figure.draw_without_rendering()
    width, height = figure.bbox.width, figure.bbox.height
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    assert min(text.get_fontsize() for text in texts) >= 9
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in texts]
    for label, box in boxes:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1, label
    for (one, a), (other, b) in combinations(boxes, 2):
        meet = min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 3
        assert not meet, (one, other)
    words = {text.get_text() for text in texts}
    for axes, each in zip(figure.axes, [chart, *chart.side_charts], strict=True):
        assert (axes.get_xlabel(), axes.get_ylabel()) == (each.x_label, each.y_label)
        assert each.x_label or each.y_label
    if len(chart.series) > 1:
        assert set(chart.series) <= words
    assert " ".join(figure.get_suptitle().split()) == chart.title
    assert " ".join(figure.get_supxlabel().split()) == chart.caption


def test_the_grid_is_behind_what_is_drawn() -> None:
    for name, make in CHARTS.items():
        for axes in drawn(make, LOOKS["light"]).axes:
            order = [one.get_zorder() for one in (*axes.patches, *axes.lines, *axes.collections)]
            assert max(axes.xaxis.get_zorder(), axes.yaxis.get_zorder()) < min(order), name


def test_straight_lines_stay_straight() -> None:
    """Counts are drawn log–log or linear–linear; only shares are linear over a logarithmic axis."""
    for name, make in CHARTS.items():
        chart = make()
        if chart.kind not in ("areas", "lines"):
            continue
        axes = drawn(make, LOOKS["light"]).axes[0]
        if chart.unit != "share":
            assert axes.get_xscale() == axes.get_yscale(), name
        if name.startswith("memory"):
            assert axes.get_yscale() == "linear" and axes.get_ylim()[0] == 0


@pytest.mark.parametrize("name", [name for name in CHARTS if name.startswith(("memory", "kv", "sweep kv"))])
def test_bytes_are_counted_in_powers_of_two(name: str) -> None:
    """Every tick of bytes is a multiple of a power of two that leaves at most 16 of them, spelled as in a table."""
    chart = CHARTS[name]()
    axes = drawn(CHARTS[name], LOOKS["light"]).axes[0]
    axis = axes.xaxis if chart.kind == "bars" else axes.yaxis
    places = [round(place) for place in axis.get_ticklocs()]
    assert len(places) >= 2
    step = min(place for place in places if place)
    assert step & (step - 1) == 0 and all(place % step == 0 for place in places)
    assert [text.get_text() for text in axis.get_ticklabels()] == [units.binary(n) if n else "0" for n in places]


def test_memory_against_the_context_is_the_tables() -> None:
    """Llama-3.1-8B caches 2 · 32 · 8 · 128 · 2 = 131,072 bytes a token, and 8,030,261,248 parameters of 2 bytes."""
    chart = of_memory("llama-3.1-8b", ctx=8192, fit=24 * GIB)
    assert chart.kind == "areas" and chart.levels == [(24 * GIB, units.budget(24 * GIB))]
    assert set(chart.series["weights"]) == {2 * 8_030_261_248}
    assert [size // 131_072 for size in chart.series["KV cache"]] == list(chart.x)
    # (24 · 2³⁰ − 16,060,522,496) / 131,072 = 74,075.8
    assert chart.marks == [(8192, "context 8,192"), (74_075, "fits up to 74,075")]
    assert chart.caption.startswith("Fits in 24 GiB: ")
    assert chart.x[-1] == 131_072


def test_a_context_that_fits_past_the_longest_is_in_the_picture() -> None:
    chart = of_memory("pythia-160m", fit=24 * GIB)
    fits = chart.marks[1][0]
    assert fits > 2048 and chart.x[-1] > fits
    total = chart.series["weights"][-1] + chart.series["KV cache"][-1]
    assert total > 24 * GIB


def test_memory_of_models_without_a_cache_and_with_a_state() -> None:
    bert, mamba = of_memory("bert-base"), of_memory("mamba-130m")
    assert list(bert.series) == ["weights"] and "KV cache" not in bert.title
    assert list(mamba.series) == ["weights", "state"] and len(set(mamba.series["state"])) == 1
    assert "KV cache" not in mamba.title


def test_memory_of_several_is_the_tables() -> None:
    unknown = {**load("gpt2").loaded.raw, "quantization_config": {"quant_method": "vptq"}}
    models, request = [load("gpt2").loaded, load(unknown).loaded], Request()
    report = memory([*models, load("bert-base").loaded], request)
    assert [model["model"] for model in report.models_skipped] == ["config"]
    chart = memory_chart([*models, load("bert-base").loaded], request, report)
    assert list(chart.x) == ["gpt2", "bert-base"]
    assert chart.series["weights"] == [facts["weights_bytes"] for facts in report.models]
    assert chart.ends == [units.binary(facts["total_bytes"]) for facts in report.models]


def test_a_step_is_drawn_by_phase_and_several_at_their_peaks() -> None:
    one, several = of_train("llama-3.2-3b"), of_train("llama-3.2-3b", "llama-3.2-1b")
    phases = load("llama-3.2-3b").train(ctx="4k").phases
    assert one.x == [each["phase"] for each in phases] and "gradients" in one.series
    assert list(map(sum, zip(*one.series.values(), strict=True))) == [each["total_bytes"] for each in phases]
    peaks = [load(name).train(ctx="4k").peak_bytes for name in several.x]
    assert list(map(sum, zip(*several.series.values(), strict=True))) == peaks
    assert "gradients" not in several.series  # at the peak of neither


def test_parts_without_a_colour_are_one_and_windows_are_places() -> None:
    several = of_params("gpt2", "bert-base")
    assert several.series["everything else"][0] == 1024 * 768 + 25 * 2 * 768  # positions and norms
    assert 1024 in of_memory("gemma-3-4b-text").x and 1024 in of_kv("gemma-3-27b-text").x
    assert [*of_memory("gpt2", "bert-base").series] == ["weights", "KV cache"]
    assert [*of_memory("bert-base", "roberta-base").series] == ["weights"]


def test_kv_as_built_as_mha_and_as_mqa() -> None:
    chart = of_kv("llama-3.1-8b")
    table = load("llama-3.1-8b").kv().lines[-1]
    last = {name: values[-1] for name, values in chart.series.items()}
    kinds = {"MHA (32 KV heads)": "mha", "as built (8 KV heads)": "as_built", "MQA (1 KV head)": "mqa"}
    assert last == {words: table[kind] for words, kind in kinds.items()}
    assert chart.x[-1] == 131_072 and chart.marks == [(131_072, "context 131,072")]
    assert chart.title == "llama-3.1-8b: KV cache in bf16, batch 1"
    assert chart.caption.startswith("16.0 GiB at context 131,072, 4 × less than with MHA; ")


def test_one_line_for_two_names_of_the_same() -> None:
    assert list(of_kv("gpt2").series) == ["as built (12 KV heads)", "MQA (1 KV head)"]
    assert list(of_kv("falcon-7b").series) == ["MHA (71 KV heads)", "as built (1 KV head)"]
    assert list(of_kv("deepseek-v3").series) == ["MHA (128 KV heads)", "as built (latent)"]
    assert list(of_kv("mamba-130m").series) == ["state"]
    assert "at every context" in of_kv("mamba-130m").caption


def test_more_lines_than_can_be_distinguished(tmp_path: Path, run) -> None:
    ran = run("memory", "--kv", "--max-params", "1b", "--output", str(tmp_path / "x.png"))
    assert ran.code == 2 and "are too many for a picture" in ran.err and ran.out == "" and not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="are too many for a picture"):
        of_kv(*["gpt2"] * 21)


def test_the_same_model_twice_is_two_lines() -> None:
    assert list(of_kv("gpt2", "gpt2").series) == ["gpt2 (1)", "gpt2 (2)"]


def test_parameters_by_part() -> None:
    gpt2 = of_params("gpt2")
    assert gpt2.x == ["gpt2"] and sum(values[0] for values in gpt2.series.values()) == 124_439_808
    assert gpt2.title == "gpt2: parameters" and gpt2.caption.startswith("124,439,808 parameters (124 M).")


def test_parameters_of_several_add_up() -> None:
    chart = of_params(*MIXED)
    for place, name in enumerate(MIXED):
        assert sum(values[place] for values in chart.series.values()) == load(name).params().total


def test_names_keep_apart() -> None:
    assert labels.apart([], 10, 0, 100) == []
    assert labels.apart([5, 5, 5], 10, 0, 100) == [0, 10, 20]
    assert labels.apart([99, 98, 40], 10, 0, 100) == [100, 90, 40]
    tight = labels.apart([1] * 11, 20, 0, 100)
    assert tight == pytest.approx([10 * n for n in range(11)])


@pytest.mark.parametrize("printed", [False, True])
def test_in_print_there_are_only_greys(printed: bool) -> None:
    from matplotlib.colors import to_rgb

    for make in (CHARTS["flops gpt2-xl"], CHARTS["params several"], CHARTS["kv llama-3.1-8b"]):
        (axes,) = plot.draw(make(), Look(printed=printed)).axes
        fills = [*axes.collections, *axes.patches]
        colours = [tuple(to_rgb(fill.get_facecolor()[0] if fill in axes.collections else fill.get_facecolor()))
                   for fill in fills] + [to_rgb(line.get_color()) for line in axes.lines]  # fmt: skip
        assert all(len({round(part, 2) for part in colour}) == 1 for colour in colours[:3]) == printed
        if fills:
            assert any(fill.get_hatch() for fill in fills) == printed


def test_axes_are_returned_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    from matplotlib import pyplot
    from matplotlib.axes import Axes

    chart = CHARTS["memory fit"]()
    try:
        axes = plot.axes(chart)
        assert isinstance(axes, Axes) and axes.get_xlabel() == chart.x_label and axes.figure.get_suptitle()
        assert plot.axes(of_sweep("gpt2", ctx="1k,2k", metrics=("total_flops", "total_params"))).get_ylabel() == "FLOPs"
        _, (mine, other) = pyplot.subplots(1, 2, figsize=(12, 4))
        assert plot.axes(chart, mine) is mine and mine.get_title(loc="left") and not other.has_data()
        lines = plot.axes(CHARTS["sweep kv"](), other)  # the title is 6 points above them, for no legend is between
        assert lines.titleOffsetTrans.transform((0, 0))[1] * 72 / lines.figure.dpi == pytest.approx(6)
        assert not any(line.get_clip_on() for line in lines.lines)  # which would halve marks at an edge
        dark = plot.axes(chart, look=Look(dark=True))
        assert dark.get_facecolor() == pytest.approx((0x15 / 255, 0x18 / 255, 0x1D / 255, 1))
    finally:
        pyplot.close("all")


def test_a_dollar_in_a_name_is_a_dollar(tmp_path: Path, run) -> None:
    config = dict(load("gpt2").config)
    file = tmp_path / "a$b_{c$.json"
    file.write_text(json.dumps(config))
    for command in ("flops", "memory", "kv", "params"):
        ran = run(command, str(file), "gpt2", "--output", str(tmp_path / f"{command}.png"))
        assert ran.code == 0, ran.err


def test_the_least_of_axes() -> None:
    """A model of one position, and a sweep over two values side by side."""
    one = load("gpt2", n_positions=1).loaded
    for request in (Request(), Request(ctx=1)):
        plot.draw(kv_chart([one], request, kv([one], request)))
        plot.draw(memory_chart([one], request, memory([one], request)))
    plot.draw(of_sweep("gpt2", ctx="1023,1024", metrics=("total_flops",)))


def test_ticks_are_spelled_as_numbers_in_tables() -> None:
    ticks = {("flops", 5e11): "500 G", ("params", 2e9): "2.00 B", ("share", 0.2): "20%", ("ratio", 1.5): "1.5"}
    assert {asked: scales.tick_text(*asked) for asked in ticks} == ticks
    assert scales.tick_text("bytes", 0) == "0"


def test_a_cache_that_has_no_other_heads_is_one_line() -> None:
    """DeepSeek-V4 caches keys that are values too: with MHA it would be another model."""
    alone = of_kv("deepseek-v4-flash", ctx=4096)
    assert len(alone.series) == 1 and "MHA" not in alone.caption
    assert len(of_kv("deepseek-v4-flash", "deepseek-v3", ctx=4096).series) >= 2


def test_numbers_that_would_overlap_give_way_to_multiples_of_a_power_of_two() -> None:
    """1 is a sixteenth of the way from 0 to 16, 4 a quarter."""
    from matplotlib.figure import Figure

    axis = Figure().subplots().xaxis
    for numbers, places in (([0, 4, 16], [0, 4, 16]), ([0, 1, 16], [0, 4, 8, 12, 16])):
        scales._number_ticks(axis, numbers, logarithmic=False)
        assert [*axis.get_ticklocs()] == places
