"""Maps from tensors of a user's code to paths of a ledger, as small TOML files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tfacct.base.errors import ConfigError, UsageError, cut
from tfacct.loading import files

EXAMPLE = '"layers.*.attn.qkv.weight" = ["blocks.*.attn.q_proj.weight", …]'


def read(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Paths of the ledger by names of the code, with `*` for a layer number. Raises ConfigError."""
    found: dict[str, tuple[str, ...]] = {}
    for name, paths in files.parse_toml(str(path), files.read(Path(path))).items():
        several = [paths] if isinstance(paths, str) else paths
        if not isinstance(several, list) or not all(isinstance(one, str) for one in several):
            problem = f"{path}: {cut(name)!r} must be a tensor path or a list of paths, not {cut(repr(paths))}"
            raise ConfigError(problem, f"for example {EXAMPLE}")
        found[name] = tuple(several)
    return found


def write(
    path: str | Path, pairs: Mapping[str, Sequence[str]], alone: Sequence[str], missing: Sequence[str], model: str
) -> None:
    """Write a map found by a check, with unpaired names and paths as comments. Raises UsageError."""
    file = Path(path)
    lines = [
        f"# Tensors of the code and their paths in {model}. `*` is a layer number.",
        "# A list fuses several paths into one tensor of the code; an empty list ignores the tensor.",
        "",
    ]
    for name, paths in pairs.items():
        each = [f'"{one}"' for one in paths]
        lines.append(f'"{name}" = ' + (each[0] if len(each) == 1 else f"[{', '.join(each)}]"))
    if alone:
        lines += ["", "# Unpaired tensors of the code:", *(f'# "{name}" = "…"' for name in alone)]
    if missing:
        lines += ["", "# Unpaired tensors of the config:", *(f"# {name}" for name in missing)]
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write("\n".join(lines) + "\n")
    except FileExistsError:
        raise UsageError(f"{path} already exists", "choose another file, or remove it") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
