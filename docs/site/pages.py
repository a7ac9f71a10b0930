"""Builds the site: `python docs/site/pages.py FOLDER [--source URL]`. Needs the extra `docs`.

The pages are those of docs/, an API reference from the docstrings, the schemas, llms.txt, and a page of all presets to
try. Every warning is an error, and nothing on the site asks another host. `--source` is the address of the repository:
links into it point there, and are plain words without it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from sphinx.cmd.build import build_main

from tfacct.ledger.workload import Request
from tfacct.loading import presets
from tfacct.reports import explore
from tfacct.reports.metrics import Counting

HERE = Path(__file__).parent
DOCS = HERE.parent
FETCHED = re.compile(
    r"""(?:<(?:script|img|iframe|source)\b[^>]*\bsrc=|<link\b[^>]*\bhref=|url\(|@import )["']?(?:https?:)?//[^"')]+"""
)
PARTS = {
    "Count": ["conventions", "formulas", "models", "config-fields", "cs336", "trust"],
    "Size a server or a training run": [
        "time",
        "devices",
        "engines",
        "training",
        "training-rules",
        "sharding",
        "sharding-rules",
        "support",
        "checkpoints",
    ],
    "Design a model": ["what-if", "your-model", "your-model-keys", "check", "adding-a-model"],
    "Reference": ["cli", "python", "api", "json", "agents", "schema"],
    "The project": ["where", "decisions", "speed", "style"],
}
"""Every page but the first, in the order of the sidebar."""
TRY_IT = (
    '<p><a href="explore.html">Try it</a>: every preset on one page, with sliders for context, batch and heads.</p>'
)
NAMED_FILE = re.compile(r"\[([\w-]+\.md)\]\((\1(?:#[\w-]+)?)\)")
"""A link under its file's name, which on the site is the title of the page or of the section."""
INTO_PAGE = re.compile(r"\]\(([\w-]+)\.md\)")
"""A link to a page, which is HTML on the site."""
INTO_REPOSITORY = re.compile(r"\[([^\]\n]*)\]\(\.\./([^)\s]+)\)")


def assemble(folder: Path, source: str | None) -> None:
    """Fill a folder with what Sphinx reads: the pages as they are, but for links into the repository."""
    for page in DOCS.glob("*.md"):
        text = INTO_REPOSITORY.sub(rf"[\1]({source}/\2)" if source else r"\1", page.read_text(encoding="utf-8"))
        text = NAMED_FILE.sub(r"[](\2)", text.replace("](schema)", "](schema.md)"))
        (folder / page.name).write_text(_front(text) if page.stem == "index" else text, encoding="utf-8")
    (folder / "models").mkdir()
    lineages = sorted((DOCS / "models").glob("*.md"))
    for page in lineages:
        shutil.copy(page, folder / "models")
    with (folder / "models.md").open("a", encoding="utf-8") as overview:
        overview.write(_tree("", [f"models/{page.stem}" for page in lineages]))
    for file in (HERE / "conf.py", HERE / "api.md", HERE / "site.css", *DOCS.glob("*.json")):
        shutil.copy(file, folder)
    shutil.copytree(DOCS / "pictures", folder / "pictures")
    shutil.copytree(DOCS / "schema", folder / "as_they_are" / "schema")
    llms = INTO_PAGE.sub(r"](\1.html)", (DOCS / "llms.txt").read_text(encoding="utf-8"))
    (folder / "as_they_are" / "llms.txt").write_text(llms, encoding="utf-8")
    (folder / "schema.md").write_text(_schemas(), encoding="utf-8")
    every = explore.page(presets.load_all(), Request(), Counting())
    explore.save(every, str(folder / "as_they_are" / "explore.html"), force=False)


def _front(text: str) -> str:
    """The first page, with a link to the page to try after its first paragraph, and the contents of the sidebar."""
    title, first, rest = text.split("\n\n", 2)
    return "\n\n".join([title, first, TRY_IT, rest]) + _contents()


def _contents() -> str:
    """Pages as the sidebar lists them."""
    return "".join(_tree(f":caption: {title}\n", pages) for title, pages in PARTS.items())


def _tree(caption: str, pages: list[str]) -> str:
    return f"\n```{{toctree}}\n{caption}:hidden:\n\n{chr(10).join(pages)}\n```\n"


def _schemas() -> str:
    """A page that lists the schemas, which have the same names on the site."""
    rows = (
        f'<li><a href="schema/{file.name}">{file.name}</a></li>' for file in sorted((DOCS / "schema").glob("*.json"))
    )
    return "\n".join(["# Schemas", "", "A JSON Schema for the answer of each command.", "", "<ul>", *rows, "</ul>", ""])


def build(site: Path, source: str | None = None) -> int:
    """Build the site into a folder, and return Sphinx's exit code."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        assemble(folder, source)
        return build_main(["-W", "--keep-going", "-q", "-j", "2", "-b", "html", "-d", f"{name}/read", name, str(site)])


def strangers(site: Path) -> list[str]:
    """Files of the site that would fetch something from another host, with what they would fetch."""
    pages = (path for path in site.rglob("*") if path.suffix in (".html", ".css"))
    return sorted(
        {f"{page.relative_to(site)}: {found}" for page in pages for found in FETCHED.findall(page.read_text())}
    )


def main() -> int:
    """Read the arguments, build, and check. Returns 1 where anything was complained of."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the site goes")
    parser.add_argument("--source", help="address under which the files of the repository are shown")
    arguments = parser.parse_args()
    failed = build(arguments.folder, arguments.source)
    for stranger in (found := strangers(arguments.folder)):
        print(f"asks another host: {stranger}", file=sys.stderr)
    return 1 if failed or found else 0


if __name__ == "__main__":
    sys.exit(main())
