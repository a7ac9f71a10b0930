"""Words that commands print, from said.toml. Kind: output."""

from collections.abc import Callable

from tests.helpers.cli import Ran
from tests.helpers.command_lines import check_said, each_line


@each_line(__file__, "said.toml")
def test_a_command_prints_its_words(run: Callable[..., Ran], line: str, words: str | list[str]) -> None:
    check_said(run, line, words)
