"""The presets: one TOML file each, a published config and where it came from. They are data, never Python."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from tfacct.errors import ConfigError
from tfacct.subject import Provenance, Subject, subject


@cache
def folder() -> Path:
    """Where the presets lie: packed into the package, or beside it in a checkout."""
    packed = Path(__file__).parent / "_presets"
    return packed if packed.is_dir() else Path(__file__).parent.parent / "presets"


@cache
def names() -> list[str]:
    """The name of every preset."""
    return sorted(path.stem for path in folder().glob("*.toml"))


def load(name: str, sets: dict[str, object] | None = None) -> Subject:
    """The preset `name`, with the fields in `sets` over its config."""
    path = folder() / f"{name}.toml"
    try:
        file = tomllib.loads(path.read_text(encoding="utf-8"))
        source, expect, config = file["source"], file["expect"], file["config"]
        provenance = Provenance(
            url=source["url"],
            kind=source["kind"],
            revision=source.get("revision"),
            expected=expect["parameters"],
            expected_from=expect["from"],
            working=expect.get("working"),
        )
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise ConfigError(f"preset {path} is malformed: {error!r}") from None
    return subject(name, config, sets, provenance)


def load_all() -> list[Subject]:
    """Every preset, by family and size."""
    subjects = [load(name) for name in names()]
    return sorted(subjects, key=lambda s: (s.family, sum(s.ledger.parameters().values()), s.name))
