"""The program itself, and the panels its help is laid out in."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from tfacct.base.version import __version__
from tfacct.cli import ask
from tfacct.cli.errors import closed_pipe_ends

Function = TypeVar("Function", bound=Callable[..., None])
REGISTERED: dict[str, tuple[str, str, Callable[..., None]]] = {}
"""Every command by its name, with the panel of the help that it stands in, and an example."""

ALSO = {
    **{"context": "ctx", "seq-len": "ctx", "seqlen": "ctx", "batch-size": "batch", "bs": "batch"},
    **{"kept": "saved", "instant": "phase"},  # values
    **{"checkpoint": "recompute", "to-checkpoint": "to-recompute", "hold-logits": "keep-logits"},
    "gradient-accumulation-steps": "accumulate",
}
"""Other names of options and of their values, which the help does not show."""


class Plain:
    """A command whose help names no types of Python: `<bool>` behind a flag, `<list[str]>` behind MODEL."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options and arguments."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of the command that it is mixed into
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
            elif param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: None  # noqa: ARG005
        return params


class Command(Plain, TyperCommand):
    """One command."""


class Commands(Mapping[str, Any]):
    """The commands, each built when it is asked for: a run asks for one, and its options take a while."""

    def __getitem__(self, name: str) -> Any:
        panel, example, function = REGISTERED[name]
        alone = typer.Typer(add_completion=False)
        alone.command(cls=Command, rich_help_panel=panel, epilog=f"Example:  {example}")(_spread(function))
        return get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(REGISTERED)

    def __len__(self) -> int:
        return len(REGISTERED)


class Group(Plain, TyperGroup):
    """The program's commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands()  # type: ignore[assignment]  # nobody adds to them

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Their names, in the order of the help."""
        return list(REGISTERED)

    def make_context(self, *given: Any, **settings: Any) -> Any:
        """Read the command line, and print the help where it asks for it."""
        with closed_pipe_ends():
            return super().make_context(*given, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with closed_pipe_ends():
            return super().invoke(ctx)


app = typer.Typer(
    cls=Group,
    help="Count the parameters, FLOPs and memory of a transformer from its config.json.",
    epilog="Examples:  tfacct flops gpt2-xl --ctx 16k  ·  tfacct memory --dtype bf16  ·  tfacct flops - < config.json",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda token: ALSO.get(token, token),
    },
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)

ACCOUNT, ESTIMATE, EXPLORE, PRESETS, TRUST = "Account", "Estimate", "Explore", "Presets", "Trust"


def command(panel: str, example: str) -> Callable[[Function], Function]:
    """Registers a function as the command of its name, in a panel of the help, with an example of its use."""

    def register(function: Function) -> Function:
        REGISTERED[function.__name__] = panel, example, function
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
        ask.check_files([given[name] for name in groups])
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
    ctx: typer.Context,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Count the parameters, FLOPs and memory of a transformer from its config.json."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
