"""Commands that show the presets. (Annotations are not postponed: that keeps the start short.)"""

from typing import Annotated

import typer

from tfacct.cli import ask, complete
from tfacct.cli import options as opt
from tfacct.cli.root import PRESETS, command


@command(PRESETS, "tfacct models llama 8b")
def models(
    *,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD",
            help="Only presets whose name or family contains this word; all words must match.",
            autocompletion=complete.family_or_model,
            show_default=False,
        ),
    ] = None,
    chosen: opt.Presets,
    output: opt.Output,
) -> None:
    """The presets, by family and size."""
    from tfacct.reports.models import models

    report = models(ask.listed(chosen, words or ()))
    ask.show(report, output)


@command(PRESETS, "tfacct devices h100-sxm")
def devices(
    *,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A device, or a TOML file of one.", autocompletion=complete.device),
    ] = None,
    template: Annotated[bool, typer.Option("--template", help="Print a file to begin your own device with.")] = False,
    output: opt.Output,
) -> None:
    """Cards and chips by name: peaks, memory, links, and where each was read."""
    from tfacct.loading import devices as known

    if template:
        ask.apart("--template", {"NAME": name, **ask.form(output)})
        typer.echo(known.TEMPLATE, nl=False)
        return
    from tfacct.reports.devices import devices

    ask.show(devices([known.load(one) for one in ([name] if name else known.paths())]), output)


@command(PRESETS, "tfacct show gpt2")
def show(
    *,
    one: opt.One,
    ledger: Annotated[
        bool, typer.Option("--ledger", help="Its lines instead, in letters: with --json for other programs.")
    ] = False,
    output: opt.Output,
) -> None:
    """One model's config, its source and its defaulted fields; or its ledger as data."""
    subject = ask.subject(one)
    if ledger:
        from tfacct.reports.ledger import ledger as lines

        ask.show(lines(subject), output)
        return
    from tfacct.reports.models import show

    ask.show(show(subject), output)
