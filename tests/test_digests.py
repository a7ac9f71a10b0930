"""Figures that no total sees change only with a reason: of devices, and context, window, rope or top-k of presets."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from tests import digests
from tfacct.loading import devices, presets

RECORDED = digests.recorded()
UNSEEN = (
    "position",
    "context",
    "window",
    "rope",
    "rotary",
    "experts_per_tok",
    "topk",
    "top_k",
    "layer_types",
    "n_head",
)
"""Parts of the names of fields that change no parameter count."""


def test_every_figure_is_the_recorded_one() -> None:
    changed = [
        f"{kind[:-1]} {name}: {found}, recorded {RECORDED[kind].get(name, ['nothing'])[0]}"
        for kind, name, found in digests.current()
        if RECORDED[kind].get(name, [""])[0] != found
    ]
    said = 'a figure changed: check it against its source, then python -m tests.digests "where it was read"'
    assert not changed, "\n".join([said, *changed])


def test_every_digest_is_of_a_file_and_has_a_reason() -> None:
    names = {(kind, name) for kind, name, _ in digests.current()}
    assert {(kind, name) for kind, files in RECORDED.items() for name in files} == names
    assert all(len(reason.split()) > 1 for files in RECORDED.values() for _, reason in files.values())


def _numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all numbers inside."""
    if isinstance(value, dict | list):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in inside:
            yield from _numbers(inner, (*path, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def _changed(file: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    """The file with one number 10 % larger."""
    changed = deepcopy(file)
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] += max(1, round(place[path[-1]] * 0.1))
    return changed


@pytest.mark.parametrize("name", sorted(path.stem for path in devices.folder().glob("*.toml")))
def test_a_tenth_more_in_any_figure_of_a_device_is_noticed(name: str) -> None:
    file = tomllib.loads((devices.folder() / f"{name}.toml").read_text(encoding="utf-8"))
    paths = [path for path in _numbers(file) if path[0] not in ("year", "calibration")]
    assert {path[0] for path in paths} >= {"memory", "peak"}
    for path in paths:
        changed = digests.digest(digests.figures_of_device(_changed(file, path)))
        assert changed != RECORDED["devices"][name][0], path


def test_any_field_of_a_preset_that_no_total_sees_is_noticed() -> None:
    tried = 0
    for name in presets.names()[::9]:
        file = tomllib.loads((presets.folder() / f"{name}.toml").read_text(encoding="utf-8"))
        for path in _numbers(file):
            if any(part in str(key) for key in path for part in UNSEEN):
                tried += 1
                changed = digests.digest(digests.figures_of_preset(_changed(file, path)))
                assert changed != RECORDED["presets"][name][0], (name, path)
    assert tried > 100
