"""Several processes that send to one another by gloo, as ranks do."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.helpers.lazy import lazy

torch, dist = lazy("torch"), lazy("torch.distributed")

SECONDS = 600
"""How long ranks may take: each imports torch, on cores that others use too."""
ROOT = Path(__file__).parents[2]


def reports_of_ranks(module: str, ranks: int, folder: Path, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What each rank of `python -m tests.helpers.MODULE RANK RANKS STORE JOB` prints last, read from JSON when it is
    asked for: in some jobs only the first prints. All must exit with 0."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    start = [sys.executable, "-W", "ignore", "-m", f"tests.helpers.{module}"]
    processes = [
        subprocess.Popen(
            [*start, str(rank), str(ranks), str(folder / "store"), json.dumps(job)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    printed = [process.communicate(timeout=SECONDS) for process in processes]
    failed = [error[-2000:] for process, (_, error) in zip(processes, printed, strict=True) if process.returncode]
    assert not failed, failed
    for out, _ in printed:
        yield json.loads(out.splitlines()[-1])


def run_as_rank(work: Callable[[int, dict[str, Any]], None]) -> None:
    """Do the work of one of several ranks, in a process that `reports_of_ranks` started, and leave when all have come
    to the end: the first rank that passes a barrier and exits closes connections from which others still read, which
    gloo takes for an error."""
    rank, ranks, job = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[4])
    torch.set_num_threads(1)
    store = dist.FileStore(sys.argv[3], ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    work(rank, job)
    dist.barrier()
    store.add("left", 1)
    while store.add("left", 0) < ranks:
        time.sleep(0.01)
    dist.destroy_process_group()
