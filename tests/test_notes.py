"""Notes under a table: at most three, by rank; the others with -v."""

from dataclasses import replace

from tfacct import load
from tfacct.output import layout
from tfacct.output.report import Note, NoteRow, Report, notes

ROWS = (
    NoteRow("usable", 3, lambda free: {"free": free}, "{free} GiB are usable."),
    NoteRow("full", 1, lambda free: free == 0, "Nothing more fits."),
    NoteRow("units", 2, lambda free: ["GiB", "GB"][: free + 1], "Sizes are in {}."),
)


def reported(*texts: str) -> Report:
    return replace(load("gpt2").params(), notes=texts, counted="tensors", defaulted="", details=("At length.",))


def shown(report: Report, verbose: bool = False) -> list[str]:
    lines = [line.text for line in layout.lines(report, 200, digits=False, spelled=str, verbose=verbose)]
    return lines[len(lines) - lines[::-1].index("") :]


def test_a_row_gives_a_note_where_it_applies() -> None:
    assert notes(ROWS, 0) == ["0 GiB are usable.", "Nothing more fits.", "Sizes are in GiB."]
    assert [(note.key, note.rank) for note in notes(ROWS, 1)] == [("usable", 3), ("units", 2), ("units", 2)]


def test_three_notes_are_shown_by_rank_in_their_order_and_all_with_v() -> None:
    report = reported(*notes(ROWS, 0))
    first = ["0 GiB are usable.", "Nothing more fits.", "Sizes are in GiB. (1 more: .notes)"]
    assert shown(report) == first  # what was counted is background, and comes after the first of that rank
    assert shown(report, verbose=True) == [
        "0 GiB are usable.", "Nothing more fits.", "Sizes are in GiB.", "Counted: tensors · tfacct conventions",
        "At length.",
    ]  # fmt: skip
    many = reported(Note("a", 3, "A."), Note("b", 2, "B."), Note("c", 2, "C."), Note("d", 1, "D."))
    assert shown(many) == ["B.", "C.", "D. (2 more: .notes)"]
    assert "A." not in many.to_markdown() and "<p>A.</p>" in many.to_html()


def test_plain_texts_are_always_shown() -> None:
    assert shown(reported("A.", "B.", "C.", "D."))[:4] == ["A.", "B.", "C.", "D."]
