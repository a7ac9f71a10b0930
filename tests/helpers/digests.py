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
TABLES = ("memory", "peak", "link", "power", "check")
"""Tables of a device file that have figures."""
ELSEWHERE = ("source", "expect", "hub", "quantization_config")
"""Tables and fields of a preset that are no figures, or that other tests compare with the published files."""


def figures_of_device(file: Mapping[str, Any]) -> dict[str, Any]:
    """Every number of a device file, with its place."""
    return {name: file[name] for name in TABLES if name in file}


def figures_of_preset(file: Mapping[str, Any]) -> Any:
    """All of a preset, at any depth without ELSEWHERE."""

    def figures(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: figures(inner) for key, inner in value.items() if key not in ELSEWHERE}
        return [figures(inner) for inner in value] if isinstance(value, list) else value

    return figures(file)


def digest(figures: Any) -> str:
    """Twelve hexadecimal digits that change with any figure, and not with the order of keys."""
    return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()[:12]


def current() -> Iterator[tuple[str, str, str]]:
    """Kind, name and digest of every file that comes with the package."""
    for path in sorted(devices.folder().glob("*.toml")):
        yield "devices", path.stem, digest(figures_of_device(tomllib.loads(path.read_text(encoding="utf-8"))))
    for path in sorted(presets.folder().glob("*.toml")):
        yield "presets", path.stem, digest(figures_of_preset(tomllib.loads(path.read_text(encoding="utf-8"))))


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
