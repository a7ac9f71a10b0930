"""The meshes and models whose collectives follow from the rules; every other one is refused by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tfacct.architecture.parts import Attention, Experts, LatentAttention, Part
from tfacct.base.errors import ConfigError, UsageError, listed
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes
from tfacct.ledger.formats import MX
from tfacct.ledger.storage import Storage, Stored
from tfacct.loading.model import LoadedModel
from tfacct.parallel.logits import AfterHead
from tfacct.parallel.mesh import HEADS_NORMS, Mesh, check, divisors, padded, replicated
from tfacct.parallel.pipeline import in_pipeline
from tfacct.parallel.rules import collectives
from tfacct.parallel.sends import Collective
from tfacct.parallel.shards import gathered
from tfacct.parallel.verified import COMPUTE_ROUTING, FP32_ROUTER, FP32_ROUTING, GATHERED, TORCH_PLAN
from tfacct.reports import pipes
from tfacct.reports.unruled import encodes, gathered_elsewhere, in_parallel, unparallel, unruled
from tfacct.training.traits import FSDP_UNSUPPORTED

NORMS_LAST = frozenset(("apertus", "bailing_moe", "exaone4", "exaone_moe", "gemma3_text", "glm4_moe", "hy_v3"))
"""Families whose norms of queries and keys run after the matmuls of queries, keys and values."""
HEADS_GATHERED = (
    "Queries, keys and values are gathered, because a norm reads all heads together: attention and what is kept of keys"
    " and values are whole on each rank, as under the plan that transformers publishes."
)
ROUTING = FP32_ROUTING | COMPUTE_ROUTING
"""Families whose router's gradients were compared."""
DTYPES = ("fp32", "bf16", "fp16")
"""Dtypes in which ranks hold and send numbers."""


def check_buckets(subject: LoadedModel, mesh: Mesh) -> None:
    """Refuse buckets of gradients where which tensors share one was not compared."""
    if mesh.replicas == 1 or mesh.fsdp > 1 or mesh.zero:
        return
    experts = subject.once(_experts)
    said = {
        "its experts have biases": any(part.bias or part.choice_bias for part in experts),
        "its shared network has a gate": any(part.shared_gate for part in experts),
        f"beside {option('tp', mesh.tp)} its class fuses products": mesh.tp > 1 and _fuses(subject, mesh),
    }
    why = next((reason for reason, holds in said.items() if holds), None)
    if why is not None:
        raise ConfigError(
            f"{subject.name}: {why}, and which tensors share a bucket of"
            f" {option('dp' if mesh.dp > 1 else 'cp' if mesh.cp > 1 else 'ulysses')} was not compared",
            f"{option('fsdp')} and {option('zero')} reduce without such buckets",
        )


def _fuses(subject: LoadedModel, mesh: Mesh) -> bool:
    """True if a class stores several products as one tensor, of those whose gradients share buckets."""
    theirs = subject.class_tensors
    every = [one.path for one in subject.ledger.tensors() if not (mesh.ep > 1 and one.parameter.bank)]
    return len({theirs.get(path, path) for path in every}) < len({*every})


def routing_bits(subject: LoadedModel, mesh: Mesh, bits: int, *, train: bool) -> int:
    """Bits of the weights by which a token's experts are summed, where they, their gradients or what is summed by them
    are sent. Raises ConfigError for a class that was not asked."""
    sent = mesh.tp > 1 and (train or mesh.ep not in (1, mesh.tp))
    if not sent or not subject.once(_experts):
        return bits
    if subject.family not in ROUTING:
        what = "what its router's gradients sum to" if mesh.sp else "the dtype in which its class sums experts"
        said = f"{subject.name}: {what}, which {option('tp')} sends, was not compared"
        raise ConfigError(said, f"it was for {listed(sorted(ROUTING))}")
    if mesh.sp and subject.family in FP32_ROUTER:
        said = f"{subject.name}: no rule for a router with weights in fp32 beside {option('sp', True)}"
        raise ConfigError(said, f"leave {option('sp', True)} out")
    return max(bits, 32) if subject.family in FP32_ROUTING else bits


def facts(mesh: Mesh) -> dict[str, Any]:
    """A mesh, as in the JSON."""
    own = {"tp": mesh.tp, "sp": mesh.sp, "fsdp": mesh.fsdp, "tp_plan": mesh.plan, "ranks": mesh.ranks}
    more = {"ep": mesh.ep, "imbalance": float(mesh.imbalance), "dp": mesh.dp, "zero": mesh.zero}
    return {**own, **more, **pipes.facts_of(mesh)}


def fused(subject: LoadedModel) -> dict[str, str]:
    """The module of its class for each of the products that are several in the ledger and one there."""
    theirs = subject.config.hf_modules
    several = Counter(theirs.values())
    return {path: module for path, module in theirs.items() if several[module] > 1}


def computed(subject: LoadedModel) -> dict[str, str]:
    """Each tensor as its class stores it, in the order in which the class computes with them: queries and keys are
    normed as they are made, or once values are there too."""
    theirs = subject.class_tensors
    if subject.family in NORMS_LAST:
        return theirs
    last = {paths.module_of(path): place for place, path in enumerate(theirs)}

    def place(path: str) -> int:
        module = paths.module_of(path)
        made = module.removesuffix("_norm") + "_proj" if module.endswith(HEADS_NORMS) else module
        return last.get(made, last[module])

    return {path: theirs[path] for path in sorted(theirs, key=place)}


def calls(subject: LoadedModel, mesh: Mesh, at: Axes, bits: int, *, train: bool = False) -> list[Collective]:
    """Every collective of a model on a mesh, as its class sends numbers of so many bits. Raises TfacctError."""
    every = {id(lines): lines for lines in by_stage(subject, mesh, at, bits, train=train)}
    return max(every.values(), key=lambda lines: sum(one.sent for one in lines))


def by_stage(
    subject: LoadedModel,
    mesh: Mesh,
    at: Axes,
    bits: int,
    *,
    train: bool = False,
    after: AfterHead = "divided",
    reduced: int | None = None,
) -> list[list[Collective]]:
    """Every collective of each rank of `pp`, of the one where there is no other. Raises TfacctError."""
    how: dict[str, Any] = {
        "train": train,
        "shares": routing_bits(subject, mesh, bits, train=train),
        "modules": subject.once(fused),
        "tensors": subject.once(computed) if train and mesh.replicas > 1 else None,
        "after": after,
        "reduced": reduced,
    }
    if mesh.pp == 1:
        return [collectives(subject.ledger, mesh, at, bits, **how)]
    return in_pipeline(subject.ledger, mesh, at, bits, **how)


def check_ruled(subject: LoadedModel, mesh: Mesh, *, train: bool = True) -> None:
    """Raises ConfigError for a model with a part that has no rule on this mesh; `train`: gradients are summed."""
    pipes.check_axes(subject, mesh)
    if mesh.ranks == mesh.pp and mesh.ep == 1:
        return  # stages send the stream, whatever is inside them
    said = subject.once(_unruled)
    if said and divides_weights(subject, mesh):
        check_gathered(subject, mesh, said, train=train)
        return
    if said:
        kinds = "attention, latent or not, feed-forward networks, experts, norms and tables have rules"
        if subject.family in GATHERED:
            counted = f"{option('fsdp')} alone is counted, by `tfacct params` and `comms`"
            kinds = f"{counted}: it divides weights, whatever computes with them"
        if mesh.fsdp > 1 and subject.family in FSDP_UNSUPPORTED:
            kinds = FSDP_UNSUPPORTED[subject.family]
        raise ConfigError(f"{subject.name}: no rule for {said} on a mesh", kinds)
    if train:
        check_buckets(subject, mesh)
    experts = subject.once(_experts)
    without = f"leave {option('sp', True)} out"
    if mesh.sp and (said := next(gathered_elsewhere(subject.architecture), None)):
        why = f": {unparallel(subject.architecture)}" if encodes(subject.architecture) else ""
        raise ConfigError(f"{subject.name}: no rule for {said} beside {option('sp', True)}", f"{without}{why}")
    if mesh.sp and mesh.plan == "megatron" and subject.architecture.having(LatentAttention):
        said = f"latent attention beside {option('sp', True)} under Megatron's plan, which gathers its latents"
        raise ConfigError(f"{subject.name}: no rule for {said}", f"{option('tp_plan', 'torch')} has one")
    if mesh.ep > 1 and not experts:
        raise ConfigError(
            f"{subject.name} has no experts for {option('ep', mesh.ep)} to divide", f"leave {option('ep')} out"
        )
    if mesh.sp and any(map(in_parallel, subject.architecture.stacks)):
        raise ConfigError(f"{subject.name}: no rule for parallel sublayers beside {option('sp', True)}", without)
    if mesh.sp and subject.architecture.positions is not None:
        raise ConfigError(f"{subject.name}: no rule for a table of positions beside {option('sp', True)}", without)
    if mesh.sp and subject.architecture.embed.scaled:  # inside its module torch needs whole sums, outside it does not
        raise ConfigError(f"{subject.name}: no rule for a scaled token table beside {option('sp', True)}", without)


def _unruled(subject: LoadedModel) -> str | None:
    return unruled(subject.architecture)


def _experts(subject: LoadedModel) -> list[Experts]:
    return [part for part in subject.architecture.parts() if isinstance(part, Experts)]


def divides_weights(subject: LoadedModel, mesh: Mesh) -> bool:
    """True if ranks divide weights alone, whatever computes with them, of a class that was divided so."""
    return subject.family in GATHERED and mesh.tp * mesh.ep * mesh.parts == 1


def check_gathered(subject: LoadedModel, mesh: Mesh, part: str, *, train: bool) -> None:
    """Raises ConfigError for copies whose gradients are reduced in buckets, of a model with a `part` without rule."""
    if train and mesh.fsdp == 1 and not mesh.zero:
        raise ConfigError(
            f"{subject.name}: no rule for {part} beside {option('dp', mesh.dp)}: which tensors share a bucket was not"
            " compared",
            f"{option('fsdp')} is counted, and {option('zero')} too",
        )


def check_sizes(subject: LoadedModel, mesh: Mesh, at: Axes) -> None:
    """Raises UsageError, which names the model, for sizes that the mesh does not divide."""
    try:
        check(subject.ledger, mesh, at)
    except UsageError as error:
        error.message = f"{subject.name}: {error.message}"
        raise


def check_divided(subject: LoadedModel, mesh: Mesh) -> None:
    """Raises TfacctError for a model that the mesh does not divide, or for which it has no rule."""
    check_ruled(subject, mesh)
    check_sizes(subject, mesh, {})
    if subject.family not in TORCH_PLAN:
        check_rows(subject, mesh)


def uneven(subjects: Sequence[LoadedModel], mesh: Mesh) -> list[str]:
    """Sentences on one model's heads that several ranks have, or all, and on letters of which the last ranks have
    fewer."""
    if len(subjects) != 1 or mesh.tp == 1:
        return []
    ledger = subjects[0].ledger
    said = [
        f"{f'Of {heads:,} key/value heads each' if heads > 1 else 'The one key/value head'} is on"
        f" {mesh.tp // heads:,} ranks: its weights, and what is kept of it."
        for heads in replicated(ledger, mesh)
    ]
    said += [HEADS_GATHERED] if gathers_heads(subjects[0]) else []
    for letter, whole in padded(ledger, mesh):
        share = mesh.share(letter, whole)
        said.append(f"{letter} = {whole:,} is not divided evenly: the fullest rank has {share:,}, the last ones fewer.")
    return said


PADDED = frozenset(one.name for one in MX.values())
"""Formats whose last block of a share is filled up, as vLLM pads the experts of gpt-oss on 4 and 8 devices."""


class CutError(UsageError):
    """A division that cuts blocks of a format of weights."""


def check_formats(whole: LoadedModel, ranked: LoadedModel, dtype: str | None) -> None:
    """Refuse weights in a format of which a division cuts blocks, groups or words, or whose blocks go by their
    numbers. Raises UsageError."""
    check_shares(whole, dtype, (part.stored for part in ranked.ledger.tensors()), ranked.storage(dtype))


def padded_blocks(whole: LoadedModel, ranked: LoadedModel, dtype: str | None) -> list[str]:
    """The note about blocks of weights that a rank's share fills up."""
    stored, pairs = whole.storage(dtype), zip(whole.ledger.tensors(), ranked.ledger.tensors(), strict=True)
    names = {
        stored.dtype(tensor.stored)
        for tensor, part in pairs
        if stored.dtype(tensor.stored) in PADDED and stored.cuts(tensor.stored, part.stored)
    }
    return [f"A rank's share is padded to whole blocks of {name}, as engines pad it." for name in sorted(names)]


def check_shares(whole: LoadedModel, dtype: str | None, shares: Iterable[Stored], own: Storage) -> None:
    """The same of one rank's share of each tensor, which `own` stores."""
    stored = whole.storage(dtype)
    if stored.name in DTYPES:
        return
    if stored.by_block:
        raise UsageError(f"{whole.name}: weights in {stored.name} are not divided here")
    for tensor, part in zip(whole.ledger.tensors(), shares, strict=True):
        name = stored.dtype(tensor.stored)
        if name != own.dtype(part) or (name not in PADDED and stored.cuts(tensor.stored, part)):
            shapes = " × ".join(f"{size:,}" for size in (part.outputs, part.inputs))
            what = f"{name} in {paths.short(tensor.path)}"
            experts = f"whole experts ({option('ep')}), " if tensor.parameter.bank else ""
            raise CutError(
                f"{whole.name}: the division cuts blocks of {what}, of which a rank has {shapes}",
                f"fewer ranks, {experts}or {option('dtype', 'bf16')}",
            )


def check_rows(subject: LoadedModel, mesh: Mesh) -> None:
    """Refuse a padding that depends on how a class lays its tensors out, fused or transposed, where that was not
    compared. Outside the blocks every class has the same tables and vectors."""
    if mesh.fsdp == 1:
        return  # nobody divides rows
    sizes, ranks = _rows(subject, mesh)
    padded = next((path for path, own in sizes.items() if any(size % ranks[path] for size in own)), None)
    if padded is not None:
        shape = " × ".join(f"{size:,}" for size in sizes[padded])
        every = rows_divisors(subject, mesh)
        fitting = [size // mesh.parts for size in every if size % mesh.parts == 0]
        given = [option(name, size) for name, size in (("cp", mesh.cp), ("ulysses", mesh.ulysses)) if size > 1]
        them = "it" if len(given) == 1 else "them"
        beside = f" beside {' and '.join(given)}" if given else ""
        raise UsageError(
            f"{subject.name}: {option('fsdp', mesh.fsdp)}{beside} pads {paths.short(padded)} ({shape}), and how the"
            " class lays its tensors out was not compared",
            f"sizes that divide all: {', '.join(map(str, fitting))}"
            if fitting
            else f"no size divides all{beside}; without {them}, {', '.join(map(str, every))} do",
        )


def _rows(subject: LoadedModel, mesh: Mesh) -> tuple[dict[str, list[int]], dict[str, int]]:
    """Rows and columns of each tensor of the blocks that `fsdp` divides, and the ranks that do."""
    sizes, ranks = {}, {}
    for unit in gathered(subject.ledger, mesh):
        for one in unit.shards if unit.what else ():
            sizes[one.path] = [size for size in (one.rows, one.columns)[: 1 + one.turns] if size > 1]
            ranks[one.path] = unit.ranks
    return sizes, ranks


def rows_divisors(subject: LoadedModel, mesh: Mesh) -> list[int]:
    """Numbers of ranks that divide the rows of all tensors of the blocks, so that none is padded."""
    return divisors([size for own in _rows(subject, mesh)[0].values() for size in own])


def norms_all_heads(part: Part) -> bool:
    """True of attention whose queries and keys pass a norm over all heads together, which no rank has by itself."""
    return isinstance(part, Attention) and part.qk_norm is not None and part.qk_norm.together


def gathers_heads(subject: LoadedModel) -> bool:
    """True of a model with such attention: ranks of `tp` divide its products and gather what they make."""
    return any(map(norms_all_heads, subject.architecture.attentions))
