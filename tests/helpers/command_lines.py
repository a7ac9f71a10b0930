"""Command lines, and words that they print or are refused with, from a TOML file next to a test."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tests.helpers.cli import Run


def each_line(test_file: str, name: str) -> pytest.MarkDecorator:
    """The command line and its words, for each line of a file of tables, one for each command."""
    tables = tomllib.loads(Path(test_file).with_name(name).read_text(encoding="utf-8"))
    lines = [(f"{command} {rest}".strip(), words) for command, lines in tables.items() for rest, words in lines.items()]
    return pytest.mark.parametrize(("line", "words"), lines)


def check_refused(run: Run, line: str, words: str | list[str]) -> None:
    """Exit code 2, the words on stderr in an error and at most one hint, and nothing on stdout. A command that compares
    what one line cannot is answered."""
    ran = run(*shlex.split(line))
    assert (ran.code, ran.out) == (2, "") and "Traceback" not in ran.err and "error" in ran.err, ran
    check_words(words, ran.err)
    for other in re.findall("`tfacct ([^`]*)` compares them\n", ran.err):
        assert run(*shlex.split(other)).code == 0, other


def check_printed(run: Run, line: str, words: str | list[str]) -> None:
    """Exit code 0, and the words on stdout or stderr."""
    ran = run(*shlex.split(line), columns=300)
    assert ran.code == 0, ran.err
    check_words(words, f"{ran.out} {ran.err}")


def check_words(words: str | list[str], text: str) -> None:
    """Those words are in the text, and those after `absent` are not."""
    flat, listed = " ".join(text.split()), [words] if isinstance(words, str) else words
    present = listed[: listed.index("absent")] if "absent" in listed else listed
    assert [word for word in present if word not in flat] == [], flat
    assert [word for word in listed[len(present) + 1 :] if word in flat] == [], flat
