"""Texts use today's names of commands and options, and the words of the field. Kind: law."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tfacct.base.spelling import SPELLINGS
from tfacct.cli.parameters import parameters_of
from tfacct.commands import FORMER, NAMES
from tfacct.options import of

ROOT = Path(__file__).parent.parent
QUOTING = ROOT / "docs" / "style.md"
PAGES = [ROOT / "README.md", *sorted({*(ROOT / "docs").rglob("*.md")} - {QUOTING})]
COMMAND = re.compile(rf"tfacct ({'|'.join(sorted({*FORMER} - {*NAMES}))})\b(?!,)")
OF_LAST_RELEASE = ("fit", "users", "bytes", "bound-only", "tokens-total", "hold-logits", "html", "plot", "part-by")
OPTION = re.compile(rf"--({'|'.join((*OF_LAST_RELEASE, 'recompute-attention'))})\b")
PRIVATE = re.compile(
    r"\b(moments|turned|told|untold|beside|behind|stands|witness(es)?|divisions|handed|spoken|in few bits)\b", re.I
)
"""Words that this project once used in a sense of its own. Those with an ordinary meaning are left to reviewers."""
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def written() -> Iterator[tuple[Path, str]]:
    """Files that users read or run, and the package's own texts."""
    folders = {
        "docs": ("md", "json"),
        "examples": ("py", "ipynb", "toml"),
        "presets": ("toml",),
        "tfacct": ("py", "js"),
    }
    yield ROOT / "README.md", (ROOT / "README.md").read_text(encoding="utf-8")
    for folder, kinds in folders.items():
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix[1:] in kinds and file.name != "spellings.py":
                yield file, file.read_text(encoding="utf-8")


@pytest.mark.parametrize("former", [COMMAND, OPTION], ids=["commands", "options"])
def test_no_text_has_a_former_name(former: re.Pattern[str]) -> None:
    found = {f"{file.relative_to(ROOT)}: {match[0]}" for file, text in written() for match in former.finditer(text)}
    assert found == set()


def test_a_former_name_is_found() -> None:
    assert COMMAND.search("see `tfacct show MODEL`") and not COMMAND.search("tfacct sweep, tfacct help metrics")
    assert OPTION.search("memory --fit 24GB") and not OPTION.search("--fits")
    assert {*OF_LAST_RELEASE} <= SPELLINGS.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_the_words_of_the_field(page: Path) -> None:
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    assert [match[0] for match in PRIVATE.finditer(text)] == []


@pytest.mark.parametrize("name", NAMES)
def test_help_uses_the_words_of_the_field(name: str) -> None:
    command = import_module(f"tfacct.commands.{name}").COMMAND
    helps = [of(one.annotation).help for one in parameters_of(command).values()]
    assert len(helps) > 3 and [text for text in helps if PRIVATE.search(text)] == []


def _messages(file: Path) -> Iterator[tuple[int, str]]:
    """Texts in the code that are no docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    about = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in about:
            yield node.lineno, node.value


def test_messages_use_the_words_of_the_field() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text}"
        for file in sorted((ROOT / "tfacct").rglob("*.py"))
        for line, text in _messages(file)
        if " " in text and PRIVATE.search(text)
    ]
    assert found == []
