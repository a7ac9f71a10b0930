"""Names of options in messages: `--ctx` on the command line, `ctx` in Python.

Code names an option as Python does; the command line switches the spelling once, at its entry point.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from shlex import quote
from typing import Any

_TO_SHELL: ContextVar[bool] = ContextVar("to_shell", default=False)

_SHELL_NAMES = {
    "unknown": "for",
    "new_tokens": "generate",
    "gradient_accumulation": "accumulate",
    "weights_dtype": "weights",
    "adapter_dtype": "adapters",
    "microbatches": "micro-batches",
    "fields": "set",
    "sets": "set",
    "paths": "map",
}
"""Options with another name on the command line than in Python."""

FORMER_NAMES = {
    "fit": "on",
    "users": "requests",
    "bound_only": "lower_bound",
    "tokens_total": "total_tokens",
    "checkpoint": "recompute",
    "hold_logits": "keep_logits",
    "accumulate": "gradient_accumulation",
    "weights": "weights_dtype",
    "adapters": "adapter_dtype",
    "dtype": "kv_dtype",
}
"""Former keyword names in Python, still accepted by methods with the new name."""

_DEGREE = ("parallel", "parallelism", "parallel-size", "parallel-degree", "model-parallel-size")
_AXES = {"tensor": "tp", "pipeline": "pp", "data": "dp", "expert": "ep", "context": "cp"}
SPELLINGS: Mapping[str, str] = {
    **{f"{word}-{degree}": axis for word, axis in _AXES.items() for degree in _DEGREE},
    **{f"{axis}-{word}": axis for axis in _AXES.values() for word in ("size", "degree")},
    **dict.fromkeys(("sequence-parallel", "sequence-parallelism"), "sp"),
    **dict.fromkeys(("data-parallel-shard-degree", "fully-shard"), "fsdp"),
    **dict.fromkeys(("context", "context-length", "context-len", "ctx-len", "ctx-size", "n-ctx"), "ctx"),
    **dict.fromkeys(
        ("seq-len", "seqlen", "seq-length", "sequence-length", "max-seq-len", "max-seq-length", "max-length", "seq"),
        "ctx",
    ),
    **dict.fromkeys(("batch-size", "bs"), "batch"),
    **dict.fromkeys(("precision", "mixed-precision", "torch-dtype", "quantization", "quant", "gguf"), "dtype"),
    **dict.fromkeys(("kv-cache-dtype", "cache-type-k"), "kv-dtype"),
    **dict.fromkeys(
        ("activation-checkpointing", "activation-checkpoint", "gradient-checkpointing", "checkpoint"), "recompute"
    ),
    **dict.fromkeys(("gradient-accumulation-steps", "gradient-accumulation", "grad-accum"), "accumulate"),
    **dict.fromkeys(("gpu", "gpu-type", "gpu-memory", "hw", "fit", "vram"), "on"),
    **dict.fromkeys(("num-gpus", "n-gpus", "num-devices", "world-size"), "gpus"),
    **dict.fromkeys(("lora-rank", "lora-r"), "lora"),
    "recompute-granularity": "recompute",
    "optim": "optimizer",
    "zero-stage": "zero",
    **dict.fromkeys(("global-batch", "gbs"), "global-batch-size"),
    "mbs": "micro-batch-size",
    "attn-implementation": "attention",
    "tpot": "within",
    **dict.fromkeys(("mem-fraction-static", "util", "utilization", "gpu-util", "gpu-utilization"), "use"),
    **dict.fromkeys(("users", "concurrency", "concurrent", "max-concurrency", "num-requests", "num-users"), "requests"),
    **dict.fromkeys(
        ("input", "input-len", "input-length", "input-tokens", "prompt-len", "prompt-tokens", "isl"), "prompt"
    ),
    **dict.fromkeys(("output-len", "output-length", "output-tokens", "max-new-tokens", "max-tokens", "osl"), "new"),
    **dict.fromkeys(("tokens-per-sec", "tok-per-sec", "tps", "throughput"), "tokens-per-second"),
    "bytes": "traffic",
    "causal": "masked",
    "bound-only": "lower-bound",
    "tokens-total": "total-tokens",
    "microbatches": "micro-batches",
    "hold-logits": "keep-logits",
    "html": "output",
    "plot": "output",
    "part-by": "by",
}
"""Other spellings of options on the command line, those of trainers and engines and former ones → the name here."""
BY_COMMAND: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "device": ("on", ("devices", "mfu", "check")),
    "exact": ("digits", ("train",)),
    "micro-batch-size": ("batch", ("train", "time", "mfu", "plan")),
    "per-device-train-batch-size": ("batch", ("mfu", "plan")),
    "max-num-seqs": ("requests", ("engine",)),
    "max-model-len": ("ctx", ("engine",)),
    "gpu-memory-utilization": ("use", ("engine",)),
}
"""Option → its name in this program, and the commands in which it is not that option."""


@contextmanager
def on_command_line() -> Iterator[None]:
    """Spell options as on the command line until the end of the block."""
    before = _TO_SHELL.set(True)
    try:
        yield
    finally:
        _TO_SHELL.reset(before)


def spelled(shell: str, python: str) -> str:
    """The spelling for the caller's interface: command line or Python."""
    return shell if _TO_SHELL.get() else python


def for_each() -> str:
    """The hint for several values where one is taken."""
    return spelled("run the command once for each", "call it once for each")


def shell_option(name: str) -> str:
    """Spelling on the command line of an option, by its name in Python.

    >>> shell_option("kv_dtype"), shell_option("weights_dtype")
    ('--kv-dtype', '--weights')
    """
    return f"--{_SHELL_NAMES.get(name, name).replace('_', '-')}"


def in_python(text: str) -> str:
    """A text about options with their names in Python.

    >>> in_python("Default: as --kv-dtype, with --weights fp32.")
    'Default: as kv_dtype, with weights_dtype fp32.'
    """
    names = {shell: name for name, shell in _SHELL_NAMES.items() if name != "sets"}
    return re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda typed: names.get(typed[1], typed[1].replace("-", "_")), text)


def typed_options(options: Iterable[tuple[str, Any]]) -> str:
    """Options with their values as they are typed on the command line, each after a space; those that are off or not
    given are left out.

    >>> typed_options({"reserve": 0, "sp": True, "dtype": None, "on": "my card.toml"}.items())
    " --reserve 0 --sp --on 'my card.toml'"
    """
    return "".join(
        f" {shell_option(name)}" if value is True else f" {shell_option(name)} {quote(str(value))}"
        for name, value in options
        if value is not None and value is not False
    )


def option(name: str, value: float | str | None = None) -> str:
    """Spelling of an option, with a value if given; `True` switches a flag on.

    >>> option("kv_dtype"), option("ctx", 16384), option("by", "part"), option("decode", True)
    ('kv_dtype', 'ctx=16384', "by='part'", 'decode=True')
    >>> with on_command_line():
    ...     option("kv_dtype"), option("ctx", 16384), option("by", "part"), option("decode", True)
    ('--kv-dtype', '--ctx 16384', '--by part', '--decode')
    """
    typed = shell_option(name)
    if value is None or value is True:
        return spelled(typed, name if value is None else f"{name}=True")
    return spelled(f"{typed} {value}", f"{name}={value!r}")


def setting(field: str, value: int | str | None = None) -> str:
    """Spelling of a config field set to a value, or to null.

    >>> setting("architectures"), setting("model_type", "bart")
    ('architectures=None', "model_type='bart'")
    >>> with on_command_line():
    ...     setting("architectures"), setting("model_type", "bart")
    ('--set architectures=null', '--set model_type=bart')
    """
    return spelled(f"--set {field}={'null' if value is None else value}", f"{field}={value!r}")
