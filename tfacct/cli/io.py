"""Output of a command: its report on the screen, or in files."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tfacct.base.errors import UsageError, exclusive, printable
from tfacct.cli.parameters import PICTURES, endings_of, is_picture
from tfacct.commands import command as commands
from tfacct.options import Shown
from tfacct.output import signs

if TYPE_CHECKING:
    from tfacct.output.report import Report

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT."""


def check(show: Shown, command: commands.Command) -> None:
    """Raise UsageError for two output formats, or a file that cannot be written, before anything is counted."""
    if show.json + show.csv + show.markdown > 1:
        raise UsageError("--json, --csv and --markdown exclude one another: choose one")
    if show.limit is not None and show.limit < 0:
        raise UsageError(f"--limit must be 0 or more, not {show.limit}")
    if show.sort is not None and show.json:
        raise UsageError("--sort does not work with --json, which has no rows", "use --csv, which has rows")
    if show.force and not (show.output or command.writes or command.page):
        raise UsageError("--force needs --output FILE")
    if show.style != "light" and not any(is_picture(file) for file in show.output or ()):
        raise UsageError(f"--style {show.style} needs --output FILE{PICTURES[0]}")
    others = {"--csv": show.csv, "--sort": show.sort is not None} if show.explain else {}
    others |= {"--json": show.json, "--markdown": show.markdown, "--csv": show.csv} if show.latex else {}
    for other, given in others.items():
        if given:
            raise exclusive("--latex" if show.latex else "--explain", other)
    if command.page and show.output == ["-"]:
        for other, given in {"--open": show.open, "--force": show.force}.items():
            if given:
                raise exclusive("--output -", other)
    elif not command.writes:
        for file in show.output or ():
            file_path(show, file, command)


def file_path(show: Shown, file: str, command: commands.Command) -> Path:
    """The path of an output file. Raises UsageError if it cannot or must not be written."""
    from tfacct.output import files, plot

    if is_picture(file) and command.drawn:
        return plot.check(file, force=show.force)
    return files.check("output", file, endings_of(command), force=show.force)


def print_text(text: str) -> None:
    """Print a text; Markdown is rendered in a terminal."""
    if isinstance(text, commands.Markdown) and sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        without_links = re.sub(r"\[([^]]+)\]\((?!https?:)[^)]*\)", r"\1", text)  # to files that a terminal cannot open
        Console().print(Markdown(without_links))
    else:
        print(text, end="")


def show(found: commands.Found, show: Shown, command: commands.Command) -> None:
    """Print a report in the requested format. Files are written first: if one fails, nothing is printed."""
    if show.sort is not None:
        from tfacct.output.sorting import sorted_by

        rows = found.report.data if show.csv and found.report.data is not None else found.report
        found = found._replace(report=sorted_by(rows, show.sort))
    whole = found.report
    if show.limit and "limit" not in command.options:
        from tfacct.output.sorting import first_rows

        found = found._replace(report=first_rows(whole, show.limit))
    report = found.derived() if show.explain and found.derived is not None else found.report
    wrote = [_write(file, found, report, show, command) for file in show.output or () if not command.writes]
    if show.latex:
        print(signs.marked_down(_latex(found, report, show), sys.stdout), end="")
    elif show.json:
        print(signs.escaped(report.to_json(), sys.stdout))
    elif show.csv:
        print(report.to_csv(), end="")
    elif show.markdown:
        print(signs.marked_down(report.to_markdown(show.digits), sys.stdout), end="")
    else:
        from tfacct.output import terminal

        limit = 0 if "limit" in command.options or (command.whole and show.limit is None) else show.limit
        shown = whole if report is found.report else report  # a table counts the rows that it leaves out
        terminal.show(shown, digits=show.digits, verbose=show.verbose, limit=limit)
    for line in (*report.hints, *wrote):
        print(printable(line), file=sys.stderr)
    if report.interrupted:
        raise typer.Exit(INTERRUPTED)
    unfit = any((facts.get("fit") or {}).get("fits") is False for facts in report.models)
    if (command.fails == "disagrees" and not report.agrees) or (show.strict and (unfit or not report.agrees)):
        raise typer.Exit(1)


def _latex(found: commands.Found, report: "Report", show: Shown) -> str:
    """The formula of the answer, or its table or derivation, in LaTeX."""
    return report.to_latex(show.digits) if found.latex is None else found.latex()


def _write(file: str, found: commands.Found, derived: "Report", show: Shown, command: commands.Command) -> str:
    """Write an output file. Returns the message about it."""
    from tfacct.output import files, html

    path, report = file_path(show, file, command), found.report
    if is_picture(file):
        from tfacct.output import plot
        from tfacct.output.look import Look

        if found.chart is None:
            raise UsageError(f"--output {file}: this answer has no picture")
        chart = found.chart()
        plot.save(chart, path, Look(dark=show.style == "dark", printed=show.style == "print"))
        return f"drew {file}: {chart.title}"
    views: dict[str, Callable[[], str]] = {
        ".json": report.to_json,
        ".csv": report.to_csv,
        ".md": lambda: report.to_markdown(show.digits),
        ".html": lambda: html.page(report, show.digits),
        ".tex": lambda: _latex(found, derived, show),
    }
    files.write_text("output", path, views[path.suffix.lower()]())
    return f"wrote {file}"


def save(page: commands.Page, show: Shown, command: commands.Command) -> None:
    """Write a page, print a message about it, and open it with --open."""
    from tfacct.output import files

    file = (show.output or [page.file_name])[-1]
    if file == "-":
        print(page.html, end="")
        return
    path = file_path(show, file, command)
    files.write_text("output", path, page.html)
    size = f"{len(page.html.encode()):,} bytes"
    print(printable(f"wrote {path.name}: {page.about}{size}; opens in any browser, works offline"), file=sys.stderr)
    for line in page.hints:
        print(printable(line), file=sys.stderr)
    if show.open:
        import webbrowser

        webbrowser.open(path.as_uri())
