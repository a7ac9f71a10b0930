"""Bytes of weights and KV cache, and what fits on which devices."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from tfacct import options as opt
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found, Variant
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.memory_limit import MemoryLimit
    from tfacct.loading.model import LoadedModel
    from tfacct.output.chart import Chart
    from tfacct.output.report import Report
    from tfacct.parallel.mesh import Mesh
    from tfacct.reports.memory import FitReport, KvReport, MemoryReport


KvBlock = Annotated[int | None, Option("Tokens per KV cache page, such as 16.", "N")]


def memory(
    models: "Sequence[LoadedModel]",
    *,
    dtype: opt.Dtype = None,
    kv_dtype: opt.KvDtype = None,
    kv_block: KvBlock = None,
    engine: opt.Engine = None,
    **options: Unpack[opt.SequencesOnDevices],
) -> "Found[MemoryReport]":
    """Weights and KV cache; what fits on a GPU.

    >>> from tfacct import load
    >>> llama = load("llama-3.1-8b")
    >>> llama.memory(ctx=8192).total, llama.memory(ctx=8192, kv_dtype="fp8").total
    (17134264320, 16597393408)
    >>> llama.memory(ctx="8k", on="24GiB").fit["largest_context"]
    74075

    `on` (devices, or bytes: `"24GiB"`, all usable) adds the largest context and batch that fit. On ranks, the bytes are
    those of the fullest, and `on` is its budget. Raises TfacctError.
    """
    from tfacct.reports.memory import memory

    request, mesh, budget = opt.request(options), opt.mesh_of_pass(options), opt.budget(options)
    if engine is not None:
        given: Any = {"dtype": dtype, "kv_dtype": kv_dtype, **opt.among(opt.Usable, options)}
        budget = _pool(models, budget, mesh, engine, request.ctx, **given)
    if budget is not None:
        from tfacct.parallel.shard_model import on_devices

        models, mesh = on_devices(models, budget, mesh if engine is None else None)
    stored: Any = {"dtype": dtype, "kv_dtype": kv_dtype}
    how: Any = {**stored, "kv_block": kv_block, "mesh": mesh, "fit": budget}
    report = memory(models, request, **how)

    def chart() -> "Chart":
        from tfacct.parallel.shard_model import shard_for_memory
        from tfacct.reports.charts import memory_chart, of_one_rank

        shard = partial(shard_for_memory, dtype=dtype)
        return of_one_rank(lambda drawn: memory_chart(drawn, request, report), models, mesh, "memory", shard)

    def derived() -> "Report":
        from tfacct.reports.explain import explained

        if mesh is not None:
            raise UsageError(f"{option('explain', True)} works for one device")
        return explained(report, models, request, **stored)

    return Found(report, chart, derived)


def _pool(
    models: "Sequence[LoadedModel]",
    budget: "MemoryLimit | None",
    mesh: "Mesh | None",
    engine: str,
    length: int | None,
    *,
    use: float | None = None,
    reserve: opt.Size | None = None,
    **stored: str | None,
) -> "MemoryLimit":
    """The memory limit that leaves the KV cache the size of an engine's pool. Raises UsageError."""
    from tfacct.engines.launch import divisors
    from tfacct.engines.limit import Served, with_engine

    if budget is None or len(models) != 1:
        raise UsageError(f"{option('engine', engine)} needs {'one MODEL' if budget is not None else option('on')}")
    if reserve is not None:
        raise UsageError(f"{option('engine', engine)} does not work with {option('reserve')}")
    if mesh is not None and (mesh.tp, mesh.ranks) != (budget.count, budget.count):
        cards = max(divisors(models[0], budget.count))
        hint = None if budget.device is None else f"{option('on', f'{cards}x{budget.device.id}')} without a layout"
        raise UsageError(f"{option('engine', engine)} supports only {option('tp')} over all devices", hint)
    return with_engine(budget, Served(engine, models[0], length, use=use, **stored))


def kv(
    models: "Sequence[LoadedModel]",
    *,
    kv_dtype: opt.KvDtype = None,
    kv_block: KvBlock = None,
    **options: Unpack[opt.SequencesOnRanks],
) -> "Found[KvReport]":
    """Bytes of the KV cache by context: as built, as MHA and as MQA.

    `ctx="1k..128k"`: the contexts of the rows. On ranks, the bytes are those of the fullest, and `whole` has the
    model's. Printed by `memory --kv`. Raises TfacctError.
    """
    from tfacct.reports.memory import kv

    contexts, options = opt.several("ctx", options)  # type: ignore[assignment]
    request, mesh = opt.request(options), opt.mesh_of_pass(options)
    report = kv(models, request, dtype=kv_dtype, contexts=contexts, kv_block=kv_block, mesh=mesh)

    def chart() -> "Chart":
        from tfacct.reports.charts import kv_chart, of_one_rank

        return of_one_rank(lambda drawn: kv_chart(drawn, request, report), models, mesh, "the cache")

    def derived() -> "Report":
        from tfacct.reports.explain import explained

        return explained(report, models, request, dtype=kv_dtype)

    return Found(report, chart, derived)


class Fitted(opt.Sequences, opt.Where, total=False):
    """Whole sequences on devices."""


def fit(
    model: "LoadedModel",
    *,
    ep: opt.ExpertGroups = 1,
    dtype: opt.Dtype = None,
    kv_dtype: opt.KvDtype = None,
    engine: opt.Engine = None,
    **options: Unpack[Fitted],
) -> "Found[FitReport]":
    """Number of devices of each kind that hold the weights and the cache.

    >>> from tfacct import load
    >>> fitting = load("llama-3.1-405b").fit(on="h100,mi300x", dtype="fp8", ctx="32k", batch=16)
    >>> [(line["device"], line["count"]) for line in fitting.lines]
    [('h100-sxm', 16), ('mi300x', 4)]

    `on`: devices, and how many of each if not the fewest that fit: `"2xh100,1xh200"`; all devices without it. Printed
    by `memory --on all`. Raises TfacctError.
    """
    from tfacct.loading import devices
    from tfacct.reports.memory import fit
    from tfacct.timing.placement import Deployment

    on: Any = options.get("on")
    names = on.strip(",").split(",") if isinstance(on, str) else on or ()
    request = opt.request(options)
    how = Deployment("all", dtype, kv_dtype, ep, **opt.among(opt.Usable, options))
    pool: Any = {}
    if engine is not None:
        from tfacct.engines.limit import Served, check_options, pool_limit

        check_options(engine, how.reserve, ep)
        served = Served(engine, model, request.ctx, dtype, kv_dtype, how.use)
        pool = {"engine": served.version, "limit": partial(pool_limit, served=served)}
    return Found(fit(model, request, devices.chosen(names), how, **pool))


COMMAND = Command(
    memory,
    examples=(
        "tfacct memory llama-3.3-70b --dtype fp8 --ctx 32k --on 2xh100",
        "tfacct memory qwen3-8b --kv --ctx 1k..128k",
    ),
    variants={
        "kv": Variant(
            kv,
            Option("KV cache by context, compared with MHA and MQA. Give --ctx 1k..128k."),
            counts_projector="nothing",
        ),
        "on": Variant(fit, when=lambda on: on == "all" or "," in on),
    },
    explained=("kv_block", *opt.Ranks.__annotations__),
    drawn=True,
    fails="strict",
    not_both=("on",),
    counts_projector="parameters",
)
