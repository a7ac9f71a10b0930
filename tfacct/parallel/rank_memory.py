"""What one rank of a layout stores and caches of a loaded model, and what fits; without a layout, what one device
does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from tfacct.accounts.memory import (
    cache_bytes,
    largest_that_fits,
    next_token_bytes,
    token_bytes,
    unwindowed_cache_bytes,
)
from tfacct.accounts.products import by_part, dtypes_by_part
from tfacct.architecture.parts import LatentAttention
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes
from tfacct.ledger.evaluated import width_of
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import WINDOW, State
from tfacct.ledger.storage import Storage, Width, width
from tfacct.ledger.workload import LARGEST, Request, Workload
from tfacct.loading import selection
from tfacct.loading.memory_limit import Budgeted, MemoryLimit
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
    from tfacct.parallel.shard_model import shard_for_flops, shard_for_memory
    from tfacct.parallel.support import supported_on

    if weights:
        return supported_on(models, lambda model: shard_for_memory(model, mesh, dtype))
    return supported_on(models, lambda model: shard_for_flops(model, mesh, stored=True))


def memory_of_stages(
    rank_model: LoadedModel,
    whole_model: LoadedModel,
    request: Request,
    cached: Width,
    dtype: str | None,
    mesh: Mesh | None,
) -> list[ModelMemory]:
    """Memory of a rank of each pipeline stage. `rank_model`: the model on one rank of all stages together."""
    if mesh is None or mesh.pp == 1:
        return [ModelMemory(rank_model, whole_model, whole_model, request, cached, dtype, mesh)]
    from tfacct.parallel.shard_model import stages_of

    both = zip(stages_of(rank_model, mesh.pp), stages_of(whole_model, mesh.pp), strict=True)
    return [
        ModelMemory(stage, unsharded, whole_model, request, cached, dtype, mesh, number)
        for (number, stage), (_, unsharded) in both
    ]


class Fit(Budgeted):
    """The largest context and batch that fit a budget, and the free memory."""

    past_positions: str | None
    context_slack_bytes: int | None
    batch_slack_bytes: int | None


class MemoryLine(TypedDict):
    """A part of the weights, or a cached state."""

    what: str
    kind: Literal["weights", "cache"]
    elements: int
    dtype: str
    bytes: int


class Pages(TypedDict):
    """Cache pages that fit a budget, and how many requests of this context they hold."""

    page_bytes: int
    count: int
    tokens: int
    concurrency: float
    starts: bool
    largest_max_model_len: int


class ModelMemory:
    """What a model stores and caches at the end of a step; with a `mesh`, what one rank of a pipeline stage does.

    `unsharded`: the stage without sharded weights. `cached`: format of the cache; `dtype`: of the weights.
    """

    def __init__(
        self,
        model: LoadedModel,
        unsharded: LoadedModel,
        whole_model: LoadedModel,
        request: Request,
        cached: Width,
        dtype: str | None,
        mesh: Mesh | None = None,
        stage: int = 1,
    ) -> None:
        self.model, self.unsharded, self.whole_model = model, unsharded, whole_model
        self.request, self.cached, self.dtype, self.mesh, self.stage = request, cached, dtype, mesh, stage
        self.work = selection.workload(model, request)

    @cached_property
    def storage(self) -> Storage:
        """Format of the weights."""
        return self.model.storage(self.dtype)

    @cached_property
    def fsdp_shards(self) -> dict[str, int] | None:
        """Elements of each weight that the fullest rank of `fsdp` stores, padding included; None without FSDP. Raises
        TfacctError."""
        model, mesh = self.unsharded, self.mesh
        if mesh is None or mesh.fsdp == 1:
            return None
        from tfacct.parallel.mesh import check_experts
        from tfacct.parallel.shard_shapes import shard
        from tfacct.parallel.support import DTYPES, check_rows
        from tfacct.parallel.verified import verified

        check_experts(mesh)
        if (name := model.storage(self.dtype).name) not in DTYPES:
            raise UsageError(f"{model.name}: {option('fsdp')} does not support {name} weights", option("dtype", "bf16"))
        if not verified(model.family, "torch_plan"):
            check_rows(model, mesh)
        found: dict[str, int] = {}
        for tensor in model.ledger.tensors():
            elements = tensor.count * shard(tensor.parameter, tensor.axes, mesh).elements
            found[tensor.path] = found.get(tensor.path, 0) + elements
        return found

    @property
    def elements(self) -> dict[str, int]:
        """Elements of each weight."""
        return self.fsdp_shards or self.model.ledger.parameters()

    @cached_property
    def weight_bytes(self) -> dict[str, int]:
        """Bytes of each weight."""
        if self.fsdp_shards is None:
            return self.model.ledger.weight_bytes(self.storage)
        return {path: width(self.storage.name).bytes(count) for path, count in self.fsdp_shards.items()}

    @property
    def weights(self) -> int:
        """Bytes of all weights."""
        return sum(self.weight_bytes.values())

    @cached_property
    def cache(self) -> int:
        """Bytes of the cache. Raises TfacctError for one that the ranks cannot share."""
        if self.mesh is not None:
            from tfacct.parallel.rank_flops import check_cached_tokens

            check_cached_tokens(self.model, self.mesh, self.work)
        return self.cache_at()

    def cache_at(self, **changes: Any) -> int:
        """Bytes of the cache at this workload with `changes`."""
        return int(cache_bytes(self.model.ledger, self.rank_axes(**changes), self.cached))

    def without_windows(self, **changes: Any) -> int:
        """Bytes of the cache at this workload with `changes`, in an engine that caches all tokens in every layer."""
        return int(unwindowed_cache_bytes(self.model.ledger, self.rank_axes(**changes), self.cached))

    @property
    def first_token(self) -> int:
        """Bytes of the first token of a sequence, without the rest of its page."""
        return int(token_bytes(self.model.ledger, self.work.axes(), replace(self.cached, page=1)))

    @property
    def next_token(self) -> int:
        """Bytes that one more token of a sequence adds."""
        return int(next_token_bytes(self.model.ledger, self.rank_axes(), self.cached))

    def rank_axes(self, **changes: Any) -> Axes:
        """Sizes of the axes of this workload with `changes`; the tokens are those that the rank caches."""
        work = replace(self.work, **changes)
        if self.mesh is None:
            return work.axes()
        from tfacct.parallel.rank_flops import rank_tokens

        return rank_tokens(self.mesh, work).axes()

    @cached_property
    def variants(self) -> dict[str, Ledger | None]:
        """As `variants` of the model; None also if other heads would have other pages, next to states."""
        found = variants(self.model)
        return found if self.cached.state_page is None else {**dict.fromkeys(found), "as_built": self.model.ledger}

    @property
    def lines(self) -> list[MemoryLine]:
        """Weights by part, and every state."""
        ledger, at = self.model.ledger, self.rank_axes()
        sizes, dtypes = by_part(self.weight_bytes), dtypes_by_part(ledger, self.storage)
        states = {line.path: line for group in ledger.groups for line in group.lines if isinstance(line, State)}
        state_bytes = ledger.state_bytes(at, self.cached)
        lines: list[MemoryLine] = [
            {"what": part, "kind": "weights", "elements": count, "dtype": dtypes[part], "bytes": sizes[part]}
            for part, count in by_part(self.elements).items()
        ]
        for path, count in ledger.states(at).items():
            what, dtype = paths.short(path), width_of(states[path], self.cached).name
            lines.append({"what": what, "kind": "cache", "elements": count, "dtype": dtype, "bytes": state_bytes[path]})
        return lines

    def fit(self, limit: MemoryLimit) -> Fit:
        """The largest context at this batch and the largest batch at this context; 0 if not even 1 fits, None if the
        cache does not limit it. No context is longer than the position embedding of the whole model."""
        work, whole_model, free = self.work, self.whole_model, limit.usable - self.weights
        past, longest = whole_model.past_positions(work), whole_model.position_limit

        def needed(context: int, batch: int) -> int:
            too_many = limit.paged is not None and limit.paged(context) < batch
            return free + 1 if too_many else self.cache_at(context=context, batch=batch)

        def most(context: int) -> int:
            return max(needed(n, work.batch) for n in self.model.ledger.fullest(context))

        reads = whole_model.past_positions(replace(work, context=1)) is None
        context = largest_that_fits(most, free, longest or LARGEST) if reads else 0
        batch = largest_that_fits(lambda n: needed(work.context, n), free, LARGEST) if past is None else 0
        return {
            **limit.facts,
            "fits": past is None and needed(work.context, work.batch) <= free,
            "past_positions": past,
            "context_limit": longest,
            "largest_context": context if context < LARGEST else None,
            "largest_batch": batch if batch < LARGEST else None,
            "context_slack_bytes": free - self.cache_at(context=context) if context else None,
            "batch_slack_bytes": free - self.cache_at(batch=batch) if batch else None,
        }

    def pages(self, free_bytes: int | None) -> dict[str, Any]:
        """Facts of a paged cache. With `free_bytes`, which the weights leave, also what vLLM prints at start-up: the
        tokens that fit, and the number of requests of this context. These are missing if not even one page fits, or if
        layers cache different tokens."""
        model, page = self.model, self.cached.page
        one = replace(self.work, context=page, tokens=1, batch=1, source=0)
        page_bytes = int(cache_bytes(model.ledger, one.axes(), self.cached))
        found: dict[str, Any] = {"kv_block": page, "kv_page_bytes": page_bytes}
        if free_bytes is None or free_bytes < page_bytes or not _all_grow(model):
            return found
        count = free_bytes // page_bytes
        needed = -(-self.work.context // page)
        return found | pool_facts(model, self.work, page_bytes, count, count * page, needed, count * page)


def fitting_every_stage(found: Sequence[Fit]) -> Fit:
    """What fits on every stage, from what fits on each."""
    by_context = min(found, key=lambda one: _room(one["largest_context"], one["context_slack_bytes"]))
    by_batch = min(found, key=lambda one: _room(one["largest_batch"], one["batch_slack_bytes"]))
    return {
        **found[0],
        "fits": all(fit["fits"] for fit in found),
        "largest_context": by_context["largest_context"],
        "largest_batch": by_batch["largest_batch"],
        "context_slack_bytes": by_context["context_slack_bytes"],
        "batch_slack_bytes": by_batch["batch_slack_bytes"],
    }


def _room(largest: int | None, slack: int | None) -> tuple[bool, int, int]:
    """Sort key of a stage: the largest context or batch that fits, and the free bytes; without a limit the last."""
    return largest is None, largest or 0, slack or 0


def pool_facts(
    model: LoadedModel, work: Workload, page: int, count: int, tokens: int, needed: int, longest: int
) -> dict[str, Pages]:
    """Facts of `count` pages of `page` bytes, which hold so many tokens: a request of this context takes `needed` of
    them, and the longest one that they hold has `longest` tokens."""
    pages: Pages = {
        "page_bytes": page,
        "count": count,
        "tokens": tokens,
        "concurrency": float(Fraction(count, needed)),
        "starts": count >= needed and model.past_positions(work) is None,
        "largest_max_model_len": min(longest, model.position_limit or longest),
    }
    return {"pages": pages}


def _all_grow(model: LoadedModel) -> bool:
    """True if every state grows with every token."""
    groups = model.ledger.groups
    states = [line for group in groups for line in group.lines if isinstance(line, State)]
    return bool(states) and all("S" in line.spec for line in states) and not any(WINDOW in g.axes for g in groups)


def variants(model: LoadedModel) -> dict[str, Ledger | None]:
    """The model with as many key/value heads as query heads, as published, and with one; None if it has no key/value
    heads that could be shared."""
    built = model.architecture
    heads = bool(built.attentions) and not any(part.compression is not None for part in built.attentions)
    each = built.with_kv_heads(None).ledger() if heads else None
    shared = built.with_kv_heads(1).ledger() if heads and not is_latent(model) else None
    return {"mha": each, "as_built": model.ledger, "mqa": shared}


def is_latent(model: LoadedModel) -> bool:
    """True if keys and values come from a latent, so that there are no key/value heads to share."""
    return bool(model.architecture.having(LatentAttention))
