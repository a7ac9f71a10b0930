"""Errors of `tfacct serve --draft-tokens` on runs of DeepSeek-V3 with drafts by its own layer: for time_error.py.

The runs report neither drafted nor accepted tokens. This module assumes 3 drafts, and in each cell the
acceptance that fits its runs best. So the errors only show how well the estimate follows the number of requests and
their lengths.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import TypeAlias

import numpy as np
from errors import HEAD, line
from fitting import Array
from measured import host, model

from tfacct.timing.drafts_and_adapters import mtp_draft
from tfacct.timing.serving import Served, Speculation
from tfacct.timing.validated import DRAFTED

Error: TypeAlias = Callable[[float], float]
"""Logarithm of predicted over measured, as a function of the new tokens of a step."""
ACCEPTANCES = [share / 100 for share in range(101)]


def speculative(path: Path) -> list[str]:
    """Errors of the time per output token, and of its ratio to that of the same run without drafts."""
    times: dict[str, list[Error]] = {}
    asked = Speculation(DRAFTED["drafts"], 0)
    gains: dict[str, list[Error]] = {}
    for row in csv.DictReader(path.open()):
        if row["model"] != "deepseek-v3":  # tfacct knows no such layer of the others
            continue
        tp, dp, ep = (int(row[name]) for name in ("attn_tp", "attn_dp", "moe_ep"))
        plain = host(row, tp, dp, ep, narrow_cache=row["engine"] == "trtllm")
        drafting = replace(plain, draft=mtp_draft(plain, model(row["model"]), asked))
        size = int(row["concurrency"]), round(float(row["isl_mean"])), round(float(row["osl_mean"]))
        served, measured = drafting.served(*size), float(row["tpot_ms"]) / 1e3
        times.setdefault(row["cell"], []).append(_error(served, measured))
        if row["plain_tpot_ms"]:
            twin = plain.served(*size).token[1] / (float(row["plain_tpot_ms"]) / 1e3)
            gains.setdefault(row["cell"], []).append(_error(served, measured * twin))
    print(f"\ntime per output token of DeepSeek-V3 with drafts, acceptance fitted to each cell\n{HEAD}")
    left = _left(times)
    print(line("seconds", left))
    print(line("ratio to the same run without drafts", _left(gains)))
    found = len(left), len(times), float(np.median(np.abs(np.exp(left) - 1)))
    known = found[:2] == (DRAFTED["runs"], DRAFTED["cells"]) and abs(found[2] - DRAFTED["median"]) < 0.0051
    return [] if known else [f"drafts: runs, cells and error are {found}"]


def _error(served: Served, measured: float) -> Error:
    return lambda tokens: log(served._replace(loop=served.loop._replace(tokens=tokens)).token[1] / measured)


def _left(cells: dict[str, list[Error]]) -> Array:
    """Logarithms of all runs, each cell with the acceptance that fits it best."""
    return np.concatenate([_fitted(errors) for errors in cells.values()])


def _fitted(errors: Sequence[Error]) -> Array:
    steps = [sum(share**place for place in range(DRAFTED["drafts"] + 1)) for share in ACCEPTANCES]
    every = [np.array([error(tokens) for error in errors]) for tokens in steps]
    return min(every, key=lambda left: float(np.median(np.abs(left))))
