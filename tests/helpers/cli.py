"""The command line in this process: what it printed, and a limit of its CPU time."""

import contextlib
import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass
class Ran:
    """One run of the command line."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What `--json` prints."""
        return json.loads(self.out)

    @property
    def models(self) -> Any:
        return self.document["models"]

    @property
    def out_line(self) -> str:
        """The output in one line, as it would be in a wide terminal."""
        return " ".join(self.out.split())

    @property
    def err_line(self) -> str:
        return " ".join(self.err.split())


Run = Callable[..., Ran]
"""The fixture `run`."""


@contextlib.contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Fail after so much CPU time of this process: other work on the machine changes nothing."""

    def stop(*_: object) -> None:
        pytest.fail(f"it takes more than {seconds:g} s of CPU time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
