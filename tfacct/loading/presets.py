"""Presets: one TOML file each, with a published config and its source."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tfacct import families
from tfacct.base.errors import ConfigError, NotFoundError, cut, listed, nearest
from tfacct.loading import files
from tfacct.loading.model import LoadedModel, load_model
from tfacct.loading.model_description import EXPECTED_FROM, Provenance

if TYPE_CHECKING:
    from tfacct.loading.index import Listed

OneT = TypeVar("OneT", LoadedModel, "LoadedModel | Listed")
NEEDED = {"source": ("url", "kind"), "expect": ("parameters", "from"), "config": ("model_type",)}
KINDS = ("copied", "transcribed")
ABOUT = ("source", "expect")
"""Tables with facts about a file, which a custom model may have too."""
NAMES = ("hub", "also", "without")
"""Keys of [source] with lists of names: hub ids of other models with the same sizes, other names of the model, and
configs in the published file that are not part of the preset."""


@cache
def folder() -> Path:
    """Folder of the presets."""
    return files.packaged("presets")


@cache
def names() -> list[str]:
    """Names of all presets."""
    return sorted(path.stem for path in folder().glob("*.toml"))


def load(name: str, sets: Mapping[str, object] | None = None) -> LoadedModel:
    """Return the preset `name` with the changed fields in `sets`."""
    return load_file(folder() / f"{name}.toml", sets)


def source(name: str) -> Mapping[str, Any]:
    """Return the [source] table of the preset `name`."""
    about: dict[str, Any] = _indexed(folder() / f"{name}.toml")[0].get("source", {})
    return about


def load_file(path: Path, sets: Mapping[str, object] | None = None) -> LoadedModel:
    """Return the preset or custom model in a file. Raises ConfigError with the file."""
    return _model(path, _read(path), sets)


def _is_custom(file: Mapping[str, Any]) -> bool:
    """True for a custom model, which has tables of parts instead of config fields."""
    return "config" not in file and (not file or bool(file.keys() - {*ABOUT, "nulls"}))


def _family(file: Mapping[str, Any]) -> Any:
    return families.CUSTOM if _is_custom(file) else file["config"]["model_type"]


def _has_experts(table: Mapping[str, Any]) -> bool:
    """True if a preset's file sets a field of experts to more than 0.

    >>> _has_experts({"config": {"text_config": {"num_experts": 8}}}), _has_experts({"num_local_experts": 0})
    (True, False)
    """
    return any(
        _has_experts(value) if isinstance(value, dict) and "expert" not in name else "expert" in name and bool(value)
        for name, value in table.items()
    )


def _matches(word: str, name: str, file: Mapping[str, Any]) -> bool:
    """True if a preset's name or family has the word; for `moe`, if the preset has experts."""
    return _has_experts(file) if word == "moe" else word in f"{name} {_family(file)}"


def _indexed(path: Path) -> tuple[dict[str, Any], Listed | None]:
    """A preset's file and its entry in the index, or the parsed file and None without an entry."""
    from tfacct.loading import index

    data = files.read(path)
    known = index.entry(path, data)
    return (_parsed(path, data), None) if known is None else known


def _read(path: Path) -> dict[str, Any]:
    return _parsed(path, files.read(path))


def _parsed(path: Path, data: bytes) -> dict[str, Any]:
    file = files.parse_toml(str(path), data)
    _check_about(path, file)
    if _is_custom(file):
        return file
    for table, keys in NEEDED.items():
        for key in keys:
            if key not in file.get(table, {}):
                needed = (f"[{name}] with {' and '.join(given)}" for name, given in NEEDED.items())
                raise ConfigError(f"{path}: [{table}] has no {key}", f"a preset needs {', '.join(needed)}")
    source, expect = file["source"], file["expect"]
    if source["kind"] not in KINDS or (source["kind"] == "copied" and "via" not in source):
        raise ConfigError(f"{path}: kind must be transcribed, or copied with a via, not {cut(repr(source['kind']))}")
    if expect["from"] not in EXPECTED_FROM or (expect["from"] == "arithmetic" and "working" not in expect):
        raise ConfigError(f"{path}: from must be published, transformers, or arithmetic with a working")
    nulls = file.get("nulls", [])
    if not isinstance(nulls, list) or not all(isinstance(name, str) for name in nulls):
        raise ConfigError(f"{path}: nulls must be a list of names")
    return file


def _check_about(path: Path, file: Mapping[str, Any]) -> None:
    """Check the types of tables and facts about the file. Raises ConfigError."""
    for table in (*ABOUT, "config"):
        if not isinstance(file.get(table, {}), dict):
            raise ConfigError(f"{path}: [{table}] must be a table")
    for table in ABOUT:
        for key, value in file.get(table, {}).items():
            if key == "parameters":
                if type(value) is not int or value < 1:
                    raise ConfigError(f"{path}: [{table}] parameters must be a whole number of at least 1")
            elif table == "source" and key in NAMES:
                _check_names(path, key, value)
            elif not isinstance(value, str):
                raise ConfigError(f"{path}: [{table}] {cut(key)} must be text")


def _check_names(path: Path, key: str, names: Any) -> None:
    """Check a list of names; hub ids are OWNER/NAME. Raises ConfigError."""
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise ConfigError(f"{path}: [source] {key} must be a list of names")
    for name in names:
        if key == "hub" and not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise ConfigError(f"{path}: [source] hub must list ids as OWNER/NAME, not {cut(repr(name))}")


def _model(path: Path, file: dict[str, Any], sets: Mapping[str, object] | None) -> LoadedModel:
    if _is_custom(file):
        return _custom(path, file, sets)
    source, expect = file["source"], file["expect"]
    provenance = Provenance(
        url=source["url"],
        kind=source["kind"],
        via=source.get("via"),
        revision=source.get("revision"),
        without=tuple(source.get("without", ())),
        expected=expect["parameters"],
        expected_from=expect["from"],
        working=expect.get("working"),
    )
    return load_model(path.stem, _with_nulls(file["config"], file.get("nulls", ())), sets, provenance)


def _with_nulls(config: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Config with null fields, which TOML cannot express; for some classes null differs from absent.

    >>> _with_nulls({"a": 1, "quantization_config": {"b": 2}}, ["c", "quantization_config.d"])
    {'a': 1, 'quantization_config': {'b': 2, 'd': None}, 'c': None}
    """
    fields = dict(config)
    for name in names:
        outer, _, inner = name.partition(".")
        fields[outer] = {**fields.get(outer, {}), inner: None} if inner else None
    return fields


def _custom(path: Path, file: dict[str, Any], sets: Mapping[str, object] | None) -> LoadedModel:
    """Return a custom model. [source] and [expect] are optional."""
    tables = {name: table for name, table in file.items() if name not in ABOUT}
    if "model" not in tables:
        there = listed([f"[{name}]" for name in tables]) or "nothing"
        raise ConfigError(
            f"{path}: [model] is missing: the file has {there}",
            "a custom model needs [model] and its parts, such as [attention] and [decoder]; a preset needs [config]",
        )
    source, expect = file.get("source", {}), file.get("expect", {})
    for name, table, keys in (("source", source, {"about"}), ("expect", expect, {"parameters", "from", "working"})):
        if set(table) - keys:
            raise ConfigError(f"{path}: [{name}] of a custom model may only have {', '.join(sorted(keys))}")
    total = expect.get("parameters")
    if expect and (type(total) is not int or expect.get("from") != "arithmetic" or "working" not in expect):
        raise ConfigError(f'{path}: [expect] of a custom model needs parameters, from = "arithmetic", and a working')
    provenance = Provenance(
        url="",
        kind="described",
        expected=total,
        expected_from=expect.get("from", ""),
        about=source.get("about") or None,
        working=expect.get("working"),
    )
    return load_model(path.stem, tables, sets, provenance if source or expect else None)


def load_all(
    sets: Mapping[str, object] | None = None,
    *,
    family: str | None = None,
    max_params: int | None = None,
    words: Collection[str] = (),
) -> list[LoadedModel]:
    """Presets by family and size: all, or those of `family`, with at most `max_params` parameters, and with all `words`
    in name or family."""
    return _chosen(lambda path, file, _: _model(path, file, sets), family, max_params, words)


def list_all(
    *, family: str | None = None, max_params: int | None = None, words: Collection[str] = ()
) -> list[LoadedModel | Listed]:
    """The same presets as entries of the index; missing ones are loaded."""
    return _chosen(lambda path, file, known: known or _model(path, file, None), family, max_params, words)


def _chosen(
    load: Callable[[Path, dict[str, Any], Listed | None], OneT],
    family: str | None,
    max_params: int | None,
    words: Collection[str],
) -> list[OneT]:
    """Results of `load` for matching presets, by family and size."""
    if family is not None and family not in families.names():
        known = f"known: {', '.join(families.names())}"
        raise NotFoundError(f"no family {family!r}", nearest(family, families.names()) or known)
    sized = []
    matched = False
    for name in names():
        path = folder() / f"{name}.toml"
        file, listed_ = _indexed(path)
        if not all(_matches(word.casefold(), name, file) for word in words):
            continue
        matched = True
        if family is None or _family(file) == family:
            found = load(path, file, listed_)
            sized.append((found.family, found.parameters, found))
    if not matched:
        close = nearest("-".join(words), [*names(), *families.names()])
        if len(words) > 1 and all(any(word.strip(",").casefold() in name for name in names()) for word in words):
            close = "a preset must have every word: run the search once for each"
        raise NotFoundError(f"no preset matches {listed(words)}", close or "`tfacct models` lists all")
    sized = [entry for entry in sized if max_params is None or entry[1] <= max_params]
    if not sized:
        raise NotFoundError("no preset matches these filters", "`tfacct models` lists all")
    return [found for *_, found in sorted(sized, key=lambda entry: (entry[0], entry[1], entry[2].name))]
