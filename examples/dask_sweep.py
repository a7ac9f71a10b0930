"""Counts a million points in chunks, as dask runs them, or as many as are asked for.

`python examples/dask_sweep.py 1_000_000_000` counts a thousand million, which no memory holds at once. After
`dask.distributed.Client()` the chunks go to a cluster. Needs dask: `pip install 'dask[array]'`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tfacct import load

try:
    import dask.array as da
except ImportError:
    sys.exit("error: this example needs dask\nhint: pip install 'dask[array]'")

BATCHES = 1_000
CARD = 80 * 2**30
llama = load("llama-3.1-8b")

points = int(sys.argv[1].replace("_", "")) if len(sys.argv) > 1 else 1_000_000
contexts = da.arange(1, points // BATCHES + 1, chunks=1_000)[:, None]
batches = da.arange(1, BATCHES + 1, chunks=BATCHES)[None, :]
total: Any = llama.evaluate("total_bytes", ctx=contexts, batch=batches)
print(f"{total.size:,} points in {total.npartitions:,} chunks, none of them counted yet")

compute: Any = da.compute
fits, most = compute((total <= CARD).sum(), da.where(total <= CARD, contexts * batches, 0).max())
print(f"{int(fits):,} pairs of context and batch fit 80 GiB; at most {int(most):,} tokens in all")

some = np.random.default_rng(0).integers((1, 1), (points // BATCHES + 1, BATCHES + 1), (1_000, 2)).T
same = llama.evaluate("total_bytes", ctx=some[0], batch=some[1])
assert (total.vindex[some[0] - 1, some[1] - 1].compute() == same).all()
print(f"{same.size:,} of them by numpy: the same")
