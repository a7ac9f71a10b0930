"""Maps from the tensors of a user's own code to paths of a ledger: small TOML files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tfacct.base.errors import ConfigError, UsageError, cut
from tfacct.loading import files

EXAMPLE = '"layers.*.attn.qkv.weight" = ["blocks.*.attn.q_proj.weight", …]'


def read(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Paths of the ledger by names of the code, `*` for the number of a block. Raises ConfigError."""
    found: dict[str, tuple[str, ...]] = {}
    for name, paths in files.parse_toml(str(path), files.read(Path(path))).items():
        several = [paths] if isinstance(paths, str) else paths
        if not isinstance(several, list) or not all(isinstance(one, str) for one in several):
            problem = f"{path}: {cut(name)!r} must be the path of a tensor, or a list of them, not {cut(repr(paths))}"
            raise ConfigError(problem, f"a line is {EXAMPLE}")
        found[name] = tuple(several)
    return found


def write(
    path: str | Path, pairs: Mapping[str, Sequence[str]], alone: Sequence[str], missing: Sequence[str], whose: str
) -> None:
    """Write a map that a check found, with names and paths that have no pair as comments. Raises UsageError."""
    file = Path(path)
    lines = [
        f"# Tensors of the code, and what they are in {whose}. `*` is the number of a block.",
        "# A list holds what is one tensor in the code; an empty list leaves a tensor out.",
        "",
    ]
    for name, paths in pairs.items():
        each = [f'"{one}"' for one in paths]
        lines.append(f'"{name}" = ' + (each[0] if len(each) == 1 else f"[{', '.join(each)}]"))
    if alone:
        lines += ["", "# Of the code, without a pair:", *(f'# "{name}" = "…"' for name in alone)]
    if missing:
        lines += ["", "# Of the config, without a pair:", *(f"# {name}" for name in missing)]
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write("\n".join(lines) + "\n")
    except FileExistsError:
        raise UsageError(f"{path} exists already", "name another file, or remove it") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
