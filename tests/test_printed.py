"""What commands print: words from printed.toml, the same as other lines from same.toml, and columns that a narrow
terminal hides from hidden.toml and widths.toml. Kind: output."""

import shlex

import pytest

from tests.helpers.cli import Run
from tests.helpers.command_lines import check_printed, each_line
from tfacct.output.layout import Part, Table
from tfacct.output.report import Column


@each_line(__file__, "printed.toml")
def test_a_command_prints_its_words(run: Run, line: str, words: str | list[str]) -> None:
    check_printed(run, line, words)


@each_line(__file__, "same.toml")
def test_a_command_prints_the_same_as_another(run: Run, line: str, words: str) -> None:
    assert run(*shlex.split(line)).out == run(*shlex.split(words)).out != ""


@each_line(__file__, "hidden.toml")
def test_a_narrow_terminal_hides_neither_the_subject_nor_the_answer(
    run: Run, monkeypatch: pytest.MonkeyPatch, line: str, words: list[str]
) -> None:
    """It hides every other column, with bars and columns without a header."""
    hidden, parts = list[str](), Table.parts

    def recorded(table: Table, width: int) -> tuple[list[Part], list[Column]]:
        found = parts(table, width)
        shown = {column.key for part in found[0] for column in part.columns}
        hidden.extend(column.label or column.key for column in table.columns if column.key not in shown)
        return found

    monkeypatch.setattr(Table, "parts", recorded)
    assert (run(*shlex.split(line), columns=20).code, hidden) == (0, words)


@each_line(__file__, "widths.toml")
def test_columns_leave_a_terminal_by_their_importance(run: Run, line: str, words: list[str]) -> None:
    (width, *command), (header, *hidden) = shlex.split(line), words
    out = run(*command, columns=int(width)).out_line
    named = ", ".join(f'"{column}"' for column in hidden)
    assert f"{header} ──" in out and out.partition("Columns not shown at this width: ")[2] == named, out
