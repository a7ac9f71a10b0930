"""The ledger in letters, as Python's callers get it."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from tfacct.architecture.parts import MlaMode
from tfacct.reports import keys
from tfacct.reports.keys import Letter


class WrittenLine(TypedDict):
    """A line: its letters, and what of it is not as usual."""

    line: Literal["product", "table", "state", "pointwise"]
    path: str
    spec: str
    weight: NotRequired[str]
    bias: NotRequired[bool | str]
    mask: NotRequired[Literal["causal", "chunks", "chosen", "near"]]
    bank: NotRequired[str]
    embedding: NotRequired[bool]
    bits: NotRequired[int]
    module: NotRequired[str]
    sums: NotRequired[bool]
    unused: NotRequired[bool]


class WrittenGroup(TypedDict):
    """Lines that stand in the same blocks, and the sizes of their letters."""

    kind: str
    count: int | str
    blocks: str
    once: bool
    shared: list[str]
    axes: dict[str, int | str]
    names: dict[str, str]
    lines: list[WrittenLine]


class WrittenWay(TypedDict):
    """A way to run the model: the form of its latent attention, None where there is one way."""

    form: MlaMode | None
    groups: list[WrittenGroup]


class LedgerReport(keys.ModelReport):
    """Lines of a model, in letters."""

    sizes: dict[str, int]
    legend: dict[str, Letter]
    ways: list[WrittenWay]
