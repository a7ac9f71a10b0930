"""A report as data: rows, columns, notes, exact facts. Tables and pages are views of it."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from tfacct.base import units
from tfacct.base.errors import printable
from tfacct.base.lazy import LazySequence
from tfacct.base.record import record
from tfacct.output.escaping import csv_cell, latex, markdown

if TYPE_CHECKING:
    from tfacct.output.derivation import Derivation

SCHEMA = 2
"""Version of the JSON (docs/json.md): rises if a key is renamed, removed or changes its meaning."""

Tick: TypeAlias = Callable[[str, int, int], None]
"""Progress function: what is being done, how many are done, of how many."""
Kind: TypeAlias = Literal[
    "text", "spec", "formula", "count", "number", "flops", "params", "bytes", "share", "ratio", "change",
    "shares", "dims", "bar", "amount", "verdict", "seconds", "rate",
]  # fmt: skip

Number: TypeAlias = int | float | Fraction


@record
class Amount:
    """A number with its own kind, for a column of mixed kinds."""

    value: Number
    kind: Kind


PLAIN = "plain"
"""Key of a total that is not a sum, such as a ratio."""
Cell: TypeAlias = Number | str | tuple[Number | None, ...] | Amount | None
Row: TypeAlias = Mapping[str, Cell]

LEFT = ("text", "spec", "formula", "bar", "verdict")
"""Kinds of cells that are aligned left; numbers are aligned right."""


def unwatched(_what: str, _done: int, _of: int) -> None:
    """Ignore progress."""


class Column(NamedTuple):
    """A column: key of its cells, header, format.

    `drop`: the order in which columns are hidden in a narrow terminal, highest first: 5 notation that repeats sizes; 4
    bars, terms that follow from a sum; 3 shares, second units, sources; 2 ratios and shapes; 1 details,
    only after headers were broken. 0 is never hidden. A `dims` cell has several numbers; `keys` names their CSV
    columns. `empty`: text for a missing value; in a `signed` column, for no difference. `names_rows`: repeat this
    column in every part of a split table, like the first column. With `unit`, all bytes of the column are in that unit,
    and the cells omit it.
    """

    key: str
    label: str
    kind: Kind = "text"
    drop: int = 0
    keys: tuple[str, ...] = ()
    empty: str = ""
    signed: bool = False
    names_rows: bool = False
    unit: str = ""

    @property
    def raw(self) -> bool:
        """True if the column is in the CSV; bars are not."""
        return self.kind != "bar"

    def text(self, cell: Cell, digits: bool = False) -> str:
        """A cell as text; `digits`: every digit of a number."""
        if isinstance(cell, Amount):
            return self._replace(kind=cell.kind).text(cell.value, digits)
        if cell is None or (self.signed and cell == 0):
            return self.empty
        if self.signed and not isinstance(cell, (str, tuple)):
            sign, size = ("+", cell) if cell > 0 else ("−", -cell)
            return sign + self._replace(signed=False).text(size, digits)
        if isinstance(cell, str):
            return _spelled(cell, self.kind)
        if isinstance(cell, tuple):
            if self.kind == "shares":
                return " → ".join("–" if share is None else units.percent(share) for share in cell)
            if self.kind == "seconds":
                return units.time_range(list(dict.fromkeys(number for number in cell if number is not None)))
            return " × ".join(f"{number:,}" for number in cell)
        match self.kind:
            case "share":
                return units.percent(cell)
            case "change":
                return units.change(1 + Fraction(cell)) if cell else ""
            case "number" if cell != int(cell):
                return f"{float(cell):,.12g}"
            case "ratio":
                return units.decimals(Fraction(cell), 2)
            case "seconds":
                return f"{float(cell):.9f} s" if digits else units.seconds(cell)
            case "rate":
                return units.three(cell)
            case "bytes" if self.unit:
                return f"{int(cell):,} B" if digits else units.in_binary_unit(round(cell), self.unit)
            case "flops" | "params" | "bytes" if not digits:
                formatted = {"flops": units.si, "params": units.people, "bytes": units.binary}[self.kind]
                return formatted(round(cell))
        return f"{int(cell):,}" if cell == int(cell) else f"{float(cell):,.2f}"


def _spelled(text: str, kind: Kind) -> str:
    """A formula in mathematical notation; cells have it in Python's."""
    if kind == "spec":
        return text.replace("->", "→")
    return text.replace("**", "^").replace("*", "·") if kind == "formula" else text


AT_MOST = 3
"""Most notes under a table without -v."""
BACKGROUND = ("counted", "defaulted", "details")
"""Keys of notes that every answer has."""


class Note(str):
    """A sentence under a table.

    `key`: its name in the JSON. `rank`: 1 changes a decision, 2 is an assumption, 3 is background.

    >>> note = Note("windows", 2, "In 26 of 52 layers a token sees at most 1,024 keys.")
    >>> note.key, note.rank, note.startswith("In 26")
    ('windows', 2, True)
    """

    key: str
    rank: int

    def __new__(cls, key: str, rank: int, text: str) -> Note:
        note = super().__new__(cls, text)
        note.key, note.rank = key, rank
        return note

    def __getnewargs__(self) -> tuple[str, int, str]:  # type: ignore[override]
        return self.key, self.rank, str(self)


class NoteRow(NamedTuple):
    """A row of a report's table of notes. `rank`: as in `Note`.

    `when` returns what fills the sentence: a false value if the note does not apply, True if `text` is the whole
    sentence, a text or a mapping for `str.format`, or a list with one of these for each sentence. Without it, a mapping
    has this under `key`.

    >>> few = NoteRow("few", 1, lambda free: free < 3 and {"free": free}, "Only {free} GiB are free.")
    >>> few.notes(2), few.notes(5)
    (['Only 2 GiB are free.'], [])
    >>> NoteRow("free", 2, text="{} GiB are free.").notes({"free": 2})
    ['2 GiB are free.']
    """

    key: str
    rank: int
    when: Callable[[Any], Any] | None = None
    text: str = "{}"

    def notes(self, about: Any) -> list[Note]:
        """The sentences of this note."""
        found = about[self.key] if self.when is None else self.when(about)
        each = found if isinstance(found, (list, tuple)) else [found] if found else []
        return [Note(self.key, self.rank, self._filled(one)) for one in each]

    def _filled(self, found: Any) -> str:
        if found is True:
            return self.text
        return self.text.format(**found) if isinstance(found, Mapping) else self.text.format(found)


def notes(rows: Iterable[NoteRow], about: Any) -> list[Note]:
    """The notes in a table that apply, in its order."""
    return [note for row in rows for note in row.notes(about)]


Table: TypeAlias = tuple[tuple[Column, ...], tuple[tuple[Row, ...], ...], tuple[Row, ...]]
"""Columns, sections of rows, totals."""


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """The answer to one question about one or several models.

    `answer`: the answer in one sentence. `sections`: rows, with a blank line between sections. `total_rows`: rows
    computed from them; one with a true `PLAIN` is not a sum and not emphasised. `notes`: about these models.
    `convention`: what was counted, in one line; `details`: the same at length. `defaulted`: fields with the class's
    default. `hints`: for stderr. `models`: the exact facts of the JSON, one dict per model.
    """

    command: str
    title: str
    columns: tuple[Column, ...]
    sections: tuple[tuple[Row, ...], ...]
    models: tuple[dict[str, Any], ...]
    total_rows: tuple[Row, ...] = ()
    answer: str = ""
    notes: tuple[str, ...] = ()
    defaulted: str = ""
    details: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    convention: str = ""
    headline: str = ""
    """The key of the one number that `total` returns."""
    agrees: bool = True
    """False if a cross-check gave another number."""
    untitled: bool = False
    """True if the answer and the table have all facts of the title: a terminal omits it."""
    interrupted: bool = False
    """True if Ctrl-C ended the work; the report has the results until then."""
    aside: tuple[Column, ...] = ()
    """Columns of the CSV alone; a table shows their content elsewhere."""
    models_skipped: tuple[Mapping[str, str], ...] = ()
    """Models that are not in the table: `model`, and `why`."""
    derivation: Derivation | None = None
    """The derivation of the total, which replaces the table."""
    data: Report | None = None
    """The same facts as rows for programs, if the table of this report is text."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", tuple(_with_note_keys(plain(model)) for model in self.models))

    def __repr__(self) -> str:
        return f"<tfacct {self.command} report: {self.title}>"

    @property
    def shown_notes(self) -> tuple[Note, ...]:
        """The notes under the table."""
        return self.under_table()[0]

    def under_table(self, verbose: bool = False) -> tuple[tuple[Note, ...], tuple[Note, ...]]:
        """The notes under the table and the hidden ones. At most three are shown, by rank, in their order; all if
        `verbose` or if they are plain texts."""
        plain = not any(isinstance(note, Note) for note in self.notes)
        every = [note if isinstance(note, Note) else Note("", 1, note) for note in self.notes]
        every += [Note("counted", 3, f"Counted: {self.convention}.")] if self.convention else []
        every += [Note("defaulted", 3, self.defaulted)] if self.defaulted else []
        if verbose:
            return (*every, *(Note("details", 3, text) for text in self.details)), ()
        first = set(sorted(range(len(every)), key=lambda at: every[at].rank)[: len(every) if plain else AT_MOST])
        return (
            tuple(note for at, note in enumerate(every) if at in first),
            tuple(note for at, note in enumerate(every) if at not in first),
        )

    @property
    def cells(self) -> tuple[Row, ...]:
        """Every row except the totals."""
        return tuple(row for section in self.sections for row in section)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every row except the totals, as in the CSV: numbers and text by key, None for a missing value."""
        if self.data is not None:
            return self.data.rows
        columns = self._raw_columns
        every = ([cell for column in columns for cell in _raw(row.get(column.key), column)] for row in self.cells)
        return [dict(zip(self.row_keys, row, strict=True)) for row in every]

    @property
    def _raw_columns(self) -> list[Column]:
        """Columns of the CSV."""
        return [*(column for column in self.columns if column.raw), *self.aside]

    @property
    def row_keys(self) -> dict[str, Kind]:
        """Keys of every row, with the kind of value."""
        if self.data is not None:
            return self.data.row_keys
        return {key: column.kind for column in self._raw_columns for key in column.keys or (column.key,)}

    @property
    def total(self) -> int:
        """The headline of a report about one model: FLOPs, parameters or bytes."""
        if not self.headline:
            raise AttributeError(f"a {self.command} report has no 'total'", name="total", obj=self)
        value: int = self._one()[self.headline]
        return value

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The ledger lines of the total, as in the JSON; empty if the answer has none."""
        lines: list[dict[str, Any]] = self._one().get("lines", [])
        return lines

    def _one(self) -> dict[str, Any]:
        if len(self.models) != 1:
            raise AttributeError(f"this report has {len(self.models)} models: use `.models`", obj=self)
        return self.models[0]

    def document(self) -> dict[str, Any]:
        """The JSON document: exact integers, stable keys."""
        document = {"schema": SCHEMA, "command": self.command, "answer": self.answer, "convention": self.convention}
        left_out = [dict(model) for model in self.models_skipped]
        of_no_model = {} if self.models or left_out else {"rows": self.rows}
        return {**document, "models": list(map(read, self.models)), "models_skipped": left_out, **of_no_model}

    def to_json(self) -> str:
        """The facts as JSON."""
        import json

        text = json.dumps(self.document(), indent=2, ensure_ascii=False)
        return _UNSAFE.sub(lambda sign: sign[0] if sign[0].isprintable() else json.dumps(sign[0])[1:-1], text)

    def to_csv(self) -> str:
        """The rows as CSV: raw numbers, no totals, so that a column can be summed."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(map(csv_cell, self.row_keys))
        writer.writerows([_written(cell) for cell in row.values()] for row in self.rows)
        return stream.getvalue()

    def labelled(self, digits: bool) -> Report:
        """The report; with every digit, columns in a unit are labelled as the bytes that they have."""
        unit = next((column.unit for column in self.columns if column.unit), "")
        if not digits or not unit:
            return self
        return replace(
            self, columns=tuple(one._replace(label=one.label.replace(unit, "bytes")) for one in self.columns)
        )

    def to_markdown(self, digits: bool = False) -> str:
        """The table, its totals in bold, and the notes; or the derivation as a document."""
        if self.derivation is not None:
            from tfacct.output import derivation

            return derivation.markdown(self.derivation, self.title, self.answer, self.shown_notes)
        columns = self.labelled(digits).written_columns
        out = [f"**{markdown(self.title)}**", "", *([markdown(self.answer), ""] if self.answer else [])]
        out.append(f"| {' | '.join(markdown(column.label) for column in columns)} |")
        out.append(f"|{'|'.join('---' if column.kind in LEFT else '---:' for column in columns)}|")
        for row, bold in [(row, "") for row in self.cells] + [(row, "**") for row in self.total_rows]:
            texts = [markdown(column.text(row.get(column.key), digits)) for column in columns]
            out.append(f"| {' | '.join(f'{bold}{text}{bold}' if text else '' for text in texts)} |")
        for note in self.shown_notes:
            out += ["", markdown(note)]
        return "\n".join(out) + "\n"

    def to_latex(self, digits: bool = False) -> str:
        """The table as a `tabular` environment with title, answer and notes in comments; or the derivation as an
        `align*` environment."""
        if self.derivation is not None:
            from tfacct.output import derivation

            return derivation.latex(self.derivation, self.title)
        columns, (cells, totals) = self.labelled(digits).written_columns, (self.cells, self.total_rows)
        about = [self.title, self.answer, r"needs \usepackage{booktabs}", *self.shown_notes]

        def line(texts: Iterable[str]) -> str:
            return f"{' & '.join(map(latex, texts))} \\\\"

        rows = [line(column.text(row.get(column.key), digits) for column in columns) for row in (*cells, *totals)]
        if totals:
            rows.insert(len(cells), r"\midrule")
        table = [
            rf"\begin{{tabular}}{{{''.join('l' if column.kind in LEFT else 'r' for column in columns)}}}",
            *(r"\toprule", line(column.label for column in columns), r"\midrule", *rows, r"\bottomrule"),
            r"\end{tabular}",
        ]
        return "\n".join([*(f"% {printable(text)}" for text in about if text), *table, ""])

    @property
    def written_columns(self) -> list[Column]:
        """The columns of the table in a document, which has no bars."""
        return [column for column in self.columns if column.raw]


def _with_note_keys(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts with `note_keys` after `notes`; a plain text has an empty key."""
    if "notes" not in facts:
        return facts
    keys = [note.key if isinstance(note, Note) else "" for note in facts["notes"]]
    entries = [(name, value) for name, value in facts.items() if name != "note_keys"]
    at = list(dict(entries)).index("notes") + 1
    return dict([*entries[:at], ("note_keys", keys), *entries[at:]])


AS_IT_IS = frozenset((int, str, bool, type(None)))
"""Types that JSON has."""
_UNSAFE = re.compile(r"[^ -~\n]")
"""Signs that JSON may have to escape."""


def plain(value: Any) -> Any:
    """A fraction as a number, an int if it is whole."""
    if type(value) in AS_IT_IS:  # nearly all values
        return value
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, LazySequence):
        return LazySequence(len(value), lambda: plain(list(value)))
    return value


def read(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts with all lazy values computed."""
    return {key: list(value) if isinstance(value, LazySequence) else value for key, value in facts.items()}


def _raw(cell: Cell, column: Column) -> list[Any]:
    """A cell for a program, or several cells if the column has several keys."""
    if isinstance(cell, tuple):
        return [plain(number) for number in cell] if column.keys else ["x".join(map(str, cell))]  # a shape is one cell
    return [plain(cell.value if isinstance(cell, Amount) else cell)] * (len(column.keys) or 1)


def _written(cell: Any) -> Any:
    return "" if cell is None else csv_cell(cell) if isinstance(cell, str) else cell
