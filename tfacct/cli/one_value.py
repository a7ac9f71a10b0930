"""A list where a command takes one value: the error names the command that compares the values."""

import re
from collections.abc import Mapping
from typing import Any

from tfacct import options as opt
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import for_each, shell_option, typed_options
from tfacct.cli.parameters import is_picture, parameters_of, read_value
from tfacct.commands.command import Command, command_of
from tfacct.ledger.workload import TRAINING_RUN

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


def check(command: Command, given: Mapping[str, Any]) -> None:
    """Raise UsageError for several values where the command takes one, and for the tokens of a training run."""
    if command.name != "sweep":
        for text in given.get("sets") or given.get("fields") or ():
            _check_field(command, given, text)
    shared = opt.shared()
    for name, parameter in command.options.items():
        if isinstance(given[name], str) and parameter.annotation is shared.get(name):
            if name == "tokens":
                _check_tokens(command, given)
            if not _may_be_listed(command, name, given):
                _check_option(command, given, name)


def _check_field(command: Command, given: Mapping[str, Any], text: str) -> None:
    """Refuse `--set n_layer=12,24`."""
    field, _, value = text.partition("=")
    if units.read_number(value) is not None or any(units.read_number(one) is None for one in value.split(",")):
        return
    other = _with_options(command, "sweep", given) if command.name in METRIC_OF else None
    if other is None:
        metric = "--metric kv_cache_bytes" if given.get("kv") else METRIC_OF.get(command.name, "")
        other = f"tfacct sweep {_models(given)} --set {text} {metric}".rstrip()
    raise UsageError(f"--set {field} takes one value here, not {value!r}", f"`{other}` compares them")


def _check_tokens(command: Command, given: Mapping[str, Any]) -> None:
    """Refuse new tokens that are as many as those of a training run."""
    number = units.read_number(given["tokens"], kilo=1024)
    trains = given.get("train", False)
    if number is None or number < TRAINING_RUN or (given["ctx"] is not None and not trains):
        return
    typed = f"{shell_option('tokens')} {given['tokens']}"
    if "total_tokens" in command.options:
        hint = f"with {shell_option('train')}, {shell_option('total_tokens')} {given['tokens']} prints its days"
    else:
        sets = typed_options(("sets", one) for one in given["sets"] or ())
        hint = f"`tfacct budget {_models(given)}{sets} {typed}` counts a training run"
    raise UsageError(f"{typed} exceeds every context", hint)


def _check_option(command: Command, given: Mapping[str, Any], name: str) -> None:
    """Refuse `--batch 1,8`."""
    value = given[name]
    if not _is_list(name, value):
        return
    from tfacct.base import ranges

    if units.read_number(value, kilo=1024) is None:
        raise UsageError(f"{shell_option(name)} takes one value here, not {value!r}", _hint(command, given, name))
    if ranges.is_ambiguous(value):
        hint = _hint(command, {**given, name: value.replace(",", ", ")}, name)
        raise ranges.ambiguous(shell_option(name), value, hint)


def _may_be_listed(command: Command, name: str, given: Mapping[str, Any]) -> bool:
    """True if this command takes a list of the option's values, or no command does."""
    if command.name == "memory" and name == "ctx" and given["kv"]:
        return True
    return command.name == "compare" or _command_for_lists(name) in (None, command.name)


def _command_for_lists(name: str) -> str | None:
    """The command that takes a list of an option's values; None if none does."""
    if name in (*opt.Step.__annotations__, *opt.Ranks.__annotations__, *opt.MetricRecipe.__annotations__):
        return "sweep"
    return "compare" if name in ("dtype", "kv_dtype", *opt.LayoutLists.__annotations__) else None


def _is_list(name: str, value: str) -> bool:
    """True for a list or a range; the names of modules are one value."""
    if name in opt.START:
        start = opt.START[name]
        return re.match(start, value) is not None and re.search(r",\s*" + start, value) is not None
    values = value.partition(":")[0].replace("..", ",").split(",")
    counts = name not in ("ctx", "batch") or all(units.read_number(one, kilo=1024) is not None for one in values)
    return counts and len(values) > 1


def _hint(command: Command, given: Mapping[str, Any], name: str) -> str:
    """What to type for the values that the option `name` lists."""
    if command.name == "flops" and name == "ctx" and any(map(is_picture, given["output"] or ())):
        return f"one {shell_option(name)} is enough: the picture draws a range of contexts"
    if command.name == "time" and name == "batch" and not (given["train"] or given["lower_bound"]):
        served = {"prompt": given["ctx"], "requests": given["batch"], **{one: given[one] for one in SERVED}}
        serve = f"tfacct serve {_models(given)}{typed_options(served.items())}"
        return f"{for_each()}; `{serve}` compares them with the prefills of a server"
    other = _comparison(command, given, name)
    return f"`{other}` compares them" if other else for_each()


def _comparison(command: Command, given: Mapping[str, Any], name: str) -> str | None:
    """The command line that compares the values; None if no command takes all that is typed."""
    if command.name not in METRIC_OF:
        return None
    takes = str(_command_for_lists(name))
    if command.name != "train":
        return _with_options(command, takes, given, name)
    first, second = takes, "compare"
    if name in (*opt.MetricRecipe.__annotations__, *opt.LayoutLists.__annotations__):
        first, second = second, first
    return _with_options(command, first, given, name) or _with_options(command, second, given, name)


def _with_options(command: Command, other: str, given: Mapping[str, Any], listed: str = "") -> str | None:
    """Another command with the models and options that are typed; None if it lacks an option that changes the answer.
    `listed`: the option with several values."""
    taken = {shell_option(name) for name in parameters_of(command_of(other))} - {"--family", "--max-params"}
    typed: dict[str, Any] = {}
    for name, one in parameters_of(command).items():
        value = given[name] if name == listed else read_value(one, given[name])
        if value != one.default and name != "by" and opt.of(one.annotation).group in (None, *opt.GROUPS[:-1]):
            typed[name] = value
    for name in ("model", "models"):
        typed.pop(name, None)
    recipe = opt.MetricRecipe.__annotations__.keys() & typed if command.name != "train" else ()
    if recipe or any(shell_option(name) not in taken for name in typed):  # with a recipe, `sweep` counts peak memory
        return None
    values = ((name, one) for name, value in typed.items() for one in (value if isinstance(value, list) else [value]))
    metric = "--train" if (command.name, other) == ("train", "compare") else METRIC_OF.get(command.name, "")
    return f"tfacct {other} {_models(given)}{typed_options(values)} {metric}".rstrip()


def _models(given: Mapping[str, Any]) -> str:
    return " ".join(given.get("models") or [given.get("model") or "MODEL"])
