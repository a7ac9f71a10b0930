"""A report as HTML: closed elements, the table's digits, escaped text, nothing fetched. Kind: output."""

import base64
import csv
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.helpers.answers import ANSWERS, QUICK
from tests.helpers.cli import Run
from tfacct import load
from tfacct.output.report import PLAIN

EMPTY = {"meta", "br", "rect"}


class Page(HTMLParser):
    """Cells of the table by section, and every attribute. Fails if an element is closed that was not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.sections: list[list[list[str]]] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(f"{tag}.{name}", value or "") for name, value in attrs]
        if tag not in EMPTY:
            self.open.append(tag)
        if tag in ("thead", "tbody", "tfoot"):
            self.sections.append([])
        elif tag == "tr":
            self.sections[-1].append([])
        elif tag in ("th", "td"):
            self.sections[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"th", "td"} & {*self.open}:
            self.sections[-1][-1][-1] += data


@pytest.mark.parametrize("name", QUICK)
def test_every_report_is_a_page(name: str) -> None:
    """Every cell of every section, as in the table; no inline style, nothing that is run or fetched."""
    report = ANSWERS[name]()
    text = report.to_html()
    shown = Page(text)
    if report.derivation is None:
        columns = [column for column in report.columns if column.kind != "bar"]
        drawn = [number for number, column in enumerate(report.columns) if column.kind == "bar"]
        found = [[[c for i, c in enumerate(row) if i not in drawn] for row in rows] for rows in shown.sections[1:]]
        sections = [
            *(section for section in report.sections if section),
            *([report.total_rows] if report.total_rows else []),
        ]
        assert found == [
            [[column.text(row.get(column.key)) for column in columns] for row in rows] for rows in sections
        ]
    names = {name.partition(".")[2] for name, _ in shown.attributes}
    assert not names & {"style", "src", "href"} and not any(name.startswith("on") for name in names)
    assert "<script" not in text and "url(" not in text and text == report.to_html()
    assert Page(report._repr_html_()).sections == shown.sections


def test_the_policy_names_the_stylesheet_and_nothing_else() -> None:
    text = load("gpt2").flops(ctx=16).to_html()
    sheet = re.search("<style>(.*?)</style>", text, re.DOTALL)
    assert sheet is not None and len(re.findall("<style", text)) == 1
    digest = base64.b64encode(hashlib.sha256(sheet[1].encode()).digest()).decode()
    policy = re.search('Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1] == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_words_of_a_config_stay_words() -> None:
    hostile = "x</style><script>alert(1)</script>\x1b[31m"
    for html in ((mean := load({**dict(load("gpt2").config), hostile: 1}).params()).to_html(), mean._repr_html_()):
        assert "x&lt;/style&gt;&lt;script&gt;" in html and "<script" not in html and "\x1b" not in html


def test_names_of_files_stay_names(tmp_path: Path, run: Run) -> None:
    """Other programs read the output: a spreadsheet evaluates `=1+1`, Markdown may contain HTML and links."""
    config = json.dumps(dict(load("gpt2").config))
    for start in "=+-@":
        (tmp_path / f"{start}1<b>[x](y)|*.json").write_text(config)
    files = [str(file.relative_to(tmp_path)) for file in tmp_path.iterdir()]
    paths = [str(tmp_path / file) for file in files]
    rows = list(csv.reader(io.StringIO(run("memory", "--kv", *paths, "--ctx", "7", "--csv").out)))
    assert {row[0] for row in rows[1:]} == {f"'{file}" for file in files}
    for command in (["memory", "--kv", *paths], ["params", paths[0]], ["memory", "--kv", paths[0], "--explain"]):
        printed = run(*command, "--markdown").out
        assert r"1&lt;b>\[x](y)\|\*" in printed and "<b>" not in printed


def test_exact_numbers_are_shown_on_hover() -> None:
    """19,327,352,832 = 12 blocks · 2 · 1,024² · 12 · 64 FLOPs of the scores."""
    text = load("gpt2").flops(ctx=1024).to_html()
    assert '<td title="19,327,352,832">19.3 G</td>' in text
    assert ">19,327,352,832<" in load("gpt2").flops(ctx=1024).to_html(digits=True)
    assert '<td class="words"><code>B T D, D F → B T F</code></td>' in text


def test_the_longest_bar_fills_its_column() -> None:
    """The head has 27.1 % of the FLOPs, each product of the feed-forward 19.9 %: 58.0 / 79.0 of its bar."""
    widths = [float(width) for width in re.findall(r'rect width="([\d.]+)"', load("gpt2").flops(ctx=1024).to_html())]
    assert max(widths) == 100 and widths[-3:] == [pytest.approx(100 * 768 * 12 / 50257 * 4 / 12 * 12, rel=1e-3)] * 2 + [
        100
    ]


def test_a_total_that_is_no_sum_is_outside_the_table() -> None:
    report = load("gpt2").flops(ctx=1024)
    assert report.to_html().count('<tr class="plain">') == sum(bool(row.get(PLAIN)) for row in report.total_rows) == 2


def test_the_command_writes_a_page_and_prints_the_table(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "flops.html"
    ran = run("flops", "gpt2", "--digits", "--output", str(file))
    assert ran.out == run("flops", "gpt2", "--digits").out and ran.err.endswith(f"wrote {file}\n")
    assert file.read_text(encoding="utf-8") == load("gpt2").flops().to_html(digits=True)
    assert run("flops", "gpt2", "--output", str(file), "--force").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["flops.html"]


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_counted(tmp_path: Path, run: Run) -> None:
    (there := tmp_path / "there.html").write_text("mine")
    for asked, message in {
        str(there): f"error: --output {there} exists\nhint: --force overwrites it\n",
        "x.page": "error: --output x.page: unsupported file ending '.page'\n",
        "x": "error: --output x: the name of a file needs an ending",
        str(tmp_path / "no" / "x.html"): f"error: --output {tmp_path}/no/x.html: no folder {tmp_path}/no\n",
    }.items():
        for command in (("flops", "gpt2"), ("sweep", "gpt2", "--ctx", "1,2"), ("verify", "gpt2"), ("models",)):
            ran = run(*command, "--output", asked)
            assert (ran.code, ran.out) == (2, "") and ran.err.startswith(message)
    assert there.read_text() == "mine"
    assert run("models", "--force").err == "error: --force needs --output FILE\n"
