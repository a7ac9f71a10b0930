"""Reports of one kind, with their JSON keys as typed attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import get_annotations
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args

from tfacct.output import views
from tfacct.output.report import Report, read

if TYPE_CHECKING:
    from tfacct.output.chart import Chart


class Answer(views.Report):
    """A Report whose exact facts are attributes: `load("gpt2").memory().weights_bytes`. It has every key of its kind; a
    missing value is null."""

    _name: ClassVar[str]
    """Name in the JSON and of the schema: the command, and the option that selects this answer if there are several."""
    _line: ClassVar[type | None] = None
    """Type of one of its `lines`; None where there are none."""
    _reserved: ClassVar[dict[str, Any]] = {}
    """Keys whose names mean something else in Python, or here: read them in `.models`."""

    model: str
    family: str

    def __init_subclass__(cls) -> None:
        if "_name" not in vars(cls):
            cls._name = cls.__name__.removesuffix("Report").lower()

    def __post_init__(self) -> None:
        nulls = dict.fromkeys(nullable(type(self)))
        object.__setattr__(self, "models", tuple({**facts, **nulls, **facts} for facts in self.models))
        super().__post_init__()

    if not TYPE_CHECKING:  # type checkers see only the annotated keys

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name in Report.__slots__:
                raise AttributeError(name)
            if len(self.models) != 1:
                raise AttributeError(f"{name}: this report has {len(self.models)} models: use `.models`", name=name)
            facts = self.models[0]
            if name not in facts:
                problem = f"a {self.command} report has no {name!r}"
                if name in ("to_dict", "as_dict", "dict", "json"):
                    raise AttributeError(f"{problem}: `.models` has its data, `to_json()` its text")
                for key, inner in facts.items():
                    if isinstance(inner, dict) and name in inner:
                        raise AttributeError(f"{problem}: use `.{key}[{name!r}]`")
                raise AttributeError(problem, name=name, obj=self)
            return facts[name]

        def __getitem__(self, key: Any) -> Any:
            raise TypeError(f"a {self.command} report is no list or dict: `.rows` has its rows, `.models` its facts")

        def __dir__(self) -> list[str]:
            facts = self.models[0] if len(self.models) == 1 else {}
            return sorted({*super().__dir__(), *(name for name in facts if name.isidentifier())})


AnswerT = TypeVar("AnswerT", bound=Answer)


def keys(kind: type[Answer], *, evaluated: bool = False) -> dict[str, Any]:
    """Types of a report's keys, by name, those of its bases first; as they are written, or `evaluated`."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, Answer):
            declared = get_annotations(base, eval_str=evaluated)
            found |= {key: hint for key, hint in declared.items() if not key.startswith("_")} | base._reserved
    return found


def nullable(kind: type[Answer]) -> tuple[str, ...]:
    """Keys that may be null."""
    return tuple(
        key
        for key, hint in keys(kind).items()
        if (hint.endswith("| None") if isinstance(hint, str) else NoneType in get_args(hint))
    )


def answered(report: AnswerT, chart: Callable[[], Chart] | None = None) -> AnswerT:
    """The report for a Python caller, with all lazy facts computed. `chart` returns the chart that `plot` draws."""
    answer = replace(report, models=tuple(map(read, report.models)))
    object.__setattr__(answer, "_chart", chart)
    return answer
