"""Figures that no total shows change only with a reason: devices, context, window, rope and top-k of presets. Kind:
golden.
"""

import tomllib
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

import tfacct
from tests.helpers import digests
from tfacct.loading import devices, presets

RECORDED = digests.recorded()
UNSEEN = (
    *("position", "context", "window", "rope", "rotary", "experts_per_tok", "topk", "top_k", "layer_types"),
    "n_head",
)
"""Parts of the names of fields that change no parameter count."""


def test_every_figure_is_the_recorded_one_and_has_a_reason() -> None:
    changed = [
        f"{kind[:-1]} {name}: {found}, recorded {RECORDED[kind].get(name, ['nothing'])[0]}"
        for kind, name, found in digests.current()
        if RECORDED[kind].get(name, [""])[0] != found
    ]
    message = 'a figure changed: check it against its source, then python -m tests.helpers.digests "where it was read"'
    assert not changed, "\n".join([message, *changed])
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


ACTIVE = {
    **{"mixtral-8x7b": 12.9, "mixtral-8x22b": 39, "deepseek-v2": 21, "deepseek-v3": 37, "kimi-k2": 32},
    **{"qwen3-30b-a3b": 3.3, "qwen3-235b-a22b": 22, "qwen2-57b-a14b": 14, "qwen1.5-moe-a2.7b": 2.7, "dots.llm1": 14},
    **{"jamba-v0.1": 12, "olmoe-1b-7b": 1.3, "deepseek-moe-16b": 2.8},
}
"""Billions of active parameters, embeddings included, by the models' cards and reports."""
ACTIVE_WITHOUT_EMBEDDINGS = {"gpt-oss-120b": 5.1, "gpt-oss-20b": 3.6, "glm-4.5": 32}
"""The same, where the cards exclude embeddings."""


@pytest.mark.parametrize("name", [*ACTIVE, *ACTIVE_WITHOUT_EMBEDDINGS])
def test_experts_per_token_are_those_of_the_published_active_parameters(name: str) -> None:
    """One expert more or fewer for each token is outside of the tolerance."""
    key, published = "active_params", ACTIVE.get(name)
    if published is None:
        key, published = "active_non_embedding_params", ACTIVE_WITHOUT_EMBEDDINGS[name]
    model = tfacct.load(name)
    assert model.params().models[0][key] / 1e9 == pytest.approx(published, rel=0.035)
    top_k = next(
        field
        for field in ("num_experts_per_tok", "moe_topk", "experts_per_token")
        if field in model.loaded.config.model_dump()
    )
    for change in (1, -1):
        chosen = model.loaded.config.model_dump()[top_k] + change
        if chosen < 1:
            continue
        counted = tfacct.load(name, **{top_k: chosen}).params().models[0][key] / 1e9
        assert counted != pytest.approx(published, rel=0.035)
