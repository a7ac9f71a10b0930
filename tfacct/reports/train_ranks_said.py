"""What is said of a training step as one rank of a mesh takes it: the whole model beside it, what is sent, what was not
measured."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.accounts.sharding.mesh import VOCABULARY, padded
from tfacct.accounts.sharding.sends import Collective
from tfacct.accounts.sharding.stages import microbatches
from tfacct.accounts.timeline_stage import SCATTERED
from tfacct.architecture.parts import Embedding, Experts, LatentAttention
from tfacct.base import units as numbers
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.reports import mesh as meshes
from tfacct.reports import train_ranks_lora as adapters
from tfacct.reports.one_rank import on_ranks
from tfacct.reports.train_ranks import of_stages, on_stages
from tfacct.reports.training import Trained
from tfacct.reports.unruled import encodes
from tfacct.training.recipe import FP32, Recipe
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
