"""Runs a command: typed options → its function → the report on the screen or in files."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import typer

from tfacct import options as opt
from tfacct.base import units
from tfacct.base.errors import NotFoundError, TfacctError, UsageError, exclusive
from tfacct.base.spelling import shell_option
from tfacct.cli import io, one_value
from tfacct.cli.parameters import parameters_of, read_value
from tfacct.commands import command as commands
from tfacct.commands.command import Command
from tfacct.loading.overrides import read_overrides
from tfacct.options import Shown, Which

if TYPE_CHECKING:  # these import pydantic, which help and completion do not need
    from tfacct.loading.model import LoadedModel


def run(command: Command, given: Mapping[str, Any]) -> None:
    """Answer a command line."""
    parameters, own_options = parameters_of(command), command.options
    one_value.check(command, given)
    options = {name: read_value(parameters[name], value) for name, value in given.items()}
    show = Shown(**{name: options[name] for name in Shown._fields if name in options and name not in own_options})
    which = Which(**{name: options[name] for name in Which._fields if name in options and name not in own_options})
    io.check(show, command)
    typed = {name for name in own_options if options[name] != parameters[name].default}
    variant = next((name for name in command.variants if command.variants[name].chosen(name, options)), "")
    function = command.variants[variant].function if variant else command.function
    taken = commands.options_of(function)
    for name in sorted(typed - taken.keys() - {variant}, key=list(options).index):
        raise _misplaced(command, variant, name, options)
    if show.explain:
        for name in command.explained or ():
            if name in typed:
                raise exclusive("--explain", typed_as(name, options[name]))
    arguments = {name: options[name] for name in taken}
    if command.of_family and "family" in signature(function).parameters:
        arguments["family"] = _is_family(which.model)
    with _progress():
        try:
            found = function(*_models(command, variant, which, typed), **arguments)
        except NotFoundError as error:
            error.hint = _meant_option(command, error.message, which) or error.hint
            raise
        except KeyboardInterrupt:
            print("interrupted before the first result", file=sys.stderr)
            raise typer.Exit(io.INTERRUPTED) from None
    if isinstance(found, commands.Page):
        io.save(found, show, command)
    elif show.explain and found.derived is None:
        raise exclusive("--explain", shell_option(variant))
    elif isinstance(found, str):
        for name in Shown._fields:
            is_json = name == "json" and found.startswith("{")
            if name not in typed and getattr(show, name) != Shown._field_defaults[name] and not is_json:
                if variant:
                    raise exclusive(shell_option(variant), shell_option(name))
                raise UsageError(f"{shell_option(name)} does not work with text output")
        io.print_text(found)
    else:
        io.show(found, show, command)


def typed_as(name: str, value: Any) -> str:
    """An option as it was typed, with its value if that is one of a few words."""
    return f"{shell_option(name)} {value}" if name in ("by", "part", "recompute") else shell_option(name)


def _meant_option(command: Command, message: str, which: Which) -> str | None:
    """Hint for a MODEL that is the value of an option, as in `tfacct formula flops`, or a field of --set; None for
    other names."""
    for word in which.models or [which.model]:
        if re.fullmatch(r"[A-Za-z_][\w.]*=.*", word) and message.endswith(f"named {word!r}"):
            return f"--set {word}"
        for name, parameter in command.options.items():
            if word and word in opt.choices(parameter.annotation) and message.endswith(f"named {word!r}"):
                model = command.examples[0].split()[2]
                return f"name a model first: `tfacct {command.name} {model} {shell_option(name)} {word}`"
    return None


def _misplaced(command: Command, variant: str, name: str, given: Mapping[str, Any]) -> UsageError:
    """The error for an option that this answer does not take."""
    value = given[name]
    annotation = command.options[name].annotation
    typed = opt.typed(name, annotation).strip("[]…") if opt.of(annotation).argument else typed_as(name, value)
    if variant:
        return exclusive(shell_option(variant), typed)
    needs, one = next(two for two in command.variants.items() if name in commands.options_of(two[1].function))
    if one.unless and given.get(one.unless) is not None:
        return exclusive(typed_as(name, value), shell_option(one.unless))
    about = opt.of(command.options[needs].annotation).help.partition(". ")[0].rstrip(".")
    return UsageError(f"{typed} needs {shell_option(needs)}", f"{shell_option(needs)}: {about}")


@contextmanager
def _progress() -> Iterator[None]:
    """Show a progress bar for long work if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from tfacct.output.progress import progress

    with progress() as tick:
        commands.SHOWN.append(tick)
        try:
            yield
        finally:
            commands.SHOWN.remove(tick)


def _models(command: Command, variant: str, which: Which, typed: set[str]) -> tuple[Any, ...]:
    """The function's first argument: the models, the model, or none."""
    if which.part == "both":
        for name in command.not_both:
            if name in typed:
                raise exclusive("--part both", shell_option(name))
    takes = commands.takes(command.variants[variant].function if variant else command.function)
    if takes == "model":
        names = [which.model] if command.takes == "model" else list(which.models or ())
        for name in ("family", "max_params", "part"):
            if getattr(which, name) is not None:
                raise exclusive(shell_option(variant), shell_option(name))
        if len(names) != 1:
            given = f"{len(names)} were given" if names else "none was given"
            raise UsageError(f"{shell_option(variant)} takes one MODEL: {given}")
        return (_one(command, names[0], which),)
    if takes == "models":
        few = command.variants[variant].few if variant else ()
        if few and not (which.models or which.family or which.max_params or which.part):
            return ([find(name, read_overrides(which.sets or ())) for name in few],)
        counted = command.variants[variant].counts_projector if variant else ""
        if not (command.every_preset or which.models):
            raise UsageError(f"{command.name} needs a MODEL", f"such as {command.examples[0]}")
        return (named(which, counted or command.counts_projector),)
    return ()


def _one(command: Command, name: str, which: Which) -> "LoadedModel":
    """The model with this name; for a family, its largest preset if the command accepts families."""
    changed = read_overrides(which.sets or ())
    if not command.of_family:
        return find(name, changed)
    from tfacct import families

    return commands.largest(name, changed) if _is_family(name) else find(name, changed, families.names())


def _is_family(name: str) -> bool:
    """True for the name of a family that is not also a preset."""
    from tfacct import families
    from tfacct.loading import presets

    return name in families.names() and name not in presets.names()


def named(which: Which, counts_projector: Any = "nothing") -> "list[LoadedModel]":
    """The named models; without names, every preset that matches the filters."""
    changed = read_overrides(which.sets or ())
    if which.models:
        if which.family is not None or which.max_params is not None:
            raise UsageError("--family and --max-params select presets: leave the MODEL out")
        if which.part is None:
            return _distinct([find(model, changed) for model in which.models])
        if which.part != "both":
            return [find(model).of_part(which.part, changed) for model in which.models]
        if changed:
            raise UsageError("--set changes one part, not --part both", "use --part text, vision or audio")
        return [part for model in which.models for part in find(model).of_parts(counts_projector)]
    if which.part is not None:
        raise UsageError("--part works with one MODEL: name one")
    from tfacct.loading import presets

    limit = None if which.max_params is None else units.read_count("--max-params", which.max_params)
    try:
        return presets.load_all(changed, family=which.family, max_params=limit)
    except TfacctError as error:
        if changed:
            error.hint = "--set without a MODEL changes every preset: name one, or select with --family"
        raise


def _distinct(models: "list[LoadedModel]") -> "list[LoadedModel]":
    """The models, with their path as the name if folders or files have the same name."""
    names = [model.name for model in models]
    if len(set(names)) == len(names):
        return models
    paths: dict[str, set[str]] = {}
    for model in models:
        paths.setdefault(model.name, set()).add(model.path or "")
    return [replace(model, name=model.path or model.name) if len(paths[model.name]) > 1 else model for model in models]


def find(model: str, changed: Mapping[str, Any] | None = None, also: Sequence[str] = ()) -> "LoadedModel":
    """The named model, with a spinner while the hub answers."""
    from tfacct.loading import find as sources
    from tfacct.output.progress import spinner

    with spinner() as waiting:
        return sources.find(model, changed, also, waiting=waiting)
