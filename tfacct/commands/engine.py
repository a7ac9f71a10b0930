"""What a serving engine will allocate and print at start."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack

from tfacct import options as opt
from tfacct.base.errors import UsageError
from tfacct.commands.command import Command, Found, named
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.reports.engine import EngineReport


class LaunchFlags(TypedDict, total=False):
    """Flags of the launch line, by the engine's own names."""

    on: Annotated[str | None, Option("Cards: h100, 2xh100.", "[N]xDEVICE", opt.WHERE, complete="device")]
    max_model_len: Annotated[opt.Size | None, Option("Longest request; max: what fits. Default: the model's.", "N|max")]
    max_num_batched_tokens: Annotated[opt.Size | None, Option("Most tokens in a step. Default: the engine's.", "N")]
    max_num_seqs: Annotated[int | None, Option("Most requests in a step. Default: the engine's.", "N")]
    gpu_memory_utilization: Annotated[
        float | None, Option("Share of the card's memory to use. Default: the engine's.", "X")
    ]
    engine_version: Annotated[str | None, Option("Version, such as 0.19. Default: the newest known.", "V")]
    requests: Annotated[int | None, Option("Find flags that serve N requests at once.", "N")]
    log: Annotated[str | None, Option("Compare with a start-up log, and take its flags.", "FILE")]
    total_memory: Annotated[opt.Size | None, Option("Memory of a card as torch reports it: 79.19GiB.", "SIZE")]
    kv_cache_memory_bytes: Annotated[
        opt.Size | None, Option("Size of the KV cache, instead of all memory that is left.", "SIZE", advanced=True)
    ]
    enforce_eager: Annotated[bool, Option("No CUDA graphs.", default=False)]
    block_size: Annotated[int | None, Option("Tokens per block of the KV cache.", "N", advanced=True)]
    mamba_cache_mode: Annotated[
        Literal["none", "align", "all"] | None,
        Option(
            "State blocks per request: 1 (none), 2 (align), or one per block of tokens (all). Default: the engine's.",
            advanced=True,
        ),
    ]
    dtype: opt.Dtype
    kv_dtype: opt.KvDtype
    tp: opt.Tp
    pp: opt.Pp


def engine(
    *,
    engine_name: Annotated[
        str | None, Option("vllm, sglang or llama.cpp; omit it to list them.", "[ENGINE]", argument=True)
    ] = None,
    served: Annotated[str | None, Option(opt.MODEL_HELP, "[MODEL]", argument=True, complete="model")] = None,
    fields: opt.Sets = None,
    **flags: Unpack[LaunchFlags],
) -> Found:
    """What vLLM, SGLang or llama.cpp will allocate at start."""
    if engine_name is None:
        from tfacct.reports.engine import engines

        return Found(engines())
    if served is None:
        from tfacct.engines.profiles import profiles
        from tfacct.loading import spellings

        if spellings.preset(engine_name) is not None:
            raise UsageError(f"{engine_name} is a model", f"name an engine first: tfacct engine vllm {engine_name}")
        profiles(engine_name)  # raises: there is no such engine
        raise UsageError(f"tfacct engine {engine_name} needs a MODEL", COMMAND.examples[0])
    return engine_of(named(served, fields), engine=engine_name, **flags)


def engine_of(
    model: "LoadedModel",
    *,
    engine: Annotated[str, Option("vllm, sglang or llama.cpp.", "ENGINE")] = "vllm",
    **flags: Unpack[LaunchFlags],
) -> "Found[EngineReport]":
    """What a serving engine allocates at start: tokens of KV cache, concurrent requests, each term of its memory.

    >>> from tfacct import load
    >>> start = load("llama-3.1-8b").engine(
    ...     on="h100", max_model_len=8192, gpu_memory_utilization=0.95, engine_version="0.19"
    ... )
    >>> start.starts, start.kv_cache_tokens, start.launch.split()[:2]
    (True, 476000, ['vllm', 'serve'])

    The keywords are the engine's flags. `agrees` is False if a figure differs from the `log`. Raises TfacctError.
    """
    from tfacct.reports.engine import engine_start

    return Found(engine_start(model, engine, {name: _read(name, value) for name, value in flags.items()}))


def _read(name: str, value: Any) -> Any:
    """The value of a flag: a number where it has one, or `max`."""
    from tfacct.engines.launch import SIZES

    if name == "max_model_len" and isinstance(value, str) and value.strip().lower() == "max":
        return "max"
    return opt.size(name, value) if name in SIZES else value


COMMAND = Command(
    engine,
    examples=(
        "tfacct engine vllm llama-3.1-8b --on h100 --max-model-len 8192",
        "tfacct engine vllm qwen3-32b --on 2xh100 --requests 64 --max-model-len 8k",
    ),
    fails="disagrees",
)
