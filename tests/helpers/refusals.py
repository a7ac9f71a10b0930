"""Command lines, and words that they print or are refused with, from a TOML file next to a test."""

import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.cli import Ran


def each_refusal(test_file: str) -> pytest.MarkDecorator:
    """The command, its arguments and words of the error, for each line of `refusals.toml`."""
    table = tomllib.loads(Path(test_file).with_name("refusals.toml").read_text(encoding="utf-8"))
    cases = [(command, *case) for command, cases in table.items() for case in cases.items()]
    return pytest.mark.parametrize(("command", "arguments", "said"), cases)


def check_refused(run: Callable[..., Ran], command: str, arguments: str, said: str) -> None:
    """Exit code 2, the words on stderr, and nothing on stdout."""
    ran = run(command, *shlex.split(arguments))
    words = " ".join(ran.err.split())
    assert (ran.code, ran.out) == (2, "") and said in words and "Traceback" not in words, words


def each_line(test_file: str, name: str) -> pytest.MarkDecorator:
    """The command line and its words, for each line of a file of tables."""
    tables = tomllib.loads(Path(test_file).with_name(name).read_text(encoding="utf-8"))
    return pytest.mark.parametrize(("command", "words"), [line for table in tables.values() for line in table.items()])


def check_said(run: Callable[..., Ran], command: str, words: list[str]) -> None:
    """Exit code 0, and on stdout or stderr the words, but none of those after `absent`."""
    ran = run(*shlex.split(command), columns=300)
    said, (present, absent) = " ".join(f"{ran.out} {ran.err}".split()), ([*words], [])
    if "absent" in words:
        present, absent = words[: words.index("absent")], words[words.index("absent") + 1 :]
    assert ran.code == 0 and [word for word in present if word not in said] == [], said
    assert [word for word in absent if word in said] == [], said
