"""A progress bar on stderr, gone when the work is done; nothing where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tfacct.report import Tick, unwatched


@contextmanager
def progress() -> Iterator[Tick]:
    """A callable for the rooms below, which know no progress bar."""
    if not sys.stderr.isatty():
        yield unwatched
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from tfacct.view.terminal import console

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task("", total=None)

        def tick(what: str, done: int, of: int) -> None:
            bar.update(task, description=what, completed=done, total=of)

        yield tick
