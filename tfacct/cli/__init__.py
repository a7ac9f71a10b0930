"""The command line: parses options, asks for one report, prints it."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys

from tfacct.output import signs, width

THRESHOLD = 1_000_000
"""New objects between two garbage collections. A report makes fewer; the default, 700, would collect a hundred
times."""


def main() -> None:
    """Run the command line. A wrong use prints one message on stderr and exits with 2."""
    gc.set_threshold(THRESHOLD)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # otherwise it searches every package
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123  closed: or errors would go to stdout
    for stream in (sys.stdout, sys.stderr):
        signs.fall_back(stream)
    width.raise_to_narrowest()
    atexit.register(gc.freeze)  # or the end of the process searches all of torch for cycles
    from tfacct.base.errors import TfacctError
    from tfacct.base.spelling import on_command_line
    from tfacct.cli import errors
    from tfacct.cli.app import app

    try:
        if sys.stdout is None:
            raise TfacctError("the output cannot be written: stdout is closed")
        with on_command_line():
            code = app(prog_name="tfacct", standalone_mode=False)
    except TfacctError as error:
        errors.complain(error)
        code = 2
    except errors.UnparsedError as error:
        errors.complain(errors.usage_error(error))
        code = 2
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            raise
        errors.complain(TfacctError(f"the output cannot be written: {error.strerror}"))
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  what is left in the buffer has nowhere to go
        code = 2
    if code:
        sys.exit(code)
