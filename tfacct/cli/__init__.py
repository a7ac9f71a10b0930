"""The command line: parse, ask one report, show it. No arithmetic."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys

from tfacct.output import signs

THRESHOLD = 1_000_000
"""New objects between two searches for cycles. Reports make fewer; the default of 700 searches a hundred times."""


def main() -> None:
    """Run the command line; a user's mistake is one message on stderr and exit code 2."""
    gc.set_threshold(THRESHOLD)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # or it looks through every package
    for stream in (sys.stdout, sys.stderr):
        signs.fall_back(stream)
    atexit.register(gc.freeze)  # or the end of the process searches all of torch for cycles
    from tfacct.base.errors import TfacctError
    from tfacct.base.spelling import as_in_a_shell
    from tfacct.cli.app import app

    try:
        with as_in_a_shell():
            app(prog_name="tfacct")
    except TfacctError as error:
        from tfacct.output import terminal

        terminal.complain(error.lines())
        sys.exit(2)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            raise
        print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  what is left in the buffer has nowhere to go
        sys.exit(2)
