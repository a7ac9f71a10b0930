"""Measured runs of serving engines, read from a folder that is not part of the project: for time_error.py.

serving.csv            mean TTFT and TPOT at a concurrency
serving_new_models.csv the same for models with recurrences, indexers or compressed keys; no constant is fitted to them
throughput.csv         largest offline throughput, TensorRT-LLM 1.0
throughput_trtllm.csv  the same for TensorRT-LLM 0.9, 0.14 and 1.2
disaggregated.csv      a decode step of workers that only decode
first_token.csv        TTFT of one prompt alone
mi300x.csv             latency of a fixed batch, and throughput, on 8 MI300X
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from errors import device

from tfacct.base.errors import TfacctError
from tfacct.ledger.storage import BF16_EACH, Storage, storage, width
from tfacct.loading.find import find
from tfacct.loading.memory_limit import RESERVE, device_limit
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh
from tfacct.timing.kernel_time import Constants
from tfacct.timing.serving import Host, Loop
from tfacct.timing.validated import Model, model_kind

PRESETS = {
    "kimi-k2.5": "kimi-k2",
    "minimax-m2.5": "minimax-m2",
    "llama-3-70b": "llama-3.1-70b",
    "mistral-7b": "mistral-7b-v0.3",
}
"""Presets of the same shape, under another name."""
ONLY_EXPERTS = {("kimi-k2.5", "int4")}
"""Checkpoints whose config quantizes only the experts, although the format covers all matrices."""
AS_PUBLISHED = {("deepseek-v4-flash", "mxfp4")}
"""Checkpoints whose other matrices have another quantized format."""
MOST = 2048
"""Largest number of sequences that TensorRT-LLM runs in each group of data-parallel attention."""
SHARE = 0.9
"""Share of the memory left by the weights that TensorRT-LLM uses for the cache."""
SAMPLING = 3
"""Numbers of 4 bytes that TensorRT-LLM stores for each token of the vocabulary and each of `MOST` sequences: logits,
and the workspaces of top-k and top-p."""
FULL = 0.6
"""If weights take a larger share of the memory, the batch is not known well."""
Measure: TypeAlias = Literal["request", "token", "decode", "prefill"]
Row: TypeAlias = Mapping[str, str]


class Run(NamedTuple):
    """A measured run: the loop that predicts it, and its measured seconds. `fitted`: true if constants are fitted to
    the run. `first_token`: mean seconds to the first token, if known."""

    cell: str
    source: str
    loop: Loop
    kind: Model
    groups: dict[str, str]
    seconds: dict[Measure, float]
    fitted: bool = True
    flag: str = ""
    first_token: float | None = None

    @property
    def main(self) -> Measure:
        """The measure whose error is reported."""
        return next(iter(self.seconds))

    def predicted(self, constants: Constants) -> dict[Measure, float]:
        """Seconds by these constants."""
        served = self.loop.served(constants)
        found: dict[Measure, float] = {
            "request": served.request,
            "token": served.token[1],
            "decode": served.decode.seconds,
            "prefill": served.prefill.seconds,
        }
        return {name: found[name] for name in self.seconds}

    @property
    def bound(self) -> bool:
        """True if no lower bound exceeds the measured time."""
        served = self.loop.served()
        least = {"decode": served.decode.bound, "token": served.decode.bound, "prefill": served.prefill.bound}
        return all({"request": served.request_bound, **least}[name] <= self.seconds[name] for name in self.seconds)


@cache
def model(name: str) -> LoadedModel:
    return find(PRESETS.get(name, name))


@cache
def stored(name: str, weights: str) -> Storage:
    if (name, weights) in AS_PUBLISHED:
        return model(name).storage()
    every = storage("bf16" if weights == "fp16" else weights)
    if (name, weights) not in ONLY_EXPERTS:
        return every
    return replace(every, choose=lambda tensor: every.choose(tensor) if tensor.role == "expert" else None)


def host(row: Row, tp: int, dp: int = 1, ep: int = 1, *, narrow_cache: bool = False) -> Host:
    """The model of a row on its devices. Raises TfacctError."""
    loaded, chip = model(row["model"]), device(row["device"])
    mesh = Mesh(tp, dp=dp, ep=ep if loaded.ledger.experts else 1)
    if mesh.ranks > 1:
        chip.link(mesh.ranks)
    cache_each = width("fp8") if narrow_cache else BF16_EACH
    return Host(loaded.ledger, chip, mesh, stored(row["model"], row["weights"]), BF16_EACH, cache_each)


def run_of(
    row: Row, source: str, on: Host, loop: Loop, seconds: dict[Measure, float], fitted: bool = True, flag: str = ""
) -> Run:
    chip = device(row["device"])
    groups = {
        "device": chip.id,
        "engine": (row.get("engine") or "trtllm").split(" ")[0],
        "dtype": "bf16" if row["weights"] == "fp16" else row["weights"],
        "link": chip.link(on.mesh.ranks).reach if on.mesh.ranks > 1 else "",
        "devices": str(on.mesh.ranks),
    }
    return Run(row["cell"], source, loop, model_kind(on.ledger), groups, seconds, fitted, flag)


def serving(row: Row) -> Run | None:
    """Requests at a fixed concurrency."""
    new_model = "usable" not in row
    if not new_model and row["usable"] != "yes":
        return None
    tp, dp, ep = (int(row[name]) for name in ("attn_tp", "attn_dp", "moe_ep"))
    on = host(row, tp, dp, ep, narrow_cache=row["kv_dtype"] == "fp8" if new_model else float(row["kv_bytes"]) == 1)
    ttft, tpot, new = float(row["ttft_ms"]) / 1e3, float(row["tpot_ms"]) / 1e3, float(row["osl_mean"])
    loop = on.loop(int(row["concurrency"]), round(float(row["isl_mean"])), round(new))
    seconds: dict[Measure, float] = {"request": ttft + (new - 1) * tpot, "token": tpot}
    flag = row.get("flag") or ""
    source = "new models" if new_model else "requests"
    return run_of(row, source, on, loop, seconds, not new_model and not flag, flag)._replace(first_token=ttft)


def throughput(row: Row) -> Run | None:
    """Offline throughput. A batch that is not stated is the largest by TensorRT-LLM's memory rule."""
    version = row.get("version") or "1.0"
    gpus, fitted = int(row["gpus"]), True
    tp, dp, ep = (int(row[name]) for name in ("tp", "dp", "ep")) if "tp" in row else (gpus, 1, 1)
    if version == "1.0" and gpus > 1 and model(row["model"]).ledger.experts:
        # The layout is not published. Experts with data-parallel attention is what the engine's guide recommends.
        (tp, dp, ep), fitted = (1, gpus, gpus), False
    cache_dtype = row.get("kv_dtype") or ("bf16" if row["weights"] in ("bf16", "fp16") else "fp8")
    on = host(row, tp, dp, ep, narrow_cache=cache_dtype == "fp8")
    chip, prompt, new = device(row["device"]), int(row["isl"]), int(row["osl"])
    if row.get("batch"):
        requests = int(row["batch"])
    else:
        vocabulary = max(group.axes.get("V", 0) for group in on.ledger.groups)
        free = chip.memory - on.stored() - RESERVE - 4 * SAMPLING * MOST * vocabulary
        usable = on.stored() + int(SHARE * free)
        requests = on.capacity(prompt + new, usable, min(MOST * dp, int(float(row["requests"] or MOST))))
    if not requests:
        return None
    full = not row.get("batch") and on.stored() > FULL * chip.memory
    source = f"throughput {version}{', weights > 0.6' if full else ''}"
    loop, every = on.loop(requests, prompt, new), max(requests, int(float(row.get("requests") or requests)))
    full_batches, rest = divmod(every, requests)  # all requests begin at once, so the last ones run in a smaller batch
    batches = full_batches + (on.served(rest, prompt, new).request / loop.served().request if rest else 0)
    seconds: dict[Measure, float] = {"request": every * new / float(row["output_tokens_per_s"]) / batches}
    return run_of(row, source, on, loop, seconds, fitted and not full)


def disaggregated(row: Row) -> Run | None:
    """A decode step of workers that only decode."""
    tp, dp, ep = (int(row[name]) for name in ("decode_tp", "decode_dp", "decode_ep"))
    on = host(row, tp, dp, ep, narrow_cache=row["engine"] == "trtllm" and row["weights"] != "bf16")
    requests = max(1, round(float(row["decode_batch"])))
    loop = on.loop(requests, round(float(row["isl_mean"])), round(float(row["osl_mean"])))
    seconds: dict[Measure, float] = {"decode": float(row["tpot_ms"]) / 1e3}
    flag = row.get("flag") or ""
    return run_of(row, "disaggregated decode", on, loop, seconds, not flag, flag)


def first_token(row: Row) -> Run | None:
    """One prompt alone."""
    on = host(row, int(row["gpus"]))
    loop = on.loop(int(row["batch"]), int(row["isl"]), 1)
    return run_of(row, "first token", on, loop, {"prefill": float(row["first_token_ms"]) / 1e3})


def mi300x(row: Row) -> Run | None:
    """A fixed batch of vLLM, or its throughput with the largest batch by tfacct's memory rule."""
    on = host(row, int(row["tp"]), narrow_cache=row["kv_dtype"] == "fp8")
    prompt, new = int(row["isl"]), int(row["osl"])
    if row["kind"] != "throughput":
        loop = on.loop(int(row["batch"]), prompt, new)
        return run_of(row, "MI300X", on, loop, {"request": float(row["request_s"])}, fitted=False)
    requests = on.capacity(prompt + new, device_limit(1, device(row["device"])).usable, int(row["max_sequences"]))
    seconds: dict[Measure, float] = {"request": requests * new / float(row["output_tokens_per_s"])}
    return run_of(row, "MI300X throughput", on, on.loop(requests, prompt, new), seconds, fitted=False)


READERS: Mapping[str, Callable[[Row], Run | None]] = {
    "serving.csv": serving,
    "serving_new_models.csv": serving,
    "throughput_trtllm.csv": throughput,
    "throughput.csv": throughput,
    "disaggregated.csv": disaggregated,
    "first_token.csv": first_token,
    "mi300x.csv": mi300x,
}


def read(folder: Path) -> tuple[list[Run], list[str]]:
    """All usable runs, and why the others are not usable."""
    left_out: list[str] = []
    runs = [run for name in READERS if (folder / name).exists() for run in _read(folder / name, left_out)]
    return runs, left_out


def _read(path: Path, left_out: list[str]) -> Iterator[Run]:
    for row in csv.DictReader(path.open()):
        try:
            run = READERS[path.name](row)
        except TfacctError as error:  # a model or device that is not known here, or has no kernels
            left_out.append(error.message)
            continue
        if run is None:
            left_out.append(row.get("usable") or f"no room: {row['cell']}")
        else:
            yield run
