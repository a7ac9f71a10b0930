"""A progress bar or spinner on stderr, removed at the end; nothing if stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tfacct.base.errors import printable
from tfacct.output.report import Tick, unwatched


@contextmanager
def progress() -> Iterator[Tick]:
    """A function that shows progress, to be passed to the work."""
    if not sys.stderr.isatty():
        yield unwatched
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from tfacct.output.terminal import console

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console(sys.stderr),
        transient=True,
    )
    task = bar.add_task("", total=None)

    def tick(what: str, done: int, of: int) -> None:
        if not bar.live.is_started:  # nothing is shown for work that takes less than a second
            bar.start()
        bar.update(task, description=what, completed=done, total=of)

    try:
        yield tick
    finally:
        bar.stop()


@contextmanager
def spinner() -> Iterator[Callable[[str], None]]:
    """A function that shows what the program waits for, until the block ends."""
    with ExitStack() as shown:

        def waiting(what: str) -> None:
            if not sys.stderr.isatty():
                return
            from rich.text import Text

            from tfacct.output.terminal import console

            shown.enter_context(console(sys.stderr).status(Text(printable(what))))

        yield waiting
