"""Words that commands print about devices and formats, from said.toml. Kind: output."""

from collections.abc import Callable

from tests.helpers.cli import Ran
from tests.helpers.refusals import check_said, each_line


@each_line(__file__, "said.toml")
def test_a_command_prints_its_words(run: Callable[..., Ran], command: str, words: list[str]) -> None:
    check_said(run, command, words)
