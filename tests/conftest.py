"""Settings of every test, and the fixtures that they share."""

import contextlib
import gc
import io
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.families import TINY as TINY
from tests.helpers.cli import Ran, Run
from tests.helpers.hub import inside
from tests.helpers.lazy import Lazy
from tests.helpers.models import tiny
from tfacct.cli import THRESHOLD
from tfacct.loading import presets
from tfacct.loading.model import LoadedModel

# No device, token or cache of whoever runs the tests is read, in this process or one begun by it.
_settings = tempfile.TemporaryDirectory(prefix="tfacct-tests-")
os.environ |= {"XDG_CONFIG_HOME": _settings.name, "HF_HOME": _settings.name}
# Nor is the real hub asked.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}
# Models of the tests are tiny: threads that wait for each other on shared cores cost ten times their work.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Nothing that is compiled runs more than once here: to import the compiler takes 2 s, to compile longer.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
pytest_plugins = ("tests.helpers.collection",)
_kernels = contextlib.ExitStack()
_read_preset, _presets = presets._model, presets.folder()


@cache
def _preset(path: Path) -> LoadedModel:
    return _read_preset(path, presets._read(path), None)


def _read_once(path: Path, file: dict[str, Any], sets: Mapping[str, object] | None) -> LoadedModel:
    """A preset, read once if nothing is set: nothing writes to a model."""
    return _read_preset(path, file, sets) if sets or path.parent != _presets else _preset(path)


presets._model = _read_once


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tests and their modules live to the end: the collector of garbage need not look at them again. Kernels for shapes
    are changed once for all tests that use torch."""
    if session.config.option.collectonly:
        return
    named = (value for module in {item.module for item in session.items} for value in vars(module).values())
    if find_spec("torch") and any(isinstance(value, Lazy) for value in named):
        from tfacct.meta.kernels import compiled

        _kernels.enter_context(compiled())
    gc.collect()
    gc.freeze()
    gc.set_threshold(THRESHOLD)


def pytest_unconfigure() -> None:
    _kernels.close()


@pytest.fixture
def presets_apart() -> Iterator[None]:
    """Presets read for this test alone, which changes what counts depend on."""
    _preset.cache_clear()
    yield
    _preset.cache_clear()


@pytest.fixture
def tiny_model(request: pytest.FixtureRequest) -> LoadedModel:
    return tiny(request.param)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("flops", "gpt2")`: the command line as a terminal of 80 columns, or `columns`, would show it."""

    def call(*arguments: str, columns: int = 80, stdin: bytes = b"") -> Ran:
        from tfacct.cli import main

        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "argv", ["tfacct", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        out, err = io.StringIO(), io.StringIO()
        code = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
        return Ran(code, out.getvalue(), err.getvalue())

    return call


@pytest.fixture
def ask(environment: dict[str, str], run: Run, tmp_path: Path) -> Run:
    """`ask("flops", "Qwen/Qwen2-7B", HF_TOKEN="hf_x")`: the command line in a folder that holds no model."""

    def call(*arguments: str, **env: str) -> Ran:
        with inside(tmp_path / "work", environment | env):
            return run(*arguments)

    return call
