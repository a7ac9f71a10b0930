"""The program itself, and the panels its help is laid out in."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup
from typer.main import get_command

from tfacct.base.version import __version__

Function = TypeVar("Function", bound=Callable[..., None])
REGISTERED: dict[str, tuple[str, Callable[..., None]]] = {}
"""Every command by its name, with the panel of the help that it stands in."""


class Commands(Mapping[str, Any]):
    """The commands, each built when it is asked for: a run asks for one, and its options take a while."""

    def __getitem__(self, name: str) -> Any:
        panel, function = REGISTERED[name]
        alone = typer.Typer(add_completion=False)
        alone.command(rich_help_panel=panel)(_spread(function))
        return get_command(alone)

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
        REGISTERED[function.__name__] = panel, function
        return function

    return register


def _spread(function: Callable[..., None]) -> Callable[..., None]:
    """The function with every group of options spread out into its options, as typer reads them."""
    groups: dict[str, Any] = {}
    options: list[Parameter] = []
    for parameter in signature(function).parameters.values():
        if is_dataclass(group := parameter.annotation):
            groups[parameter.name] = group
            options += map(_option, fields(group))
        else:
            options.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(function)
    def command(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        function(**given)

    command.__signature__ = Signature(options)  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in options}
    return command


def _option(field: Any) -> Parameter:
    """A field of a group, as a parameter."""
    default = Parameter.empty if field.default is MISSING else field.default
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=field.type)


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
