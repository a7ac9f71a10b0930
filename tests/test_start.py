"""Imports of each command: a budget of modules, and packages that it must not load. Kind: law.

The layers contract is about packages; this is about commands, whose start every import delays.
"""

import json
import subprocess
import sys
from functools import cache

import pytest

from tfacct.commands import NAMES

STEP = ("algebra", "verify", "reference", "meta", "api")
UNREAD = ("families.rare", "loading.hub", "loading.headers", "loading.gguf")
COUNTING = (*UNREAD, "parallel.collectives", "timing", "training", *STEP)
NOT_A_MODEL = ("architecture", "families.decoder", *STEP)
LARGE = ("torch", "numpy", "matplotlib", "transformers", "tomli_w")
SYMBOLS = ("formula", "solve", "explore", "verify")
"""Commands that may import sympy."""
BUDGET: dict[str, tuple[int, tuple[str, ...]]] = {
    "--version": (29, ("families", "reports", "architecture", "accounts", "loading.presets")),
    "--help": (54, ("families", "reports", "architecture", "accounts", "loading.presets")),
    "flops --help": (30, ("families", "reports", "architecture", "accounts", "loading.presets")),
    "flops gpt2-xl --ctx 16384": (114, COUNTING),
    "flops gpt2-xl --bytes --decode": (114, COUNTING),
    "flops gpt2-xl --ctx 2k --generate 500": (114, COUNTING),
    "params gpt2-xl": (111, COUNTING),
    "memory gpt2-xl": (114, COUNTING),
    "memory llama-3.1-8b --on h100": (136, tuple({*COUNTING} - {"parallel.collectives"})),  # what vLLM leaves of it
    "memory gpt2-xl --kv": (114, tuple({*COUNTING} - {"algebra"})),  # it names the axes of its formula
    "formula gpt2": (133, ("training", "timing", "verify", "reference", "meta", "api")),
    "train gpt2-xl --ctx 1k": (152, STEP),
    "plan llama-3.1-8b --on 8xh100 --ctx 1k": (162, STEP),
    "plan llama-3.1-8b --tp 2": (122, STEP),
    "mfu nothing --run": (111, ("api",)),
    "budget 1e21": (111, ("parallel.collectives", "training", *STEP)),
    "mfu gpt2 --tokens-per-second 9e4 --on h100": (118, ("training", *STEP)),
    "serve llama-3.1-8b --on h100 --prompt 1k --new 9": (168, STEP),
    "engine vllm llama-3.1-8b --on h100": (140, ("timing", "training", *STEP)),
    "time llama-3.1-8b --on h100": (158, STEP),
    "compare gpt2 qwen3-8b": (118, COUNTING),
    "sweep gpt2 --ctx 1k,2k": (120, ("timing", "training", "verify", "reference", "meta", "api")),
    "solve gpt2 --for ctx --until total_bytes=1GiB": (132, ("timing", "training", "verify", "reference", "api")),
    "explore gpt2 -o -": (170, ("verify", "reference", "meta", "api")),
    "models": (100, ("loading.hub", "parallel", "timing", "training", *STEP)),
    "devices": (45, NOT_A_MODEL),
    "help conventions": (40, NOT_A_MODEL),
    "verify nothing": (111, ("api",)),
    "check nothing": (111, ("api",)),
}
"""Command line → the most modules of this package that it may import, and packages of which it may import none."""
ASK = """
import contextlib, io, json, os, sys
import rich.console, typer, pydantic  # which every command needs
lines = json.loads(sys.argv[1])
for line in lines:
    if os.fork() == 0:
        from tfacct.cli import main
        sys.argv = ["tfacct", *line.split()]
        quiet = io.StringIO()
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet), contextlib.suppress(SystemExit):
            main()
        print(json.dumps([line, *sys.modules]), flush=True)
        os._exit(0)
    os.wait()
"""


@cache
def modules() -> dict[str, list[str]]:
    """What each command imports, by command line, in a process of its own."""
    asked = [sys.executable, "-c", ASK, json.dumps([*BUDGET])]
    ran = subprocess.run(asked, capture_output=True, text=True, check=True)
    return {line: imported for line, *imported in map(json.loads, ran.stdout.splitlines())}


@pytest.mark.parametrize("words", BUDGET)
def test_a_command_imports_what_it_needs(words: str) -> None:
    most, none_of = BUDGET[words]
    imported = modules()[words]
    own = [name for name in imported if name.split(".")[0] == "tfacct"]
    strays = [name for name in own if name.startswith(tuple(f"tfacct.{package}" for package in none_of))]
    large = (*LARGE, *(() if words.split()[0] in SYMBOLS else ("sympy",)))
    assert (strays, {*large} & {*imported}) == ([], set())
    assert len(own) <= most, f"{len(own)} modules"


def test_every_command_has_a_budget() -> None:
    assert {*NAMES} <= {words.split()[0] for words in BUDGET}
