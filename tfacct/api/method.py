"""From a command's function to a method of Model: the same keywords, and a report with its facts as attributes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from textwrap import fill
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, get_args, overload

from tfacct import options as opt
from tfacct.base.errors import UsageError, nearest
from tfacct.base.spelling import BY_COMMAND, FORMER_NAMES, SPELLINGS, in_python, shell_option
from tfacct.commands import NAMES
from tfacct.commands import command as commands
from tfacct.output.answer import answered

if TYPE_CHECKING:
    from tfacct.api.model_base import ModelBase
    from tfacct.commands.command import Found
    from tfacct.loading.model import LoadedModel
    from tfacct.output.answer import AnswerT

P = ParamSpec("P")


@overload
def method(
    function: Callable[Concatenate[Sequence[LoadedModel], P], Found[AnswerT]], /
) -> Callable[Concatenate[ModelBase, P], AnswerT]: ...
@overload
def method(
    function: Callable[Concatenate[LoadedModel, P], Found[AnswerT]], /
) -> Callable[Concatenate[ModelBase, P], AnswerT]: ...
def method(function: Any, /) -> Any:
    """A method that asks a command's function about a model and answers with its report."""
    several = commands.takes(function) == "models"

    @wraps(function)
    def answer(self: ModelBase, /, **given: Any) -> Any:
        found = function([self.loaded] if several else self.loaded, **checked(answer, given))
        return answered(found.report, found.chart)

    answer.__name__ = function.__name__.removesuffix("_of")  # the command takes the plain name
    returned: str = function.__annotations__["return"]
    answer.__annotations__["return"] = returned.removeprefix("Found[").removesuffix("]")
    return signed(answer, function)


def signed(method: Callable[..., Any], function: Callable[..., Any], *more: Parameter) -> Callable[..., Any]:
    """The method with the signature of a command's function, every option of a group spelled out, for `help` and
    notebooks; `more` come first."""
    _, *options = opt.spread(function).parameters.values()
    named = [one.replace(annotation=opt.plain(one.annotation)) for one in options if one.name != "family"]
    method.__dict__.pop("__wrapped__", None)
    me = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = Signature([me, *more, *named])  # type: ignore[attr-defined]
    method.__qualname__ = f"Model.{method.__name__}"
    method.__doc__ = documented(function.__doc__, function)
    return method


def documented(text: str | None, function: Callable[..., Any]) -> str:
    """A docstring, and a list of each option of a command's function with its values and its help."""
    lines = []
    for name, one in commands.options_of(function).items():
        values = opt.typed(name, one.annotation).partition(" ")[2]
        head = f"{name} ({values})" if values else name
        about = in_python(f"- {head}: {opt.of(one.annotation).help}")
        lines.append(fill(about, 100, subsequent_indent="  ", break_on_hyphens=False))
    return "\n".join([cleandoc(text or ""), "", *lines])


def checked(
    method: Callable[..., Any],
    given: Mapping[str, Any],
    known: Mapping[str, Any] | None = None,
    *,
    lists: Collection[str] = (),
) -> dict[str, Any]:
    """The keywords, by the names that they have now, of a method, or of the options `known` that it hands on; `lists`:
    options that take several values too. Raises TypeError for one that it does not take, and for an option under two
    names; UsageError for a value of another type."""
    if known is None:
        known = {name: one.annotation for name, one in list(signature(method).parameters.items())[1:]}
    found: dict[str, Any] = {}
    for typed, value in given.items():
        name = typed if typed in known else FORMER_NAMES.get(typed, typed)
        if name not in known:
            close = _variant(method.__name__, name) or _meant(name, known) or nearest(name, list(known))
            hint = f": {close}" if close else ""
            raise TypeError(f"Model.{method.__name__}() got an unexpected keyword argument {name!r}{hint}")
        if name in found:
            former = next(old for old in given if old != name and FORMER_NAMES.get(old) == name)
            raise TypeError(f"Model.{method.__name__}() got {name!r} twice: {former!r} is an old name of it")
        several = name in lists and not isinstance(value, (str, bool, int)) and value is not None
        found[name] = value if several else _of_type(name, value, opt.plain(known[name]))
    return found


def _meant(keyword: str, known: Collection[str]) -> str | None:
    """The keyword that another program's name of an option means."""
    if keyword in ("bf16", "fp16") and "weights_dtype" in known:
        return f"did you mean dtype={keyword!r}, or autocast with weights_dtype='fp32'?"
    typed = keyword.replace("_", "-")
    name = (SPELLINGS.get(typed) or BY_COMMAND.get(typed, ("",))[0]).replace("-", "_")
    meant = next((one for one in (name, FORMER_NAMES.get(name)) if one in known), None)
    return None if meant is None else f"did you mean {meant}?"


def _variant(command: str, keyword: str) -> str | None:
    """The call for a variant of a command, by the option that selects it on the command line."""
    for option, variant in commands.command_of(command).variants.items() if command in NAMES else ():
        if keyword in (option, shell_option(option)[2:]):
            given = f"{option}=…" if option in commands.options_of(variant.function) else ""
            return f"use Model.{variant.function.__name__}({given})"
    return None


def _of_type(name: str, value: Any, kind: Any) -> Any:
    """A value as the option takes it, numpy's as Python's. Raises UsageError for another type, and for none of the few
    values that it may have."""
    kinds = {*(get_args(kind) or (kind,))} - {type(None)}
    if kinds == {bool} and (isinstance(value, str) or str(value) not in ("True", "False", "0", "1")):
        raise UsageError(f"{name} must be True or False, not {value!r}")
    if kinds == {bool} and str(value) == repr(bool(value)):
        return bool(value)
    if kinds == {str} and not isinstance(value, str) and (value is not None or kind is str):
        from tfacct.loading.devices import listing

        raise UsageError(f"{name} must be a string, not {value!r}", listing() if name == "on" else None)
    check_choice(name, value, kind)
    return value if isinstance(value, (bool, str)) else opt.size(name, value)


def check_choice(name: str, value: Any, kind: Any) -> None:
    """Raise UsageError for a value that is none of those an option may have."""
    choices = opt.choices(kind)
    if choices and value is not None and value not in choices:
        close = nearest(value, list(map(str, choices))) if isinstance(value, str) else None
        raise UsageError(f"{name} must be one of {', '.join(map(str, choices))}, not {value!r}", close)
