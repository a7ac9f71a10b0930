"""The data of a page in compact form: each text and line once, facts of models in columns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tfacct.base.ranges import spans

KINDS = ("product", "pointwise", "state", "table")
WORDS = ("family", "kind", "form", "shared", "cache_name")
"""Facts of a model that are text shared by many models."""


class Pool:
    """A list of distinct texts; calling it with a text returns the text's index."""

    def __init__(self, values: Sequence[str] = ()) -> None:
        self.numbers = {text: number for number, text in enumerate(values)}

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    @property
    def values(self) -> list[str]:
        """The texts, by index."""
        return list(self.numbers)


def packed(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data in the form that a page embeds."""
    texts, runs = Pool(data["texts"]), Pool()
    models = [_packed_words(model, texts) for model in data["models"]]
    often = Counter(name for model in models for name in model)
    columns = sorted(often, key=lambda name: -often[name])
    always = sum(often[name] == len(models) for name in columns)
    lines = [_packed_line(line, texts) for line in data["lines"]]
    shapes = [{**shape, "ways": [_packed_way(way, runs) for way in shape["ways"]]} for shape in data["shapes"]]
    return {
        **data,
        "lines": lines,
        "runs": runs.values,
        "shapes": shapes,
        "columns": columns,
        "always": always,
        "models": [_packed_row(model, columns) for model in models],
        "texts": texts.values,
    }


def _packed_words(model: Mapping[str, Any], texts: Pool) -> dict[str, Any]:
    found = {name: 1 if fact is True else fact for name, fact in model.items()}
    found |= {name: texts(model[name]) for name in WORDS if name in model}
    return found | ({"defaulted": texts(json.dumps(model["defaulted"]))} if "defaulted" in model else {})


def _packed_row(model: Mapping[str, Any], columns: Sequence[str]) -> list[Any]:
    """Facts in the order of the columns, 0 for absent ones; absent ones at the end are omitted."""
    row = [model.get(name, 0) for name in columns]
    last = max(index for index, name in enumerate(columns) if name in model)
    return row[: last + 1]


def _packed_line(line: Mapping[str, Any], texts: Pool) -> list[Any]:
    """Path, spec and kind of a line, and facts that few lines have."""
    rest = {name: fact for name, fact in line.items() if name not in ("line", "path", "spec")}
    kind = KINDS.index(line.get("line", "product"))
    return [line["path"], texts(line["spec"]), *([kind] if kind or rest else []), *([rest] if rest else [])]


def _packed_way(way: Mapping[str, Any], runs: Pool) -> dict[str, Any]:
    groups = [{**group, "lines": runs(spans(group["lines"]))} for group in way["groups"]]
    return {"form": way["form"], "groups": groups}
