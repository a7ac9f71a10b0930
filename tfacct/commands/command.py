"""A command: its function, and what the command line needs besides its signature."""

from collections.abc import Callable, Mapping
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
    """A report; what draws its picture, derives its total and writes its formula, where something does."""

    report: ReportT
    chart: "Callable[[], Chart] | None" = None
    derived: "Callable[[], Report] | None" = None
    latex: Callable[[], str] | None = None


class Markdown(str):
    """A text in Markdown, which a terminal renders."""


class Page(NamedTuple):
    """An HTML page in place of a report: its text, the file it is written to by default, and what to say of it."""

    html: str
    file_name: str
    about: str = ""
    hints: tuple[str, ...] = ()


class Variant(NamedTuple):
    """Another answer of a command: an option selects it, by any value, or by one for which `when` holds, and not with
    the option `unless`. `option`: what the help says of one that the function does not take. `few`: presets that are
    asked where no MODEL is named. `counts_projector`: where it is other than the command's.
    """

    function: Callable[..., Any]
    option: opt.Option | None = None
    when: Callable[[Any], bool] = lambda given: given is not False
    few: tuple[str, ...] = ()
    unless: str = ""
    counts_projector: Literal["nothing", "parameters", "work", ""] = ""

    def chosen(self, name: str, options: Mapping[str, Any]) -> bool:
        """True where the option `name` selects this variant."""
        left_out = not self.unless or options.get(self.unless) is None
        return left_out and options[name] is not None and self.when(options[name])


class Command(NamedTuple):
    """A command. `function` answers it, or the one of the `variants` whose option is given.

    `explained`: options that --explain does not derive; None where it derives nothing. `drawn`: a picture can be drawn.
    `latex`: --latex prints the formula. `fails`: when the exit code is 1: where the report disagrees, or there with
    --strict. `not_both`: options that mean nothing with --part both, whose projector counts `counts_projector`.
    `of_family`: MODEL may be a family. `every_preset`: without a MODEL it is about all of them. `page`: the answer is a
    page. `writes`: the function itself writes --output. `whole`: a terminal shows all rows.
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
        """Its name on the command line."""
        return self.function.__name__.rstrip("_")

    @property
    def takes(self) -> str:
        """`models`, `model`, or "" of a command that takes neither."""
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
                default = None if parameter.default is Parameter.empty else parameter.default
                found.setdefault(other, parameter.replace(default=default))
        return found


def takes(function: Callable[..., Any]) -> str:
    """`models`, `model`, or "" of a function that takes neither."""
    first = next(iter(opt.spread(function).parameters), "")
    return first if first in ("models", "model") else ""


def options_of(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Those parameters of a function that are options, by name."""
    parameters = opt.spread(function).parameters
    return {name: one for name, one in parameters.items() if get_origin(one.annotation) is Annotated}


def largest(family: str, fields: Mapping[str, Any]) -> "LoadedModel":
    """The largest preset of a family, with fields set over its config."""
    from tfacct.loading import presets

    name = presets.load_all(family=family)[-1].name
    return presets.load(name, fields)


SHOWN: "list[Tick]" = []
"""The progress bar of the command line, while it shows one."""


def tick(what: str, done: int, of: int) -> None:
    """Report the progress of long work; Python's callers see nothing of it."""
    for shown in SHOWN:
        shown(what, done, of)
