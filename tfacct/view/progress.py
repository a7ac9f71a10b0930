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

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console(sys.stderr),
        transient=True,
    )
    task = bar.add_task("", total=None)

    def tick(what: str, done: int, of: int) -> None:
        if not bar.live.is_started:  # whoever has nothing to say in the first second shows nothing
            bar.start()
        bar.update(task, description=what, completed=done, total=of)

    try:
        yield tick
    finally:
        bar.stop()
