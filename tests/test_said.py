"""Words that commands print, from said.toml. Kind: output."""

from tests.helpers.cli import Run
from tests.helpers.command_lines import check_said, each_line


@each_line(__file__, "said.toml")
def test_a_command_prints_its_words(run: Run, line: str, words: str | list[str]) -> None:
    check_said(run, line, words)
