"""The typer app. Builds each command from its function's signature, on first use."""

from collections.abc import Iterator, Mapping
from functools import cache
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from tfacct import options as opt
from tfacct.base.spelling import shell_option
from tfacct.base.version import __version__
from tfacct.cli import complete, help_pages, run, spellings
from tfacct.cli.errors import closed_pipe_ends
from tfacct.cli.parameters import SHORT, parameters_of
from tfacct.commands import NAMES
from tfacct.commands.command import command_of


class Options(TyperCommand):
    """One command, with its help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the short help."""
        formatter.write(help_pages.short(command_of(self.name or "")))


class Commands(Mapping[str, Any]):
    """The commands by name, each built on first use."""

    def __getitem__(self, name: str) -> Any:
        if name not in NAMES:
            raise KeyError(name)
        return built(name)

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


class Group(TyperGroup):
    """The program's commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands()  # type: ignore[assignment]  # never changed

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The names of the commands, in the order of the help."""
        return list(NAMES)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the help of the program."""
        formatter.write(help_pages.overview({name: command_of(name) for name in NAMES}))

    def make_context(self, info_name: Any, args: list[str], *given: Any, **settings: Any) -> Any:
        """Parse the command line; print the full help for --help-all."""
        with closed_pipe_ends():
            return super().make_context(
                info_name, spellings.read(args, quiet=settings.get("resilient_parsing", False)), *given, **settings
            )

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with closed_pipe_ends():
            return super().invoke(ctx)


app = typer.Typer(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": spellings.normalized},
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


@cache
def built(name: str) -> Any:
    """The typer command of a command."""
    command = command_of(name)

    def answer(help_all: bool = False, **given: Any) -> None:  # noqa: ARG001
        run.run(command, given)

    def show_all(given: bool) -> None:
        if given:
            typer.echo(help_pages.full(command), nl=False)
            raise typer.Exit

    every = Annotated[bool, typer.Option("--help-all", help="Show every option.", callback=show_all, is_eager=True)]
    parameters = [_typed(one) for one in parameters_of(command).values()]
    parameters.append(Parameter("help_all", Parameter.KEYWORD_ONLY, default=False, annotation=every))
    parameters.sort(key=lambda one: not _is_argument(one))
    answer.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    answer.__annotations__ = {one.name: one.annotation for one in parameters}
    alone = typer.Typer(add_completion=False)
    alone.command(name, cls=Options)(answer)
    return get_command(alone)


def _is_argument(parameter: Parameter) -> bool:
    return isinstance(parameter.annotation.__metadata__[0], typer.models.ArgumentInfo)


def _typed(parameter: Parameter) -> Parameter:
    """A parameter for typer. Numbers are declared as text, which `run` parses; flags have no `--no-` form."""
    about, kind, default = opt.of(parameter.annotation), opt.plain(parameter.annotation), parameter.default
    kinds = (kind, *get_args(kind))
    typed: Any = str
    if choices := opt.choices(parameter.annotation):
        typed = Literal[tuple(map(str, choices))]
    elif any(get_origin(one) is list for one in kinds):
        typed = list[str]
    elif kind is bool or (float in kinds and str not in kinds):
        typed = bool if kind is bool else float
    if typed not in (bool, float) and default not in (None, Parameter.empty):
        default = str(default)
    completion = getattr(complete, about.complete) if about.complete else None
    if about.argument:
        declared: Any = typer.Argument(metavar=about.metavar, help=about.help, autocompletion=completion)
    else:
        declared = typer.Option(
            *SHORT.get(parameter.name, ()),
            shell_option(parameter.name),
            metavar=about.metavar,
            help=about.help,
            autocompletion=completion,
        )
    return parameter.replace(
        kind=Parameter.KEYWORD_ONLY,
        annotation=Annotated[typed | None if default is None else typed, declared],
        default=default,
    )


def _version(given: bool) -> None:
    if given:
        print(f"tfacct {__version__}")
        raise typer.Exit


@app.callback()
def tfacct(
    ctx: typer.Context,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Count parameters, FLOPs and memory of transformers from their configs."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
