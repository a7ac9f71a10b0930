"""FLOPs of models, matmul by matmul: at one workload, of one rank of a layout, or of a whole request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from tfacct.accounts.metrics import Point, Recompute, params_of, rule_of_thumb
from tfacct.accounts.products import Shown, shown
from tfacct.accounts.step_flops import decode_flops, recomputed
from tfacct.architecture.parts import MlaMode
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.cost import Cost
from tfacct.ledger.evaluated import Product
from tfacct.ledger.groups import Ledger
from tfacct.ledger.storage import Storage, width
from tfacct.ledger.workload import Request, Workload
from tfacct.loading import selection
from tfacct.loading.model import LoadedModel
from tfacct.loading.skipped import Skipped

if TYPE_CHECKING:
    from tfacct.parallel.mesh import Mesh


@record
class ModelFlops:
    """One model's matmuls at one workload.

    `recompute`: what the backward pass recomputes. `how` and `cached`: formats of weights and activations, if bytes are
    counted. `whole`: the matmuls of the whole model, if these are those of one rank of a `mesh`, in this `stage`.
    """

    model: LoadedModel
    work: Workload
    products: list[Product]
    train: bool = False
    masked: bool = False
    recompute: Recompute = "none"
    how: Storage | None = None
    cached: str = ""
    whole: ModelFlops | None = None
    mesh: Mesh | None = None
    stage: int = 1

    def flops(self, product: Product) -> int:
        """FLOPs of the line: forward, plus backward in a training step."""
        return int(product.forward + product.backward if self.train else product.forward)

    @property
    def total(self) -> int:
        return sum(self.flops(product) for product in self.products)

    @property
    def tokens(self) -> int:
        return int(self.rank_work.batch * self.rank_work.tokens)

    @property
    def rank_work(self) -> Workload:
        """The workload, with the tokens of one rank."""
        parts = 1 if self.mesh is None else self.mesh.sequence_shards
        return replace(self.work, tokens=self.work.tokens // parts)

    @property
    def whole_model(self) -> LoadedModel:
        """The whole model."""
        return self.model if self.whole is None else self.whole.model

    @property
    def active_params(self) -> int:
        return int(self._routed.active_params())

    @property
    def active(self) -> bool:
        """True if a token uses fewer parameters than are stored."""
        return self.active_params != int(params_of(self.point))

    @property
    def rule_of_thumb(self) -> int:
        """FLOPs by the rule of thumb."""
        return int(rule_of_thumb(self._routed))

    @property
    def ratio(self) -> Fraction:
        """FLOPs divided by the rule of thumb."""
        return Fraction(self.total, self.rule_of_thumb)

    @property
    def rule(self) -> str:
        """`2·params·tokens`, with 6 in a training step, and with active parameters if they differ."""
        return f"{'6' if self.train else '2'}·{'active' if self.active else 'params'}·tokens"

    @property
    def _routed(self) -> Point:
        """The same for a rank whose tokens are routed to experts; the tokens of its sequences are already its own."""
        if self.mesh is None:
            return self.point
        from tfacct.parallel.rank_flops import RankPoint

        return RankPoint.of(self.point, replace(self.mesh, cp=1, ulysses=1))

    @property
    def point(self) -> Point:
        """This point for metrics."""
        return Point(self.model.ledger, self.rank_work, masked=self.masked, train=self.train, recompute=self.recompute)

    @property
    def recomputed(self) -> int:
        """FLOPs of recomputation, which are in the backward pass: all but two matmuls for each of the forward pass."""
        return sum(int(product.backward - 2 * product.forward) for product in self.products)

    @property
    def if_all_called(self) -> int | None:
        """The total if every MLP ran; None if every MLP runs."""
        whole = self.model.architecture.all_called()
        if whole is None:
            return None
        return sum(map(self.flops, products_of(whole.ledger(), self.work, self.masked, self.recompute)))

    @property
    def by_component(self) -> dict[str, int]:
        """FLOPs by component: attn_projections, attn_scores_values, mlp, mamba, lm_head."""
        summed: dict[str, int] = {}
        for product in self.products:
            name = paths.component_of(product.line)
            summed[name] = summed.get(name, 0) + self.flops(product)
        return summed

    @property
    def format_name(self) -> str | None:
        """Format of the weights, if bytes are counted."""
        return None if self.how is None else self.how.name

    @property
    def costs(self) -> list[tuple[Shown, Cost]]:
        """Memory traffic of each line."""
        assert self.how is not None
        cached = width(self.cached)
        return [(line, line.product.cost(self.how, cached)) for line in shown(self.products)]

    @property
    def moved(self) -> Cost:
        """FLOPs and bytes of all lines."""
        return sum((cost for _, cost in self.costs), Cost())


def products_of(ledger: Ledger, work: Workload, masked: bool, recompute: Recompute) -> list[Product]:
    """Every matmul at a workload; backward FLOPs include recomputation."""
    products = ledger.products(work.axes(), masked=masked)
    if recompute == "none":
        return products
    recomputation = recomputed(ledger, work.axes(), recompute, masked=masked)
    return [each._replace(backward=each.backward + more) for each, more in zip(products, recomputation, strict=True)]


def flops_of_each(
    models: Sequence[LoadedModel],
    mesh: Mesh | None,
    count: Callable[[LoadedModel], ModelFlops],
    dtype: str | None = None,
) -> tuple[list[ModelFlops], list[Skipped]]:
    """The matmuls of each model, or of its rank that computes most (or moves most, if bytes are counted, of weights in
    `dtype`); and the models that the mesh does not fit."""
    if mesh is None:
        return [count(model) for model in models], []
    from tfacct.parallel.rank_flops import on_rank
    from tfacct.parallel.shard_model import shard_for_flops, shard_for_memory, stages_of
    from tfacct.parallel.support import supported_on

    def of(model: LoadedModel) -> ModelFlops:
        whole = count(model)
        sharded = shard_for_flops(model, mesh) if whole.how is None else shard_for_memory(model, mesh, dtype)
        found = []
        for stage, rank_model in stages_of(sharded, mesh.pp):
            one = count(rank_model)
            products = on_rank(rank_model, one.products, mesh, one.work, masked=one.masked)
            found.append(replace(one, products=products, whole=whole, mesh=mesh, stage=stage))
        return max(found, key=lambda one: one.total if one.how is None else one.moved.moved)

    _, found, left_out = supported_on(models, of)
    return found, left_out


@record
class RequestFlops:
    """One model's request: FLOPs by matmul of the prefill `work` and of all decode `steps` together. `last`: the last
    decode step, or the prefill if there is none."""

    model: LoadedModel
    work: Workload
    last: Workload
    steps: int
    specs: dict[str, str]
    decode_specs: dict[str, str]
    prefill: dict[str, int]
    decode: dict[str, int]
    masked: bool

    @property
    def prefill_mode(self) -> MlaMode | None:
        """The mode of latent attention in the prefill."""
        return self.model.settled(self.work, masked=self.masked).mla_mode

    @property
    def decode_mode(self) -> MlaMode | None:
        """The mode of latent attention in the last decode step."""
        return self.model.settled(self.last, masked=self.masked).mla_mode if self.steps else None

    @property
    def prefill_total(self) -> int:
        return sum(self.prefill.values())

    @property
    def decode_total(self) -> int:
        return sum(self.decode.values())

    @property
    def total(self) -> int:
        return self.prefill_total + self.decode_total

    @property
    def per_prompt_token(self) -> Fraction:
        """FLOPs of the prefill per prompt token, over all sequences."""
        return Fraction(self.prefill_total, self.work.batch * self.work.tokens)

    @property
    def per_new_token(self) -> Fraction | None:
        """FLOPs of the decode steps per token, over all sequences; None without decode steps."""
        return Fraction(self.decode_total, self.work.batch * self.steps) if self.steps else None


def request_flops(model: LoadedModel, request: Request, steps: int, masked: bool) -> RequestFlops:
    work = selection.workload(model, request)
    last = Workload(work.context + steps, 1, work.batch, source=work.source) if steps else work
    ledger, at = model.ledger, work.axes()
    return RequestFlops(
        model,
        work,
        last,
        steps,
        specs={product.path: product.spec for product in ledger.products(at, masked=masked)},
        decode_specs={product.path: product.spec for product in ledger.products(last.axes(), masked=masked)},
        prefill=ledger.flops(at, masked=masked),
        decode=decode_flops(
            ledger, batch=work.batch, prompt=work.context, steps=steps, source=work.source, masked=masked
        ),
        masked=masked,
    )
