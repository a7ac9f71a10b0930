"""Other spellings of options and commands: those of trainers and engines, and those of the last release.

They are read before the command line is parsed, and no help shows them. Python takes the names of this program only.
"""

import sys
from collections.abc import Mapping, Sequence

from tfacct.commands import FORMER, NAMES

_DEGREE = ("parallel", "parallel-size", "parallel-degree", "model-parallel-size")
_AXES = {"tensor": "tp", "pipeline": "pp", "data": "dp", "expert": "ep", "context": "cp"}
SPELLINGS: Mapping[str, str] = {
    **{f"{word}-{degree}": axis for word, axis in _AXES.items() for degree in _DEGREE},
    **dict.fromkeys(("sequence-parallel", "sequence-parallelism"), "sp"),
    **dict.fromkeys(("data-parallel-shard-degree", "fully-shard"), "fsdp"),
    **dict.fromkeys(("context", "context-length", "seq-len", "seqlen", "sequence-length", "max-model-len"), "ctx"),
    **dict.fromkeys(("batch-size", "per-device-train-batch-size", "bs"), "batch"),
    **dict.fromkeys(("precision", "torch-dtype", "quantization"), "dtype"),
    **dict.fromkeys(("kv-cache-dtype", "cache-type-k"), "kv-dtype"),
    **dict.fromkeys(("activation-checkpointing", "gradient-checkpointing", "checkpoint"), "recompute"),
    **dict.fromkeys(("gradient-accumulation-steps", "grad-accum"), "accumulate"),
    **dict.fromkeys(("gpu", "hw", "fit"), "on"),
    "gpu-memory-utilization": "use",
    **dict.fromkeys(("users", "concurrency", "max-num-seqs"), "requests"),
    **dict.fromkeys(("input-len", "isl"), "prompt"),
    **dict.fromkeys(("output-len", "osl"), "new"),
    "bytes": "traffic",
    "bound-only": "lower-bound",
    "tokens-total": "total-tokens",
    "microbatches": "micro-batches",
    "hold-logits": "keep-logits",
    "html": "output",
    "plot": "output",
    "part-by": "by",
}
"""Option → the name that it has here."""
VALUES: Mapping[str, str] = {"kept": "saved", "instant": "phase", "block": "layer"}
"""Values of options that have another name now."""
PARTS = ("none", "full", "attention", "selective")


def normalized(token: str) -> str:
    """An option, or one of the values that it may have, by the name that it has here."""
    return SPELLINGS.get(token, VALUES.get(token, token))


def as_typed(option: str, line: Sequence[str]) -> str:
    """An option as it was typed on a command line, by the name that it has here."""
    words = (word.partition("=")[0] for word in line if word.startswith("--"))
    return next((word for word in words if f"--{normalized(word[2:])}" == option), option)


def read(line: Sequence[str]) -> list[str]:
    """The command line in today's words; what has moved is said on stderr."""
    words = [word for one in line for word in _apart(one)]
    if words and words[0] in FORMER and words[0] not in NAMES:
        words = _moved(words)
    words = _with_values(words)
    return _on_devices(words)


def _apart(word: str) -> list[str]:
    """`--option=value` as two words where the option has another name here."""
    name, equals, value = word.partition("=")
    return (
        [name, value] if equals and name.startswith("--") and name[2:] in {*SPELLINGS, "gpus", "recompute"} else [word]
    )


def _moved(words: list[str]) -> list[str]:
    """A command of the last release in today's words."""
    former, *rest = words
    command, *options = FORMER[former]
    if former == "kv":
        rest = ["--kv-dtype" if word == "--dtype" else word for word in rest]
    if former == "fit" and "--on" in rest:  # how many of these devices
        named = [at for at, word in enumerate(rest[:-1]) if word == "--on"]
        options = ["--on", ",".join([*(rest[at + 1] for at in named), ""])]
        rest = [word for at, word in enumerate(rest) if at not in named and at - 1 not in named]
    if former == "diff":
        rest = _listed(rest)
    print(f"hint: `tfacct {former}` is now `{' '.join(['tfacct', command, *options])}`", file=sys.stderr)
    return [command, *rest, *options]


def _listed(words: list[str]) -> list[str]:
    """`--ctx 1k --to-ctx 2k` as `--ctx "1k, 2k"`; without the first, as `--ctx ,2k`."""
    found = [part for word in words for part in (word.split("=", 1) if word.startswith("--to-") else [word])]
    names = [normalized(word[2:]) if word.startswith("--") else "" for word in found]
    for name in [name for name in names[:-1] if name.startswith("to-")]:
        at, own = names.index(name), normalized(name.removeprefix("to-"))
        value = found[at + 1]
        del found[at : at + 2], names[at : at + 2]
        if own in names[:-1]:
            old = names.index(own) + 1
            found[old] = f"{found[old]}, {value}"
        else:
            found, names = [*found, f"--{own}", f",{value}"], [*names, own, ""]
    return found


def _with_values(words: list[str]) -> list[str]:
    """Options that may stand without a value, with one: `--recompute` is full, `--qlora 32` has rank 32."""
    found: list[str] = []
    for at, word in enumerate(words):
        after = words[at + 1] if at + 1 < len(words) else ""
        found.append(word)
        if word.startswith("--") and normalized(word[2:]) == "recompute":
            if after.lstrip(",").partition(":")[0].partition(",")[0] not in PARTS and not after.startswith(
                ("mlp", "layernorm", "core_attn")
            ):
                found.append("full")
        elif word == "--recompute-attention":
            found[-1:] = ["--recompute", "attention"]
        elif word in ("--print", "--dark"):
            found[-1:] = ["--style", word[2:]]
        elif word == "--qlora" and after.isdecimal():
            found[-1:] = ["--qlora", "--lora"]
    return found


def _on_devices(words: list[str]) -> list[str]:
    """`--gpus 8 --on h100` as `--on 8xh100`."""
    if "--gpus" not in words or words.index("--gpus") + 1 == len(words):
        return words
    at = words.index("--gpus")
    count = words[at + 1]
    rest = words[:at] + words[at + 2 :]
    for place, word in enumerate(rest[:-1]):
        if word.startswith("--") and normalized(word[2:]) == "on":
            return [*rest[:place], "--on", f"{count}x{rest[place + 1]}", *rest[place + 2 :]]
    return words
