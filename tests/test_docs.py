"""The documentation prints what the program prints. Kind: output."""

import doctest
import importlib
import importlib.util
import json
import re
from pathlib import Path

import pytest

from tests.helpers.cli import Run
from tests.helpers.documents import PAGES, builder
from tfacct import __version__

ROOT = Path(__file__).parent.parent


@pytest.mark.slow  # CI runs the check itself
def test_every_console_block_is_what_the_program_prints(capsys: pytest.CaptureFixture) -> None:
    assert builder().main(["--check"]) == 0, capsys.readouterr().err


def test_the_check_above_can_fail() -> None:
    wrong = "```console\n$ tfacct --version\ntfacct 9.9.9\n```"
    assert builder().refreshed(wrong) != wrong
    assert builder().refreshed(builder().refreshed(wrong)) == builder().refreshed(wrong)


def test_presets_are_counted_not_typed() -> None:
    from tfacct.loading import presets

    there = len(list(presets.folder().glob("*.toml")))
    assert builder().refreshed("`tfacct verify`, all 22 presets") == f"`tfacct verify`, all {there} presets"
    assert f"the {there} presets" in (ROOT / "README.md").read_text()


def test_the_readmes_python_prints_what_its_comments_say(capsys: pytest.CaptureFixture) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line]) == 6
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"# (.*)$", code, re.MULTILINE)


LADDERS = sorted(file for file in (ROOT / "tfacct").rglob("*.py") if ">>> " in file.read_text())


@pytest.mark.parametrize("file", LADDERS, ids=lambda file: file.stem)
def test_docstrings_run(file: Path) -> None:
    name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted and failed == 0


def test_the_main_methods_have_examples() -> None:
    from tfacct.api import Model, load
    from tfacct.base import units
    from tfacct.ledger import einsum, groups, lines, paths, storage, workload

    shown = (load, Model.flops, Model.memory, Model.solve, groups.Ledger, lines.Matmul, einsum.einsum, einsum.pairs)
    shown = (*shown, storage.Storage, workload.Workload, paths.parse, units.read_tokens, units.si, units.binary)
    assert [used for used in shown if ">>> " not in (used.__doc__ or "")] == []


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


REFERENCE = ("cli.md", "config-fields.md", "json.md", "models.md", "support.md", "your-model-keys.md")
"""Pages to look something up in, which are generated."""


def test_pages_to_read_stay_short() -> None:
    pages = {page.name: len(page.read_text().splitlines()) for page in (ROOT / "docs").glob("*.md")}
    assert {*REFERENCE} <= pages.keys()
    assert {name: lines for name, lines in pages.items() if lines > 300 and name not in REFERENCE} == {}


def test_the_changelog_stays_short_and_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    releases = re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert next(version for version, _ in releases if version != "Unreleased") == __version__
    assert text.count("\n## ") == len(releases) >= 2
    for version, body in releases:
        entries = re.findall(r"^- .*", body, re.MULTILINE)
        assert 0 < len(entries) <= 40, version
        assert [entry for entry in entries if len(entry) > 160] == []
        assert "\n  " not in body, "one entry is one line"


def test_the_keys_of_json_are_listed_as_the_schemas_have_them() -> None:
    page = (ROOT / "docs" / "json.md").read_text()
    keys = builder().json_keys()
    assert f"<!-- json keys -->\n{keys}<!-- end of json keys -->\n" in page, "run `python docs/build.py`"
    assert "  - `pointwise`: with `--pointwise`: work that is not a matmul {`path`, `elements`}\n" in keys
    assert len(page.partition("<!-- json keys -->")[0].splitlines()) <= 60  # the rest is generated


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_recipes_for_agents_give_their_answers(run: Run) -> None:
    """Each command of the table, and what its jq path finds; estimates have no answer there."""
    text = (ROOT / "docs" / "agents.md").read_text()
    recipes = re.findall(r"^\| .* \| `tfacct (.*)` \| `(\..*)` \| ?(.*?) ?\|$", text, re.MULTILINE)
    assert len(recipes) == 10 and sum(bool(answer) for _, _, answer in recipes) >= 9
    for command, path, answer in recipes:
        ran = run(*command.split())
        assert ran.code == 0, command
        found = ran.document
        for key, at in re.findall(r"(\w+)(?:\[(\d+)\])?", path):
            found = found[key][int(at)] if at else found[key]
        assert found and answer in ("", json.dumps(found)), (command, path, found)


def test_the_legend_in_the_docs_is_the_programs() -> None:
    from tests.families import TINY
    from tests.helpers.models import tiny
    from tfacct.architecture.parts import Classes, MtpProjection, Pooler
    from tfacct.ledger import workload

    legend = {**workload.AXES, **Pooler.legend, **Classes.legend, **MtpProjection.legend}
    for family in TINY:
        for part in (each for one in tiny(family).architecture.parts() for each in one.with_nested()):
            redefined = {axis for axis in part.legend.keys() & legend if part.legend[axis] != legend[axis]}
            assert redefined <= {"N"}, f"{type(part).__name__}: an axis has one meaning"  # K and G are not always there
            legend = {**part.legend, **legend}
    page = (ROOT / "docs" / "formulas.md").read_text()
    table = dict(re.findall(r"\| ([A-Z][a-z]*) \| ([^|]+) (?=\|)", page))
    assert len(table) > 20 and table.items() <= legend.items()


def test_the_walk_through_works(tmp_path: Path) -> None:
    """The preset in docs/adding-a-model.md meets its total; its family was built and agreed with its class.

    The page's commands run in a copy of the package with its files; the first test here compares what they print.
    """
    from tfacct.loading import presets

    page = (ROOT / "docs" / "adding-a-model.md").read_text()
    files = dict(builder().FILE.findall(page))
    assert len(files["presets/codestral-22b.toml"].splitlines()) == 5
    (tmp_path / "codestral-22b.toml").write_text(files["presets/codestral-22b.toml"])
    model = presets.load_file(tmp_path / "codestral-22b.toml")
    # 2 * 32768 * 6144 + 56 * (2 * 6144 * 6144 + 2 * 6144 * 1024 + 3 * 6144 * 16384 + 2 * 6144) + 6144
    assert sum(model.ledger.parameters().values()) == model.expected == 22_247_282_688
    assert page.count("totals agree exactly, and so does every operation.") == 2


def test_classes_in_pages_are_shown_as_they_are() -> None:
    shown = "<!-- source: tfacct/families/mistral.py Starcoder2 -->\n```python\nclass Starcoder2: ...\n```"
    text = builder().refreshed(shown)
    assert "class Starcoder2(" in text and "class Starcoder2: ..." not in text
    assert builder().refreshed(text) == text
