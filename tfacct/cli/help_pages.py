"""Help of the program, short help of a command (one screen), full help of a command."""

import textwrap
from collections.abc import Iterable, Mapping
from inspect import Parameter
from shutil import get_terminal_size

from tfacct.cli.parameters import parameters_of
from tfacct.commands import PANELS
from tfacct.commands.command import Command
from tfacct.options import of, typed
from tfacct.output import width

SCREEN = 24
"""Most lines of a short help."""
NARROW = 80
"""Most columns of a help."""


def overview(commands: Mapping[str, Command]) -> str:
    """Every command with its summary."""
    from tfacct.commands.help import TOPICS

    lines = [
        "Count parameters, FLOPs and memory of transformers from their configs.",
        "Usage: tfacct COMMAND [MODEL]… [OPTIONS]   MODEL: preset, config.json, hub id",
    ]
    for panel, names in PANELS.items():
        heads = (panel, *("" for _ in names[1:]))
        lines += [
            f"{head:9}{name:10}{commands[name].summary.rstrip('.')}" for head, name in zip(heads, names, strict=True)
        ]
    lines.append(f"{'Topics':9}{', '.join([*TOPICS][:5])}, cs336, …: tfacct help topics")
    lines.append("tfacct flops gpt2-xl --ctx 16k  ·  tfacct memory llama-3.1-8b --on h100")
    return _text(lines)


def short(command: Command) -> str:
    """The short help of a command: its own options, names of the shared options, examples."""
    parameters = parameters_of(command)
    own = [name for name, one in parameters.items() if not of(one.annotation).group and not _hidden(one)]
    metavars = {name: typed(name, one.annotation) for name, one in parameters.items()}
    arguments = " ".join(metavars[name] for name in own if of(parameters[name].annotation).argument)
    usage = f"Usage: tfacct {command.name} {arguments}{' ' if arguments else ''}[OPTIONS]"
    lines = [command.summary, f"{usage}   MODEL: preset, config.json, hub id" if command.takes else usage, ""]
    rows = [
        (metavars[name], _first(of(parameters[name].annotation).help))
        for name in own
        if name not in ("models", "model") or not of(parameters[name].annotation).argument
    ]
    lines += [*_rows(rows, cut=True), ""] if rows else []
    groups: dict[str, list[str]] = {}
    for name, one in parameters.items():
        if (group := of(one.annotation).group) and not _hidden(one):
            spelled = {"verbose": "-v", "sets": metavars[name], "fields": metavars[name]}
            groups.setdefault(group, []).append(spelled.get(name, metavars[name].split()[0]))
    lines += [_names(group, names) for group, names in groups.items()]
    lines += ["", *command.examples, f"tfacct {command.name} --help-all lists every option."]
    return _text(lines)


def full(command: Command) -> str:
    """The full help of a command: every option, by group."""
    parameters = parameters_of(command)
    metavars = {name: typed(name, one.annotation) for name, one in parameters.items()}
    lines, before = [command.summary, ""], ""
    for name, one in parameters.items():
        about = of(one.annotation)
        if about.group and about.group != before:
            lines += ["", about.group]
            before = about.group
        lines += _rows([(metavars[name], about.help)], cut=False)
    return _text([*lines, "", *command.examples])


def _hidden(parameter: Parameter) -> bool:
    return bool(of(parameter.annotation).advanced)


def _first(text: str) -> str:
    """The first sentence."""
    return text.partition(". ")[0].rstrip(".")


def _rows(rows: Iterable[tuple[str, str]], *, cut: bool) -> list[str]:
    """Lines of two columns; `cut` shortens a long text to one line."""
    rows, found = list(rows), []
    left = min(26, max(len(name) for name, _ in rows) + 2) if cut else 24
    for name, text in rows:
        start = max(left, len(name) + 2)
        first, *rest = textwrap.wrap(text, max(_width() - 4 - start, 20), break_on_hyphens=False) or [""]
        found.append(f"  {name:{start}}{first}{' …' if cut and rest else ''}")
        found += [
            " " * (left + 2) + line
            for line in ([] if cut else textwrap.wrap(" ".join(rest), _width() - 4 - left, break_on_hyphens=False))
        ]
    return found


def _names(group: str, names: list[str]) -> str:
    return textwrap.fill(
        " ".join(names), _width(), initial_indent=f"{group:9}", subsequent_indent=" " * 9, break_on_hyphens=False
    )


def _width() -> int:
    return min(NARROW, width.columns() or get_terminal_size().columns)


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
