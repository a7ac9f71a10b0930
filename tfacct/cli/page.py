"""The command that writes the page. (Annotations are not postponed: that keeps the start short.)"""

from typing import Annotated

import typer

from tfacct.cli import ask
from tfacct.cli import options as opt
from tfacct.cli.root import EXPLORE, command


@command(EXPLORE, "tfacct explore llama-3.1-8b --ctx 16k")
def explore(
    *,
    which: opt.Which,
    step: opt.Step,
    counted: opt.Counted,
    out: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="FILE.html, or - for stdout. Default: MODEL.html."),
    ] = None,
    shown: Annotated[bool, typer.Option("--open", help="Show it in your browser.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """A page that recounts every line as you turn its knobs: one HTML file that works offline."""
    from tfacct.reports import explore as pages

    if out == "-":
        ask.apart("--output -", {"--open": shown, "--force": force})
    elif out is not None:
        pages.check(out, force=force)
    subjects = ask.subjects(which)
    request, terms = ask.request(step, counted.logits), ask.counting(counted)
    page = pages.page(subjects, request, terms)
    if out == "-":
        typer.echo(page, nl=False)
        return
    ask.written(pages.save(page, out or pages.file_name(subjects), force=force), subjects, page, shown=shown)
