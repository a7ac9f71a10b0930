"""Several processes that send to one another by gloo, as ranks do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def reports_of_ranks(module: str, ranks: int, folder: Path, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What each rank of `python -m tests.helpers.MODULE RANK STORE JOB` prints last, read from JSON as it is asked for:
    in some jobs only the first prints. All must exit with 0."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    start = [sys.executable, "-W", "ignore", "-m", f"tests.helpers.{module}"]
    processes = [
        subprocess.Popen(
            [*start, str(rank), str(folder / "store"), json.dumps(job)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    printed = [process.communicate(timeout=240) for process in processes]
    failed = [error[-2000:] for process, (_, error) in zip(processes, printed, strict=True) if process.returncode]
    assert not failed, failed
    for out, _ in printed:
        yield json.loads(out.splitlines()[-1])
