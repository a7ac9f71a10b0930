"""Words that commands print, read from printed.toml. Kind: output."""

from tests.helpers.cli import Run
from tests.helpers.command_lines import check_printed, each_line


@each_line(__file__, "printed.toml")
def test_a_command_prints_its_words(run: Run, line: str, words: str | list[str]) -> None:
    check_printed(run, line, words)
