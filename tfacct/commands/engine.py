"""What a serving engine will allocate and print at start."""

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack

from tfacct import options as opt
from tfacct.base import units
from tfacct.base.errors import UsageError, cut
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.reports.engine import EngineReport


NAMES = {"auto": None, "half": "fp16", "float": "fp32", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp8_inc": "fp8"}
"""Dtypes by the engines' own names."""
BYTES = re.compile(r"[1-9]\d{0,17}", re.ASCII)
"""Bytes without a unit."""
PAGED = ("fp32", "bf16", "fp16", "fp8")
"""Dtypes of a cache in pages."""


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
        Literal["none", "align", "all"],
        Option("What prefix caching keeps of states.", default="none", advanced=True),
    ]
    dtype: opt.Dtype
    kv_dtype: opt.KvDtype
    tp: Annotated[int, opt.of(opt.Ranks.__annotations__["tp"])]
    pp: Annotated[int, opt.of(opt.Ranks.__annotations__["pp"])]


def engine(
    *,
    engine_name: Annotated[
        str | None, Option("vllm, sglang, llama.cpp; none: list them.", "[ENGINE]", argument=True)
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
        from tfacct.engines.profiles import engine as known

        known(engine_name)  # raises: there is no such engine
        raise UsageError(f"tfacct engine {engine_name} needs a MODEL", COMMAND.examples[0])
    from tfacct.loading import find
    from tfacct.loading.overrides import read_overrides

    return engine_of(find.find(served, read_overrides(fields or ())), engine=engine_name, **flags)


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

    The keywords are the engine's flags. `max_model_len="max"`: the longest that starts; `requests`: find the launch
    that has room for so many. `log`: a start-up log to compare with, whose flags apply where none are given. Raises
    TfacctError.
    """
    from tfacct.reports.engine import engine_start

    given, figures = dict(flags), None
    if (log := flags.get("log")) is not None:
        from tfacct.engines import logs
        from tfacct.engines.profiles import engine as known

        figures = logs.read(known(engine), log)
        absent = {"tp": 1, "pp": 1}
        typed = {name for name, value in given.items() if value not in (None, False) and value != absent.get(name)}
        of_log = logs.flags(figures) | _word_flags(model, logs.words(log), typed)
        given |= {name: value for name, value in of_log.items() if name not in typed}
    try:
        launch, hub_id = _launch(model, engine, given)
    except UsageError as error:
        if log is None or given.get("on") is None:
            raise
        raise UsageError(f"with the flags of {option('log')}: {error.message}", error.hint) from None
    if launch.engine.id != "vllm":
        from tfacct.reports.engine import simple_start

        for name in ("requests", "kv_cache_memory_bytes", "block_size", "enforce_eager", "max_num_seqs"):
            if flags.get(name):
                raise UsageError(f"{option(name)} is not derived for {launch.engine.name}", "leave it out")
        if launch.flags.max_model_len is None:
            launch = launch.with_flags(max_model_len=launch.profile.facts.get("context"))
        return Found(simple_start(launch, hub_id=hub_id, figures=figures))
    return Found(engine_start(launch, hub_id=hub_id, requests=flags.get("requests"), figures=figures))


def _word_flags(model: "LoadedModel", words: dict[str, str], typed: set[str]) -> dict[str, Any]:
    """Flags of a log whose values are words. Raises UsageError for weights in another format than the model's."""
    from tfacct.engines.launch import WIDE

    found: dict[str, Any] = {"enforce_eager": True} if "enforce_eager" in words else {}
    if "kv_cache_dtype" in words:
        found["kv_dtype"] = words["kv_cache_dtype"]
    method, stored = words.get("quantization"), model.storage(None).name
    if method is None or "dtype" in typed or stored not in WIDE:
        return found
    if method != "fp8":
        why = f"the start of {option('log')} has quantization {cut(method)}, {model.name} has {stored}"
        raise UsageError(why, f"{option('dtype')} of its weights, or the config of its checkpoint")
    return {**found, "dtype": method}


def _launch(model: "LoadedModel", name: str, given: dict[str, Any]) -> Any:
    """The launch, and the served model's id."""
    from tfacct.engines.launch import Flags, Launch
    from tfacct.engines.profiles import engine as known
    from tfacct.loading import devices

    found = known(name)
    profile = found.profile(given.get("engine_version"))
    if (on := given.get("on")) is None:
        raise UsageError(f"engine needs {option('on')}", f"such as {option('on', 'h100')}")
    count, device = devices.several(option("on"), on)
    tp, pp = given.get("tp", 1), given.get("pp", 1)
    tp = count if tp * pp == 1 else tp
    if count not in (1, tp * pp):
        raise UsageError(f"{option('on')} {cut(on)} and {option('tp', tp)}, {option('pp', pp)}: {tp * pp} cards")
    share = given.get("gpu_memory_utilization")
    if share is not None and not 0 < share <= 1:
        raise UsageError(f"{option('gpu_memory_utilization')} must be above 0 and at most 1, not {share!r}", "0.9")
    length = given.get("max_model_len")
    longest = isinstance(length, str) and length.strip().lower() == "max"
    sizes = {
        each: _positive(each, opt.size(each, given.get(each)))
        for each in ("max_num_batched_tokens", "max_num_seqs", "block_size", "requests", "tp", "pp")
    }
    flags = Flags(
        max_model_len=None if longest else _positive("max_model_len", opt.size("max_model_len", length)),
        max_num_batched_tokens=sizes["max_num_batched_tokens"],
        max_num_seqs=sizes["max_num_seqs"],
        gpu_memory_utilization=share,
        dtype=NAMES.get(str(given.get("dtype")), given.get("dtype")),
        kv_dtype=_kv_dtype(found.id, given.get("kv_dtype")),
        tp=tp,
        pp=pp,
        enforce_eager=bool(given.get("enforce_eager")),
        block_size=sizes["block_size"],
        mamba_cache_mode=given.get("mamba_cache_mode") or "none",
        kv_cache_memory_bytes=_bytes("kv_cache_memory_bytes", given.get("kv_cache_memory_bytes")),
        total_memory=_bytes("total_memory", given.get("total_memory")),
    )
    whole = model.whole is not None and not model.part
    supported = whole and (model.whole or {}).get("model_type") in found.facts.get("images", {})
    encoders = model.of_parts("parameters")[1:] if supported else ()
    launch = Launch(found, profile, model, device, flags, encoders=encoders)
    if longest and found.id != "vllm":
        raise UsageError(f"{option('max_model_len', 'max')} is not derived for {found.name}", "a number of tokens")
    if longest:
        from tfacct.engines.launch import check_supported, refusal

        check_supported(launch)
        if refusal(launch) is None:
            launch = launch.with_flags(max_model_len=launch.largest_length() or 1)
    return launch, _hub_id(model)


def _kv_dtype(engine: str, given: str | None) -> str | None:
    """How an engine stores its cache. Raises UsageError."""
    from tfacct.ledger.storage import width

    name = NAMES.get(str(given), given)
    if name is not None and engine != "llama.cpp" and width(name).name not in PAGED:
        raise UsageError(f"{option('kv_dtype')} {cut(name)} is not derived for {engine}", f"one of {', '.join(PAGED)}")
    return name


def _hub_id(model: "LoadedModel") -> str:
    """The id that the engine is started with."""
    url = "" if model.provenance is None else model.provenance.url
    return url.rpartition("huggingface.co/")[2] or model.path or model.name


def _positive(name: str, value: Any) -> int | None:
    """A whole number of at least 1. Raises UsageError."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise UsageError(f"{option(name)} must be a whole number of at least 1, not {value!r}")
    return value


def _bytes(name: str, value: Any) -> int | None:
    """A size such as `79.19GiB`, or bytes; of the cache also bytes alone, as the engine has them. Raises UsageError."""
    if name == "kv_cache_memory_bytes" and isinstance(value, str) and BYTES.fullmatch(value.strip()):
        value = int(value)
    return units.read_bytes(option(name), value) if isinstance(value, str) else _positive(name, value)


COMMAND = Command(
    engine,
    examples=(
        "tfacct engine vllm llama-3.1-8b --on h100 --max-model-len 8192",
        "tfacct engine vllm qwen3-32b --on 2xh100 --requests 64 --max-model-len 8k",
    ),
)
