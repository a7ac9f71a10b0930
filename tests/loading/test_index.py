"""The index of presets equals their files. Kind: law."""

import json

import pytest
from typer.testing import CliRunner

from tfacct.cli.app import app
from tfacct.loading import index, presets
from tfacct.reports.models import listed


@pytest.fixture
def two_presets(tmp_path, monkeypatch):
    """A folder with two presets and an index of the first."""
    for name in ("gpt2", "llama-2-7b"):
        (tmp_path / f"{name}.toml").write_bytes((presets.folder() / f"{name}.toml").read_bytes())
    data = (tmp_path / "gpt2.toml").read_bytes()
    entry = index.Entry(presets._read(tmp_path / "gpt2.toml"), listed(presets.load("gpt2")))
    (tmp_path / index.FILE).write_text(index.text([(data, entry)]), encoding="utf-8")
    monkeypatch.setattr(presets, "folder", lambda: tmp_path)
    presets.names.cache_clear()
    yield tmp_path
    presets.names.cache_clear()


def test_it_holds_every_preset_as_it_is_loaded():
    for name in presets.names():
        path = presets.folder() / f"{name}.toml"
        entry = index.entry(path, path.read_bytes())
        assert entry is not None, f"{name}: run `python docs/build.py`"
        assert entry.file == presets._read(path), name
        assert entry.listed == listed(presets.load(name)), name


def test_a_file_that_changed_is_read(two_presets):
    path = two_presets / "gpt2.toml"
    assert index.entry(path, path.read_bytes()) is not None
    path.write_bytes(path.read_bytes().replace(b"n_layer = 12", b"n_layer = 13"))
    assert index.entry(path, path.read_bytes()) is None
    # A block of GPT-2: 12·768² weights and 13·768 biases and scales.
    assert {one.name: one.parameters for one in presets.list_all()}["gpt2"] == 124_439_808 + 12 * 768**2 + 13 * 768


def test_a_preset_that_it_lacks_is_loaded(two_presets):
    listed = [(one.name, isinstance(one, index.Listed)) for one in presets.list_all()]
    assert listed == [("gpt2", True), ("llama-2-7b", False)]


@pytest.mark.parametrize("text", [None, "", "{", "[]"])
def test_presets_without_an_index_are_the_same(two_presets, text):
    with_it = [listed(one) for one in presets.list_all()]
    path = two_presets / index.FILE
    path.unlink()
    if text is not None:
        path.write_text(text)
    index._index.cache_clear()
    assert [listed(one) for one in presets.list_all()] == with_it


def test_a_list_of_its_presets_loads_no_model(monkeypatch):
    def never(*_):
        raise AssertionError("a preset was loaded")

    monkeypatch.setattr(presets, "_model", never)
    result = CliRunner().invoke(app, ["models", "--family", "gpt2", "--json"])
    assert result.exit_code == 0, result.output
    assert {"gpt2", "gpt2-xl"} <= {model["model"] for model in json.loads(result.stdout)["models"]}
