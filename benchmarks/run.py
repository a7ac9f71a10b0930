"""Measure the time of tfacct, mostly as ratios to a floor: `python benchmarks/run.py`.

A command and its floor run in turn, so a slow machine slows both; each run is a new process. The table has the ratio
of the medians and the ratio of the fastest runs, which one lucky run of the floor distorts. Goals are printed, never
enforced, because times depend on the machine. Needs a POSIX system (`os.wait4`).
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time
from typing import Any

from tfacct import load
from tfacct.ledger.workload import Workload
from tfacct.loading import devices
from tfacct.loading.find import find
from tfacct.timing.placement import Deployment

HELLO = (str(Path(__file__).with_name("hello.py")), "hello")
FLOPS = ("-m", "tfacct", "flops", "gpt2-xl", "--ctx", "16384")
GPT2 = ("-m", "tfacct", "flops", "gpt2")
DEEPSEEK = ("-m", "tfacct", "flops", "deepseek-v3")
TRAIN = ("-m", "tfacct", "train", "llama-3.1-8b")
MODELS = ("-m", "tfacct", "models")
MEMORY = ("-m", "tfacct", "memory", "--dtype", "bf16")
VERIFY = ("-m", "tfacct", "verify", "gpt2-xl", "--ctx", "16384")
LARGE = ("-m", "tfacct", "verify", "llama-3.1-405b", "--ctx", "131072")
EVERY_LAYER = (*LARGE, "--all-layers")
FORMULA = ("-m", "tfacct", "formula", "llama")
SYMPY = ("-c", "import sympy")
NOTHING = ("-c", "pass")
PROVE = ("-m", "tfacct", "verify", "--prove", "llama")
TORCH = ("-c", "import torch, fvcore.nn")

VERIFY_RUNS = 3
EVALUATIONS = 1000
BYTECODE = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Environment with bytecode, as for an installed tool. Without it, each run would compile tfacct, but not typer."""
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes


@dataclass(frozen=True)
class Run:
    """Time and memory of one process."""

    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Result:
    """A row of the table. `measured`: the median, which is compared with the goal."""

    what: str
    measured: float
    best: float
    goal: float
    unit: str

    def cells(self) -> tuple[str, ...]:
        """Cells of the row."""
        numbers = (f"{number:.4g} {self.unit}" for number in (self.measured, self.best, self.goal))
        return self.what, *numbers, "ok" if self.measured <= self.goal else "over"


def run(arguments: Sequence[str]) -> Run:
    """Time and peak resident memory of one fresh interpreter with these arguments."""
    start = perf_counter()
    command, nowhere = [sys.executable, *arguments], subprocess.DEVNULL
    with subprocess.Popen(command, stdout=nowhere, stderr=nowhere, env=BYTECODE) as process:
        _, status, usage = os.wait4(process.pid, 0)
        seconds = perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"failed: python {' '.join(arguments)}")
    return Run(seconds, usage.ru_maxrss * MAXRSS_UNIT)


def in_turn(command: Sequence[str], floor: Sequence[str], runs: int) -> tuple[list[Run], list[Run]]:
    """Runs of a command and of its floor, in turn, after a warm-up run of each."""
    for warm_up in (command, floor):
        run(warm_up)
    pairs = [(run(command), run(floor)) for _ in range(runs)]
    return [mine for mine, _ in pairs], [theirs for _, theirs in pairs]


def ratio(what: str, mine: Sequence[Run], theirs: Sequence[Run], goal: float) -> Result:
    """Ratio of the time of a command to that of its floor."""
    a, b = [run.seconds for run in mine], [run.seconds for run in theirs]
    return Result(what, median(a) / median(b), min(a) / min(b), goal, "x")


def start_up(runs: int) -> list[Result]:
    """Ratios of frequent commands to the floor, and of a large model to a small one."""
    return [
        ratio("flops gpt2-xl / hello", *in_turn(FLOPS, HELLO, runs), goal=1.25),
        ratio("train llama-3.1-8b / hello", *in_turn(TRAIN, HELLO, runs), goal=1.25),
        ratio("memory of all presets / hello", *in_turn(MEMORY, HELLO, runs), goal=1.5),
        ratio("models / hello", *in_turn(MODELS, HELLO, runs), goal=1.5),
        ratio("flops deepseek-v3 / flops gpt2", *in_turn(DEEPSEEK, GPT2, runs), goal=1.2),
    ]


def verification(runs: int) -> list[Result]:
    """Ratios of `verify` to the import of its libraries, its peak memory, and the seconds of slow commands."""
    found = []
    asked = (("gpt2-xl", VERIFY, 3, 600), ("405B", LARGE, 3, 1000), ("405B, all layers", EVERY_LAYER, 6, 1000))
    for name, command, goal, most in asked:
        mine, theirs = in_turn(command, TORCH, runs)
        peaks = [run.peak_bytes / 1e6 for run in mine]
        found.append(ratio(f"verify {name} / import torch, fvcore", mine, theirs, goal=goal))
        found.append(Result(f"verify {name}, peak memory", median(peaks), min(peaks), most, "MB"))
    for name, question, seconds in (("verify of all presets", VERIFY[:3], 60), ("verify --prove llama", PROVE, 15)):
        times = [run(question).seconds for _ in range(runs)]
        found.append(Result(name, median(times), min(times), seconds, "s"))
    return found


def formula(runs: int) -> Result:
    """Ratio of `formula llama` to the floor and the import of sympy."""
    mine, floors = in_turn(FORMULA, HELLO, runs)
    sympy, bare = in_turn(SYMPY, NOTHING, runs)
    seconds = [[run.seconds for run in each] for each in (mine, floors, sympy, bare)]
    middle, best = ([of(each) for each in seconds] for of in (median, min))
    measured, fastest = (took / (2 * floor + extra - nothing) for took, floor, extra, nothing in (middle, best))
    return Result("formula llama / (2 hello + import sympy)", measured, fastest, 1, "x")


def arrays(runs: int) -> list[Result]:
    """Ratio of a metric at a million contexts to the same polynomial by sympy.lambdify. Only evaluation is timed."""
    import numpy as np
    import sympy

    model, points = load("llama-3.1-8b"), np.arange(1, 10**6 + 1)
    x = sympy.Symbol("x", positive=True)
    at = Workload(x, x).axes()
    polynomial = sympy.lambdify([x], sympy.expand(sum(model.ledger.flops(at).values())), "numpy")
    floats = points.astype(np.float64)
    assert np.allclose(polynomial(floats), model.evaluate("total_flops", ctx=points), rtol=1e-14)
    mine, theirs = [], []
    for _ in range(runs):  # in turn, as the commands
        mine.append(timeit.timeit(lambda: model.evaluate("total_flops", ctx=points), number=1))
        theirs.append(timeit.timeit(lambda: polynomial(floats), number=1))
    exact = timeit.repeat(lambda: model.evaluate("total_flops", ctx=points, exact=True), repeat=1, number=1)
    return [
        Result("10^6 points, arrays / lambdify", median(mine) / median(theirs), min(mine) / min(theirs), 3, "x"),
        Result("10^6 points, exact", exact[0], exact[0], 2.2, "s"),
    ]


def evaluation(runs: int) -> Result:
    """One ledger evaluated at one workload, in this process."""
    ledger = load("gpt2-xl").ledger
    times = timeit.repeat(
        lambda: sum(ledger.flops(Workload(16384, 16384).axes()).values()), repeat=runs, number=EVALUATIONS
    )
    each = [seconds / EVALUATIONS * 1e6 for seconds in times]
    return Result("ledger.flops, summed", median(each), min(each), 50, "µs")


def calls(runs: int) -> list[Result]:
    """CPU time of methods of llama-3.1-8b, as ratios to one evaluation of its ledger. Each call has a new context."""
    model = load("llama-3.1-8b")

    def seconds(asked: Callable[[int], Any]) -> list[float]:
        times = []
        for ctx in range(2048, 2048 + 8 * runs, 8):
            start = thread_time()
            asked(ctx)
            times.append(thread_time() - start)
        return times

    each: dict[str, tuple[Callable[[int], Any], int]] = {
        "flops_per_token": (lambda ctx: model.flops_per_token(ctx=ctx), 10),
        "flops": (lambda ctx: model.flops(ctx=ctx), 100),
        "memory": (lambda ctx: model.memory(ctx=ctx), 100),
        "supports": (lambda _: model.supports(lora=16, fsdp=8), 100),
        "train": (lambda ctx: model.train(ctx=ctx), 1000),
        "train on h100": (lambda ctx: model.train(ctx=ctx, on="h100"), 5000),
    }
    unit = median(seconds(lambda ctx: sum(model.ledger.flops(Workload(ctx, ctx).axes()).values())))
    found = {name: (seconds(asked), goal) for name, (asked, goal) in each.items()}
    return [
        Result(f"{name} / ledger.flops", median(times) / unit, min(times) / unit, goal, "")
        for name, (times, goal) in found.items()
    ]


def estimates(runs: int) -> list[Result]:
    """CPU time of serving estimates on four devices, without loading. Each call has a new prompt length."""
    found = []
    for name in ("llama-3.1-70b", "deepseek-v3", "deepseek-v4-flash"):
        host, times = Deployment(dtype="fp8").place(find(name), 4, devices.load("b200-hgx")).host, []
        for prompt in range(2048, 2048 + 20 * runs):
            start = thread_time()
            host.served(64, prompt, 256)
            times.append(1e3 * (thread_time() - start))
        found.append(Result(f"estimate of {name}", median(times), min(times), 1, "ms"))
    return found


def steps() -> list[Result]:
    """CPU time of the graph of a training step and of its phases, for models whose layers have the most parts."""
    from tfacct.training.memory import training_memory
    from tfacct.training.phases import phases
    from tfacct.training.recipe import Recipe

    found, work, count = [], Workload(4096, 4096), EVALUATIONS // 20
    eager: Any = {"attention": "eager"}
    steps_: tuple[tuple[str, Recipe], ...] = (
        ("llama-3.1-8b", Recipe()),
        ("gemma-3-27b-text", Recipe()),
        ("gemma-3-27b-text", Recipe(recompute="full", weights_dtype="fp32", **eager)),
        ("gemma-3-27b-text", Recipe(lora="16", **eager)),
        ("gemma-2-9b", Recipe(recompute="attention", lora="16", **eager)),
        ("glm-4.5", Recipe(recompute="full")),
        ("glm-4.5", Recipe(recompute="attention")),
        ("bart-large", Recipe(recompute="full")),
        ("t5-small", Recipe()),
    )
    for name, recipe in steps_:
        loaded = load(name).loaded
        sides = Workload(1024, 1024, source=1024, new_source=1024)
        shape = sides if loaded.architecture.encoder else work
        step = training_memory(loaded, shape, recipe).step
        asked_: tuple[tuple[str, Any, int], ...] = (
            ("graph", partial(training_memory, loaded, shape, recipe), 1000),
            ("phases", partial(phases, step), 1000),
        )
        for what, asked, goal in asked_:
            times = timeit.repeat(asked, number=count, repeat=7, timer=thread_time)
            each = [seconds / count * 1e6 for seconds in times]
            found.append(
                Result(
                    f"{what} of {name}, {recipe.attention}, {recipe.description}", median(each), min(each), goal, "µs"
                )
            )
    return found


def sharded() -> Result:
    """Time of all collectives of a training step of DeepSeek-V3, with TP, FSDP and expert parallelism."""
    from tfacct.parallel.mesh import Mesh
    from tfacct.parallel.rules import collectives

    ledger, at, mesh = load("deepseek-v3").loaded.ledger, Workload(8192, 8192, 1).axes(), Mesh(tp=8, fsdp=8, ep=8)
    times = timeit.repeat(lambda: collectives(ledger, mesh, at, 16, train=True), number=EVALUATIONS // 10, repeat=5)
    each = [seconds / (EVALUATIONS // 10) * 1e6 for seconds in times]
    return Result("collectives of a step", median(each), min(each), 1000, "µs")


def show(results: Sequence[Result]) -> None:
    """Print the table."""
    rows = [("what", "median", "best", "goal", ""), *(result.cells() for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for what, *numbers, verdict in rows:
        cells = [what.ljust(widths[0]), *(n.rjust(w) for n, w in zip(numbers, widths[1:-1], strict=True))]
        print("  ".join([*cells, verdict]).rstrip())


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=15, help="runs of each command (default 15)")
    runs: int = parser.parse_args().runs

    libraries = ", ".join(f"{name} {version(name)}" for name in ("typer", "rich", "pydantic"))
    print(f"Python {platform.python_version()}, {libraries}; {runs} runs of each\n")
    results = [*start_up(runs), formula(runs)]
    measurable = find_spec("torch") is not None and find_spec("fvcore") is not None
    if measurable:
        results += verification(min(runs, VERIFY_RUNS))
    results += [evaluation(runs), *calls(runs), *estimates(runs), *steps(), sharded()]
    if find_spec("numpy") is not None:
        results += arrays(runs)
    show(results)
    if not measurable:
        print("\nverify was not measured: it needs torch and fvcore (pip install '.[measure]' in a checkout)")


if __name__ == "__main__":
    main()
