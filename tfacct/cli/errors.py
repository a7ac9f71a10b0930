"""Errors of the command line: one message on stderr, or one JSON object with `--json`."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from tfacct import options as opt
from tfacct.base import units
from tfacct.base.errors import TfacctError, UsageError, nearest
from tfacct.base.pydantic_messages import describe_error
from tfacct.base.spelling import shell_option
from tfacct.cli import spellings
from tfacct.cli.parameters import parameters_of
from tfacct.commands import FORMER, NAMES
from tfacct.commands.command import Command, command_of
from tfacct.output import signs

CLOSED_PIPE = 141
"""Exit code if the reader of stdout stops reading: 128 + SIGPIPE, as shells report it."""

UnparsedError: type[Exception] = typer.BadParameter.__bases__[0]
"""Typer's exception for a command line that it cannot parse; typer does not export it."""

INSTEAD = {
    "train --deepspeed": "--zero 1, --zero 2 or --zero 3, with --on NxDEVICE",
    "train --freeze": "--lora 16 trains adapters next to frozen weights",
    "train --amp --autocast": "--weights fp32 trains with autocast in --dtype",
    f"train {' '.join(spellings.MODULES)}": "modules follow the rank: --lora 16:q_proj,v_proj",
    "train --flash-attention --flash-attn --use-flash-attn": "--attention sdpa saves no attention scores",
    "train time --num-layers-per-virtual-pipeline-stage": "--pp-chunks N: N stages on each rank",
    "plan --comms --communication": "a layout that is given whole prints what it sends: --on 64xh100 --tp 8 --dp 8",
    "flops --hfu": "--train --recompute full counts recomputation too; `tfacct mfu` divides by the peak",
    "flops --per-token": "the first line has the FLOPs per token; `tfacct sweep {model} --metric flops_per_token` too",
    "flops --module --modules": "--by part",
    "flops --attention": "flash attention computes the same products; --masked counts the visible pairs alone",
    "params --lora --trainable": "`tfacct train {model} --lora 16` counts the parameters of the adapters",
    "train --lora-alpha --learning-rate --lr --weight-decay --warmup-steps --warmup-ratio --seed": "it"
    " changes no count: leave it out",
    "train --epochs --num-train-epochs": "`tfacct budget {model} --tokens N --on DEVICE` gives the days: N is epochs ×"
    " tokens of the data",
    "train --explain": "--by tensor lists the saved activations; `tfacct help bytes per parameter` has the others",
    "params --layer --layers": "a tensor that all layers have is one row; times counts the layers",
    "flops params memory --all": "without a MODEL, all presets are counted",
    "models --on": "`tfacct memory --on {value}` counts all presets; --max-params 14b leaves out the larger ones",
    "flops --macs": "a multiply-add is 2 FLOPs, so MACs are half of them",
    "flops --backward": "--train counts the forward and the backward pass",
    "memory --train --lora": "`tfacct train` counts the memory of a training step",
    "memory --by": "without --on, the rows are the parts",
    "memory params serve --weights": "--dtype {value} is the format of the weights",
    "memory --bits": "--dtype int4 and --dtype int8 store the weights in 4 and 8 bits",
    "train --method --peft": "--lora 16 and --qlora train adapters; without them, all weights are trained",
    "train --strategy": "--fsdp N, --dp N or --zero STAGE; with --on 8xh100 the default is FSDP over all",
    "budget --steps": "--tokens N is steps × batch × context",
    "train --steps": "`tfacct budget MODEL --tokens N --on DEVICE` gives the days: N is steps × batch × context",
    "flops --prompt --new": "--generate N counts a request: a prompt of --ctx tokens, then N new tokens",
    "memory plan serve time --enable-expert-parallel": "--ep N shards the experts over N devices",
    "engine --enable-expert-parallel": "`tfacct memory MODEL --ep N --on DEVICES` has the weights on each device",
    "memory serve engine --dp": "replicas share nothing: count one, on its own devices",
    "train --dpo --grpo --ppo --rlhf": "not supported; `tfacct memory {model}` has the bytes of a frozen reference",
    "serve --slo": "--within TIME limits the time per token, --ttft TIME that to the first",
    "plan --fastest": "the fastest layout is in the first row",
    "serve --batch": "--requests N sets the number of concurrent requests",
    "serve --ctx": "--prompt T and --new N set the length of a request",
    "time --prompt": "--ctx S is the prompt; `tfacct serve MODEL --prompt S` prints the time to first token",
    "train solve compare --rank": "the rank is the value: --lora 16 or --qlora 16",
    "train time --micro-batch": "--micro-batch-size N: sequences of a micro-batch; --accumulate N: how many in a step",
    "plan --batch --micro-batch": "--global-batch-size N: the sequences of all devices. plan tries micro-batches of"
    " several sizes itself; `tfacct train` takes --micro-batch-size",
    "mfu --batch": "--global-batch-size N: the sequences of all devices",
    "serve --rate --qps --rps --request-rate": "the first line has the requests/s of one replica: divide yours by it",
    "sweep --by": "--metric share.mlp,share.attn_scores_values",
    "sweep --dp --zero": "`tfacct compare MODEL --train --on 8xh100 --zero 1,3` compares training steps",
    "solve --within": "--until LEFT=RIGHT is the limit: --until kv_cache_bytes=weights_bytes",
    "budget --params": "`tfacct budget {value}`: a size needs no option",
    "budget --flops": "`tfacct budget {value} --model {model}`: FLOPs need no option",
    "train mfu --tokens": "`tfacct budget {model} --tokens {value}` counts a training run; --ctx is the length of a"
    " sequence",
    "check --ctx --batch": "--input-shape BATCH,TOKENS is the shape of the run",
    "models --moe": "`tfacct models moe` lists the models with experts",
}
"""Commands and options that they never had → what answers instead, with the typed model and value."""


def complain(error: TfacctError) -> None:
    """Print an error on stderr, as one JSON object if the command line has `--json`."""
    line = sys.argv[1:]
    error.message = spellings.in_typed_words(error.message, line)
    error.hint = error.hint and spellings.in_typed_words(error.hint, line)
    if "--json" in line:
        import json

        refusal = {"error": error.message, "hint": error.hint, "kind": error.kind}
        print(signs.escaped(json.dumps(refusal, ensure_ascii=False), sys.stderr), file=sys.stderr)
        return
    from tfacct.output import terminal

    terminal.complain(error.lines())


def usage_error(error: Any) -> UsageError:
    """An error of typer's parser in this program's wording."""
    typed_command = next((word for word in sys.argv[1:] if word in NAMES), "COMMAND")
    command = error.ctx.command_path if getattr(error, "ctx", None) else f"tfacct {typed_command}"
    name = getattr(error, "option_name", "")
    typed = spellings.in_typed_words(name, sys.argv[1:])
    possible = _elsewhere(command, name, error) or nearest(typed, getattr(error, "possibilities", None) or ())
    message = (error.message if possible and error.message else error.format_message()).partition(" Did you mean")[0]
    message = message.rstrip(".")
    parameter = getattr(error, "param", None) if type(error).__name__ == "BadParameter" else None
    described = _choice(command, parameter.opts[0], error.message) if parameter is not None else ""
    if parameter is not None and (several := re.search(r"'([^']+,[^']+)' is not one of", message)):
        each = (f"{parameter.opts[0]} {value.strip()}" for value in several[1].split(","))
        described = f"run the command once for each: {', '.join(each)}"
    hint = possible or described or f"see `{command} --help`"
    return UsageError(_invalid_value(error) or message[:1].lower() + message[1:], hint)


def _choice(command: str, option: str, message: str) -> str:
    """A hint for a value that an option does not take."""
    value, *others = re.findall(r"'([^']+)'", message) or [""]
    if "part" in others and value in ("attention", "attn", "mlp"):
        return f"--by part has rows for {value}"
    if "sdpa" in others and value.startswith("flash"):
        return "--attention sdpa: torch runs its flash kernel"
    if "line" in others and value == "layer" and "layer" not in others:
        return "a tensor that all layers have is one row; times counts the layers"
    if "line" in others and value == "tensor":
        return "--by line has a row for each tensor"
    return nearest(value, others) or f"`{command} --help-all` describes {option}"


def _elsewhere(command: str, option: str, error: Any) -> str | None:
    """A suggestion for an unknown word or option; None for another error."""
    kind, words = type(error).__name__, command.split()
    asked = {words[-1], spellings.current_name(option)}
    instead = (hint for never, hint in INSTEAD.items() if asked <= set(never.split()))
    if found := next(instead, None):
        model = next((word for word in sys.argv[2:3] if not word.startswith("-")), "MODEL")
        return found.format(model=model, value=_value_of(option))
    if kind == "NoSuchOption" and words[-1] in NAMES:
        if value := _as_value(words[-1], option.removeprefix("--")):
            return value
        takers = [f"`tfacct {name}`" for name in NAMES if spellings.current_name(option) in _options(name)][:3]
        typed = spellings.in_typed_words(option, sys.argv[1:])
        from tfacct.families.known_fields import common_words

        field = typed.removeprefix("--").replace("-", "_")
        if not takers and "--set" in _options(words[-1]) and ("_" in typed or common_words(field)):
            own = "`tfacct help your-model` describes a model by its sizes"
            return f"--set {field}=VALUE changes a field of a model's config; {own}"
        return f"{', '.join(takers)} {'take' if takers[1:] else 'takes'} {option}" if takers else None
    if option == "--fsdp":
        return "--fsdp 8; --on 8xh100 alone shards over all 8"
    if kind == "MissingParameter":
        return _complete(command_of(words[-1]), error.param)
    extra = error.message.rpartition("(")[2].rstrip(").")
    if words[-1] == "budget" and units.read_number(extra):
        return f"--tokens {extra}"
    if words[-1] == "time" and units.is_tokens(extra):
        return f"--prefill takes no number: --ctx {extra} --prefill" if "--prefill" in sys.argv else f"--ctx {extra}"
    if "no such command" in error.message.lower():
        word = next(one for one in sys.argv[1:] if not one.startswith("-"))
        if word in spellings.COMMANDS:
            return f"did you mean `tfacct {spellings.COMMANDS[word]}`?"
        is_model = any(character.isdecimal() for character in word) or "/" in word
        first = f"put a command first: `tfacct flops {word}`, `tfacct memory {word}`" if is_model else None
        return nearest(word, (*NAMES, *FORMER)) or first
    return None


def _as_value(command: str, word: str) -> str | None:
    """The option of a command that takes this value: `--of params`; None if there is none."""
    options = parameters_of(command_of(command)).items()
    return next((f"{shell_option(name)} {word}" for name, one in options if word in opt.choices(one.annotation)), None)


def _value_of(option: str) -> str:
    """The typed value of an option; N if it has none."""
    words = [part for word in sys.argv[1:] for part in (word.split("=", 1) if word.startswith("--") else [word])]
    after = words[words.index(option) + 1 :] if option in words else []
    return next(iter(after), "N")


def _complete(command: Command, missing: Any) -> str | None:
    """A hint for a missing argument or option: the typed command with it, or an example that has it."""
    line = sys.argv[1:]
    given = {word.partition("=")[0] for word in line if word.startswith("-")}
    if missing.opts[0] == "--for" and given & {"--on", "--until"}:
        return f"for example `tfacct {shlex.join(line)} --for {'batch' if '--ctx' in given else 'ctx'}`"
    if missing.param_type_name == "option":
        fitting = [one for one in command.examples if missing.opts[0] in one.split()]
    else:
        fitting = [*(one for one in command.examples if given & set(one.split())), *command.examples]
    return f"for example `{fitting[0]}`" if fitting else None


def _options(name: str) -> set[str]:
    return {shell_option(one) for one in parameters_of(command_of(name))}


def _invalid_value(error: Any) -> str | None:
    """The message about a value of the wrong type; None for another error.

    From 0.26 on, typer validates values with pydantic and shows its messages unchanged.
    """
    cause: Any = error.__cause__
    if not hasattr(cause, "errors"):
        return None
    complaint = cause.errors(include_url=False)[0]
    option = error.param.opts[0]
    if complaint["type"] == "value_error":
        return f"{option}: {str(complaint['ctx']['error']).rstrip('.')}"
    return f"{option} {describe_error(complaint)}"


@contextmanager
def closed_pipe_ends() -> Iterator[None]:
    """Exit with CLOSED_PIPE and without a traceback if the reader of stdout is gone."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  the buffer's rest has no reader
        raise typer.Exit(CLOSED_PIPE) from None
