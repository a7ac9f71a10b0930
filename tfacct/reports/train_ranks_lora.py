"""A training step with adapters as one rank of a mesh takes it: which are counted, what ranks share and send."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.accounts.sharding.flights import lent_to
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.sharding.sends import Collective
from tfacct.accounts.sharding.stages import Stage
from tfacct.accounts.training import Step, Units
from tfacct.architecture.parts import Embedding, Experts, LatentAttention
from tfacct.base import units as numbers
from tfacct.base.spelling import option
from tfacct.ledger.groups import Ledger
from tfacct.ledger.torch_parameters import TorchParameter
from tfacct.loading.model import LoadedModel
from tfacct.reports.lora import SMALL_VOCABULARY
from tfacct.reports.mesh import norms_all_heads
from tfacct.training.adapters import adapted, lora_targets
from tfacct.training.recipe import NF4, Recipe
from tfacct.training.states import optimizer_memory

DTYPE = "with weights in the pass's dtype"
ROOMY = "with vocabularies of twice the hidden size or more on a rank"


def unruled(subject: LoadedModel, recipe: Recipe, mesh: Mesh) -> Iterator[str]:
    """Reasons why adapters do not go with a mesh, those of any mesh first."""
    if subject.architecture.having(Experts):
        yield "adapters beside experts are not counted on a mesh"
    if subject.architecture.having(LatentAttention):
        yield "adapters on latent attention are not counted on a mesh"
    if mesh.tp > 1 and any(map(norms_all_heads, subject.architecture.attentions)):
        yield f"adapters beside a norm over all heads together are not counted beside {option('tp')}"
    most = mesh.pp * max(mesh.fsdp, mesh.tp) if mesh.pp > 1 else mesh.tp * mesh.fsdp * mesh.dp
    if mesh.ranks > most or mesh.ep > 1 or mesh.zero or mesh.sp or mesh.plan != "torch":
        some = f"with {option('tp')}, {option('fsdp')} and {option('dp')}, one of them or several"
        staged = f"or with {option('pp')}, alone or beside {option('tp')} or {option('fsdp')}"
        yield f"adapters are counted {some}, {staged}, under torch's plan"
    if mesh.pp > 1 and mesh.schedule not in ("1f1b", "gpipe"):
        yield f"adapters beside {option('pp')} are counted under 1f1b and gpipe"
    if mesh.fsdp > 1 and recipe.weights_dtype is not None:
        yield f"adapters beside {option('fsdp')} are counted only {DTYPE}"
    if mesh.fsdp * mesh.pp > 1 and recipe.lora is not None:
        on = adapted(subject, lora_targets(recipe.lora))
        kinds = [group for group in subject.ledger.groups if group.numbers]
        if any(on.isdisjoint(line.path for line in group.lines) for group in kinds):
            yield f"blocks without an adapter are not counted beside {option('fsdp' if mesh.fsdp > 1 else 'pp')}"
    if recipe.weights_dtype == NF4:
        yield "adapters beside weights in nf4 are not counted on a mesh"
    if not roomy(subject, mesh.tp):
        yield f"adapters have been measured only {ROOMY}"


def roomy(subject: LoadedModel, tp: int) -> bool:
    """True if a rank's part of the vocabulary is as wide as that of models whose adapters were measured."""
    embed = subject.architecture.embed
    return isinstance(embed, Embedding) and bool(embed.vocab >= SMALL_VOCABULARY * embed.hidden * tp)


def shared(ledger: Ledger, step: Step, recipe: Recipe, parts: Units) -> Step:
    """The step where ranks share frozen weights, and the adapters beside them."""
    from tfacct.accounts.sharding.adapters import shares, with_units

    assert recipe.lora is not None and recipe.mesh is not None
    own = shares(step, recipe.mesh, lora_targets(recipe.lora).rank)
    step = with_units(step, parts._replace(accumulates=recipe.accumulates), own, ledger)
    return _optimized(step._replace(accumulate=step.accumulate and recipe.mesh.pp > 1), own, recipe)


def staged(step: Step, own: list[Stage], recipe: Recipe) -> Step:
    """The step of a rank with some stages, whose optimizer updates the adapters there."""
    there = [(one, part) for stage in own for one in step.adapters for part in lent_to([one], stage)]
    tensors = [TorchParameter((int(one.elements),), part.copies, one.numbers[0]) for one, part in there]
    return _optimized(step, tensors, recipe)


def _optimized(step: Step, parameters: list[TorchParameter], recipe: Recipe) -> Step:
    """The step whose optimizer updates these parameters of adapters."""
    memory = optimizer_memory(recipe, parameters, numbers.dtype_bits(recipe.adapter_dtype) // 8)
    return step._replace(states=memory.state, master_weights=memory.master_weights, update=memory.update.most)


def sent(subject: LoadedModel, recipe: Recipe, step: Step, found: list[Collective], times: int = 1) -> list[Collective]:
    """Collectives of a step with adapters on frozen weights; of a stage's `times` microbatches."""
    from tfacct.accounts.sharding.adapters import of_adapters, of_copies, of_frozen, of_units
    from tfacct.accounts.sharding.pipeline import repeated

    assert recipe.lora is not None and recipe.mesh is not None
    asked, bits = lora_targets(recipe.lora), numbers.dtype_bits(recipe.adapter_dtype)
    on = adapted(subject, asked)
    ledger = subject.ledger if step.stage is None else step.ledger
    lent = of_adapters(ledger, recipe.mesh, on, asked.rank, step.at, bits) if recipe.mesh.tp > 1 else ()
    inside = (repeated(one, times) for one in lent)
    copies = of_units(step, recipe.mesh) if recipe.mesh.fsdp > 1 else of_copies(step, recipe.mesh)
    return [*of_frozen(found, step), *inside, *copies]
