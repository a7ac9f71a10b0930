"""`tfacct help`: topics, and pages of the documentation. Kind: output."""

import re
import tomllib
from pathlib import Path

import pytest

from tfacct.commands.help import TOPICS
from tfacct.reports.help import terms

ROOT = Path(__file__).parents[2]
PAGES = sorted(file.stem for file in (ROOT / "docs").glob("*.md"))
NAMED = sorted(
    {
        command
        for file in (*(ROOT / "docs").glob("*.md"), ROOT / "README.md")
        for command in re.findall(r"`tfacct (help [a-z][a-z -]*)`", file.read_text())
    }
)
"""Commands of `help` that the documentation names in a sentence."""


def test_the_wheel_has_every_page() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    packed = {source: target for source, target in wheel["force-include"].items() if source.startswith("docs/")}
    assert packed == {f"docs/{name}.md": f"tfacct/_docs/{name}.md" for name in PAGES}


def test_a_page_is_printed_as_it_is_written(run) -> None:
    for words in (("help", "docs", "check"), ("help", "training")):
        assert run(*words).out == (ROOT / "docs" / f"{words[-1]}.md").read_text()


def test_the_pages_are_listed_by_title(run) -> None:
    listed = run("help", "docs", "--csv").out.splitlines()
    assert [line.partition(",")[0] for line in listed[1:]] == PAGES
    assert 'conventions,"What is counted, and what is not"' in listed


def test_the_topics_are_listed_with_the_pages(run) -> None:
    listed = [row["page"] for row in run("help", "topics", "--json").document["rows"]]
    assert listed == [*TOPICS, *PAGES] and "cs336" in PAGES
    assert "cs336, …: tfacct help topics" in run("help").out == run("--help").out
    assert "`tfacct help topics` lists them" in run("help", "zzz").err


@pytest.mark.parametrize("command", NAMED)
def test_help_that_the_documentation_names_exists(run, command: str) -> None:
    assert run(*command.split()).code == 0


@pytest.mark.parametrize("word", sorted(terms()))
def test_an_abbreviation_is_explained_with_sections_that_mention_it(run, word: str) -> None:
    ran = run("help", word.upper(), "--json")
    found = ran.document
    assert ran.code == 0 and found["answer"] == terms()[word]
    names = [word, word.replace("-", " "), *terms()[word].partition(":")[0].split(", ")]
    for row in found["rows"]:
        page = (ROOT / "docs" / f"{row['page']}.md").read_text()
        assert re.search("|".join(map(re.escape, names)), page, re.IGNORECASE)


def test_help_searches_the_docs_for_a_word_that_is_no_topic(run) -> None:
    assert "'rule of thumb' in the documentation" in run("help", "rule", "of", "thumb").out
    first = {word: run("help", *word.split(), "--csv").out.splitlines()[1] for word in ("latent attention", "ttft")}
    assert run("help", "6nd", "--csv").out.splitlines()[1] == "conventions,Numbers next to the total"
    assert first["latent attention"].startswith("conventions,Latent attention")
    assert first["ttft"].startswith("time,") and "TTFT" in first["ttft"]
    assert "`tfacct help docs conventions` prints the page." in run("help", "latent").out
