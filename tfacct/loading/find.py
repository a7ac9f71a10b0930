"""Finds what a user calls MODEL: a preset, a path to a config.json or a preset's TOML, a hub id, or `-` for stdin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfacct.base.errors import ConfigError, NotFoundError, TfacctError, nearest
from tfacct.loading import files, presets
from tfacct.loading.model import LoadedModel, Provenance, subject

if TYPE_CHECKING:
    from tfacct.loading.hub import Waiting


def find(
    model: str,
    sets: Mapping[str, Any] | None = None,
    also: Iterable[str] = (),
    *,
    ask_hub: bool = True,
    waiting: Waiting | None = None,
) -> LoadedModel:
    """Return the model that `model` names. Raises a TfacctError that says what would work, such as a name in `also`.

    `waiting` is called with what is waited for, should the hub take its time.
    """
    if model == "-":
        return subject("stdin", files.parse_json("standard input", files.read_stdin()), sets)
    if model in presets.names():
        return presets.load(model, sets)
    if not model.strip():
        raise NotFoundError(
            "the MODEL is empty", "`tfacct models` lists the presets; a path to a config.json works too"
        )
    path = Path(model)
    if _exists(path):
        file = path / "config.json" if path.is_dir() else path
        if file.suffix == ".toml":
            return presets.load_file(file, sets)
        return subject(_short_name(file), files.parse_json(str(file), files.read(file)), sets)
    if path.suffix in (".json", ".toml"):
        raise NotFoundError(f"no file {model!r} here", nearest(path.stem, presets.names()))
    if ask_hub and _looks_like_hub_id(model):
        return _from_hub(model, sets, waiting)
    raise NotFoundError(f"no preset or file named {model!r}", _suggestion(model, also))


def _suggestion(model: str, also: Iterable[str]) -> str:
    close = nearest(model.rsplit("/", 1)[-1], [*presets.names(), *also])
    if model.count("/") > 1:  # a longer path, or the address of a page
        return " ".join(filter(None, (close, "a hub id is OWNER/NAME")))
    return close or "`tfacct models` lists the presets; a path to a config.json works too"


def _looks_like_hub_id(model: str) -> bool:
    """True for OWNER/NAME or OWNER/NAME@REVISION, well-formed or not, unless it is written as a path."""
    return model.partition("@")[0].count("/") == 1 and not model.startswith((".", "/", "~"))


def _from_hub(model: str, sets: Mapping[str, Any] | None, waiting: Waiting | None) -> LoadedModel:
    """Model by its hub id. An error also names the preset that may be meant, which needs no network."""
    from tfacct.loading import hub

    hub_id, revision = hub.read_id(model)
    try:
        copy = hub.fetch(hub_id, revision, largest=files.LARGEST, waiting=waiting or hub.unwatched)
    except TfacctError as error:
        close = nearest(hub_id.rsplit("/", 1)[-1], presets.names())
        error.hint = "; ".join(hint for hint in (error.hint, close) if hint) or None
        raise
    name = hub.name_of(hub_id, revision)
    try:
        fields = files.parse_json(f"config.json of {name}", files.read(copy.path))
    except ConfigError as error:
        error.hint = f"the hub's cache holds it as {copy.path}"
        raise
    source = Provenance(url=copy.page, kind="fetched" if copy.newest else "cached", revision=copy.commit)
    return subject(name, fields, sets, source)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a null byte in it
        return False


def _short_name(file: Path) -> str:
    """Name of a model in a file: that of the folder for a `config.json`."""
    return file.resolve().parent.name if file.name == "config.json" else file.name
