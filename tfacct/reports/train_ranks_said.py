"""What is said of a training step as one rank of a mesh takes it: the whole model beside it, what is sent, what was not
measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfacct.accounts.sharding.mesh import VOCABULARY, Mesh, padded
from tfacct.accounts.sharding.sends import Collective
from tfacct.accounts.sharding.stages import microbatches
from tfacct.accounts.timeline_stage import SCATTERED
from tfacct.architecture.parts import Embedding, Experts, LatentAttention
from tfacct.base import units as numbers
from tfacct.ledger.einsum import letters
from tfacct.ledger.lines import EXPERTS
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.reports import mesh as meshes
from tfacct.reports import train_ranks_lora as adapters
from tfacct.reports import training
from tfacct.reports.comms import of_copies
from tfacct.reports.one_rank import on_ranks
from tfacct.reports.pipes import of_parts, of_units
from tfacct.reports.stored import stored
from tfacct.reports.train_ranks import alone, of_stages, on_stages
from tfacct.reports.training import Trained
from tfacct.reports.unruled import encodes
from tfacct.training.recipe import FP32, Recipe
from tfacct.training.states import optimizer_memory
from tfacct.training.traits import traits_of

HIGHER = {"ring": (24, 46), "gather": (9, 10), "ulysses": (0, 0)}
WHERE = {
    "ring": "under torch's own ring",
    "gather": "where keys and values are gathered",
    "ulysses": "where heads are exchanged",
}
"""Of 32 random llamas, the most by which peaks were higher that hold what attention receives, in percent, as
it is and where blocks run again."""
OF_ZERO = 43
SHARED_WHOLE = (
    f": peaks of small llamas were up to {OF_ZERO}% higher under torch's ZeroRedundancyOptimizer, which shares whole"
    " tensors."
)
BLOCK_BY_BLOCK = (
    "Weights are gathered block by block, the next one while a block runs backwards, as fully_shard does; what is"
    " outside the blocks stays gathered."
)
RAN_AGAIN = "Where blocks run again, peaks of small models were within 10% of this under transformers' own exchange."
LAST = (
    "What stages hold of their last microbatch while gradients are scattered and cast is not counted: peaks of small"
    " models were up to 2% higher there."
)
GATHERED = (
    "The peak is in the first microbatch, while frozen weights are gathered: six such peaks of 96 small models were up"
    " to 4% off."
)
OF_UNEVEN = 60
UNEVEN = (
    "Widths that ranks divide unevenly run under transformers' plan alone: it kept the same bytes, and peaks of small"
    f" models were up to {OF_UNEVEN}% higher in its networks."
)
NOT_MEASURED = "What ranks of ep hold on the way was not measured here."
OWN_ANGLES = "Angles in fp32, which each block casts where it gathers weights stored in fp32, are not counted."
OF_ONE_BLOCK = "In a model of one block the forward pass can be fuller: peaks of small ones were up to 6% higher."
OF_NORMS_FIRST = (
    "Where a class makes norms in front of products, gradients were watched as they are scattered in one family alone:"
    " nine peaks of small models were within 0.1% of this."
)
OF_ENCODERS = "Peaks of small encoders, alone or in front of a decoder, were within 5% of this under torch's plans."
OF_UPDATES = "What the optimizer's step holds among ranks of tp was not measured."
UNCOUNTED = "What collectives hold on the way is not counted."
NEARLY = "Peaks of small models were within 10% of this under the same plans."


def unmeasured(one: Trained) -> str:
    """What of a peak among ranks was not measured to the byte; empty if all of it was."""
    mesh, subject = one.recipe.mesh, one.subject
    assert mesh is not None
    if mesh.parts > 1 or mesh.zero:
        return UNCOUNTED
    latent = subject.architecture.having(LatentAttention)
    if any(letter != VOCABULARY for letter, _ in padded(subject.ledger, mesh)):
        return UNEVEN
    seen = subject.config.divided & {meshes.TORCH, meshes.STEP}
    if encodes(subject.architecture) and (mesh.tp > 1 or mesh.fsdp > 1):
        return OF_ENCODERS if seen and mesh.ranks in (mesh.tp, mesh.fsdp) else UNCOUNTED
    alike = mesh.ep == mesh.tp if mesh.tp > 1 else mesh.twins == 1 and seen
    if mesh.ep > 1 and (mesh.fsdp > 1 or mesh.imbalance != 1 or (latent and mesh.tp > 1) or not alike):
        return NOT_MEASURED
    again = one.recipe.recompute == "full"
    if mesh.ep > 1 and mesh.sp and (again or one.recipe.accumulates or meshes.gathers_heads(subject)):
        return NOT_MEASURED
    if mesh.ep > 1 and again:
        return RAN_AGAIN
    nearly = meshes.gathers_heads(subject) if mesh.ep > 1 or mesh.sp else False
    # Beside gradients of earlier batches three of 36 peaks were up to 9% higher.
    nearly = nearly or (mesh.sp and bool(subject.architecture.having(Experts)) and (not seen or one.recipe.accumulates))
    # Of 24 small models one held 2% more where attention runs again; beside such gradients 13 held up to 12% more.
    apart = latent and mesh.sp and (one.recipe.recomputed_modules or (nearly and one.recipe.accumulates))
    if mesh.tp == mesh.ranks > 1 and nearly and not apart:
        return NEARLY
    if mesh.pp > 1:
        from tfacct.reports.train_stages import unmeasured as of_stages

        if one.step.stage is not None and one.step.stage.gathers:
            return GATHERED
        scattered = one.recipe.weights_dtype == FP32 and one.peak.name == SCATTERED
        last = LAST if scattered else OF_UPDATES if mesh.tp > 1 and one.peak.name == "optimizer step" else ""
        return of_stages(subject, one.recipe, one.work) or last
    if mesh.fsdp == mesh.ranks > 1 and sum(stack.count for stack in subject.architecture.stacks) == 1:
        return OF_ONE_BLOCK
    if mesh.fsdp > 1 and meshes.NORMS_FIRST in subject.config.divided:
        return OF_NORMS_FIRST
    if mesh.fsdp > 1 and one.recipe.weights_dtype == FP32 and traits_of(subject).fp32_rotary:
        return OWN_ANGLES
    if mesh.tp == 1:
        return ""
    shape = subject.architecture
    narrow = isinstance(shape.embed, Embedding) and shape.embed.vocab < shape.embed.hidden  # then the loss may decide
    alone = mesh.sp or mesh.plan != "torch" or shape.having(Experts) or (shape.head is not None and shape.head.tied)
    beside = mesh.dp > 1 or (mesh.fsdp > 1 and (alone or latent)) or (mesh.plan != "torch" and latent)
    beside = beside or not seen or apart
    if beside or (mesh.sp and (one.work.tokens == mesh.tp or narrow)):
        return "What collectives of tp hold on the way is not counted."
    if one.peak.name == "optimizer step" and (mesh.sp or one.step.update):
        return OF_UPDATES
    return ""


def facts(one: Trained) -> dict[str, Any]:
    """What a report has of a mesh: its ranks, what a rank sends, and the whole model."""
    mesh = one.recipe.mesh
    assert mesh is not None
    each = width(one.recipe.weights_dtype or one.recipe.dtype)
    tensors = stored(one.subject)
    undivided = training.step_of(one.subject, one.work, alone(one.recipe))
    if one.recipe.lora is not None:
        weights, states = int(undivided.parameters), int(undivided.states)
        gradients = int(undivided.adapter_bytes)
    else:
        weights = gradients = each.bytes(sum(tensor.copies * tensor.elements for tensor in tensors))
        states = optimizer_memory(one.recipe, tensors, each.bits // 8).state
    return {
        "mesh": meshes.facts(mesh),
        "sent_bytes": sent(one),
        **_staged(one),
        "whole": {
            "weights_bytes": weights,
            "optimizer_bytes": states,
            "gradients_bytes": gradients,
            "kept_bytes": undivided.kept(),
        },
    }


def _staged(one: Trained) -> dict[str, Any]:
    if one.step.stage is None or one.recipe.mesh is None:
        return {}
    from tfacct.reports.train_stages import facts

    return facts(one.recipe.mesh, one.work, one.step)


def sent(one: Trained) -> int:
    """Bytes that one rank sends in a step."""
    assert one.recipe.mesh is not None
    bits = numbers.dtype_bits(one.recipe.dtype)
    if one.recipe.lora is not None and one.recipe.mesh.pp > 1:
        return max(sum(each.sent for each in found) for found in sent_in_stages(one.subject, one.work, one.recipe))
    found = meshes.calls(one.subject, one.recipe.mesh, one.work.axes(), bits, train=True)
    if one.recipe.lora is not None:
        found = adapters.sent(one.subject, one.recipe, one.step, found)
    return sum(each.sent for each in found)


def sent_in_stages(subject: LoadedModel, work: Workload, recipe: Recipe) -> Iterator[list[Collective]]:
    """Collectives of each sort of a pipeline's ranks, whose blocks have adapters."""
    mesh, bits = recipe.mesh, numbers.dtype_bits(recipe.dtype)
    assert mesh is not None
    every = meshes.by_stage(subject, mesh, work.axes(), bits, train=True)
    times = microbatches(mesh, work.axes(), train=True)
    (ranked,) = on_ranks([subject], mesh.tp, mesh.ep)
    for own, step in of_stages(ranked, work, recipe):
        found = on_stages(subject, own, step, recipe)
        assert found.stage is not None
        yield adapters.sent(subject, recipe, found, every[found.stage.rank], times)


def _of_experts(subject: LoadedModel, mesh: Mesh) -> list[str]:
    banks = sorted({group.axes[EXPERTS] for group in subject.ledger.groups if EXPERTS in group.axes})
    shares = " or ".join(f"{bank // mesh.ep:,} of {bank:,}" for bank in banks)
    dealt = "Tokens are spread evenly over the experts."
    if mesh.imbalance != 1:
        dealt = f"Shown is a rank that receives {float(mesh.imbalance):g} times as many rows as the mean."
    return [f"A rank has {shares} experts, each of which is whole; tokens go to their experts and back. {dealt}"]


def _received(mesh: Mesh, recipe: Recipe) -> str:
    """What is said of keys, values and heads that come from other ranks."""
    said = "What attention receives from other ranks is not counted"
    if mesh.cp > 1 and mesh.ulysses > 1:
        return f"{said}."
    method = mesh.cp_method if mesh.cp > 1 else "ulysses"
    most = HIGHER[method][recipe.recompute == "full"]
    by = f"up to {most}% higher" if most else "the same to the byte"
    return f"{said}: peaks of small llamas were {by} {WHERE[method]}."


def notes(one: Trained, found: dict[str, Any]) -> list[str]:
    """What is said of a rank's step."""
    mesh, recipe, whole = one.recipe.mesh, one.recipe, found["whole"]
    assert mesh is not None
    named = {"weights": "of weights", "optimizer": "of moments", "gradients": "of gradients", "kept": "kept"}
    sizes = (f"{numbers.binary(whole[f'{name}_bytes'])} {what}" for name, what in named.items())
    said = [f"The whole model on one card, with a batch as large: {', '.join(sizes)}."]
    if mesh.fsdp > 1:
        said.append(
            f"Each rank of fsdp has a batch of its own. {of_units(mesh) if mesh.pp > 1 else BLOCK_BY_BLOCK}"
            f"{' Only gradients of adapters are scattered.' if recipe.lora is not None else ''}"
        )
    if mesh.ep > 1:
        said += _of_experts(one.subject, mesh)
        said += [why] if mesh.tp == 1 and (why := unmeasured(one)) in (NOT_MEASURED, RAN_AGAIN) else []
    if mesh.pp > 1:
        from tfacct.reports.train_stages import notes as of_stages

        said += of_stages(one.subject, recipe, one.work, one.step)
        said += [why] if (why := unmeasured(one)) in (LAST, GATHERED) else []
    if mesh.parts > 1:
        said += [*of_parts(mesh), _received(mesh, recipe)]
    if mesh.dp > 1:
        stays = " The buckets stay beside the gradients." if one.step.buckets else ""
        engine = (
            f" Buffers in which an engine gathers gradients are not counted{SHARED_WHOLE if mesh.zero == 1 else '.'}"
        )
        engine = engine if mesh.zero else ""
        said.append(f"{of_copies(mesh)}{stays}{engine}")
    if mesh.tp == 1 and (why := unmeasured(one)) in (OWN_ANGLES, OF_ENCODERS):
        said.append(why)
    if mesh.tp > 1:
        stream = (
            ", and the stream's tokens except in what products read" if mesh.sp else "; the stream is whole on each"
        )
        last = "the loss's vocabulary" if VOCABULARY in letters(one.step.run.logits.spec) else "the token table"
        divided = f"The ranks of tp divide heads, networks and {last}{stream}. {unmeasured(one)}"
        said += [divided.strip(), *meshes.uneven([one.subject], mesh)]
    if mesh.tp > 1 and one.subject.architecture.having(LatentAttention):
        said.append("Latents are whole on each rank; heads are divided as DeepSeek-V2's plan in transformers has them.")
    if one.step.rows[0]:
        said.append("The gradient of the token table is made of all its rows on each rank, as torch's table makes it.")
    again = ""
    if recipe.recompute != "none" and mesh.tp * mesh.ep > 1:
        runs = "blocks send when they run" if recipe.recompute == "full" else "attention sends when it runs"
        again = f" What {runs} again is not in it."
    where = "the rank that sends most" if mesh.pp > 1 else "each rank"
    said.append(f"A step sends {numbers.binary(found['sent_bytes'])} from {where}.{again}")
    return said
