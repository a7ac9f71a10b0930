"""The documentation says what the program prints."""

import doctest
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def builder():
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_console_block_is_what_the_program_prints(capsys: pytest.CaptureFixture) -> None:
    assert builder().main(["--check"]) == 0, capsys.readouterr().err


def test_the_check_above_can_fail() -> None:
    wrong = "```console\n$ tfacct --version\ntfacct 9.9.9\n```"
    assert builder().refreshed(wrong) != wrong
    assert builder().refreshed(builder().refreshed(wrong)) == builder().refreshed(wrong)


@pytest.mark.parametrize("page", [p for p in PAGES if ">>> " in p.read_text()], ids=lambda p: p.name)
def test_python_blocks_run(page: Path) -> None:
    failed, attempted = doctest.testfile(str(page), module_relative=False)
    assert attempted > 3 and failed == 0


def test_the_readmes_python_prints_what_its_comments_say(capsys: pytest.CaptureFixture) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line]) == 6
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"# (.*)$", code, re.MULTILINE)


def test_docstrings_run() -> None:
    import tfacct.api

    failed, attempted = doctest.testmod(tfacct.api, extraglobs={"load": tfacct.api.load})
    assert attempted and failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_legend_in_the_docs_is_the_programs() -> None:
    from tests.conftest import TINY, tiny
    from tfacct import workload

    legend = dict(workload.AXES)
    for family in TINY:
        for part in tiny(family).architecture.parts():
            legend |= part.legend
    page = (ROOT / "docs" / "formulas.md").read_text()
    table = dict(re.findall(r"\| ([A-Z][a-z]*) \| ([^|]+) (?=\|)", page))
    assert {axis: meaning.strip() for axis, meaning in table.items()} == legend


def test_the_walk_through_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The preset in docs/adding-a-model.md, dropped into the presets' folder, is found and meets its total."""
    from tfacct import presets

    page = (ROOT / "docs" / "adding-a-model.md").read_text()
    (toml,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mistral-7b-shape.toml").write_text(toml)
    monkeypatch.setattr(presets, "folder", lambda: tmp_path)
    subject = presets.load("mistral-7b-shape")
    assert sum(subject.ledger.parameters().values()) == subject.expected == 7_241_732_096
    wrong = presets.load("mistral-7b-shape", {"num_key_value_heads": 32})
    assert f"{sum(wrong.ledger.parameters().values()):,}" in page
