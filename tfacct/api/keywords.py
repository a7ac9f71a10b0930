"""Keywords as Python's callers give them: a group spelled out, and sizes as numbers or as a shell takes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from operator import index
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypedDict, TypeVar

from tfacct.base import ranges, units
from tfacct.base.errors import UsageError, nearest
from tfacct.base.spelling import FORMER_NAMES, option
from tfacct.ledger.workload import Request, Step, Whole
from tfacct.parallel.mesh import checked_pass, mesh_of

if TYPE_CHECKING:
    from tfacct.parallel.mesh import Mesh


class OnRanks(TypedDict, total=False):
    """Ranks that divide a model: heads and widths (`tp`, with `sp` the stream's tokens), weights (`fsdp`), experts
    (`ep`), blocks (`pp`), the tokens of a sequence (`cp`)."""

    tp: int
    sp: bool
    fsdp: int
    ep: int
    pp: int
    cp: int


class OnMesh(OnRanks, total=False):
    """These ranks, and how they divide what they do."""

    tp_plan: Literal["torch", "megatron"]
    imbalance: float
    dp: int
    zero: Literal[0, 1, 2, 3]
    schedule: Literal["gpipe", "1f1b", "interleaved", "zero-bubble"]
    microbatches: int | None
    pp_chunks: int
    cp_method: Literal["ring", "gather"]
    ulysses: int


class StepOnRanks(Step, OnRanks, total=False):
    """A step, and the ranks that divide it."""


class WholeOnRanks(Whole, OnRanks, total=False):
    """Whole sequences, and the ranks that divide the model."""


class StepOnMesh(Step, OnMesh, total=False):
    """A step on a mesh."""


class WholeOnMesh(Whole, OnMesh, total=False):
    """Whole sequences on a mesh."""


GROUPS: dict[str, tuple[Any, ...]] = {
    "Unpack[Step]": (Whole, Step),
    "Unpack[Whole]": (Whole,),
    "Unpack[OnRanks]": (OnRanks,),
    "Unpack[StepOnRanks]": (Whole, Step, OnRanks),
    "Unpack[WholeOnRanks]": (Whole, OnRanks),
    "Unpack[StepOnMesh]": (Whole, Step, OnRanks, OnMesh),
    "Unpack[WholeOnMesh]": (Whole, OnRanks, OnMesh),
}
"""Groups of keywords, by the annotation that asks for one."""
P = ParamSpec("P")
R = TypeVar("R")


def spelled_out(method: Callable[P, R]) -> Callable[P, R]:
    """The method with every keyword of its group in its signature, for `help` and notebooks, and no other accepted."""
    given = signature(method)
    *own, rest = given.parameters.values()
    types: dict[str, Any] = {}
    for group in GROUPS[rest.annotation]:
        types |= group.__annotations__
    known = {**signature(Request).parameters, **signature(mesh_of).parameters}
    named = [
        kept.replace(kind=Parameter.KEYWORD_ONLY, annotation=getattr(types[name], "__forward_arg__", types[name]))
        for name, kept in known.items()
        if name in types
    ]
    spread = given.replace(parameters=[*own, *named])

    @wraps(method)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        for former in kwargs.keys() & FORMER_NAMES.keys() - spread.parameters.keys():
            if (name := FORMER_NAMES[former]) in spread.parameters:
                kwargs[name] = kwargs.pop(former)
        for name in kwargs.keys() - spread.parameters.keys():
            close = nearest(name, list(spread.parameters)[1:])
            hint = f": {close}" if close else ""
            raise TypeError(f"Model.{method.__name__}() got an unexpected keyword argument {name!r}{hint}")
        return method(*args, **kwargs)

    asked.__signature__ = spread  # type: ignore[attr-defined]
    return asked


def request(step: Mapping[str, Any], **more: Any) -> Request:
    """Workload as the caller words it, among other keywords. Raises UsageError."""
    mine = {name: value for name, value in step.items() if name in Step.__annotations__}
    read = {name: value if name == "decode" else size(name, value) for name, value in mine.items()}
    return Request(**read, **more)


def mesh(given: Mapping[str, Any]) -> Mesh | None:
    """Ranks as the caller words them, among other keywords; None where none divides anything. Raises UsageError."""
    return mesh_of(**{name: value for name, value in given.items() if name in OnMesh.__annotations__})


def of_one_rank(given: Mapping[str, Any]) -> Mesh | None:
    """The same, of which one rank's share of a pass is asked."""
    return checked_pass(mesh(given))


def size(name: str, given: Any) -> Any:
    """Whole number that `given` stands for: `"8k"`, and numpy's integers too. What is none is left to be refused."""
    if isinstance(given, str):
        return units.read_tokens(option(name), given)
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        return given
    try:
        return index(given)
    except TypeError:  # an array that holds something else than one whole number
        return given


def several(name: str, step: Mapping[str, Any]) -> tuple[list[int] | None, dict[str, Any]]:
    """Sizes that a keyword holds, None where it holds one or none; and the keywords with the largest of them."""
    given = step.get(name)
    if isinstance(given, str):
        found = ranges.read_some(option(name), given, grouped=name == "ctx")
    elif isinstance(given, Collection):
        ranges.limited(option(name), given)
        found = list(sizes(name, given))
    else:
        return None, dict(step)
    if not found:
        raise UsageError(f"{option(name)} has no values")
    return (found if len(found) > 1 else None), {**step, name: max(found)}


def sizes(name: str, given: Any) -> Any:
    """Whole numbers that a range such as `"1k..128k"` stands for; a collection of sizes as it is."""
    if isinstance(given, str):
        return ranges.read_values(option(name), given)
    if isinstance(given, range):  # whole numbers already, and perhaps very many
        return given
    if isinstance(given, Collection) and any(isinstance(value, str) for value in given):
        return [size(name, value) for value in given]
    return given


def fields(given: Mapping[str, Sequence[Any] | str]) -> dict[str, Sequence[Any]]:
    """Values of every field; of whole numbers also as a range, `"1..32"`. Raises UsageError for any other text."""
    return {name: _values(name, values) if isinstance(values, str) else values for name, values in given.items()}


def _values(name: str, text: str) -> Sequence[Any]:
    try:
        return list(ranges.read_values(name, text))
    except UsageError:
        if ".." in text:
            raise
        raise UsageError(f"{name} must be a list of values, not {text!r}", f"{name}=[{text!r}], or a range") from None
