"""A report in Python: printed, in a notebook, as a DataFrame. Kind: output."""

import csv
import sys

import pytest

from tests.helpers.answers import ANSWERS, QUICK, check_printed_and_framed
from tests.helpers.cli import Run
from tfacct import Report, TfacctError, load
from tfacct.output.report import Column


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_print_shows_what_the_command_prints(run: Run) -> None:
    """Title, answer, table, notes and hints; `repr` stays one line."""
    report, ran = load("gpt2").flops(ctx="16k"), run("flops", "gpt2", "--ctx", "16k")
    shown = str(report).splitlines()
    table = ran.out.splitlines()
    assert [line.replace(".notes", "-v") for line in shown[: len(table)]] == table
    assert " ".join(shown[len(table) :]) == ran.err.replace("\n", " ").strip()
    assert repr(report) == "<tfacct flops report: gpt2: forward FLOPs at context 16,384, batch 1>"


@pytest.mark.parametrize(("columns", "widest"), [("", 100), ("120", 120), ("60", 60), ("a lot", 100), ("3", 20)])
def test_it_is_as_wide_as_columns_says(monkeypatch: pytest.MonkeyPatch, columns: str, widest: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    longest = max(map(len, str(load("gpt2-xl").flops(ctx="16k")).splitlines()))
    assert longest <= max(widest, 40) and (widest < 60 or longest > widest - 40)


@pytest.mark.parametrize("name", QUICK)
def test_every_report_is_printed_and_framed(name: str) -> None:
    check_printed_and_framed(ANSWERS[name]())


def test_numbers_above_int64_stay_exact() -> None:
    pytest.importorskip("pandas")
    frame = load("llama-3.1-405b").flops(ctx="1m").to_pandas()
    # 126 blocks · 128 heads · 2 · 128 · (2²⁰)²: an Int64 holds it, and wraps where scores and values are added
    wanted = 126 * 128 * 2 * 128 * 2**40
    assert frame["flops"][frame["operation"] == "attn.scores"].tolist() == [wanted] < [2**63]
    assert frame["flops"].sum() == load("llama-3.1-405b").flops(ctx="1m").total_flops > 2**63
    whole_and_not = Report("x", "x", (Column("a", "a", "number"),), (({"a": 2**60 + 1},),), ({},))
    assert whole_and_not.to_pandas()["a"].tolist() == [2**60 + 1]


def test_without_pandas_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(TfacctError, match=r"^to_pandas needs pandas\npip install '\.\[pandas\]' in a tfacct checkout"):
        load("gpt2").params().to_pandas()


DRAWN = {
    "flops": lambda model: model.flops(ctx="1k"),
    "params": lambda model: model.params(),
    "memory": lambda model: model.memory(ctx="1k", on="24GiB"),
    "kv": lambda model: model.kv(ctx="8k"),
    "sweep": lambda model: model.sweep("kv_cache_bytes", ctx="1k..8k"),
}


@pytest.mark.parametrize("name", DRAWN)
def test_plot_returns_the_axes(name: str) -> None:
    """Into axes that are given, or its own; the picture is that of `--plot`."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    report = DRAWN[name](load("gpt2"))
    figure, ax = pyplot.subplots()
    assert report.plot(ax=ax) is ax and ax.has_data() and "gpt2" in ax.get_title(loc="left").replace("GPT-2", "gpt2")
    own = report.plot()
    assert own.figure is not figure and own.has_data()
    pyplot.close("all")
    with pytest.raises(TfacctError, match=r"^this report has no picture\npictures exist for flops, params"):
        load("gpt2").formula().plot()


def test_a_notebook_shows_the_hints_too() -> None:
    html = load("gpt2").flops(ctx="16k")._repr_html_()
    assert html.startswith('<div class="tfacct">') and "<small>hint: gpt2 has a context of 1,024" in html
    mean = load({**dict(load("gpt2").config), "x<b>": 1}).params()._repr_html_()
    assert "x&lt;b&gt;" in mean and "x<b>" not in mean
    assert "<pre>  " in (html := load("gpt2").explain("kv")._repr_html_()) and "<b>Axes</b>" in html


def test_the_table_in_latex(run, tmp_path) -> None:
    file = tmp_path / "table.tex"
    assert run("flops", "gpt2", "--ctx", "64", "-o", str(file)).code == 0
    assert run("flops", "gpt2", "--ctx", "64", "--latex").out == file.read_text()
    for command in ("params", "memory", "memory --kv"):
        assert r"\begin{tabular}{" in run(*command.split(), "gpt2", "--latex").out
    lines = file.read_text().splitlines()
    table = lines[lines.index(r"\begin{tabular}{llrrrrr}") :]
    assert table[2].count(" & ") == 6 and table[2].startswith("operation & ") and table[2].endswith(r"share \\")
    assert all(line.startswith("% ") for line in lines[: lines.index(table[0])])
    scores = next(line for line in table if line.startswith("attn.scores"))
    assert scores.startswith(r"attn.scores & B T K G H, B S K H $\to$ B K G T S & 64 $\times$ 64 $\times$ 64 & 144 & ")
    assert r"attn.q\_proj" in " ".join(table) and table[-2:] == [r"\bottomrule", r"\end{tabular}"]
    assert table.count(r"\midrule") == 2  # below the head, and above the totals
    assert all(line.count("&") == 6 for line in table if line.endswith(r"\\"))


def test_a_column_of_the_csv_has_the_name_and_value_of_its_json_key(run) -> None:
    def both(*line: str) -> tuple[list[dict[str, str]], list[dict]]:
        rows = list(csv.DictReader(run(*line, "--csv").out.splitlines()))
        return rows, run(*line, "--json").models

    rows, (model,) = both("flops", "gpt2", "--train")
    for key in ("forward_flops", "backward_flops", "flops"):
        assert [int(row[key]) for row in rows] == [line[key] for line in model["lines"]] != []
    rows, (model,) = both("mfu", "gpt2", "--on", "h100", "--tokens-per-second", "1000")
    assert [float(row["flops_per_second"]) for row in rows] == [line["flops_per_second"] for line in model["lines"]]
    two = "gpt2", "mixtral-8x7b"
    for row, facts in zip(*both("flops", *two), strict=True):
        assert int(row["total_flops"]) == facts["total_flops"] and "attn_scores_values" in facts["components"]
        for name, flops in facts["components"].items():  # "mlp" is FLOPs in the JSON, so the share has another name
            assert float(row[f"{name}_share"]) == flops / facts["total_flops"] and name not in row
    for row, facts in zip(*both("params", *two), strict=True):
        assert all(int(row[key]) == facts[key] for key in ("total_params", "active_params"))
    for row, facts in zip(*both("train", *two, "--ctx", "37"), strict=True):
        assert int(row["keys"]) == facts["workload"]["keys"] == 37
    rows, (model,) = both("plan", "gpt2", "--train", "--on", "4x24GB", "--ctx", "37", "--batch", "8", "--limit", "0")
    bubbles = [float(row["bubble_ratio"]) for row in rows if row["bubble_ratio"]]
    assert bubbles == [float(one["bubble_ratio"]) for one in model["layouts"] if one["bubble_ratio"] is not None] != []
