"""The program itself, and the panels its help is laid out in."""

from typing import Annotated

import typer

from tfacct import __version__

app = typer.Typer(
    help="Count the parameters, FLOPs and memory of a transformer from its config.json.",
    epilog="Examples:  tfacct flops gpt2-xl --ctx 16k  ·  tfacct memory --dtype bf16  ·  tfacct flops - < config.json",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

ACCOUNT, EXPLORE, PRESETS, TRUST = "Account", "Explore", "Presets", "Trust"


def _version(asked: bool) -> None:
    if asked:
        print(f"tfacct {__version__}")
        raise typer.Exit


@app.callback()
def tfacct(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Count the parameters, FLOPs and memory of a transformer from its config.json."""
