"""The command that checks somebody's own code. (Annotations are not postponed: that keeps the start short.)"""

from enum import StrEnum
from typing import Annotated

import typer

from tfacct.base.errors import UsageError, cut
from tfacct.cli import ask, complete
from tfacct.cli import options as opt
from tfacct.cli.root import TRUST, command


class DeviceChoice(StrEnum):
    """Devices that somebody's module is built on and runs on."""

    meta = "meta"
    cpu = "cpu"


@command(TRUST, "tfacct check model.py:build --config gpt2")
def check(
    *,
    factory: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FACTORY",
            help="A file or module, and its function without arguments that returns a torch module, or the module and"
            " its inputs.",
            show_default=False,
        ),
    ],
    config: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="Preset, path to a config.json or a TOML, hub id, or - for stdin.",
            autocompletion=complete.model,
            show_default=False,
        ),
    ],
    sets: opt.Sets = None,
    input_shape: Annotated[
        str | None,
        typer.Option(
            metavar="B,T",
            help="Sequences, and tokens of each, that it runs on. Default: 1, and the context, at most 128.",
            show_default=False,
        ),
    ] = None,
    map_: Annotated[
        str | None,
        typer.Option("--map", metavar="FILE", help="TOML that says which tensor of the code is which of the config."),
    ] = None,
    propose_map: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write such a TOML, of the pairs that were found.")
    ] = None,
    device: Annotated[
        DeviceChoice, typer.Option(help="Where it is built and runs: meta computes nothing, cpu everything.")
    ] = DeviceChoice.meta,
    train: Annotated[
        bool,
        typer.Option("--train", help="Also what a step in bf16 keeps for its gradients, against transformers."),
    ] = False,
    output: opt.Output,
) -> None:
    """Check your own torch module against a config: tensors, FLOPs, cache. Needs torch; allocates no weights."""
    from tfacct.loading import maps
    from tfacct.output.progress import spinner
    from tfacct.reports.check import Asked
    from tfacct.reports.check import check as checked

    batch, tokens = (1, None) if input_shape is None else _shape(input_shape)
    asked = Asked(
        batch=batch,
        tokens=tokens,
        device=device.value,
        paths=None if map_ is None else maps.read(map_),
        propose=propose_map,
        train=train,
    )
    subject = ask.subject(opt.One(config, sets))
    with spinner() as waiting:
        waiting(factory)
        report = checked(subject, factory, factory, asked)
    ask.show(report, output)
    if not report.agrees:
        raise typer.Exit(1)


def _shape(text: str) -> tuple[int, int]:
    """Sequences and tokens."""
    from tfacct.base import units

    words = text.split(",")
    if len(words) != 2:
        raise UsageError(
            f"--input-shape is two sizes, sequences and tokens, not {cut(text)!r}", "such as --input-shape 2,64"
        )
    batch, tokens = (units.read_tokens("--input-shape", word.strip()) for word in words)
    return batch, tokens
