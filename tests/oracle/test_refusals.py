"""Command lines that torch or a class cannot answer are refused by name, with nothing on stdout. Kind: refusal."""

import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.cli import Ran

TABLE = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("command", "arguments", "said"),
    [(command, *case) for command, cases in TABLE.items() for case in cases.items()],
)
def test_a_command_line_is_refused_by_name(run: Callable[..., Ran], command: str, arguments: str, said: str) -> None:
    ran = run(command, *shlex.split(arguments))
    words = " ".join(ran.err.split())
    assert (ran.code, ran.out) == (2, "") and said in words and "Traceback" not in words, words
