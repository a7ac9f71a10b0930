"""Which models a parallel layout supports: parts, classes and formats that have no rule are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from tfacct.architecture.blocks import Stack
from tfacct.architecture.parts import (
    Attention,
    Classes,
    CrossAttention,
    Embedding,
    Experts,
    FeedForward,
    Head,
    LatentAttention,
    Norm,
    Part,
    Pooler,
    Positions,
    RelativeBias,
    Residual,
    Segments,
    Stem,
)
from tfacct.architecture.transformer import Transformer
from tfacct.architecture.words import in_words
from tfacct.base.errors import ConfigError, TfacctError, UsageError, listed
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes
from tfacct.ledger.formats import MX
from tfacct.ledger.storage import Storage, Stored
from tfacct.loading.left_out import LeftOut
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh, check, divisors
from tfacct.parallel.pipeline import blocks_in, stages
from tfacct.parallel.shard_shapes import fsdp_units
from tfacct.parallel.verified import Fact, families, fsdp_unsupported, verified

Found = TypeVar("Found")
FRONT = frozenset(("embed", "pos_embed", "type_embed", "task_embed", "box_embed", "embed_norm"))
"""What may stand in front of the blocks: it is read there alone."""
READS = "all blocks of the decoder read what the encoder gives"
MTP = "multi-token prediction heads"
BACK = frozenset(("final_norm", "lm_head", "pooler", "classifier", "contacts", "idle"))
ROUTING: tuple[Fact, ...] = ("fp32_routing", "compute_routing")
"""Rows of families whose router's gradients were compared."""
DTYPES = ("fp32", "bf16", "fp16")
"""Dtypes in which ranks hold and send numbers."""
PADDED = frozenset(one.name for one in MX.values())
"""Formats whose last block of a share is filled up, as vLLM pads the experts of gpt-oss on 4 and 8 devices."""


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


def check_mesh(subject: LoadedModel, mesh: Mesh, *, train: bool = True) -> None:
    """Raises ConfigError for a model with a part that has no rule on this mesh; `train`: gradients are summed."""
    check_axes(subject, mesh)
    if mesh.ranks == mesh.pp and mesh.ep == 1:
        return  # stages send the stream, whatever is inside them
    said = subject.once(_unsupported)
    if said and shards_weights_only(subject, mesh):
        check_gathered(subject, mesh, said, train=train)
        return
    if said:
        kinds = "attention, latent or not, feed-forward networks, experts, norms and tables have rules"
        if verified(subject.family, "fully_shard"):
            counted = f"{option('fsdp')} alone is counted, by `tfacct params` and `comms`"
            kinds = f"{counted}: it divides weights, whatever computes with them"
        if mesh.fsdp > 1:
            kinds = fsdp_unsupported(subject.family) or kinds
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


def _unsupported(subject: LoadedModel) -> str | None:
    return unsupported_part(subject.architecture)


def _experts(subject: LoadedModel) -> list[Experts]:
    return [part for part in subject.architecture.parts() if isinstance(part, Experts)]


def shards_weights_only(subject: LoadedModel, mesh: Mesh) -> bool:
    """True if ranks divide weights alone, whatever computes with them, of a class that was divided so."""
    return verified(subject.family, "fully_shard") and mesh.tp * mesh.ep * mesh.sequence_shards == 1


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


def check_shardable(subject: LoadedModel, mesh: Mesh) -> None:
    """Raises TfacctError for a model that the mesh does not divide, or for which it has no rule."""
    check_mesh(subject, mesh)
    check_sizes(subject, mesh, {})
    if not verified(subject.family, "torch_plan"):
        check_rows(subject, mesh)


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
    if mesh.sequence_shards > 1:
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


def unsupported_part(shape: Transformer) -> str | None:
    """The first part that has no rule here, in words; None if every part has one."""
    return next(_unsupported_parts(shape), None)


def _unsupported_parts(shape: Transformer) -> Iterator[str]:
    if shape.encoder is not None and shape.encoder.given:
        yield shape.encoder.words
    if shape.mtp is not None:
        yield "multi-token prediction heads"
    for front, back in (shape.ends(), *(() if shape.encoder is None else (shape.encoder.ends(),))):
        for part in (*front.values(), *back.values()):
            yield from _of_part(part)
    for stack in shape.every_stack:
        yield from _of_stack(stack)


def _of_stack(stack: Stack) -> Iterator[str]:
    if stack.shared_weights:
        yield "blocks that share their weights"
    for _, part in stack.block.parts():
        yield from _of_part(part)


def _of_part(part: Part) -> Iterator[str]:
    """What of a part has no rule."""
    if part.mesh_unsupported:
        yield part.mesh_unsupported
        return
    match part:
        case Attention():
            if part.score_function != "product":
                yield "attention that is not plain"
            if part.indexer is not None:
                yield "an indexer that chooses blocks of keys"
            if part.borrowed or part.keys_as_values:
                yield "attention with borrowed or shared projections"
            if part.read_norm is not None and part.read_norm.together:
                yield "a norm over all heads together"
        case FeedForward():
            if part.norm is not None or part.inner_norm is not None or not part.called:
                yield "a network with a norm of its own, or one that is never called"
        case LatentAttention():
            if part.mla_mode == "absorbed":
                yield "absorbed latent attention"
            if part.borrowed or (part.indexer is not None and part.indexer.mesh_unsupported):
                yield "latents of another block, or an indexer that reads the stream"
        case Experts():
            if part.norms is not None or part.latent is not None:
                yield "experts with norms of their own, or of a narrower token"
        case CrossAttention():
            if part.score_function != "product" or part.qk_norm is not None or part.source_hidden is not None:
                yield "cross-attention that is not plain"
        case Norm():
            if part.shared or not part.called:
                yield "norms that are shared or never called"
        case Embedding():
            if part.rows is not None:
                yield "a token table of other rows than the vocabulary"
        case Residual() | Positions() | Segments() | RelativeBias() | Head() | Pooler() | Classes() | Stem():
            return
        case _:
            yield in_words(part)


def gathered_elsewhere(shape: Transformer) -> Iterator[str]:
    """What of a model reads the stream elsewhere than behind a norm: which of its readers gather it is a choice."""
    if encodes(shape):
        yield "an encoder"
    if shape.head is not None and shape.head.transform is not None:
        yield "a head with a transform"
    if any(stack.block.order == "post" for stack in shape.stacks):
        yield "norms behind the addition"
    if shape.segments is not None or shape.bias is not None:
        yield "tables of segments or of distances"


def unparallel(shape: Transformer) -> str:
    """Why torch's plan of sequence parallelism, which gathers what a norm gives for the product behind it, says nothing
    of an encoder."""
    if shape.encoder is not None:
        return "all blocks of the decoder read what the encoder gives, and which of them gathers it is a choice"
    if any(stack.block.order == "post" for stack in shape.stacks):
        return "products read sums behind a norm, which the next addition reads too: which of them gathers is a choice"
    if shape.segments is not None or shape.bias is not None or shape.positions is not None:
        return "tables beside that of the tokens have no place in torch's plan"
    return "torch's plan was compared with decoders alone"


def encodes(shape: Transformer) -> bool:
    """True of an encoder, alone or in front of a decoder."""
    return shape.encoder is not None or any(not getattr(part, "causal", True) for part in shape.attentions)


def in_parallel(stack: Stack) -> bool:
    """True if sublayers of its blocks read one tensor, or stand beside another."""
    return stack.block.order == "parallel" or any(sublayer.parallel for sublayer in stack.block.sublayers)


def norms_all_heads(part: Part) -> bool:
    """True of attention whose queries and keys pass a norm over all heads together, which no rank has by itself."""
    return isinstance(part, Attention) and part.qk_norm is not None and part.qk_norm.together


def gathers_heads(subject: LoadedModel) -> bool:
    """True of a model with such attention: ranks of `tp` divide its products and gather what they make."""
    return any(map(norms_all_heads, subject.architecture.attentions))


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
    if not any(verified(subject.family, fact) for fact in ROUTING):
        what = "what its router's gradients sum to" if mesh.sp else "the dtype in which its class sums experts"
        said = f"{subject.name}: {what}, which {option('tp')} sends, was not compared"
        raise ConfigError(said, f"it was for {listed(families(*ROUTING))}")
    if mesh.sp and verified(subject.family, "fp32_router"):
        said = f"{subject.name}: no rule for a router with weights in fp32 beside {option('sp', True)}"
        raise ConfigError(said, f"leave {option('sp', True)} out")
    return max(bits, 32) if verified(subject.family, "fp32_routing") else bits


class CutError(UsageError):
    """A division that cuts blocks of a format of weights."""


def check_formats(whole: LoadedModel, ranked: LoadedModel, dtype: str | None) -> None:
    """Refuse weights in a format of which a division cuts blocks, groups or words, or whose blocks go by their
    numbers. Raises UsageError."""
    check_shares(whole, dtype, (part.stored for part in ranked.ledger.tensors()), ranked.storage(dtype))


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
        fitting = [size // mesh.sequence_shards for size in every if size % mesh.sequence_shards == 0]
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
    for unit in fsdp_units(subject.ledger, mesh):
        for one in unit.shards if unit.what else ():
            sizes[one.path] = [size for size in (one.rows, one.columns)[: 1 + one.transposes] if size > 1]
            ranks[one.path] = unit.ranks
    return sizes, ranks


def rows_divisors(subject: LoadedModel, mesh: Mesh) -> list[int]:
    """Numbers of ranks that divide the rows of all tensors of the blocks, so that none is padded."""
    return divisors([size for own in _rows(subject, mesh)[0].values() for size in own])


def supported_on(
    models: Sequence[LoadedModel], count: Callable[[LoadedModel], Found]
) -> tuple[list[LoadedModel], list[Found], list[LeftOut]]:
    """The models that a mesh fits, what is counted of each, and the other models. Raises TfacctError where none is
    left."""
    found: list[tuple[LoadedModel, Found]] = []
    refused: list[tuple[LoadedModel, TfacctError]] = []
    for model in models:
        try:
            found.append((model, count(model)))
        except TfacctError as error:
            refused.append((model, error))
    if not found:
        raise refused[0][1]
    left_out = LeftOut.of([model for model, _ in refused], "the mesh does not fit; ask for one to read why")
    return [model for model, _ in found], [each for _, each in found], left_out
