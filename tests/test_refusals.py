"""Command lines that cannot be answered are refused by name, with nothing on stdout. Kind: refusal."""

from tests.helpers.cli import Run
from tests.helpers.command_lines import check_refused, each_line


@each_line(__file__, "refusals.toml")
def test_a_command_line_is_refused_by_name(run: Run, line: str, words: str | list[str]) -> None:
    check_refused(run, line, words)
