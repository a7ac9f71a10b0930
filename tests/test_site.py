"""The site: every page is in its sidebar, links resolve, nothing is fetched from another host. Kind: output."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
MAKER = ROOT / "docs" / "site" / "pages.py"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    pytest.importorskip("sphinx")
    spec = importlib.util.spec_from_file_location("site_pages", MAKER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_sidebar_once(maker: ModuleType) -> None:
    listed = [page for pages in maker.PARTS.values() for page in pages]
    there = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert sorted(listed) == sorted(there | {"api", "schema"})


def test_links_into_the_repository_are_words_or_addresses(
    maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker.presets, "load_all", lambda: [maker.presets.load("gpt2")])
    for name, source in {"words": None, "addresses": "https://x/y"}.items():
        (folder := tmp_path / name).mkdir()
        maker.assemble(folder, source)
        texts = {page.name: page.read_text() for page in folder.glob("*.md")}
        assert not any("](../" in text for text in texts.values()) and "`tfacct/ledger/`" in texts["where.md"]
        assert ("https://x/y/tfacct/ledger" in texts["where.md"]) == (source is not None)
        assert "[](conventions.md)" in texts["index.md"] and "[conventions.md]" not in texts["index.md"]


@pytest.mark.parametrize(
    ("markup", "found"),
    [
        ('<script src="https://cdn.example/x.js">', 1),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', 1),
        ("<img alt='' src='http://a.example/b.png'>", 1),
        ("p { background: url(https://a.example/b.png) }", 1),
        ('<a href="https://arxiv.org/abs/1706.03762">a link asks nobody</a>', 0),
        ('<script src="_static/x.js"></script><link href="a.css">', 0),
    ],
)
def test_what_is_fetched_from_another_host_is_found(maker: ModuleType, tmp_path: Path, markup: str, found: int) -> None:
    (tmp_path / "a.html").write_text(markup)
    assert len(maker.strangers(tmp_path)) == found


@pytest.mark.slow  # CI builds it
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, str(MAKER), str(tmp_path)], capture_output=True, text=True, cwd=ROOT)
    assert (ran.returncode, ran.stderr) == (0, "")
    api = (tmp_path / "api.html").read_text()
    assert all(f'id="tfacct.{name}"' in api for name in ("load", "Model.flops", "Model.train", "Report.to_html"))
    shown, written = ({page.name for page in at.iterdir()} for at in (tmp_path / "schema", ROOT / "docs" / "schema"))
    assert shown == written
    assert 'href="explore.html"' in (tmp_path / "index.html").read_text() and (tmp_path / "explore.html").is_file()
    assert re.search(r'href="schema/flops\.json"', (tmp_path / "schema.html").read_text())
    linked = re.findall(r"\]\(([^)]+)\)", (tmp_path / "llms.txt").read_text())
    assert linked and all((tmp_path / page).is_file() for page in linked)
