"""Records equal `@dataclass(frozen=True, slots=True)` with the same fields. Kind: oracle."""

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from tfacct.base.record import record


def families(made: Callable[..., Any]) -> tuple[Any, Any]:
    """Return a class with a field of each kind, and one that inherits, as `made` makes them."""

    @made
    class Base:
        """Fields with and without a default, with a factory, excluded from comparison, and excluded from `repr`."""

        width: int
        depth: int = 2
        names: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False)
        secret: str = field(default="x", repr=False)

        def __post_init__(self) -> None:
            if self.width < 0:
                raise ValueError("width")

    @made(kw_only=True)
    class Narrow(Base):
        """Keyword-only fields after those of its base."""

        __qualname__ = "Narrow"
        place: tuple[int, ...]
        more: dict[str, int] = field(default_factory=dict)

    return Base, Narrow


def frozen(cls: Any = None, **asked: Any) -> Any:
    """Return `dataclass` with the two arguments that `record` replaces."""
    return dataclass(cls, frozen=True, slots=True, **asked)


MINE = Base, Narrow = families(record)
THEIRS = families(frozen)


@pytest.mark.parametrize(
    "make",
    [
        lambda of: of[0](3),
        lambda of: of[0](3, 4, ["a"], "b", secret="c"),
        lambda of: of[1](3, place=(1, 2)),
        lambda of: of[1](3, 4, place=(1,), more={"a": 1}),
        lambda of: replace(of[1](3, place=(1, 2)), depth=7),
        lambda of: copy.deepcopy(of[1](3, place=(1, 2))),
    ],
)
def test_an_object_has_a_dataclass_s_fields_and_is_shown_as_one(make: Callable[..., Any]) -> None:
    mine, theirs = make(MINE), make(THEIRS)
    assert repr(mine) == repr(theirs)
    values = [{entry.name: getattr(one, entry.name) for entry in fields(one)} for one in (mine, theirs)]
    assert values[0] == values[1]
    assert not hasattr(mine, "__dict__")


@pytest.mark.parametrize(
    "make",
    [
        lambda of: of[0](),
        lambda of: of[0](-1),
        lambda of: of[0](1, 2, [], "", "", 6),
        lambda of: of[1](1, 2, [], "", "", (1,)),
        lambda of: of[1](1),
        lambda of: of[0](1, wide=2),
    ],
)
def test_invalid_fields_are_refused_as_by_dataclass(make: Callable[..., Any]) -> None:
    with pytest.raises((TypeError, ValueError)) as theirs:
        make(THEIRS)
    with pytest.raises(theirs.type):
        make(MINE)


def test_nothing_is_assigned_and_equality_and_hash_go_by_the_compared_fields() -> None:
    one = Narrow(3, place=(1, 2), names=(), more=())
    for change in (lambda: setattr(one, "width", 4), lambda: delattr(one, "width"), lambda: setattr(one, "new", 1)):
        with pytest.raises(FrozenInstanceError):
            change()
    same = Narrow(3, place=(1, 2), names=(), more=(), note="another")
    assert (one, hash(one)) == (same, hash(same))
    assert one != Narrow(4, place=(1, 2), names=(), more=())
    assert Base(3) != one
    assert Base(3).names is not Base(3).names


def test_a_record_is_pickled_by_its_fields() -> None:
    one = Narrow(3, place=(1, 2), note="ignored")
    assert repr(pickle.loads(pickle.dumps(one))) == repr(one)


def test_a_frozen_dataclass_inherits_from_a_record() -> None:
    @dataclass(frozen=True, slots=True)
    class Wider(Base):
        more: int = 3

    assert Wider(1, more=2) == Wider(1, more=2) != Wider(1) and Wider(1).depth == 2
    with pytest.raises(TypeError, match="frozen"):
        dataclass(type("Loose", (Base,), {}))


def test_a_class_s_signature_is_known_before_an_object_is_made() -> None:
    mine, theirs = families(record), families(frozen)
    for cls, other in zip(mine, theirs, strict=True):
        parameters, expected = inspect.signature(cls).parameters, inspect.signature(other).parameters
        assert [(name, entry.kind, entry.annotation) for name, entry in parameters.items()] == [
            (name, entry.kind, entry.annotation) for name, entry in expected.items()
        ]
