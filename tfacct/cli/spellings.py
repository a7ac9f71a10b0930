"""Other spellings of options and commands: those of trainers and engines, and those of the last release.

They are replaced before the command line is parsed. The help does not show them, and Python does not accept them.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise

from tfacct.base.errors import UsageError
from tfacct.base.spelling import BY_COMMAND, SPELLINGS
from tfacct.base.units import DTYPES, is_tokens
from tfacct.commands import FORMER, NAMES

OF_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "engine": {
        "version": "engine-version",
        **dict.fromkeys(("use", "mem-fraction-static"), "gpu-memory-utilization"),
        **dict.fromkeys(("ctx", "ctx-size", "context-length"), "max-model-len"),
        **dict.fromkeys(("chunked-prefill-size", "ubatch-size"), "max-num-batched-tokens"),
    },
    "serve": {"in": "prompt", "out": "new"},
    **dict.fromkeys(
        ("memory", "solve"),
        dict.fromkeys(("requests", "users", "concurrent", "concurrency", "max-num-seqs"), "batch"),
    ),
    "mfu": dict.fromkeys(("global-batch-size", "global-batch"), "batch"),
}
"""Short form of an option of a command → its name."""
VALUES: Mapping[str, str] = {"block": "layer"}
"""Values of options in the last release → current ones."""
COMMANDS: Mapping[str, str] = {
    **dict.fromkeys(("list", "ls", "presets", "model", "search"), "models"),
    **dict.fromkeys(("gpu", "gpus", "device", "hardware"), "devices"),
    **dict.fromkeys(("latency", "speed", "estimate", "infer"), "time"),
    **dict.fromkeys(("cost", "throughput", "users", "inference"), "serve"),
    **dict.fromkeys(("vram", "mem", "size", "weights"), "memory"),
    **dict.fromkeys(("training", "finetune", "fine-tune", "lora", "qlora"), "train"),
    **dict.fromkeys(("parallel", "layout", "layouts", "shard"), "plan"),
    **dict.fromkeys(("scaling", "chinchilla", "compute"), "budget"),
    **dict.fromkeys(("parameters", "count"), "params"),
    **dict.fromkeys(("plot", "chart", "graph"), "sweep MODEL -o FILE.png"),
    "docs": "help docs",
}
"""Other programs' names of a command → the command to suggest."""
EXPANDED: Mapping[str, tuple[str, ...]] = {
    "--recompute-activations": ("--recompute", "selective"),
    "--use-distributed-optimizer": ("--zero", "1"),
}
"""Options of Megatron-LM → the option and its value."""
FLAGS: Mapping[str, str] = {"load-in-4bit": "nf4", "load-in-8bit": "int8", **{name: name for name in DTYPES}}
"""Other programs' flags for a dtype."""
OPTIMIZERS: Mapping[str, str] = {
    "adam": "adamw",
    "adamw8bit": "adamw-8bit",
    "adamw-torch-fused": "adamw",
    "adamw-torch": "adamw-foreach",
    "adamw-bnb-8bit": "adamw-8bit-trainer",
}
"""Other names of optimizers, such as those of transformers' Trainer, in lowercase with dashes → their name here."""
MODULES = ("--lora-target-modules", "--target-modules", "--lora-target", "--lora-modules", "--modules")
"""Options of trainers for the modules that LoRA adapts."""
SHORT: Mapping[str, str] = {"-tp": "--tp", "-pp": "--pp", "-dp": "--dp", "-c": "--max-model-len"}
"""Short options of engines → those of `engine`."""
PARTS = ("none", "full", "attention", "selective")
UNKNOWNS = ("batch", "ctx", "tp", "fsdp", "ep", "pp", "cp")
"""What `solve` finds, as words before the model."""
FIELD = re.compile(r"[A-Za-z_][\w.]*=")
"""The start of a field with its value."""
PERCENT = re.compile(r"(\d+(?:\.\d+)?)%")
"""A share in percent, which may be given wherever a share is."""


def normalized(token: str) -> str:
    """An option or value by its name in this program."""
    return SPELLINGS.get(token, VALUES.get(token, token))


def current_name(option: str) -> str:
    """A typed option by its name in this program."""
    word = option.removeprefix("--").replace("_", "-")
    return f"--{BY_COMMAND[word][0] if word in BY_COMMAND else normalized(word)}"


def in_typed_words(text: str, line: Sequence[str]) -> str:
    """A message with each option spelled as on this command line."""
    names = [word.partition("=")[0] for word in line if word.startswith("--")]
    for name in (name for name in names if line[0] not in BY_COMMAND.get(name[2:], ("", ()))[1]):
        if current_name(name) not in names:
            text = re.sub(rf"(?<![\w-]){current_name(name)}(?![\w-])", name, text)
    return text


def read(line: Sequence[str], *, quiet: bool = False) -> list[str]:
    """The command line in current spelling. A hint on stderr names a moved command, unless `quiet` (shell completion).
    Raises UsageError."""
    words = [word for one in line for word in _apart(one)]
    words = [word for before, word in pairwise(["", *words]) if word.lower() != "true" or not _is_flag(before)]
    if not words:
        return words
    if words[0] in FORMER and words[0] not in NAMES:
        words = _moved(words, quiet)
    if words[0] not in ("check", "budget"):  # these have such options
        words = [word for word in words if word not in ("--model", "--config")]
    short = OF_COMMANDS.get(words[0], {})
    words = [f"--{short[word[2:]]}" if word[:2] == "--" and word[2:] in short else word for word in words]
    if words[0] in REWRITTEN:
        words = REWRITTEN[words[0]](words)
    if "--fit" in words and sum(_is(word, "on") for word in words) > 1:
        raise UsageError(
            "--fit is another spelling of --on, and both are given", "leave --fit out: --on also checks the fit"
        )
    words = _with_values(_lora_modules([_of_command(words[0], word) for word in words]))
    return words if quiet else _on_devices(words)


def _engine(words: list[str]) -> list[str]:
    """Short options of engines by their names here."""
    return [SHORT.get(word, word) for word in words]


def _help(words: list[str]) -> list[str]:
    """The help of a command, or a topic of one or several words."""
    match words:
        case ["help"]:
            return ["--help"]
        case ["help", "--help" | "--help-all" | "--json"]:
            return words
        case ["help", word]:
            topic = word.removeprefix("--")
            return [topic, "--help-all"] if topic in NAMES else ["help", topic]
    several = len(words) > 3 and not any(word.startswith("-") for word in words)
    return ["help", " ".join(words[1:])] if several else words


def _mfu(words: list[str]) -> list[str]:
    """Without --train, which is implied where nothing is run."""
    return words if "--run" in words else [word for word in words if word != "--train"]


def _serve(words: list[str]) -> list[str]:
    """--output with a number of tokens, as engines' benchmarks have it, as --new."""
    return ["--new" if word == "--output" and is_tokens(after) else word for word, after in pairwise([*words, ""])]


def _solve(words: list[str]) -> list[str]:
    """What to find as `--for NAME`, where it is a word before or after the model, or an option without a value."""
    if "--for" in words:
        return words
    for at, (word, after) in enumerate(pairwise([*words, "-"])):
        if _is_unknown(word, after, at):
            is_value = words[at - 1].startswith("-")
            return words if is_value else [*words[:at], *words[at + 1 :], "--for", word.removeprefix("--")]
    return words


REWRITTEN: Mapping[str, Callable[[list[str]], list[str]]] = {
    "engine": _engine,
    "help": _help,
    "mfu": _mfu,
    "serve": _serve,
    "solve": _solve,
    "version": lambda words: ["--version"] if words == ["version"] else words,
}
"""Commands whose lines have other forms than their options."""


def _is_unknown(word: str, after: str, at: int) -> bool:
    """True for what `solve` finds: a word before or after the model, or an option without a value."""
    return word.removeprefix("--") in UNKNOWNS and (after.startswith("-") if word.startswith("--") else at in (1, 2))


def _is_flag(word: str) -> bool:
    """True for an option that transformers' Trainer takes with the value True, and this program without one."""
    return _is(word, "recompute") or (word.startswith("--") and word[2:] in FLAGS)


def _apart(word: str) -> list[str]:
    """An option with hyphens, such as `--batch-size` for `--batch_size`; with its value as a second word if the option
    has another name here."""
    if not word.startswith("--"):
        return [word]
    name, equals, value = word.partition("=")
    name = name.replace("_", "-")
    return [name, value] if equals and name[2:] in _READ_HERE else [f"{name}{equals}{value}"]


_READ_HERE = {
    *SPELLINGS,
    *BY_COMMAND,
    *(name for short in OF_COMMANDS.values() for name in short),
    "model",
    "config",
    "gpus",
    "on",
    "tp",
    "recompute",
    "dtype",
    "qlora",
    "optimizer",
    "mfu",
    "use",
    "lora-dropout",
}


def _of_command(command: str, word: str) -> str:
    """An option by its name in this command."""
    return current_name(word) if word[2:] in BY_COMMAND and command not in BY_COMMAND[word[2:]][1] else word


def _moved(words: list[str], quiet: bool) -> list[str]:
    """A command by another name, in current spelling."""
    former, *rest = words
    command, *options = FORMER[former]
    if former == "kv":
        rest = ["--kv-dtype" if word == "--dtype" else word for word in rest]
    if former == "fit" and any(_is(word, "on") for word in rest):
        options = []
    if not quiet and "--json" not in words:  # an error must be one JSON object
        print(f"hint: `tfacct {former}` is now `{' '.join(['tfacct', command, *options])}`", file=sys.stderr)
    return [command, *options, *rest]


def _lora_modules(words: list[str]) -> list[str]:
    """`--lora 16 --target-modules q_proj,v_proj` as `--lora 16:q_proj,v_proj`."""
    at = next((at for at, word in enumerate(words[:-1]) if word in MODULES), None)
    ranks = [place for place, (word, rank) in enumerate(pairwise(words), 1) if _is(word, "lora") and rank.isdecimal()]
    if at is None or words[at + 1].startswith("-"):
        return words
    if "--qlora" in words and not ranks:
        return [*words[:at], "--lora", f"16:{words[at + 1]}", *words[at + 2 :]]
    if len(ranks) != 1:
        return words
    rank = f"{words[ranks[0]]}:{words[at + 1]}"
    return [rank if place == ranks[0] else word for place, word in enumerate(words) if place not in (at, at + 1)]


def _mixed(words: list[str]) -> list[str]:
    """What --bf16, --fp16 and --mixed-precision of trainers mean for a training step without adapters and without a
    format of its weights: autocast over fp32 weights, or master weights as in Megatron-LM and DeepSpeed if tensor,
    pipeline or data parallelism is given. Empty for others."""
    trains, others = words[:1] == ["train"] or "--train" in words, ("lora", "qlora", "weights", "master-weights")
    if not trains or any(_is(word, one) for word in words for one in others):
        return []
    sharded = any(_is(word, axis) for word in words for axis in ("tp", "pp", "dp", "zero", "ep", "cp"))
    return ["--master-weights" if sharded else "--weights", "fp32", "--dtype"]


def _with_values(words: list[str]) -> list[str]:
    """Options with an optional value, with the value: `--recompute` is full, `--qlora 32` has rank 32."""
    found: list[str] = []
    mixed = _mixed(words)
    for at, word in enumerate(words):
        after = words[at + 1] if at + 1 < len(words) else ""
        found.append(_optimizers(word, words[at - 1]) if at and _is(words[at - 1], "optimizer") else word)
        if _is(word, "recompute"):
            from difflib import get_close_matches

            part = after.lstrip(",").partition(":")[0].partition(",")[0]
            is_value = bool(part) and not part.startswith("-") and not words[1].startswith("-")  # MODEL is before it
            if not is_value and not get_close_matches(part, (*PARTS, "mlp", "layernorm", "core_attn"), cutoff=0.8):
                found.append("full")
        elif word in EXPANDED:
            found[-1:] = EXPANDED[word]
        elif at and words[at - 1].startswith("--") and (percent := PERCENT.fullmatch(word)):
            found[-1] = f"{Decimal(percent[1]) / 100:f}"
        elif found[-3:-2] == ["--set"] and FIELD.match(word):  # `--set a=1 b=2`
            found[-1:] = ["--set", word]
        elif word == "--qlora" and words[0] in ("solve", "sweep", "compare"):
            found[-1:] = ["--weights", "nf4", "--lora", *([] if after.isdecimal() else ["16"])]
        elif word == "--qlora" and after.isdecimal():
            found[-1:] = ["--qlora", "--lora"]
        elif word == "--lora" and (not after or after.startswith("-")):
            found.append("16")
        elif mixed and word in ("--fp16", "--bf16"):
            found[-1:] = [*mixed, word[2:]]
        elif mixed and word == "--mixed-precision" and after in ("fp16", "bf16"):
            found[-1:] = mixed
        elif word[:2] == "--" and word[2:] in FLAGS:
            found[-1:] = ["--dtype", FLAGS[word[2:]]]
        elif after == "nf4" and _is(word, "dtype") and words[0] != "serve" and any(_is(one, "lora") for one in words):
            found[-1:] = ["--weights"]
    return found


def _optimizers(text: str, option: str) -> str:
    """Names of optimizers in the spelling of this program. Those of `--optim` are the Trainer's."""
    names = (name.strip().lower().replace("_", "-") for name in text.split(","))
    others = {**OPTIMIZERS, "adamw-8bit": OPTIMIZERS["adamw-bnb-8bit"]} if option == "--optim" else OPTIMIZERS
    return ",".join(others.get(name, name) for name in names)


def _on_devices(words: list[str]) -> list[str]:
    """`--gpus 8 --on h100` as `--on 8xh100`, and `--tp 8` of several devices too. Raises UsageError where no device is
    named."""
    listed = words[:1] == ["memory"] and any(_is(on, "on") and "," in named for on, named in pairwise(words))
    given = [_is(word, "gpus") or (listed and _is(word, "tp") and count.isdecimal()) for word, count in pairwise(words)]
    if True not in given:
        return words
    at = given.index(True)
    count = words[at + 1]
    if not count.isdecimal():  # `--gpus 8xh100`
        return [*words[:at], "--on", *words[at + 1 :]]
    rest = words[:at] + words[at + 2 :]
    for place, word in enumerate(rest[:-1]):
        if _is(word, "on"):
            if re.match(r"\d+ *[x×]", rest[place + 1]):
                problem = f"{words[at]} {count} and {word} {rest[place + 1]} both give the number of devices"
                raise UsageError(problem, f"leave {words[at]} out")
            devices = ",".join(name and f"{count}x{name}" for name in rest[place + 1].split(","))
            return [*rest[:place], "--on", devices, *rest[place + 2 :]]
    if words[0] == "plan":  # which has its own error for a missing device
        return words
    raise UsageError(
        f"{words[at]} {count} is a number, not a device", f"--on {count}xh100, or another of `tfacct devices`"
    )


def _is(word: str, option: str) -> bool:
    """True for an option of this name here."""
    return word.startswith("--") and normalized(word[2:].partition("=")[0]) == option
