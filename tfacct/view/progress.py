"""A progress bar on stderr, gone when the work is done; nothing where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tick = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and of how many."""


@contextmanager
def progress() -> Iterator[Tick]:
    """A callable for the rooms below, which know no progress bar."""
    if not sys.stderr.isatty():
        yield lambda what, done, of: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from tfacct.view.terminal import console

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task("", total=None)

        def tick(what: str, done: int, of: int) -> None:
            bar.update(task, description=what, completed=done, total=of)

        yield tick
