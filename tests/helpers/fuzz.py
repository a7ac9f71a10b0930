"""Random command lines, from the commands and options that the command line declares: a new option is drawn at once."""

import json
import random
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from tests.families import TINY
from tests.helpers.cli import Ran, Run, cpu_limit
from tfacct import families
from tfacct.accounts.metrics import METRICS
from tfacct.cli import complete
from tfacct.cli.parameters import parameters_of
from tfacct.cli.root import Commands, command_of
from tfacct.loading import presets
from tfacct.options import of, plain

FORMS = ("--json", "--csv", "--markdown")
RARE = {*FORMS, "--force", "--style", "--latex", "--family", "--max-params", "--output", "--help-all"}
"""Options that need or exclude others: drawn often, nearly every command line would be refused for them."""
LEFT_OUT = {"--open", "--calibrate", "--run"}
"""A browser, and minutes and memory of measuring."""
CHECKS = {"verify", "check"}
"""Commands that run a model, with torch, and exit with 1 where a check fails."""
NO_NUMBERS = {"nan", "inf", "-inf", "NaN", "Infinity", "-Infinity"}
RAW = re.compile(r"\bNone\b(?! of)|\bnan\b|\binf\b|\{\w*\}|\bFraction\(|<\w+ object")
"""Names of Python values and placeholders, which no formatted text has."""
MODELS = (*presets.names(), "tiny.json", "tiny", "own.toml", "-")
WHOLE = ("1", "2", "4", "8", "3", "16")
ODD = ("", "0", "-1", "x", "nothing", "nan", "inf", "1e400", "2.5", "1e3", "org/nothing", "broken.json", "code.py", "=")
"""Values that look valid nowhere, or in few places."""
POOLS: dict[str, Sequence[str]] = {
    "MODEL": MODELS,
    "[MODEL]…": (*MODELS, *families.names()[:9]),
    "MODULE:FACTORY|FILES": ("code.py:build", "code.py:nothing", "tiny:build", "code.py", "tiny", "weights.gguf"),
    "[NAME]…": ("llama", "8b", "moe", "gpt", *MODELS),
    "TOPIC": ("counting", "axes", "options", "nothing"),
    "S": ("1", "2", "16", "128", "1k", "4k", "16,384", "1e6", "1m", "1k..8k", "1,64,4k"),
    "T": ("1", "2", "16", "512", "4k"),
    "J": ("1", "17", "1500", "64k"),
    "B": ("1", "2", "3", "8", "64", "1,8", "1..8"),
    "B,T": ("1,8", "2,64", "3"),
    "N": ("1", "2", "4", "8", "64", "16k", "8B", "1.5T", "6e9", "1,2,4", "1..8", "t"),
    "M": WHOLE,
    "FLOPS|SIZE|MODEL": ("1.3b", "1e21", "6e23", "8", "gpt2", "llama-3.1-8b", "deepseek-v3", "t5-small", "own.toml"),
    "R": ("20", "1.5", "1e3"),
    "N[,N…]": ("1", "1,3", "1..64"),
    "P": ("2.5", "1e300"),
    "X": ("1", "1.5", "64"),
    "SHARE": ("0.9", "1", "0.05", "1.5"),
    "STAGE": ("0", "1", "2", "3"),
    "SIZE": ("24GiB", "80GB", "1MB", "t4", "h100-sxm", "8xh100-sxm", "2xmi300x", "tpu-v3"),
    "TIME": ("50ms", "2s"),
    "FORMAT": ("fp32", "bf16", "nf4", "fp16", "int4", "q4_k_m"),
    "R[:MODULES]": ("8", "8:q_proj", "8:q_proj,v_proj", "4:all"),
    "[N]xDEVICE": (
        *("h100-sxm", "all", "24GB", "2x24GiB", "h100,t4", "24"),
        *("8xh100-sxm", "2xt4", "cpu", "4xmi300x", "64xb200-hgx", "16xtpu-v3"),
    ),
    "FIELD=VALUE": (
        *("num_hidden_layers=2", "num_key_value_heads=1", "hidden_size=64", "head_dim=null", "n_layer=3"),
        *("vocab_size=7", "sliding_window=16", "rope_theta=1e6", "n_layer=0", "nothing=1"),
    ),
    "FIELD=VALUES": ("num_hidden_layers=1..4", "num_key_value_heads=1,2", "hidden_size=64,128", "vocab_size=1k..4k"),
    "LEFT=RIGHT": (
        *(f"{metric}={value}" for metric in METRICS for value in ("1e9", "6e9", "80GB", "50%", "16k", "1e21", "0")),
        *("kv_cache_bytes=weights_bytes", "share.attn=50%", "share.mlp=half", "flops.attn.q_proj=1e12", "flops=flops"),
        *("peak_bytes=80GB", "flops"),
    ),
    "UNKNOWN": (*complete.UNKNOWNS, "num_hidden_layers", "hidden_size", "cp", "ep"),
    "transformers": ("transformers",),
    "cpu|cuda|mps": ("cpu",),
    "FILE": ("new.html", "new.svg", "new.toml", "new.json", "new.csv", "old.html", "nowhere/new.html", "-"),
}
"""Values by what the help calls them; those of another name draw from all of these."""

TINY_LLAMA = {**TINY["llama"], "model_type": "llama"}
OWN = (
    '[model]\nvocab = 227\nhidden = 48\ncontext = 29\npositions = "none"\n[attention]\nheads = 6\n'
    "[feed_forward]\nwidth = 71\n[norm]\nkind = 'rms'\n[decoder]\nlayers = 2\n"
)
CODE = "import torch\n\ndef build():\n    return torch.nn.Linear(3, 5)\n"


class Option:
    """An option or argument of a command: how it is typed, and its possible values."""

    def __init__(self, param: Any, parameter: Parameter) -> None:
        about, kind = of(parameter.annotation), plain(parameter.annotation)
        kinds = (kind, *get_args(kind))
        self.spelled = "" if about.argument else max(param.opts, key=len)
        self.rare = bool(RARE & {*param.opts})
        self.required, self.multiple = param.required, param.multiple or param.nargs == -1
        self.flag = kind is bool
        self.metavar = about.metavar
        self.offered = getattr(complete, about.complete) if about.complete else None
        self.choices = next((list(map(str, get_args(one))) for one in kinds if get_origin(one) is Literal), None)
        self.whole = int in kinds and str not in kinds

    @property
    def pool(self) -> Sequence[str]:
        """Values that look valid."""
        if self.choices is not None:
            return self.choices
        if self.whole:
            return WHOLE
        if self.metavar not in POOLS and self.offered is not None and len(signature(self.offered).parameters) == 1:
            return self.offered("")
        return POOLS.get(self.metavar) or [value for pool in POOLS.values() for value in pool]

    def draw(self, rng: random.Random) -> list[str]:
        """Its words on a command line."""
        if self.flag:
            return [self.spelled]
        values = rng.choices(self.pool, k=rng.choice((1, 1, 2)) if self.multiple else 1)
        values = [rng.choice(ODD) if rng.random() < 0.03 else value for value in values]
        return [word for value in values for word in ((self.spelled, value) if self.spelled else (value,))]


@cache
def options(command: str) -> list[Option]:
    """Options and arguments of a command."""
    parameters = parameters_of(command_of(command))
    params = [param for param in Commands()[command].params if param.name in parameters]
    return [Option(param, parameters[param.name]) for param in params if not LEFT_OUT & {*param.opts}]


def draw(rng: random.Random, commands: Sequence[str]) -> list[str]:
    """A command line with a few options. Models are named: to count all presets takes seconds."""
    command = rng.choice(commands)
    words, chance = [command], rng.choice((0.01, 0.02, 0.05))
    form = rng.choice((*FORMS, "--json", ""))
    for option in options(command):
        often = 1 if option.spelled in ("", form) else 0.005 if option.rare else chance
        if option.required or rng.random() < often:
            words += option.draw(rng)
    return words


def fault(words: Sequence[str], ran: Ran) -> str:
    """What is wrong with a run; empty if nothing is."""
    checks = words[0] in CHECKS or "--strict" in words
    if ran.code not in ((0, 1, 2) if checks else (0, 2)) or "Traceback" in ran.err:
        return f"exit {ran.code}"
    if ran.code == 2 and ran.out:
        return "printed before it failed"
    if ran.code == 2 and "--json" in words:
        printed = json.loads(ran.err)
        well = printed.keys() == {"error", "hint", "kind"} and printed["error"] and printed["hint"] != ""
        return "" if well else "a refusal that is no object of error, hint and kind"
    if ran.code == 2:
        return "" if re.match(r"error: [^:\s]", ran.err) else "a refusal without words"
    if "--json" in words:
        return "no number in the JSON" if NO_NUMBERS & {*values_of(json.loads(ran.out))} else ""
    raw = None if words[0] == "explore" else RAW.search(ran.out)
    return f"a value that was not formatted: {raw[0]}" if raw else ""


def values_of(node: Any) -> Iterator[str]:
    """Every value in a JSON document, as text."""
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else None
    if inner is None:
        yield str(node)
    for value in inner or ():
        yield from values_of(value)


def check(run: Run, rng: random.Random, commands: Sequence[str], draws: int, folder: Path) -> None:
    """Run random command lines in a folder with the files that they name."""
    (folder / "tiny").mkdir()
    for file in ("tiny.json", "tiny/config.json"):
        (folder / file).write_text(json.dumps(TINY_LLAMA))
    (folder / "own.toml").write_text(OWN)
    (folder / "broken.json").write_text('{"model_type": "llama", ')
    (folder / "weights.gguf").write_bytes(b"GGUF\x03\0\0\0")
    (folder / "old.html").write_text("old")
    (folder / "code.py").write_text(CODE)
    there, config = set(folder.rglob("*")), json.dumps(TINY_LLAMA).encode()
    for _ in range(draws):
        words = draw(rng, commands)
        print(shlex.join(words))  # the last one printed is at fault
        with cpu_limit(60):
            ran = run(*words, stdin=config, columns=rng.choice((60, 80, 120)))
        assert not fault(words, ran)
        for path in sorted({*folder.rglob("*")} - there, reverse=True):  # what is in a folder before the folder
            path.rmdir() if path.is_dir() else path.unlink()
