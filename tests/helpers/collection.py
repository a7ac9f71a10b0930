"""Which tests are collected: slow ones only if `-m` asks for them; with `--family NAME`, those of that family only."""

import re
import time
from collections.abc import Iterator, Sequence
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.families import ASKED, SHAPES, families_of_presets, family_of, names, presets_asked

# The same examples in every run: a change is judged by what it changed.
settings.register_profile("same", derandomize=True, database=None)
settings.load_profile("same")
settings.register_profile("new", derandomize=False, database=None, print_blob=True)

FOLDERS_APART = {"oracle", "sweeps"}
"""Folders of tests that are collected only if an argument, or a test path of pyproject.toml, names them."""
BY_FAMILY = {"tiny_model", "pair", "kind_pair"}
"""Fixtures for each config: `tiny_model` of all, unless a test lists others."""
NAMES_FAMILIES = re.compile(r"\b(SHAPES|TINY|LOGITS|FAMILIES|by_kind|BY_FAMILY)\b(?!\[)|tiny_model|with_name")
"""What a test file reads that has tests of every family: their configs, or a table next to it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--family", action="append", default=[], metavar="NAME",
        help="collect the tests of one family only, such as qwen3_moe; may be given again",
    )  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Slow tests draw new examples, from a seed that is printed."""
    if unknown := {*config.option.family} - {*names()}:
        raise pytest.UsageError(f"--family {', '.join(unknown)}: tests/families has no such family")
    ASKED.update(config.option.family)
    if asks_slow(config):
        settings.load_profile("new")
        config.option.hypothesis_seed = config.option.hypothesis_seed or str(time.time_ns() % 2**32)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if seed := terminalreporter.config.option.hypothesis_seed:
        terminalreporter.write_line(f"examples drawn with --hypothesis-seed={seed}")


def asks_slow(config: pytest.Config) -> bool:
    """True with `-m slow`, and of `pytest tests/sweeps`."""
    in_sweeps = any("sweeps" in Path(argument).parts for argument in config.args)
    return in_sweeps or "slow" in config.option.markexpr.replace("not slow", "")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out folders apart that no argument names, and with `--family`, files without tests of these families."""
    if collection_path.is_dir() and collection_path.name in FOLDERS_APART:
        paths = (config.invocation_params.dir / argument.split("::")[0] for argument in config.args)
        return None if any(path.resolve().is_relative_to(collection_path) for path in paths) else True
    if not ASKED or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text()
    inside = (name for name in (*ASKED, *presets_asked()) if name in text)
    named = any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", text) for name in inside)
    return None if named or NAMES_FAMILIES.search(text) else True


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: object) -> list[Any] | None:
    """None, as an answer, leaves it to pytest."""
    if not name.startswith("test"):
        return None
    marks = getattr(obj, "pytestmark", ())
    if not asks_slow(collector.config) and any(mark.name == "slow" for mark in marks):
        return []
    return [] if ASKED and callable(obj) and not _is_asked(name, obj, marks) else None


def _is_asked(name: str, test: Any, marks: Sequence[pytest.Mark]) -> bool:
    """True of a test that has a family asked for in its name, among its parameters or in a fixture's."""
    if any(f"_{family}_" in f"{name}_".replace("-", "_") for family in ASKED):
        return True
    values = (value for mark in marks if mark.name == "parametrize" for value in _values(mark))
    return bool(BY_FAMILY & {*signature(test).parameters}) or any(_family(value) in ASKED for value in values)


def _values(mark: pytest.Mark) -> list[Any]:
    """Parameters of a test. An iterator can be read but once: it is left to pytest."""
    return [] if isinstance(mark.args[1], Iterator) else [*mark.args[1]]


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Leave out slow parameters, and those of other families: that is half of all, and to make tests takes time."""
    slow, marks = asks_slow(metafunc.config), metafunc.definition.own_markers
    listed = any("tiny_model" in mark.args[0] for mark in marks if mark.name == "parametrize")
    if "tiny_model" in metafunc.fixturenames and not listed:
        metafunc.parametrize("tiny_model", sorted(SHAPES), indirect=True)
    for number, mark in enumerate(marks):
        if mark.name != "parametrize" or not (values := _values(mark)):
            continue
        ids = mark.kwargs.get("ids")
        listed_ids = [None] * len(values) if ids is None or callable(ids) else [*ids]
        wanted = [
            (value, id_)
            for value, id_ in zip(values, listed_ids, strict=True)
            if slow or all(m.name != "slow" for m in getattr(value, "marks", ()))
        ]
        if ASKED and any(_family(value) for value, _ in wanted):
            wanted = [pair for pair in wanted if _family(pair[0]) in ASKED] or wanted
        if wanted and len(wanted) < len(values):  # of none, pytest would make a skipped test
            kwargs = mark.kwargs if ids is None or callable(ids) else mark.kwargs | {"ids": [id_ for _, id_ in wanted]}
            remaining = [value for value, _ in wanted]
            marks[number] = pytest.mark.parametrize(mark.args[0], remaining, *mark.args[2:], **kwargs).mark


def _family(value: Any) -> str | None:
    """The family that a parameter names: by itself, by a config of tests/families, or by a preset."""
    values = getattr(value, "values", value if isinstance(value, tuple) else (value,))
    for word in values if isinstance(values, tuple) else ():
        if isinstance(word, str) and (found := _family_of_word(word)):
            return found
    return None


@cache
def _family_of_word(word: str) -> str | None:
    family = family_of(word)
    return family if family in _every_family() else families_of_presets().get(word.split(" ")[0])


@cache
def _every_family() -> frozenset[str]:
    return frozenset(names())
