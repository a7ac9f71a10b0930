"""Which notes of a report's table are printed."""

from collections.abc import Callable

import pytest

from tfacct.output.report import Note, NoteRow


def printed_rows(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The ids of the rows of notes that are printed from now on."""
    printed = set[int]()

    def recorded(row: NoteRow, about: object, notes: Callable[..., list[Note]] = NoteRow.notes) -> list[Note]:
        found = notes(row, about)
        printed.update([id(row)] if found else [])
        return found

    monkeypatch.setattr(NoteRow, "notes", recorded)
    return printed
