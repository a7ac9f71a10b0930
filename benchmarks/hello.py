"""The floor: a command line with as many commands as tfacct, one validated model and one table.

Its time is that of Python, typer, pydantic and rich. All further time of a command is tfacct's own.
"""

from __future__ import annotations

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

app = typer.Typer()


class Rows(BaseModel):
    """How many rows the table has."""

    count: int


@app.command()
def hello() -> None:
    """Print a table of ten rows."""
    table = Table("row", "square")
    for row in range(Rows(count=10).count):
        table.add_row(str(row), str(row * row))
    Console().print(table)


def nothing() -> None:
    """A command that is not run."""


for name in "flops params memory kv formula diff sweep solve models show verify".split():
    app.command(name)(nothing)

if __name__ == "__main__":
    app()
