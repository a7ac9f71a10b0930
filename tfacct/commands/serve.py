"""Throughput, latency and cost of serving: an estimate, with its error."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Unpack

from tfacct import options as opt
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found, Variant
from tfacct.commands.time import On, devices_of
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.reports.serve import DisaggregatedReport, FewestReport, ServeReport
    from tfacct.timing.drafts_and_adapters import ServedLora
    from tfacct.timing.serving import Speculation

Prompt = Annotated[opt.Size, Option("Prompt length in tokens, 2k unless given.", "T")]
New = Annotated[opt.Size, Option("New tokens per request, 256 unless given.", "N")]
Requests = Annotated[
    int | Sequence[int] | str | None,
    Option("Concurrent requests. Default: several numbers, up to the most that fit.", "N[,N…]"),
]
Within = Annotated[
    float | str | None,
    Option(
        "Find the most requests that meet TIME per token. With --ttft: the fewest devices. TIME is the mean time per"
        " output token (TPOT) of a request; a single gap can last as long as a prefill.",
        "TIME",
    ),
]
Price = Annotated[float | None, Option("Price per device-hour, in any currency.", "P")]


def serve(
    model: "LoadedModel",
    *,
    on: On,
    prompt: Prompt = 2048,
    new: New = 256,
    requests: Requests = None,
    within: Within = None,
    measured: Annotated[str | None, Option("Correct the estimate with your own runs, from a CSV.", "FILE")] = None,
    price: Price = None,
    draft_tokens: Annotated[int | None, Option("Draft K tokens in every step; needs --acceptance.", "K")] = None,
    acceptance: Annotated[
        float | None,
        Option(
            "Probability that the model accepts a draft token after accepting the ones before it. No default.",
            "A",
            advanced=True,
        ),
    ] = None,
    draft: Annotated[
        str | None,
        Option(
            "Smaller model that drafts, in its published dtype. Default: the multi-token prediction layer of the served"
            " model.",
            "MODEL",
            complete="model",
            advanced=True,
        ),
    ] = None,
    lora: opt.Lora = None,
    adapters_loaded: Annotated[
        int | None, Option("LoRA adapters in memory; each request uses one. Default: 1.", "N", opt.RECIPE)
    ] = None,
    tp: opt.Tp = 1,
    ep: opt.ExpertGroups = 1,
    engine: opt.Engine = None,
    **deployed: Unpack[opt.Deployed],
) -> "Found[ServeReport]":
    """Throughput, latency and cost by concurrent requests.

    >>> from tfacct import load
    >>> served = load("llama-3.1-8b").serve(on="h100", prompt="2k", new=256, requests=[1, 16], within="50ms")
    >>> served.largest_requests, [line["requests"] for line in served.lines]
    (193, [1, 16])

    Requests that do not fit have no line. `within`: in seconds, or as `"50ms"`. `tp`: the number of devices, if `on`
    names one. Raises TfacctError.
    """
    from tfacct.reports.serve import serve
    from tfacct.timing.load import Load
    from tfacct.timing.placement import Deployment

    load = Load(
        opt.size("prompt", prompt),
        opt.size("new", new),
        _some(requests),
        price,
        _seconds("within", within),
        measured,
        _speculation(draft_tokens, acceptance, draft),
        _adapters(lora, adapters_loaded),
    )
    where = Deployment(devices_of(on, tp), ep=ep, **deployed)
    if engine is not None:
        from tfacct.engines.limit import Served, check_options, with_engine

        check_options(engine, where.reserve, ep)
        served = Served(engine, model, load.prompt + load.new, where.dtype, where.kv_dtype, where.use)
        where = replace(where, limit=with_engine(where.memory(), served))
    return Found(serve(model, where, load))


def fewest_devices(
    model: "LoadedModel",
    *,
    on: On,
    prompt: Prompt = 2048,
    new: New = 256,
    ttft: Annotated[float | str, Option("Find the fewest devices with a first token within TIME.", "TIME")],
    within: Within = None,
    requests: Annotated[opt.Size, Option("Number of concurrent requests.", "N")] = 1,
    price: Price = None,
    **deployed: Unpack[opt.Deployed],
) -> "Found[FewestReport]":
    """The fewest devices that serve concurrent requests within a time to first token and a time per output token.

    >>> from tfacct import load
    >>> found = load("llama-3.1-70b").fewest_devices(on="h100", prompt="2k", new=256, ttft="500ms", within="30ms")
    >>> found.devices, found.on["tp"], found.replicas
    (4, 4, 1)

    Tensor parallelism inside a node, and replicas of that; both times are met by the upper ends of their ranges, if all
    prompts arrive at once, and for `spread_out` if no prompt waits for another. `on`: the kind of device, or the most
    devices, such as `"8xh100"`. `ttft`, `within`: in seconds, or as `"500ms"`. `requests`: of all replicas. Raises
    TfacctError, also if no layout meets both.
    """
    from tfacct.reports.serve import fewest_devices
    from tfacct.timing.load import Load
    from tfacct.timing.placement import Deployment

    counts = _some(requests) or (1,)
    if len(counts) > 1:
        raise UsageError(f"{option('ttft', True)} takes one number of {option('requests')}", option("requests", 16))
    first_token, token = _seconds("ttft", ttft) or 0, _seconds("within", within)
    load = Load(opt.size("prompt", prompt), opt.size("new", new), counts, price, token, ttft=first_token)
    return Found(fewest_devices(model, Deployment(on, **deployed), load, counts[0]))


def serve_disaggregated(
    model: "LoadedModel",
    *,
    on: On,
    prefill_on: Annotated[
        str, Option("Devices that only prefill; those of --on only decode.", "DEVICES", complete="device")
    ],
    prompt: Prompt = 2048,
    new: New = 256,
    requests: Requests = None,
    price: Price = None,
    ep: opt.ExpertGroups = 1,
    **deployed: Unpack[opt.Deployed],
) -> "Found[DisaggregatedReport]":
    """Time to first token of a worker that only prefills, and time per output token of one that only decodes.

    >>> from tfacct import load
    >>> llama = load("llama-3.1-70b")
    >>> both = llama.serve_disaggregated(prefill_on="4xh100", on="4xh100", prompt="2k", new=256, requests=[1, 32])
    >>> [line["decode_batch"] for line in both.lines], both.prefill_on["count"]
    ([1, 31], 4)

    The decode worker's requests follow from Little's law; there is no queue between the workers. `requests`: in flight
    in both workers. `on`, `ep`: of the decode worker. Raises TfacctError.
    """
    from tfacct.reports.serve import serve_disaggregated
    from tfacct.timing.load import Load
    from tfacct.timing.placement import Deployment

    load = Load(opt.size("prompt", prompt), opt.size("new", new), _some(requests), price)
    prefill, decode = Deployment(prefill_on, named="prefill_on", **deployed), Deployment(on, ep=ep, **deployed)
    return Found(serve_disaggregated(model, prefill, decode, load))


def _adapters(lora: opt.Size | None, loaded: int | None) -> "ServedLora | None":
    """The adapters. Raises UsageError for a number of them without a rank."""
    if lora is None:
        if loaded is not None:
            raise UsageError(f"{option('adapters_loaded')} needs {option('lora')}", option("lora", 16))
        return None
    from tfacct.timing.drafts_and_adapters import ServedLora

    return ServedLora(str(lora), 1 if loaded is None else loaded)


def _speculation(tokens: int | None, acceptance: float | None, draft: str | None) -> "Speculation | None":
    """The drafts. Raises TfacctError for one of the options without another that it needs."""
    if (tokens, acceptance, draft) == (None, None, None):
        return None
    if tokens is None or acceptance is None:
        both = f"{option('draft_tokens')} and {option('acceptance')}, which has no default: it depends on the text"
        raise UsageError(f"drafts need {both}", "engines log the acceptance of drafts")
    from tfacct.loading.find import find
    from tfacct.timing.serving import Speculation

    return Speculation(tokens, acceptance, None if draft is None else find(draft))


def _seconds(name: str, given: float | str | None) -> float | None:
    """A time in seconds. Raises UsageError for one that is not above 0."""
    from tfacct.timing.utilization import check_positive

    seconds = units.read_seconds(option(name), given) if isinstance(given, str) else given
    if seconds is not None:
        check_positive(name, seconds, hint=f"seconds, or {option(name, '50ms')}")
    return seconds


def _some(requests: int | Sequence[int] | str | None) -> tuple[int, ...] | None:
    """The numbers of concurrent requests."""
    from tfacct.base import ranges

    if requests is None:
        return None
    if isinstance(requests, str):
        return tuple(ranges.read_some(option("requests"), requests))
    return tuple(opt.sizes("requests", requests)) if isinstance(requests, Collection) else (requests,)


COMMAND = Command(
    serve,
    examples=(
        "tfacct serve llama-3.1-8b --on h100 --prompt 2k --new 256",
        "tfacct serve llama-3.1-70b --on h100 --requests 8 --ttft 1s --within 40ms",
    ),
    variants={"ttft": Variant(fewest_devices), "prefill_on": Variant(serve_disaggregated)},
)
