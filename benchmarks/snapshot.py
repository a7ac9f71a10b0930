"""Everything that is printed about every preset, one file each, so that two commits can be compared byte by byte.

    python benchmarks/snapshot.py before/        # on one commit
    python benchmarks/snapshot.py after/         # on the other
    diff -r before after

Ledgers line by line, unfolded counts at two contexts, the JSON of every command, formulas, and what tables say.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

CONTEXTS = (384, 8_192)
DECODES = (("--decode",), ("--tokens", "100"))
ALL = (
    "models",
    "params",
    "flops --ctx 384",
    "memory --dtype bf16 --ctx 384",
    "kv --ctx 384",
    "memory --dtype int8",
    "sweep --ctx 1k,4k",
)


def commands(name: str) -> Iterator[tuple[str, ...]]:
    """Every command that is asked of one model."""
    model = (name,)
    yield ("show", *model)
    yield ("params", *model)
    yield ("kv", *model)
    yield ("formula", *model)
    for quantity in ("params", "kv", "train"):
        yield ("formula", *model, "--of", quantity)
    for ctx in map(str, CONTEXTS):
        at = (*model, "--ctx", ctx)
        for step in ((), *DECODES):
            yield ("flops", *at, *step)
        for more in (("--batch", "3"), ("--masked",), ("--pointwise",), ("--train",), ("--traffic", "--dtype", "bf16")):
            yield ("flops", *at, *more)
        yield ("memory", *at, "--dtype", "bf16", "--on", "80GB")
        yield ("memory", *at, "--dtype", "int8")
        yield ("flops", *at, "--generate", "100")
        yield ("diff", *at, "--to-ctx", "1000", "--dtype", "bf16")
    yield ("sweep", *model, "--ctx", "1k..8k", "--dtype", "bf16")
    yield ("solve", *model, "--for", "ctx", "--until", "total_bytes=900GiB", "--dtype", "bf16")


def ran(*arguments: str) -> str:
    """What one command prints on both streams, and its exit code."""
    from tfacct.cli import main

    sys.argv = ["tfacct", *arguments]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except Exception:
            err.write(traceback.format_exc())
            code = 70
    return f"$ tfacct {' '.join(arguments)}\n{out.getvalue()}{err.getvalue()}[exit {code}]\n"


def ledger(name: str) -> str:
    """Every line of a model's ledger with the sizes of its letters, and all unfolded counts."""
    from tfacct import load

    model = load(name).loaded
    groups: list[Any] = []
    for group in model.ledger.groups:
        lines = [f"{type(line).__name__} {_line(line)}" for line in group.lines]
        groups.append({"kind": group.kind, "count": group.count, "axes": dict(group.axes), "lines": lines})
    return json.dumps(groups, indent=1, default=str)


def _line(line: Any) -> str:
    inner = getattr(line, "of", line)
    fields = ("spec", "weight", "bias", "mask", "bank", "sums", "module")
    return f"{inner.path} " + " ".join(f"{field}={getattr(inner, field, None)}" for field in fields)


def one(folder: Path, name: str) -> None:
    """All of one preset."""
    os.environ["COLUMNS"] = "120"
    texts = [ledger(name)]
    for arguments in commands(name):
        texts.append(ran(*arguments))
        texts.append(ran(*arguments, "--json"))
    (folder / f"{name}.txt").write_text("\n".join(texts), encoding="utf-8")


def everything(folder: Path) -> None:
    """What is said of all presets together."""
    os.environ["COLUMNS"] = "120"
    texts = [ran(*arguments.split(), *form) for arguments in ALL for form in ((), ("--json",), ("--csv",))]
    (folder / "_all.txt").write_text("\n".join(texts), encoding="utf-8")


def main(target: str) -> None:
    """Write one file for each preset, and one for all."""
    from tfacct.loading import presets  # resolved on either side of a move

    folder = Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        jobs = [pool.submit(one, folder, name) for name in presets.names()]
        jobs.append(pool.submit(everything, folder))
        for job in jobs:
            job.result()


if __name__ == "__main__":
    main(sys.argv[1])
