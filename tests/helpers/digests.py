"""Digests of figures that no total sees: those of device files, and the configs of presets.

digests.toml has the digest of each file under the reason of its last change. `python -m tests.helpers.digests "REASON"`
writes a new digest under this reason for each file whose figures differ; the reason is where the new figure was read.
"""

import hashlib
import json
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfacct.loading import devices, presets

FILE = Path(__file__).with_name("digests.toml")
HEAD = "# Digests of the figures of files, by where these are from: see tests/helpers/digests.py.\n"
FOLDERS = {"devices": devices.folder(), "presets": presets.folder()}
ELSEWHERE = {
    "devices": {"name", "aliases", "vendor", "architecture", "year", "source", "calibration"},
    "presets": {"source", "expect", "hub", "quantization_config"},
}
"""Tables and fields, at any depth, that are no figures, or that other tests compare with the published files."""


def figures(value: Any, without: set[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: figures(inner, without) for key, inner in value.items() if key not in without}
    return [figures(inner, without) for inner in value] if isinstance(value, list) else value


def digest(found: Any) -> str:
    """Twelve hexadecimal digits that change with any figure, and not with the order of keys."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:12]


def current() -> Iterator[tuple[str, str, str]]:
    """Kind, name and digest of every file that comes with the package."""
    for kind, folder in FOLDERS.items():
        for path in sorted(folder.glob("*.toml")):
            file = tomllib.loads(path.read_text(encoding="utf-8"))
            yield kind, path.stem, digest(figures(file, ELSEWHERE[kind]))


def recorded() -> dict[str, dict[str, list[str]]]:
    """Digest and reason by kind and name."""
    table = tomllib.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return {
        kind: {
            name: [found, reason]
            for reason, files in by_reason.items()
            for name, found in (each.split("=") for each in files.split())
        }
        for kind, by_reason in table.items()
    }


def write(reason: str) -> list[str]:
    """Record every digest that differs with this reason. Returns the names."""
    before, changed = recorded(), []
    table: dict[str, dict[str, list[str]]] = {}
    for kind, name, found in current():
        known = before.get(kind, {}).get(name, ["", ""])
        if known[0] != found:
            known = [found, reason]
            changed.append(name)
        table.setdefault(kind, {}).setdefault(known[1], []).append(f"{name}={found}")
    text = HEAD
    for kind, by_reason in table.items():
        text += f"\n[{kind}]\n"
        for cause, files in by_reason.items():
            filled = textwrap.fill(" ".join(files), 120, break_on_hyphens=False)
            text += f'{json.dumps(cause, ensure_ascii=False)} = """\n{filled}\n"""\n'
    FILE.write_text(text, encoding="utf-8")
    return changed


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].strip():
        sys.exit('say why: python -m tests.helpers.digests "REASON"')
    print("\n".join(write(sys.argv[1].strip())) or "nothing differs")
