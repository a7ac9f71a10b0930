"""What commands print: words from printed.toml, and the same as other lines from same.toml. Kind: output."""

import shlex

from tests.helpers.cli import Run
from tests.helpers.command_lines import check_printed, each_line


@each_line(__file__, "printed.toml")
def test_a_command_prints_its_words(run: Run, line: str, words: str | list[str]) -> None:
    check_printed(run, line, words)


@each_line(__file__, "same.toml")
def test_a_command_prints_the_same_as_another(run: Run, line: str, words: str) -> None:
    assert run(*shlex.split(line)).out == run(*shlex.split(words)).out != ""
