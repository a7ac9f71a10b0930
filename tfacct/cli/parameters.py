"""Parameters of a command on the command line: its own options, shared options, and those of the output."""

from collections.abc import Iterator
from inspect import Parameter
from typing import Annotated, Any, Literal, get_args, get_origin

from tfacct import options as opt
from tfacct.base import units
from tfacct.base.spelling import shell_option
from tfacct.commands.command import Command
from tfacct.options import Shown, Which

PICTURES = (".png", ".svg", ".pdf")
SHORT = {"verbose": ("-v",), "output": ("-o",)}
"""Options with a short form."""


def parameters_of(command: Command) -> dict[str, Parameter]:
    """Parameters of a command by Python name: arguments, own options, shared groups, output."""
    found: dict[str, Parameter] = {}
    if command.takes == "models":
        filters = ("family", "max_params") if command.every_preset else ()
        found |= {one.name: one for one in _declared(Which, "models", "sets", *filters, "part")}
        if not command.every_preset:
            found["models"] = _described(found["models"], help=opt.MODEL_HELP, metavar="MODEL…")
    elif command.takes == "model":
        found |= {one.name: one for one in _declared(Which, "model", "sets")}
    if command.of_family:
        found[command.takes] = _described(found[command.takes], complete="family_or_model")
    if "fields" in command.options:  # the command has its own option for fields
        found.pop("sets", None)
    found |= command.options
    shown = ["output", "force", "open"] if command.page else [*Shown._fields[:-4]]
    if command.fails == "strict":
        shown.append("strict")
    if command.explained is not None:
        shown.append("explain")
    if command.explained is not None or command.latex:
        shown.append("latex")
    if not command.drawn:
        shown = [name for name in shown if name != "style"]
    of_output = {one.name: one for one in _declared(Shown, *shown)}
    if not command.writes:
        files = f"Also write a file: {', '.join(endings_of(command))}."
        page = "File to write: FILE.html, or - for stdout."
        of_output["output"] = _described(of_output["output"], help=page if command.page else files)
    found |= {name: one for name, one in of_output.items() if name not in found}
    order = (None, *opt.GROUPS)
    return dict(sorted(found.items(), key=lambda one: order.index(opt.of(one[1].annotation).group)))


def _declared(group: type, *names: str) -> Iterator[Parameter]:
    """Parameters for fields of a NamedTuple."""
    for name in names:
        default = Parameter.empty if name == "model" else group._field_defaults[name]  # type: ignore[attr-defined]
        annotation = group.__annotations__[name]
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _described(parameter: Parameter, **about: str) -> Parameter:
    """A parameter whose option has another help, metavar or completion."""
    kind, described = get_args(parameter.annotation)
    return parameter.replace(annotation=Annotated[kind, described._replace(**about)])


def is_picture(file: str) -> bool:
    return file.lower().endswith(PICTURES)


def endings_of(command: Command) -> tuple[str, ...]:
    """File endings that a command can write."""
    if command.page:
        return (".html",)
    return (".json", ".csv", ".md", ".html", ".tex", *PICTURES * command.drawn)


def read_value(parameter: Parameter, value: Any) -> Any:
    """A typed value as the function takes it; whole numbers are parsed from text such as `16k` or `1e6`."""
    kinds = {opt.plain(parameter.annotation), *get_args(opt.plain(parameter.annotation))}
    if isinstance(value, str):
        if any(get_origin(kind) is Literal and isinstance(get_args(kind)[0], int) for kind in kinds):
            return int(value)
        if int in kinds and str not in kinds:
            return units.read_integer(shell_option(parameter.name), value)
        if parameter.default == 1 and value == "1":
            return 1
    return value
