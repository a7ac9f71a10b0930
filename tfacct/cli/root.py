"""The program itself, and the panels its help is laid out in."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup
from typer.main import get_command

from tfacct import __version__

Function = TypeVar("Function", bound=Callable[..., None])
REGISTERED: dict[str, typer.Typer] = {}
"""Every command by its name, each as a program of its own."""


class Commands(Mapping[str, Any]):
    """The commands, each built when it is asked for: a run asks for one, and its options take a while."""

    def __getitem__(self, name: str) -> Any:
        return get_command(REGISTERED[name])

    def __iter__(self) -> Iterator[str]:
        return iter(REGISTERED)

    def __len__(self) -> int:
        return len(REGISTERED)


class Group(TyperGroup):
    """The program's commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands()  # type: ignore[assignment]  # nobody adds to them

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Their names, in the order of the help."""
        return list(REGISTERED)


app = typer.Typer(
    cls=Group,
    help="Count the parameters, FLOPs and memory of a transformer from its config.json.",
    epilog="Examples:  tfacct flops gpt2-xl --ctx 16k  ·  tfacct memory --dtype bf16  ·  tfacct flops - < config.json",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

ACCOUNT, EXPLORE, PRESETS, TRUST = "Account", "Explore", "Presets", "Trust"


def command(panel: str) -> Callable[[Function], Function]:
    """Registers a function as the command of its name, in a panel of the help."""

    def register(function: Function) -> Function:
        alone = REGISTERED[function.__name__] = typer.Typer(add_completion=False)
        return alone.command(rich_help_panel=panel)(function)

    return register


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
