"""Command lines that are refused by name, from a TOML file next to a test."""

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
