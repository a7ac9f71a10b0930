"""What one rank of a layout stores and caches of a loaded model, and what fits; without a layout, what one device
does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tfacct.accounts.memory import cache_bytes, largest_that_fits
from tfacct.accounts.products import by_part, dtypes_by_part
from tfacct.architecture.parts import LatentAttention
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import axis_names
from tfacct.ledger.evaluated import width_of
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import RATES, WINDOW, State
from tfacct.ledger.storage import Storage, Width, width
from tfacct.ledger.workload import COMPRESSED, LARGEST, Request, Workload
from tfacct.loading.memory_limit import MemoryLimit
from tfacct.loading.model import LoadedModel
from tfacct.loading.skipped import Skipped

if TYPE_CHECKING:
    from tfacct.parallel.mesh import Mesh


def sharded(
    models: Sequence[LoadedModel], mesh: Mesh | None, dtype: str | None = None, *, weights: bool = True
) -> tuple[Sequence[LoadedModel], Sequence[LoadedModel], list[Skipped]]:
    """The models that a mesh fits, the same models on one rank of all stages together, and the other models; with
    `weights`, stored in `dtype`. Raises TfacctError if none fits."""
    if mesh is None:
        return models, models, []
    from tfacct.parallel.shard_model import shard_for_flops, shard_models

    return shard_models(models, mesh, dtype) if weights else shard_for_flops(models, mesh)


def stages(model: LoadedModel, mesh: Mesh | None) -> list[tuple[int, LoadedModel]]:
    """The model on the ranks of each pipeline stage, with the index of the stage."""
    if mesh is None or mesh.pp == 1:
        return [(1, model)]
    from tfacct.parallel.shard_model import stages_of

    return stages_of(model, mesh.pp)


def cached_tokens(model: LoadedModel | None, mesh: Mesh | None, work: Workload) -> Workload:
    """The part of a workload that one rank caches. Raises TfacctError for a `model` whose cache ranks cannot share."""
    if mesh is None or mesh.cp == 1:
        return work
    from tfacct.parallel import rank_flops

    return rank_flops.rank_tokens(mesh, work) if model is None else rank_flops.cached_tokens(model, mesh, work)


def fitting_all(found: Sequence[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    """What fits on every stage, from what fits on each, and the stage that limits it."""
    least = dict(found[0][1])
    for what in ("context", "batch"):
        largest, slack = f"largest_{what}", f"{what}_slack_bytes"

        def place(stage: tuple[int, dict[str, Any]], largest: str = largest, slack: str = slack) -> tuple[int, int]:
            one = stage[1]
            if one[largest] is None:  # nothing fits, or anything does
                return (0, 0) if one[slack] is None else (2, one[slack])
            return 1, one[largest]

        number, fewest = min(found, key=place)
        least |= {largest: fewest[largest], slack: fewest[slack], f"{what}_stage": number}
    return least


def stored_lines(
    model: LoadedModel, work: Workload, how: Storage, cached: Width, shards: dict[str, int] | None = None
) -> list[dict[str, Any]]:
    """Weights by part, and every state."""
    ledger, at = model.ledger, work.axes()
    elements, taken, dtypes = ledger.parameters(), ledger.weight_bytes(how), dtypes_by_part(ledger, how)
    if shards is not None:
        elements = dict(shards)
        taken = {path: width(how.name).bytes(count) for path, count in shards.items()}
    parts = by_part(elements)
    weights = by_part(taken)
    states, state_bytes = ledger.states(at), ledger.state_bytes(at, cached)
    lines = (line for group in ledger.groups for line in group.lines if isinstance(line, State))
    stored = {line.path: width_of(line, cached).name for line in lines}
    return [
        {"what": part, "kind": "weights", "elements": parts[part], "dtype": dtypes[part], "bytes": weights[part]}
        for part in parts
    ] + [
        {
            "what": paths.short(path),
            "kind": "cache",
            "elements": count,
            "dtype": stored[path],
            "bytes": state_bytes[path],
        }
        for path, count in states.items()
    ]


def fsdp_shards(model: LoadedModel, mesh: Mesh, dtype: str | None) -> dict[str, int]:
    """Elements of each weight that the fullest rank of `fsdp` stores, padding included. Raises TfacctError."""
    from tfacct.parallel.mesh import check_experts
    from tfacct.parallel.shard_shapes import shard
    from tfacct.parallel.support import DTYPES, check_rows
    from tfacct.parallel.verified import verified

    check_experts(mesh)
    if (name := model.storage(dtype).name) not in DTYPES:
        raise UsageError(f"{model.name}: {option('fsdp')} does not support {name} weights", option("dtype", "bf16"))
    if not verified(model.family, "torch_plan"):
        check_rows(model, mesh)
    found: dict[str, int] = {}
    for tensor in model.ledger.tensors():
        own = tensor.count * shard(tensor.parameter, tensor.axes, mesh).elements
        found[tensor.path] = found.get(tensor.path, 0) + own
    return found


def fit_facts(
    model: LoadedModel,
    work: Workload,
    cached: Width,
    budget: MemoryLimit,
    weights: int,
    mesh: Mesh | None,
    whole: LoadedModel,
) -> dict[str, Any]:
    """The largest context at this batch and the largest batch at this context; None if not even 1 fits, or, with a
    slack, if the cache does not limit it. No context is longer than the position embedding of the `whole` model."""
    room, past, limit = budget.usable - weights, whole.past_positions(work), whole.position_limit

    def cache(context: int, batch: int) -> int:
        at = cached_tokens(None, mesh, replace(work, context=context, batch=batch)).axes()
        return int(cache_bytes(model.ledger, at, cached))

    def needed(context: int, batch: int) -> int:
        too_many = budget.paged is not None and budget.paged(context) < batch
        return room + 1 if too_many else cache(context, batch)

    def most(context: int) -> int:
        return max(needed(n, work.batch) for n in model.ledger.fullest(context))

    reads = whole.past_positions(replace(work, context=1)) is None
    context = largest_that_fits(most, room, LARGEST if limit is None else limit) if reads else 0
    batch = largest_that_fits(lambda n: needed(work.context, n), room, LARGEST) if past is None else 0
    return {
        **budget.facts,
        "fits": past is None and needed(work.context, work.batch) <= room,
        "past_positions": past,
        "context_limit": limit,
        "largest_context": context if 0 < context < LARGEST else None,
        "context_slack_bytes": room - cache(context, work.batch) if context else None,
        "largest_batch": batch if 0 < batch < LARGEST else None,
        "batch_slack_bytes": room - cache(work.context, batch) if batch else None,
    }


def page_facts(model: LoadedModel, work: Workload, cache: Width, room: int | None) -> dict[str, Any]:
    """Facts of a paged cache. With `room`, the bytes that the weights leave, also what vLLM prints at start-up: the
    tokens that fit, and the number of requests of this context. Empty if not even one page fits, or if layers cache
    different tokens."""
    one = replace(work, context=cache.page, tokens=1, batch=1, source=0)
    page = int(cache_bytes(model.ledger, one.axes(), cache))
    found: dict[str, Any] = {"kv_block": cache.page, "kv_page_bytes": page}
    if room is None or room < page or not _all_grow(model):
        return found
    tokens = room // page * cache.page
    return found | pool_facts(model, work, page, room // page, tokens, -(-work.context // cache.page), tokens)


def pool_facts(
    model: LoadedModel, work: Workload, page: int, count: int, tokens: int, needed: int, longest: int
) -> dict[str, Any]:
    """Facts of `count` pages of `page` bytes, which hold so many tokens: a request of this context takes `needed` of
    them, and the longest one that they hold has `longest` tokens."""
    return {
        "pages": {
            "page_bytes": page,
            "count": count,
            "tokens": tokens,
            "concurrency": float(Fraction(count, needed)),
            "starts": count >= needed and model.past_positions(work) is None,
            "largest_max_model_len": min(longest, model.position_limit or longest),
        }
    }


def _all_grow(model: LoadedModel) -> bool:
    """True if every state grows with every token."""
    groups = model.ledger.groups
    states = [line for group in groups for line in group.lines if isinstance(line, State)]
    return bool(states) and all("S" in line.spec for line in states) and not any(WINDOW in g.axes for g in groups)


def variants(model: LoadedModel) -> dict[str, Ledger | None]:
    """The model with as many key/value heads as query heads, as published, and with one; None if it has no key/value
    heads that could be shared."""
    built = model.architecture
    heads = bool(built.attentions) and not is_compressed(model)
    each = built.with_kv_heads(None).ledger() if heads else None
    shared = built.with_kv_heads(1).ledger() if heads and not is_latent(model) else None
    return {"mha": each, "as_built": model.ledger, "mqa": shared}


def is_latent(model: LoadedModel) -> bool:
    """True if keys and values come from a latent, so that there are no key/value heads to share."""
    return bool(model.architecture.having(LatentAttention))


def is_compressed(model: LoadedModel) -> bool:
    """True if keys are also values, of a single head: the number of heads cannot change."""
    return any(part.compression is not None for part in model.architecture.attentions)


def _layer_axes(model: LoadedModel) -> dict[int, str]:
    """The axis that counts a group's layers if there are several kinds, by the id of the group."""
    if len(model.architecture.every_stack) == 1:
        return {}
    from tfacct.algebra.symbols import layer_axes

    groups = (group for group in model.ledger.groups if group.kind or group.numbers)
    return {id(group): axis for group, axis in zip(groups, layer_axes(model.architecture), strict=False)}


def _compressed(rates: Mapping[str, str]) -> dict[str, str]:
    """Compressed keys and tokens that are not yet compressed, by axis, at this number of tokens per key."""
    found: dict[str, str] = {}
    for kind, rate in rates.items():
        keys = f"⌊S / {rate}⌋"
        formulas = {"entries": keys, "waiting": f"(S mod {rate})", "any": f"min({keys}, 1)"}
        found |= {COMPRESSED[what][kind]: words for what, words in formulas.items() if kind in COMPRESSED[what]}
    return found


def cache_formula(model: LoadedModel, request: Request, cached: str, mesh: Mesh | None = None) -> str:
    """The cache as a product of named sizes, from the ledger's State lines, with S left open. `mesh`: the layout that
    shards the heads and tokens of the whole model."""
    from tfacct.parallel.mesh import joint_qk_norm

    tp, cp = (1, 1) if mesh is None else (mesh.tp, mesh.cp)
    cache_width = width(cached)
    by_kind: dict[tuple[int, str, str], dict[str, int]] = {}  # size of each kind of state, by its layers
    blocks = _layer_axes(model)
    for group in model.ledger.groups:
        windowed = WINDOW in group.axes
        keys = f"min(S, {group.axes[WINDOW]:,})" if windowed else "S" if cp == 1 else f"S / {cp}"
        sizes = {"B": request.batch, **group.axes, "S": keys, "J": "J"}
        sizes |= _compressed({kind: f"{group.axes[rate]:,}" for kind, rate in RATES.items() if rate in group.axes})
        of_keys = _compressed(RATES)
        lines = (line for line in group.lines if isinstance(line, State))
        states = [(axis_names(line.spec), width_of(line, cache_width)) for line in lines]
        for spec, how in dict.fromkeys(states):
            alike, each = states.count((spec, how)), how.each
            named = ["min(S, W)" if windowed and axis == "S" else group.names.get(axis, axis) for axis in spec]
            named = [of_keys.get(name, name) for name in named]

            if cp > 1:
                named = [keys if name == "S" else name for name in named]
            if tp > 1 and not joint_qk_norm(group):
                named = [f"⌈{name} / {tp}⌉" if name in ("K", "N") else name for name in named]
            name = " · ".join([*named, "bytes" if how == cache_width else str(each)])
            values = " · ".join([*(str(sizes[axis]) for axis in spec), str(each)])
            found, axis = by_kind.setdefault((alike, name, values), {}), blocks.get(id(group), "L")
            found[axis] = found.get(axis, 0) + group.count
    names, numbers = [], []
    for (alike, name, values), found in by_kind.items():
        stacks = f"({' + '.join(found)})" if len(found) > 1 else next(iter(found))
        names.append(f"{alike} · {stacks} · {name}" if alike > 1 else f"{stacks} · {name}")
        numbers.append(f"{alike * sum(found.values())} · {values}")
    what = model.cache_name
    return f"{what[0].upper()}{what[1:]} bytes: {' + '.join(names)} = {' + '.join(numbers)}"
