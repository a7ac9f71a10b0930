"""A command: its function, and what the command line needs in addition to the signature."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, get_origin

from tfacct import options as opt

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from tfacct.loading.model import LoadedModel
    from tfacct.output.chart import Chart
    from tfacct.output.report import Report, Tick

    ReportT = TypeVar("ReportT", bound=Report, default=Report, covariant=True)
else:
    from typing import TypeVar

    ReportT = TypeVar("ReportT")


class Found(NamedTuple, Generic[ReportT]):
    """A report with optional functions that draw its picture, derive its total and write its formula."""

    report: ReportT
    chart: "Callable[[], Chart] | None" = None
    derived: "Callable[[], Report] | None" = None
    latex: Callable[[], str] | None = None


class Markdown(str):
    """A text in Markdown, which a terminal renders."""


class Page(NamedTuple):
    """An HTML page instead of a report: its text, its default file name, and a message about it."""

    html: str
    file_name: str
    about: str = ""
    hints: tuple[str, ...] = ()


class Variant(NamedTuple):
    """Another answer of a command, selected by an option: by a value for which `when` is true, unless the option
    `unless` is given. `option`: help of a selecting flag that the function does not take. `few`: presets to use if no
    MODEL is named. `counts_projector`: replaces the command's.
    """

    function: Callable[..., Any]
    option: opt.Option | None = None
    when: Callable[[Any], bool] = lambda given: given is not False
    few: tuple[str, ...] = ()
    unless: str = ""
    counts_projector: Literal["nothing", "parameters", "work", ""] = ""

    def chosen(self, name: str, options: Mapping[str, Any]) -> bool:
        """True if the option `name` selects this variant."""
        left_out = not self.unless or options.get(self.unless) is None
        return left_out and options[name] is not None and self.when(options[name])


class Command(NamedTuple):
    """A command. Its `function` answers, or that of the selected variant.

    `explained`: options that --explain does not support; None if there is no --explain. `drawn`: has a picture.
    `latex`: --latex prints the formula. `fails`: when the exit code is 1: if the report disagrees, always or only with
    --strict, which also requires that models fit. `not_both`: options that --part both does not support.
    `counts_projector`: what --part both counts of the projector. `of_family`: MODEL may be a family. `every_preset`: no
    MODEL means every preset. `page`: the answer is a page. `writes`: the function writes --output itself. `whole`: a
    terminal shows all rows.
    """

    function: Callable[..., Any]
    examples: tuple[str, ...]
    variants: Mapping[str, Variant] = {}
    explained: tuple[str, ...] | None = None
    drawn: bool = False
    latex: bool = False
    fails: Literal["", "strict", "disagrees"] = ""
    not_both: tuple[str, ...] = ()
    counts_projector: Literal["nothing", "parameters", "work"] = "nothing"
    of_family: bool = False
    every_preset: bool = True
    page: bool = False
    writes: bool = False
    whole: bool = False

    @property
    def name(self) -> str:
        """The name on the command line."""
        return self.function.__name__.rstrip("_")

    @property
    def takes(self) -> str:
        """What the command takes: `models`, `model` or ""."""
        return takes(self.function)

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    @property
    def options(self) -> dict[str, Parameter]:
        """Options of the function and of its variants, by their names in Python."""
        found = dict(options_of(self.function))
        for name, variant in self.variants.items():
            if variant.option is not None:
                kind = Annotated[bool, variant.option]
                found.setdefault(name, Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=kind))
            for other, parameter in options_of(variant.function).items():
                found.setdefault(other, _optional(parameter) if parameter.default is Parameter.empty else parameter)
        return found


def _optional(parameter: Parameter) -> Parameter:
    """An option that a variant needs, as an option of the command: without it, the variant is not selected."""
    kind, about = opt.plain(parameter.annotation), opt.of(parameter.annotation)
    return parameter.replace(default=None, annotation=Annotated[kind | None, about])


def command_of(name: str) -> Command:
    """The command with this name."""
    found: Command = import_module(f"tfacct.commands.{name}").COMMAND
    return found


def takes(function: Callable[..., Any]) -> str:
    """`models`, `model`, or "": what a function takes first."""
    first = next(iter(opt.spread(function).parameters), "")
    return first if first in ("models", "model") else ""


def options_of(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The options among a function's parameters, by name."""
    parameters = opt.spread(function).parameters
    return {name: one for name, one in parameters.items() if get_origin(one.annotation) is Annotated}


def named(name: str, fields: Iterable[str] | None) -> "LoadedModel":
    """The model of a preset, file or hub id, with config fields overridden. Raises TfacctError."""
    from tfacct.loading import find
    from tfacct.loading.overrides import read_overrides

    return find.find(name, read_overrides(fields or ()))


def largest(family: str, fields: Mapping[str, Any]) -> "LoadedModel":
    """The largest preset of a family, with config fields overridden."""
    from tfacct.loading import presets

    name = presets.load_all(family=family)[-1].name
    return presets.load(name, fields)


SHOWN: "list[Tick]" = []
"""The visible progress bar, if any."""


def tick(what: str, done: int, of: int) -> None:
    """Report the progress of long work to the command line."""
    for shown in SHOWN:
        shown(what, done, of)
