"""Command lines that cannot be answered are refused by name, with nothing on stdout. Kind: refusal."""

from collections.abc import Callable

from tests.helpers.cli import Ran
from tests.helpers.command_lines import check_refused, each_line


@each_line(__file__, "refusals.toml")
def test_a_command_line_is_refused_by_name(run: Callable[..., Ran], line: str, words: str | list[str]) -> None:
    check_refused(run, line, words)
