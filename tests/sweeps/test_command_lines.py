"""A command line drawn from the declared options prints an answer or one error, never a traceback. Kind: law.

Draws are new in each run, from the seed that is printed. `COMMAND_LINES` sets how many (default 1,500).
"""

import json
import math
import os
import re
from collections.abc import Iterator
from importlib import import_module
from inspect import Parameter
from typing import Any, Literal, get_args, get_origin

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.helpers.cli import Ran, cpu_limit
from tfacct.base.spelling import shell_option
from tfacct.commands import NAMES
from tfacct.commands.command import Command, takes

SLOW = {"check", "verify", "explore"}
"""Commands that run torch, or write a page."""
NOT_DRAWN = {"exact", "run", "calibrate", "open", "output"}
"""Options that run torch, open a browser or write files."""
MODELS = ("gpt2", "llama-3.2-1b", "qwen3-30b-a3b", "deepseek-v2-lite", "gemma-3-27b", "t5-small", "bert-base")
MODELS += ("mamba-130m", "qwen3-next-80b-a3b", "whisper-tiny", "vit-base-patch16-224")
NUMBERS = ("1", "2", "4", "64", "8k")
BY_METAVAR = {
    "DTYPE": ("bf16", "fp32", "fp8", "int4", "mxfp4", "q4_k_m"),
    "FIELD=VALUE": ("num_hidden_layers=3", "n_layer=2", "num_key_value_heads=4", "tie_word_embeddings=false"),
    "FIELD=VALUES": ("num_hidden_layers=2,4", "n_layer=1..3"),
    "FORMAT": ("fp32", "nf4"),
    "LEFT=RIGHT": ("total_bytes=24GiB", "flops.attn=flops.mlp", "total_flops=1e12"),
    "NAME": ("total_params", "total_flops", "peak_bytes", "kv_cache_bytes", "adamw", "sgd"),
    "N|max": (*NUMBERS, "max"),
    "PARTS": ("none", "full", "attention", "selective", "selective:mlp"),
    "R[:MODULES]": ("16", "8:all", "4:q_proj,v_proj"),
    "SHARE": ("0.9", "0.5", "1"),
    "SIZE": ("2GB", "0", "1GiB"),
    "TIME": ("50ms", "1s"),
    "V": ("0.19", "0.12", "0.5.9"),
    "WHAT": ("optimizer", "activations"),
    "X": ("0.9", "1", "0.1"),
    "[N]xDEVICE": ("h100", "8xh100", "2xa100", "4090", "24GB", "mi300x"),
}
"""Right values by the metavar of an option."""
WRONG = ("x", "", "0", "-1", "1.5", "1e30", "all", "24", "a=b", "99999999999999999999")
FIRST = {
    "serve": ("--on", "h100", "--prompt", "2k", "--new", "64"),
    "time": ("--on", "h100"),
    "plan": ("--on", "8xh100"),
}
FIRST |= {"mfu": ("--on", "h100", "--tokens-per-second", "1000"), "engine": ("--on", "h100"), "solve": ("--for", "ctx")}
"""Options without which a command does not answer."""
RAW = re.compile(r"\bNone\b(?! of)|\bnan\b|\binf\b|\{\w*\}|\bFraction\(|<\w+ object")
"""Names of Python values and placeholders, which no formatted text has."""
MANY = settings(
    max_examples=int(os.environ.get("COMMAND_LINES", "1500")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def _values(one: Parameter) -> tuple[str, ...]:
    """Possible values of an option; empty for a flag."""
    kind, found = get_args(one.annotation)[:2]
    if kind is bool:
        return ()
    literals = [kind, *get_args(kind)]
    choices = [str(value) for each in literals if get_origin(each) is Literal for value in get_args(each)]
    return tuple(choices) or BY_METAVAR.get(found.metavar, NUMBERS)


def _drawn(command: Command) -> dict[str, Parameter]:
    """The options that are drawn."""
    named = command.options.items()
    return {name: one for name, one in named if name not in NOT_DRAWN and not get_args(one.annotation)[1].argument}


COMMANDS = {name: import_module(f"tfacct.commands.{name}").COMMAND for name in NAMES if name not in {*SLOW, "help"}}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command, a model or two, and up to three of its options; one value in eight is wrong."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    command = COMMANDS[name]
    line = [name, *(["vllm"] if name == "engine" else [])]
    if name == "budget":
        line.append(draw(st.sampled_from(["1e21", "gpt2"])))
    elif name == "devices":
        line.extend(draw(st.lists(st.sampled_from(["h100", "4090", "x"]), max_size=1)))
    else:
        most = 1 if takes(command.function) == "model" or name in ("engine", "models") else 2
        line.extend(draw(st.lists(st.sampled_from(MODELS), min_size=1, max_size=most, unique=True)))
    line.extend(FIRST.get(name, ()))
    every = _drawn(command)
    for chosen in draw(st.lists(st.sampled_from(sorted(every)), max_size=3, unique=True)):
        values = _values(every[chosen])
        if values and draw(st.integers(0, 7)) == 0:
            values = WRONG
        line.extend([shell_option(chosen), *([draw(st.sampled_from(values))] if values else [])])
    return line


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _numbers(each)
    elif isinstance(value, list):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, float):
        yield value


@MANY
@given(line=command_lines())
def test_a_command_line_answers_in_json_or_names_what_is_wrong(run, line: list[str]) -> None:
    with cpu_limit(60):
        ran: Ran = run(*line, "--json")
    event(f"exit {ran.code}")
    assert ran.code in (0, 1, 2), line
    assert "Traceback" not in ran.err, line
    if ran.code == 2:
        assert not ran.out and json.loads(ran.err)["error"], line
    else:
        answer = json.loads(ran.out)
        assert all(map(math.isfinite, _numbers(answer))), line
        assert answer["command"], line


@MANY
@given(
    line=command_lines(),
    output=st.sampled_from([(), ("-v",), ("--markdown",)]),
    columns=st.sampled_from([60, 80, 120]),
)
def test_no_text_shows_a_value_that_was_not_formatted(
    run, line: list[str], output: tuple[str, ...], columns: int
) -> None:
    with cpu_limit(60):
        ran: Ran = run(*line, *output, columns=columns)
    assert ran.code in (0, 1, 2) and "Traceback" not in ran.err, line
    assert not (found := RAW.search(ran.out + ran.err)), (line, found)
