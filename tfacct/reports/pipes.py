"""Meshes with stages and parts of a sequence: which are known, which models they divide, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tfacct.architecture.parts import Attention, LatentAttention
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.groups import Ledger
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import BOTH, Mesh
from tfacct.parallel.stages import blocks_in, sorts, stages
from tfacct.parallel.stages import part as part_of

FRONT = frozenset(("embed", "pos_embed", "type_embed", "task_embed", "box_embed", "embed_norm"))
"""What may stand in front of the blocks: it is read there alone."""
READS = "all blocks of the decoder read what the encoder gives"
MTP = "multi-token prediction heads"
BACK = frozenset(("final_norm", "lm_head", "pooler", "classifier", "contacts", "idle"))


def check_step(mesh: Mesh) -> None:
    """Raises UsageError for a pipeline beside what an engine chooses how to run."""
    if mesh.pp > 1 and mesh.fsdp > 1 and mesh.schedule not in ("1f1b", "gpipe"):
        said = f"{option('fsdp')} beside {option('pp')} is counted under 1f1b and gpipe, not {mesh.schedule}"
        raise UsageError(said, f"{option('schedule', '1f1b')} is counted, and so is {option('pp')} alone")
    if mesh.pp > 1 and mesh.zero > 1:
        # DeepSpeed's PipelineEngine: "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism" (0.19).
        said = (
            f"{option('zero', mesh.zero)} is not counted beside {option('pp')}: DeepSpeed refuses the pair, and torch's"
        )
        how = f"{option('zero', 1)} is counted, and so is {option('fsdp')}, which scatters gradients after the last one"
        raise UsageError(f"{said} stages sum whole gradients until the last microbatch is through", how)


def check_axes(subject: LoadedModel, mesh: Mesh) -> None:
    """Raises TfacctError for a model that has no stages, or whose attention has no rule for a part of a sequence."""
    if mesh.pp > 1:
        said = next(_unstaged(subject.architecture), None)
        if said:
            without = f"{option('set', 'mtp=false')} counts the model without them"
            hint = "stages hand on the stream alone: blocks that read nothing else have a rule"
            encoder = subject.architecture.encoder
            if encoder is not None:
                what = "blocks of several stages read the source" if encoder.given else READS
                hint = f"{what}: leave {option('pp')} out"
            raise ConfigError(
                f"{subject.name}: no rule for {said} beside {option('pp')}", without if said == MTP else hint
            )
        try:
            stages(blocks_in(subject.ledger), mesh)
        except UsageError as error:
            error.message = f"{subject.name}: {error.message}"
            raise
    if mesh.parts > 1:
        said = next(_unparted(subject.architecture, mesh), None)
        if said:
            whole = f"{option('fsdp')} divides weights and leaves sequences whole"
            raise ConfigError(f"{subject.name}: no rule for {said}", whole)


def _unstaged(shape: Transformer) -> Iterator[str]:
    """What reads more than the stream, so that stages would send more."""
    if shape.encoder is not None:
        yield shape.encoder.words
    if shape.mtp is not None:
        yield MTP
    front, back = shape.ends()
    for name in (*(name for name in front if name not in FRONT), *(name for name in back if name not in BACK)):
        yield f"{name}, which all blocks read,"
    for stack in shape.stacks:
        if stack.shared_weights:
            yield "blocks that share their weights"
        if stack.block.streams is not None:
            yield "several streams"
    for part in shape.attentions:
        if isinstance(part, Attention) and part.borrowed:
            yield "keys and values of an earlier block"
        if isinstance(part, LatentAttention) and part.indexer is not None and not part.indexes:
            yield "keys that an earlier block chooses"
        if isinstance(part, LatentAttention) and part.borrowed:
            yield "latents of an earlier block"


def _unparted(shape: Transformer, mesh: Mesh) -> Iterator[str]:
    """Attention of which what goes to other ranks is a choice, or not known."""
    cp, ulysses = option("cp", mesh.cp), option("ulysses", mesh.ulysses)
    if shape.encoder is not None:
        yield f"{shape.encoder.words} beside {cp if mesh.cp > 1 else ulysses}"
    for part in shape.attentions:
        if isinstance(part, Attention) and mesh.tp > 1 and part.qk_norm is not None and part.qk_norm.together:
            yield f"a norm over all heads together beside {option('tp')} and {cp if mesh.cp > 1 else ulysses}"
        if isinstance(part, Attention) and not part.causal and (part.window is not None or shape.bias is not None):
            odd = "windows to both sides" if part.window is not None else "scores of distances"
            yield f"{odd} beside {cp if mesh.cp > 1 else ulysses}, which a rank's part of the tokens does not have"
        if part.compression is not None:
            yield f"compressed keys beside {cp if mesh.cp > 1 else ulysses}: which rank makes them is not known"
        elif isinstance(part, LatentAttention):
            what = "the latent or what is made of it" if mesh.cp > 1 else "which heads the shared key goes with"
            yield f"latent attention beside {cp if mesh.cp > 1 else ulysses}: {what} is sent by choice"
        elif mesh.cp > 1 and mesh.cp_method == "ring" and part.window is not None:
            gather = option("cp_method", "gather")
            yield f"windows beside {cp} in a ring, which may skip keys that no query sees; {gather} has one"
        elif mesh.cp > 1 and mesh.cp_method == "ring" and isinstance(part, Attention) and part.sinks:
            yield f"sinks beside {cp} in a ring: each step would count them"


def facts_of(mesh: Mesh) -> dict[str, Any]:
    """Stages and parts of sequences, as in the JSON."""
    return {
        "pp": mesh.pp,
        "schedule": mesh.schedule if mesh.pp > 1 else None,
        "microbatches": mesh.microbatches or None,
        "pp_chunks": mesh.chunks,
        "cp": mesh.cp,
        "cp_method": mesh.cp_method if mesh.cp > 1 else None,
        "ulysses": mesh.ulysses,
    }


BUBBLE = {
    "gpipe": "(P − 1)/M",
    "1f1b": "(P − 1)/M",
    "interleaved": "(P − 1)/(V · M)",
    "zero-bubble": "(P − 1) · (F + B − W)/(M · (F + B + W))",
}
"""Time that a stage waits, over the time that it computes: P stages, M microbatches, V stages of a rank. F, B and W:
time of a forward pass, of the gradients of what is read, and of those of weights."""


def of_units(mesh: Mesh, train: bool = True) -> str:
    """When ranks of `fsdp` gather weights and scatter gradients."""
    if mesh.pp == 1:
        return "Weights are gathered block by block, as fully_shard does."
    once = "Weights are gathered once for all microbatches" + (", gradients scattered after the last" if train else "")
    return f"{once}, as torch's schedules run fully_shard without resharding."


def bubble(mesh: Mesh, times: int) -> Fraction | None:
    """The ratio of the formula; None where times stand in it."""
    if mesh.schedule == "zero-bubble":
        return None
    return Fraction(mesh.pp - 1, times * mesh.chunks)


def waits_facts(mesh: Mesh, times: int, train: bool) -> dict[str, Any]:
    """How long stages wait, as in the JSON: a formula, and its value where no time stands in it."""
    ratio = bubble(mesh, times) if train else None
    said = BUBBLE[mesh.schedule] if train else None
    return {"microbatches": times, "bubble": said, "bubble_ratio": None if ratio is None else float(ratio)}


def of_parts(mesh: Mesh, train: bool = True, *, masked: bool = True) -> list[str]:
    """How a sequence is divided, and how its parts come together; `train`: gradients too. `masked`: no token sees later
    ones."""
    said = []
    if mesh.cp > 1:
        pieces = mesh.parts * BOTH
        how = "go round from rank to rank" if mesh.cp_method == "ring" else "are gathered"
        cut = (
            f"A sequence is cut into {pieces:,} pieces. Each rank has one from the front and one from the back, so all"
            " see as many keys under the causal mask."
        )
        said.append(
            f"{cut if masked else 'Each rank has tokens in a row, which see all others.'} Keys and values {how}."
        )
    if mesh.ulysses > 1:
        said.append("Ranks of ulysses divide tokens, and inside attention heads.")
    if mesh.parts > 1:
        sums = " and sum gradients" if train else ""
        weights = "divide weights with those of fsdp" if mesh.fsdp > 1 else f"have the same weights{sums}"
        said.append(f"The ranks of a sequence {weights}.")
    return said


def ledgers(ledger: Ledger, mesh: Mesh) -> list[Ledger]:
    """The ledger of each rank of `pp`."""
    if mesh.pp == 1:
        return [ledger]
    return [part_of(ledger, own) for own in stages(blocks_in(ledger), mesh)]


def as_stages(subject: LoadedModel, mesh: Mesh) -> list[tuple[int, LoadedModel]]:
    """The model as ranks of `pp` have it, the first of each sort, with its number."""
    every = stages(blocks_in(subject.ledger), mesh)
    found = []
    for first, *_ in sorts(subject.ledger, every).values():
        shape = subject.architecture
        stacks = []
        for stack, own in zip(shape.stacks, shape.numbers(), strict=True):
            numbers = tuple(number for stage in every[first] for number in own if number in stage.blocks)
            if numbers:
                stacks.append(replace(stack, count=len(numbers), numbers=numbers))
        cut = replace(shape, stacks=tuple(stacks))
        found.append((first + 1, replace(subject, architecture=cut, ledger=part_of(subject.ledger, every[first]))))
    return found


def division(ledger: Ledger, mesh: Mesh) -> str:
    """How stages divide the blocks."""
    every = [len(stage.blocks) for own in zip(*stages(blocks_in(ledger), mesh), strict=True) for stage in own]
    whole = sum(every)
    each, more = divmod(whole, len(every))
    first = "first" if more == 1 else f"first {more:,}"
    sizes = f"{each:,} each" if not more else f"{each + 1:,} in the {first}, {each:,} in the others"
    many = f"{len(every):,} stages" + (f", {mesh.chunks:,} on a rank" if mesh.chunks > 1 else "")
    ends = "The first has what stands in front of them, the last what stands behind."
    return f"{whole:,} blocks are divided over {many}: {sizes}. {ends}"


def waits(mesh: Mesh, times: int) -> str:
    """How long stages wait, by the schedule."""
    ratio = bubble(mesh, times)
    value = f" = {ratio}" if ratio is not None else ""
    many = f"{times:,} microbatch{'' if times == 1 else 'es'}"
    said = f"{mesh.schedule}, {many}: a stage waits {BUBBLE[mesh.schedule]}{value} of the time that it computes."
    return said if ratio is not None else f"{said} F, B, W: a forward pass, gradients of what is read, of weights."
