"""Command lines that torch or a class cannot answer are refused by name, with nothing on stdout. Kind: refusal."""

from collections.abc import Callable

from tests.helpers.cli import Ran
from tests.helpers.refusals import check_refused, each_refusal


@each_refusal(__file__)
def test_a_command_line_is_refused_by_name(run: Callable[..., Ran], command: str, arguments: str, said: str) -> None:
    check_refused(run, command, arguments, said)
