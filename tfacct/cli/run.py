"""Runs a command: typed options → its function → the report on the screen or in files."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from tfacct import options as opt
from tfacct.base import units
from tfacct.base.errors import NotFoundError, TfacctError, UsageError, printable
from tfacct.base.spelling import for_each, shell_option, typed_options
from tfacct.cli import spellings
from tfacct.commands import command as commands
from tfacct.commands.command import Command, Found
from tfacct.ledger.workload import TRAINING_RUN
from tfacct.loading.overrides import read_overrides
from tfacct.options import Shown, Which
from tfacct.output import signs

if TYPE_CHECKING:  # these import pydantic, which help and completion do not need
    from tfacct.loading.model import LoadedModel
    from tfacct.output.report import Report

PICTURES = (".png", ".svg", ".pdf")
INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT."""


SHORT = {"verbose": ("-v",), "output": ("-o",)}
"""Options with a short form."""


def _is_picture(file: str) -> bool:
    return file.lower().endswith(PICTURES)


def check(show: Shown, command: Command) -> None:
    """Raise UsageError for two output formats, or a file that cannot be written, before anything is counted."""
    if show.json + show.csv + show.markdown > 1:
        raise UsageError("--json, --csv and --markdown exclude one another: choose one")
    if show.limit is not None and show.limit < 0:
        raise UsageError(f"--limit must be 0 or more, not {show.limit}")
    if show.sort is not None and show.json:
        raise UsageError("--sort does not work with --json, which has no rows", "use --csv, which has rows")
    if show.force and not (show.output or command.writes or command.page):
        raise UsageError("--force needs --output FILE")
    if show.style != "light" and not any(_is_picture(file) for file in show.output or ()):
        raise UsageError(f"--style {show.style} needs --output FILE{PICTURES[0]}")
    others = {"--csv": show.csv, "--sort": show.sort is not None} if show.explain else {}
    others |= {"--json": show.json, "--markdown": show.markdown, "--csv": show.csv} if show.latex else {}
    for other, given in others.items():
        if given:
            raise _apart("--latex" if show.latex else "--explain", other)
    if command.page and show.output == ["-"]:
        for other, given in {"--open": show.open, "--force": show.force}.items():
            if given:
                raise _apart("--output -", other)
    elif not command.writes:
        for file in show.output or ():
            file_path(show, file, command)


def file_path(show: Shown, file: str, command: Command) -> Path:
    """The path of an output file. Raises UsageError if it cannot or must not be written."""
    from tfacct.output import files, plot

    if _is_picture(file) and command.drawn:
        return plot.check(file, force=show.force)
    return files.check("output", file, endings_of(command), force=show.force)


def endings_of(command: Command) -> tuple[str, ...]:
    """File endings that a command can write."""
    if command.page:
        return (".html",)
    return (".json", ".csv", ".md", ".html", ".tex", *PICTURES * command.drawn)


def _declared(group: type, *names: str) -> Iterator[Parameter]:
    """Parameters for fields of a NamedTuple."""
    for name in names:
        default = Parameter.empty if name == "model" else group._field_defaults[name]  # type: ignore[attr-defined]
        annotation = group.__annotations__[name]
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def parameters_of(command: Command) -> dict[str, Parameter]:
    """Parameters of a command by Python name: arguments, own options, shared groups, output."""
    found: dict[str, Parameter] = {}
    if command.takes == "models":
        filters = ("family", "max_params") if command.every_preset else ()
        found |= {one.name: one for one in _declared(Which, "models", "sets", *filters, "part")}
        if not command.every_preset:
            kind, about = get_args(found["models"].annotation)
            about = about._replace(help=opt.MODEL_HELP, metavar="MODEL…")
            found["models"] = found["models"].replace(annotation=Annotated[kind, about])
    elif command.takes == "model":
        found |= {one.name: one for one in _declared(Which, "model", "sets")}
    if command.of_family:
        name = command.takes
        kind, about = get_args(found[name].annotation)
        found[name] = found[name].replace(annotation=Annotated[kind, about._replace(complete="family_or_model")])
    if "fields" in command.options:  # the command has its own option for fields
        found.pop("sets", None)
    found |= command.options
    shown = ["output", "force", "open"] if command.page else [*Shown._fields[:-4]]
    shown += ["strict"] * (command.fails == "strict")
    shown += ["explain", "latex"] if command.explained is not None else ["latex"] * command.latex
    if not command.drawn:
        shown = [name for name in shown if name != "style"]
    of_output = {one.name: one for one in _declared(Shown, *shown)}
    if not command.writes:
        kind, about = get_args(of_output["output"].annotation)
        files = f"Also write a file: {', '.join(endings_of(command))}."
        about = about._replace(help="File to write: FILE.html, or - for stdout." if command.page else files)
        of_output["output"] = of_output["output"].replace(annotation=Annotated[kind, about])
    found |= {name: one for name, one in of_output.items() if name not in found}
    order = (None, *opt.GROUPS)
    return dict(sorted(found.items(), key=lambda one: order.index(opt.of(one[1].annotation).group)))


def run(command: Command, given: Mapping[str, Any]) -> None:
    """Answer a command line."""
    parameters, own_options = parameters_of(command), command.options
    _check_single(command, given)
    options = {name: _read(parameters[name], value) for name, value in given.items()}
    show = Shown(**{name: options[name] for name in Shown._fields if name in options and name not in own_options})
    which = Which(**{name: options[name] for name in Which._fields if name in options and name not in own_options})
    check(show, command)
    typed = {name for name in own_options if options[name] != parameters[name].default}
    variant = next((name for name in command.variants if command.variants[name].chosen(name, options)), "")
    function = command.variants[variant].function if variant else command.function
    taken = commands.options_of(function)
    for name in sorted(typed - taken.keys() - {variant}, key=list(options).index):
        raise _misplaced(command, variant, name, options)
    if show.explain:
        for name in command.explained or ():
            if name in typed:
                raise _apart("--explain", typed_as(name, options[name]))
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
            raise typer.Exit(INTERRUPTED) from None
    if isinstance(found, commands.Page):
        _save(found, show, command)
    elif show.explain and found.derived is None:
        raise _apart("--explain", shell_option(variant))
    elif isinstance(found, str):
        for name in Shown._fields:
            is_json = name == "json" and found.startswith("{")
            if name not in typed and getattr(show, name) != Shown._field_defaults[name] and not is_json:
                if variant:
                    raise _apart(shell_option(variant), shell_option(name))
                raise UsageError(f"{shell_option(name)} does not work with text output")
        _print(found)
    else:
        _show(found, show, command)


METRIC_OF: Mapping[str, str] = {
    "flops": "",
    "sweep": "",
    "params": "--metric total_params",
    "compare": "--metric total_params,kv_cache_bytes,total_flops",
    "memory": "--metric total_bytes",
    "train": "--train --metric peak_bytes",
}
"""Commands whose answer is a metric → the options for it in `sweep` and `compare`."""


SERVED = ("on", "dtype", "kv_dtype", "use", "reserve")
"""Options of `time` that `serve` takes too."""


def _check_single(command: Command, given: Mapping[str, Any]) -> None:
    """Refuse a list where a command takes one value, and the tokens of a training run. Raises UsageError with the
    command that answers."""
    shared, models = opt.shared(), " ".join(given.get("models") or [given.get("model") or "MODEL"])
    taken = ("batch", "ctx" if given["kv"] else "") if command.name == "memory" else ()
    for text in () if command.name == "sweep" else given.get("sets") or given.get("fields") or ():
        field, _, value = text.partition("=")
        if units.read_number(value) is None and all(units.read_number(one) is not None for one in value.split(",")):
            metric = "--metric kv_cache_bytes" if given.get("kv") else METRIC_OF.get(command.name, "")
            other = _with_options(command, "sweep", models, given) if command.name in METRIC_OF else None
            hint = f"`{other or f'tfacct sweep {models} --set {text} {metric}'.rstrip()}` compares them"
            raise UsageError(f"--set {field} takes one value here, not {value!r}", hint)
    for name, parameter in command.options.items():
        value = given[name]
        if not isinstance(value, str) or parameter.annotation is not shared.get(name) or name in taken:
            continue
        typed, number = f"{shell_option(name)} {value}", units.read_number(value, kilo=1024)
        if name == "tokens" and given["ctx"] is None and number is not None and number >= TRAINING_RUN:
            sets = typed_options(("sets", one) for one in given["sets"] or ())
            hint = f"`tfacct budget {models}{sets} {typed}` counts a training run"
            if "total_tokens" in command.options:
                hint = f"with {shell_option('train')}, {shell_option('total_tokens')} {value} prints its days"
            raise UsageError(f"{typed} exceeds every context", hint)
        takes = _command_for_lists(name)
        if not _is_list(name, value) or takes in ("", command.name) or command.name == "compare":
            continue
        from tfacct.base import ranges

        if number is not None and not ranges.is_ambiguous(value):
            continue
        listed = value if number is None else value.replace(",", ", ")
        if name == "ctx" and command.name == "flops" and any(map(_is_picture, given["output"] or ())):
            hint = f"one {shell_option(name)} is enough: the picture draws a range of contexts"
        else:
            of_step = name in (*opt.MetricRecipe.__annotations__, *opt.LayoutLists.__annotations__)
            both = ("compare", takes) if of_step else (takes, "compare")
            ways = both if command.name == "train" else (takes,)
            given = {**given, name: listed}
            others = (_with_options(command, one, models, given, name) for one in ways if command.name in METRIC_OF)
            other = next(filter(None, others), None)
            if (command.name, name) == ("time", "batch") and not (given["train"] or given["lower_bound"]):
                served = {"prompt": given["ctx"], "requests": listed, **{one: given[one] for one in SERVED}}
                other = f"tfacct serve {models}{typed_options(served.items())}"
            hint = f"`{other}` compares them" if other else for_each()
        if number is not None:
            raise ranges.ambiguous(shell_option(name), value, hint)
        raise UsageError(f"{shell_option(name)} takes one value here, not {value!r}", hint)


def _with_options(command: Command, other: str, models: str, given: Mapping[str, Any], listed: str = "") -> str | None:
    """Another command with the models and options that are typed; None if it lacks an option that changes the answer.
    `listed`: the option with several values."""
    taken = {shell_option(name) for name in parameters_of(commands.command_of(other))} - {"--family", "--max-params"}
    typed: dict[str, Any] = {}
    for name, one in parameters_of(command).items():
        value = given[name] if name == listed else _read(one, given[name])
        if value != one.default and name != "by" and opt.of(one.annotation).group in (None, *opt.GROUPS[:-1]):
            typed[name] = value
    for name in ("model", "models"):
        typed.pop(name, None)
    recipe = opt.MetricRecipe.__annotations__.keys() & typed if command.name != "train" else ()
    if recipe or any(shell_option(name) not in taken for name in typed):  # with a recipe, `sweep` counts peak memory
        return None
    values = ((name, one) for name, value in typed.items() for one in (value if isinstance(value, list) else [value]))
    metric = "--train" if (command.name, other) == ("train", "compare") else METRIC_OF.get(command.name, "")
    return f"tfacct {other} {models}{typed_options(values)} {metric}".rstrip()


def _command_for_lists(name: str) -> str:
    """The command that takes a list of an option's values; empty if none does."""
    if name in (*opt.Step.__annotations__, *opt.Ranks.__annotations__, *opt.MetricRecipe.__annotations__):
        return "sweep"
    return "compare" if name in ("dtype", "kv_dtype", *opt.LayoutLists.__annotations__) else ""


def _is_list(name: str, value: str) -> bool:
    """True for a list or a range; the names of modules are one value."""
    if name == "recompute" and value.partition(",")[0] not in spellings.PARTS:
        return False
    values = value.partition(":")[0].replace("..", ",").split(",")
    counts = name not in ("ctx", "batch") or all(units.read_number(one, kilo=1024) is not None for one in values)
    return counts and len(values) > 1


def _read(parameter: Parameter, value: Any) -> Any:
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


def _apart(one: str, other: str) -> UsageError:
    return UsageError(f"{one} does not work with {other}", "leave one of the two out")


def _misplaced(command: Command, variant: str, name: str, given: Mapping[str, Any]) -> UsageError:
    """The error for an option that this answer does not take."""
    value = given[name]
    annotation = command.options[name].annotation
    typed = opt.typed(name, annotation).strip("[]…") if opt.of(annotation).argument else typed_as(name, value)
    if variant:
        return _apart(shell_option(variant), typed)
    needs, one = next(two for two in command.variants.items() if name in commands.options_of(two[1].function))
    if one.unless and given.get(one.unless) is not None:
        return _apart(typed_as(name, value), shell_option(one.unless))
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


# Models


def _models(command: Command, variant: str, which: Which, typed: set[str]) -> tuple[Any, ...]:
    """The function's first argument: the models, the model, or none."""
    if which.part == "both":
        for name in command.not_both:
            if name in typed:
                raise _apart("--part both", shell_option(name))
    takes = commands.takes(command.variants[variant].function if variant else command.function)
    if takes == "model":
        names = [which.model] if command.takes == "model" else list(which.models or ())
        for name in ("family", "max_params", "part"):
            if getattr(which, name) is not None:
                raise _apart(shell_option(variant), shell_option(name))
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


# Showing


def _print(text: str) -> None:
    """Print a text; Markdown is rendered in a terminal."""
    if isinstance(text, commands.Markdown) and sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        without_links = re.sub(r"\[([^]]+)\]\((?!https?:)[^)]*\)", r"\1", text)  # to files that a terminal cannot open
        Console().print(Markdown(without_links))
    else:
        print(text, end="")


def _show(found: Found, show: Shown, command: Command) -> None:
    """Print a report in the requested format. Files are written first: if one fails, nothing is printed."""
    if show.sort is not None:
        from tfacct.output.sorting import sorted_by

        rows = found.report.data if show.csv and found.report.data is not None else found.report
        found = found._replace(report=sorted_by(rows, show.sort))
    whole = found.report
    if show.limit and "limit" not in command.options:
        from tfacct.output.sorting import first_rows

        found = found._replace(report=first_rows(whole, show.limit))
    report = found.derived() if show.explain and found.derived is not None else found.report
    wrote = [_write(file, found, report, show, command) for file in show.output or () if not command.writes]
    if show.latex:
        print(signs.marked_down(_latex(found, report, show), sys.stdout), end="")
    elif show.json:
        print(signs.escaped(report.to_json(), sys.stdout))
    elif show.csv:
        print(report.to_csv(), end="")
    elif show.markdown:
        print(signs.marked_down(report.to_markdown(show.digits), sys.stdout), end="")
    else:
        from tfacct.output import terminal

        limit = 0 if "limit" in command.options or (command.whole and show.limit is None) else show.limit
        shown = whole if report is found.report else report  # a table counts the rows that it leaves out
        terminal.show(shown, digits=show.digits, verbose=show.verbose, limit=limit)
    for line in (*report.hints, *wrote):
        print(printable(line), file=sys.stderr)
    if report.interrupted:
        raise typer.Exit(INTERRUPTED)
    unfit = any((facts.get("fit") or {}).get("fits") is False for facts in report.models)
    if (command.fails == "disagrees" and not report.agrees) or (show.strict and (unfit or not report.agrees)):
        raise typer.Exit(1)


def _latex(found: Found, report: "Report", show: Shown) -> str:
    """The formula of the answer, or its table or derivation, in LaTeX."""
    return report.to_latex(show.digits) if found.latex is None else found.latex()


def _write(file: str, found: Found, derived: "Report", show: Shown, command: Command) -> str:
    """Write an output file. Returns the message about it."""
    from tfacct.output import files, html

    path, report = file_path(show, file, command), found.report
    if _is_picture(file):
        from tfacct.output import plot
        from tfacct.output.look import Look

        if found.chart is None:
            raise UsageError(f"--output {file}: this answer has no picture")
        chart = found.chart()
        plot.save(chart, path, Look(dark=show.style == "dark", printed=show.style == "print"))
        return f"drew {file}: {chart.title}"
    views: dict[str, Callable[[], str]] = {
        ".json": report.to_json,
        ".csv": report.to_csv,
        ".md": lambda: report.to_markdown(show.digits),
        ".html": lambda: html.page(report, show.digits),
        ".tex": lambda: _latex(found, derived, show),
    }
    files.write_text("output", path, views[path.suffix.lower()]())
    return f"wrote {file}"


def _save(page: commands.Page, show: Shown, command: Command) -> None:
    """Write a page, print a message about it, and open it with --open."""
    from tfacct.output import files

    file = (show.output or [page.file_name])[-1]
    if file == "-":
        print(page.html, end="")
        return
    path = file_path(show, file, command)
    files.write_text("output", path, page.html)
    size = f"{len(page.html.encode()):,} bytes"
    print(printable(f"wrote {path.name}: {page.about}{size}; opens in any browser, works offline"), file=sys.stderr)
    for line in page.hints:
        print(printable(line), file=sys.stderr)
    if show.open:
        import webbrowser

        webbrowser.open(path.as_uri())
