"""Models that a parallel layout supports: one row for each part, class or format that it does not support."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

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
    Mixer,
    Norm,
    Part,
    Pooler,
    Positions,
    QKNorm,
    RelativeBias,
    Residual,
    Segments,
    Stem,
)
from tfacct.architecture.transformer import Transformer
from tfacct.architecture.words import in_words
from tfacct.base.combinations import Features, Unsupported, matching
from tfacct.base.errors import ConfigError, TfacctError, UsageError, listed, naming
from tfacct.base.spelling import option, setting
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, divisors, rounded_up
from tfacct.ledger.formats import MX
from tfacct.ledger.storage import Storage, Stored
from tfacct.loading.model import LoadedModel
from tfacct.loading.skipped import Skipped
from tfacct.parallel.data_parallel import replica_axis
from tfacct.parallel.mesh import Mesh, check
from tfacct.parallel.pipeline import blocks_in, stages
from tfacct.parallel.shard_shapes import fsdp_units
from tfacct.parallel.verified import Fact, families, fsdp_unsupported, verified

Found = TypeVar("Found")
Test: TypeAlias = Callable[[LoadedModel, Mesh, bool], object]
"""A feature of a model on a mesh, in a training step or not: its value, or a phrase."""
ROUTING: tuple[Fact, ...] = ("fp32_routing", "compute_routing")
"""Facts of families whose router gradients were checked."""
DTYPES = ("fp32", "bf16", "fp16")
"""Dtypes of what ranks send."""
PADDED = frozenset(one.name for one in MX.values())
"""Formats whose last block of a shard is padded, as vLLM pads the experts of gpt-oss on 4 and 8 devices."""
BEFORE = frozenset(("embed", "pos_embed", "type_embed", "task_embed", "box_embed", "embed_norm"))
"""Parts before the layers that only the first layer reads."""
BY_AXES = frozenset(
    (
        "a block indexer",
        "an activation with learned parameters",
        "attention with reused or shared projections",
        "compressed attention",
        "experts with inner norms or a narrower width",
        "hyper-connections",
        "per-layer embeddings",
    )
)
"""Parts whose weights serving engines shard along their heads, widths and vocabularies, and store whole otherwise:
vLLM's models/apertus.py, gemma4.py, nemotron_h.py, deepseek_v4 and minimax_m3."""
AFTER = frozenset(("final_norm", "lm_head", "pooler", "classifier", "contacts", "idle"))
"""Parts after the layers."""


def does_not(features: str, layout: str, what: str, instead: str) -> Unsupported:
    """A row: this layout does not support this feature."""
    return Unsupported(features, f"{layout} does not support {what}", instead)


# The rows.

STREAM = "leave {pp} out: stages send only the residual stream"
WHOLE = "use {fsdp}, which does not split sequences"
LAYOUTS = (
    Unsupported(
        "pp fsdp eager_schedule",
        "{fsdp} with {pp} is not supported under this {schedule}",
        "use {schedule=1f1b}, or {pp} alone",
    ),
    Unsupported(  # DeepSpeed's PipelineEngine: "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism" (0.19)
        "pp zero2",
        "{of[zero2]} with {pp} is not supported, as in DeepSpeed and torch",
        "use {zero=1} or {fsdp}",
    ),
)
"""Axes that do not work together, whatever the model."""
STAGES = (
    does_not("pp source", "{pp}", "{of[source]}: every stage reads the source", "leave {pp} out"),
    does_not(
        "pp encoder", "{pp}", "an encoder-decoder: every decoder stage reads the encoder's output", "leave {pp} out"
    ),
    does_not("pp mtp", "{pp}", "multi-token prediction", "{set=mtp=false} counts the model without it"),
    does_not("pp outside_layers", "{pp}", "{of[outside_layers]}", STREAM),
    does_not("pp shared_weights", "{pp}", "layers that share weights", STREAM),
    does_not("pp streams", "{pp}", "more than one residual stream", STREAM),
    does_not("pp borrowed_heads", "{pp}", "keys and values of an earlier layer", STREAM),
    does_not("pp borrowed_index", "{pp}", "keys selected by an earlier layer", STREAM),
    does_not("pp borrowed_latents", "{pp}", "latents of an earlier layer", STREAM),
)
"""Features that read more than the residual stream, so that pipeline stages would send more."""
SEQUENCES = (
    does_not("sequence encoder", "{of[sequence]}", "{of[encoder]}", WHOLE),
    does_not("sequence tp joint_norm", "{of[sequence]} with {tp}", "a norm over all heads", WHOLE),
    does_not("sequence window_both_ways", "{of[sequence]}", "bidirectional windows", WHOLE),
    does_not("sequence bias_both_ways", "{of[sequence]}", "a relative position bias", WHOLE),
    does_not(
        "sequence compressed", "{of[sequence]}", "compressed keys: it is not known which rank computes them", WHOLE
    ),
    does_not(
        "cp latent",
        "{cp}",
        "latent attention: it is not known whether ranks send latents or keys",
        WHOLE,
    ),
    does_not("sequence latent", "{of[sequence]}", "latent attention: the shared key belongs to no head", WHOLE),
    does_not(
        "ring window",
        "{of[sequence]} in a ring",
        "windows: a ring could skip keys outside them",
        "use {cp_method=gather}",
    ),
    does_not(
        "ring sinks", "{of[sequence]} in a ring", "sinks: each ring step would count them", "use {cp_method=gather}"
    ),
)
"""Attention whose communication between sequence shards is not determined, or not known."""
REDUCES = "use {fsdp} or {zero}"
SHARED = "gradient buckets were not checked against torch"
PARTS = (
    does_not("gathered_part buckets", "{of[buckets]}", f"{{of[gathered_part]}}: {SHARED}", REDUCES),
    does_not("part fsdp_reason", "a parallel layout", "{of[part]}", "{of[fsdp_reason]}"),
    does_not(
        "part gathered",
        "a parallel layout",
        "{of[part]}",
        "only {fsdp} and {zero} work, in `tfacct params` and `plan`",
    ),
    does_not("part", "a parallel layout", "{of[part]}", ""),
    does_not("buckets expert_bias", "{of[buckets]}", f"experts with biases: {SHARED}", REDUCES),
    does_not("buckets shared_gate", "{of[buckets]}", f"a gate of the shared expert: {SHARED}", REDUCES),
    does_not("buckets tp fused", "{of[buckets]} with {tp}", f"fused weights: {SHARED}", REDUCES),
    does_not("sp both_ways", "{sp=True}", "an encoder: {of[encoder_reads]}", "leave {sp=True} out"),
    does_not("sp head_transform", "{sp=True}", "an output head with a transform", "leave {sp=True} out"),
    does_not("sp post_norm", "{sp=True}", "norms after the residual sum", "leave {sp=True} out"),
    does_not(
        "sp embeds_distances", "{sp=True}", "segment embeddings and relative position biases", "leave {sp=True} out"
    ),
    does_not("sp megatron latent", "{sp=True} with {tp_plan=megatron}", "latent attention", "use {tp_plan=torch}"),
    Unsupported("ep no_experts", "the model has no experts for {of[ep]} to shard", "leave {ep} out"),
    does_not("sp parallel_sublayers", "{sp=True}", "attention and MLP in parallel", "leave {sp=True} out"),
    does_not("sp positions", "{sp=True}", "a position embedding", "leave {sp=True} out"),
    does_not("sp scaled_embedding", "{sp=True}", "a scaled embedding", "leave {sp=True} out"),
)
"""Parts that a layout does not support, and classes whose parts were not checked against torch's ranks."""
UNSUPPORTED = (*LAYOUTS, *STAGES, *SEQUENCES, *PARTS)


# Features.


def _shape(test: Callable[[Transformer], object]) -> Test:
    return lambda model, _mesh, _train: test(model.architecture)


def _mesh(test: Callable[[Mesh], object]) -> Test:
    return lambda _model, mesh, _train: test(mesh)


def several(axis: str) -> Callable[[Mesh], object]:
    """A test for more than one rank of an axis."""
    return lambda mesh: getattr(mesh, axis) > 1


def _attention(test: Callable[[Any, Transformer], object]) -> Test:
    return _shape(lambda shape: any(test(part, shape) for part in shape.attentions))


def _experts(test: Callable[[Experts], object]) -> Test:
    return _shape(lambda shape: any(test(part) for part in shape.parts() if isinstance(part, Experts)))


def _sequence(mesh: Mesh) -> str | None:
    sizes = {"cp": mesh.cp, "ulysses": mesh.ulysses}
    return next((option(name, size) for name, size in sizes.items() if size > 1), None)


def _buckets(_: LoadedModel, mesh: Mesh, train: bool) -> str | None:
    """The axis whose gradients are reduced in buckets."""
    if not train or mesh.replicas == 1 or mesh.fsdp > 1 or mesh.zero:
        return None
    return option(replica_axis(mesh))


def _part(gathered: bool) -> Test:
    """The first unsupported part; `gathered`: ranks shard only weights."""

    def found(model: LoadedModel, mesh: Mesh, _: bool) -> str | None:
        return model.once(_unsupported) if shards_weights_only(model, mesh) is gathered else None

    return found


def _outside_layers(shape: Transformer) -> str | None:
    """A phrase for a part outside the layers that the first and the last stage cannot have alone."""
    before, after = shape.ends()
    others = [f"{in_words(part)}, which all layers read" for name, part in before.items() if name not in BEFORE]
    others += [f"{in_words(part)} after the layers" for name, part in after.items() if name not in AFTER]
    return next(iter(others), None)


def _encoder_reads(shape: Transformer) -> str:
    """Why torch's plan of sequence parallelism, which gathers the output of a norm for the next matmul, does not apply
    to an encoder."""
    if shape.encoder is not None:
        return "all decoder layers read the encoder's output, so it is not determined where it is gathered"
    if any(stack.block.order == "post" for stack in shape.stacks):
        return "matmuls and residual sums read norm outputs, so the place of the all-gather is not determined"
    if shape.segments is not None or shape.bias is not None or shape.positions is not None:
        return "torch's plan supports only token embeddings"
    return "torch's plan was checked for decoders only"


MESH_FEATURES: Mapping[str, tuple[str, Callable[[Mesh], object]]] = {
    **{axis: (f"{{{axis}}}", several(axis)) for axis in ("tp", "fsdp", "pp", "cp")},
    "ep": ("{ep}", lambda mesh: option("ep", mesh.ep) if mesh.ep > 1 else None),
    "sp": ("{sp=True}", lambda mesh: mesh.sp),
    "zero2": ("{zero=2}", lambda mesh: option("zero", mesh.zero) if mesh.zero > 1 else None),
    "megatron": ("{tp_plan=megatron}", lambda mesh: mesh.plan == "megatron"),
}
"""Features of a layout: a label, and a test of a mesh."""
FEATURES: Mapping[str, tuple[str, Test]] = {
    **{name: (label, _mesh(test)) for name, (label, test) in MESH_FEATURES.items()},
    "eager_schedule": (
        "a {schedule} other than 1f1b and gpipe",
        _mesh(lambda mesh: mesh.schedule not in ("1f1b", "gpipe")),
    ),
    "sequence": ("{cp} or {ulysses}", _mesh(_sequence)),
    "ring": ("{cp} in a ring", _mesh(lambda mesh: mesh.cp > 1 and mesh.cp_method == "ring")),
    "buckets": ("gradients in buckets", _buckets),
    "source": (
        "a source",
        _shape(lambda shape: shape.encoder.words if shape.encoder is not None and shape.encoder.given else None),
    ),
    "encoder": ("an encoder–decoder", _shape(lambda shape: None if shape.encoder is None else shape.encoder.words)),
    "both_ways": ("an encoder", _shape(lambda shape: encodes(shape))),
    "encoder_reads": ("torch's plan covers decoders only", _shape(_encoder_reads)),
    "mtp": ("multi-token prediction", _shape(lambda shape: shape.mtp is not None)),
    "outside_layers": ("an embedding that all layers read, or a merger after them", _shape(_outside_layers)),
    "shared_weights": (
        "layers that share weights",
        _shape(lambda shape: any(one.shared_weights for one in shape.stacks)),
    ),
    "streams": (
        "several residual streams",
        _shape(lambda shape: any(one.block.streams is not None for one in shape.stacks)),
    ),
    "borrowed_heads": (
        "keys and values of an earlier layer",
        _attention(lambda part, _: isinstance(part, Attention) and part.borrowed),
    ),
    "borrowed_index": (
        "keys selected by an earlier layer",
        _attention(lambda part, _: isinstance(part, LatentAttention) and part.indexer is not None and not part.indexes),
    ),
    "borrowed_latents": (
        "latents of an earlier layer",
        _attention(lambda part, _: isinstance(part, LatentAttention) and part.borrowed),
    ),
    "joint_norm": ("a norm over all heads", lambda model, _mesh, _train: gathers_heads(model)),
    "window_both_ways": (
        "a bidirectional window",
        _attention(lambda part, _: isinstance(part, Attention) and not part.causal and part.window is not None),
    ),
    "bias_both_ways": (
        "a relative position bias",
        _attention(lambda part, shape: isinstance(part, Attention) and not part.causal and shape.bias is not None),
    ),
    "compressed": ("compressed keys", _attention(lambda part, _: part.compression is not None)),
    "latent": ("latent attention", _attention(lambda part, _: isinstance(part, LatentAttention))),
    "window": ("sliding windows", _attention(lambda part, _: part.window is not None)),
    "sinks": ("attention sinks", _attention(lambda part, _: isinstance(part, Attention) and part.sinks)),
    "part": ("a part without sharding rules", _part(gathered=False)),
    "gathered_part": ("a part without sharding rules, under weight sharding only", _part(gathered=True)),
    "gathered": ("a class checked under {fsdp}", lambda model, _mesh, _train: verified(model.family, "fully_shard")),
    "fsdp_reason": (
        "a class that {fsdp} does not shard",
        lambda model, mesh, _: fsdp_unsupported(model.family) if mesh.fsdp > 1 else None,
    ),
    "expert_bias": ("experts with biases", _experts(lambda part: part.bias or part.choice_bias)),
    "shared_gate": ("a gate of the shared expert", _experts(lambda part: part.shared_gate)),
    "no_experts": ("no experts", lambda model, _mesh, _train: not model.once(_has_experts)),
    "fused": ("a class with fused weights", lambda model, mesh, _: _fuses(model, mesh)),
    "head_transform": (
        "an output head with a transform",
        _shape(lambda shape: shape.head is not None and shape.head.transform is not None),
    ),
    "post_norm": (
        "norms after the residual sum",
        _shape(lambda shape: any(one.block.order == "post" for one in shape.stacks)),
    ),
    "embeds_distances": (
        "a segment embedding or a relative position bias",
        _shape(lambda shape: shape.segments is not None or shape.bias is not None),
    ),
    "parallel_sublayers": ("attention and MLP in parallel", _shape(lambda shape: any(map(in_parallel, shape.stacks)))),
    "positions": ("a position embedding", _shape(lambda shape: shape.positions is not None)),
    # torch needs whole sums inside the module, but not outside.
    "scaled_embedding": ("a scaled embedding", _shape(lambda shape: shape.embed.scaled)),
}
"""Features by name: a label, and a test of a model on a mesh."""
STORED = {
    **FEATURES,
    "part": ("a part without a rule for its weights", lambda model, *_: model.once(_unsupported_weights)),
}
"""The same where nothing but weights and caches is counted."""


# Checks.


def _refuse(
    rows: Sequence[Unsupported],
    model: LoadedModel,
    mesh: Mesh,
    features: Mapping[str, tuple[str, Test]] = FEATURES,
    *,
    train: bool = True,
) -> None:
    for row in matching(rows, Features(features, model, mesh, train)):
        raise ConfigError(f"{model.name}: {row.reason}", row.instead)


def check_together(mesh: Mesh) -> None:
    """Raises UsageError for axes that do not work together in one step."""
    for row in matching(LAYOUTS, Features(FEATURES, None, mesh, True)):
        raise UsageError(row.reason, row.instead)


def check_axes(model: LoadedModel, mesh: Mesh) -> None:
    """Raises TfacctError for a model that does not support these pipeline stages, or whose sequences ranks cannot
    shard."""
    _refuse(STAGES, model, mesh)
    if mesh.pp > 1:
        with naming(model.name, UsageError):
            stages(blocks_in(model.ledger), mesh)
    _refuse(SEQUENCES, model, mesh)


def check_mesh(model: LoadedModel, mesh: Mesh, *, train: bool = True, stored: bool = False) -> None:
    """Raises TfacctError for a model with a part that this mesh does not support; `train`: gradients are reduced;
    `stored`: nothing but weights and caches is counted, which the heads of recurrent states have a rule for."""
    check_axes(model, mesh)
    if mesh.ranks > mesh.pp or mesh.ep > 1:  # stages always send the residual stream
        _refuse(PARTS, model, mesh, STORED if stored else FEATURES, train=train)


def check_sizes(model: LoadedModel, mesh: Mesh, at: Axes) -> None:
    """Raises UsageError for sizes that the mesh does not divide."""
    with naming(model.name, UsageError):
        check(model.ledger, mesh, at)


def check_shardable(model: LoadedModel, mesh: Mesh, *, stored: bool = False) -> None:
    """Raises TfacctError for a model that the mesh does not support, or whose sizes it does not divide; `stored`: see
    `check_mesh`."""
    check_mesh(model, mesh, stored=stored)
    check_sizes(model, mesh, {})
    if not verified(model.family, "torch_plan"):
        check_rows(model, mesh)


def shards_weights_only(model: LoadedModel, mesh: Mesh) -> bool:
    """True if ranks shard only weights, and the class was checked this way: its parts then need no rule."""
    return verified(model.family, "fully_shard") and mesh.tp * mesh.ep * mesh.sequence_shards == 1


def _has_experts(model: LoadedModel) -> bool:
    return any(isinstance(part, Experts) for part in model.architecture.parts())


def _unsupported(model: LoadedModel) -> str | None:
    return unsupported_part(model.architecture)


def _unsupported_weights(model: LoadedModel) -> str | None:
    """A phrase for the first part whose weights ranks cannot shard."""
    shape = model.architecture
    with_rule = BY_AXES | {in_words(part) for part in shape.parts() if isinstance(part, Mixer) and part.tp_heads}
    return next((what for what in _unsupported_parts(shape) if what not in with_rule), None)


def unsupported_part(shape: Transformer) -> str | None:
    """A phrase for the first part that ranks cannot shard; None if they can shard all."""
    return next(_unsupported_parts(shape), None)


def _unsupported_parts(shape: Transformer) -> Iterator[str]:
    if shape.encoder is not None and shape.encoder.given:
        yield shape.encoder.words
    if shape.mtp is not None:
        yield "multi-token prediction"
    for front, back in (shape.ends(), *(() if shape.encoder is None else (shape.encoder.ends(),))):
        for part in (*front.values(), *back.values()):
            yield from _of_part(part)
    for stack in shape.every_stack:
        yield from _of_stack(stack)


def _of_stack(stack: Stack) -> Iterator[str]:
    if stack.shared_weights:
        yield "layers that share weights"
    for _, part in stack.block.parts():
        yield from _of_part(part)


def _of_part(part: Part) -> Iterator[str]:
    """Phrases for the features of a part that ranks cannot shard."""
    if part.mesh_unsupported:
        yield part.mesh_unsupported
        return
    match part:
        case Attention():
            if part.score_function != "product":
                yield "attention scores that are not dot products"
            if part.indexer is not None:
                yield "a block indexer"
            if part.borrowed or part.keys_as_values:
                yield "attention with reused or shared projections"
            if part.read_norm is not None and part.read_norm.together:
                yield "a norm over all heads together"
        case FeedForward():
            if part.norm is not None or part.inner_norm is not None or not part.called:
                yield "an MLP with an inner norm, or one that never runs"
        case LatentAttention():
            if part.mla_mode == "absorbed":
                yield "absorbed latent attention"
            if part.borrowed or (part.indexer is not None and part.indexer.mesh_unsupported):
                yield "latents reused from another layer, or an indexer on the residual stream"
        case Experts():
            if part.norms is not None or part.latent is not None:
                yield "experts with inner norms or a narrower width"
        case CrossAttention():
            if part.score_function != "product" or part.qk_norm is not None or part.source_hidden is not None:
                yield "cross-attention with different scores, norms or widths"
        case Norm():
            if part.shared or not part.called:
                yield "norms that are shared or never run"
        case Embedding():
            if part.rows is not None:
                yield "an embedding with more or fewer rows than the vocabulary"
        case Residual() | Positions() | Segments() | RelativeBias() | Head() | Pooler() | Classes() | Stem():
            return
        case _:
            yield in_words(part)


def encodes(shape: Transformer) -> bool:
    """True for an encoder, alone or before a decoder."""
    return shape.encoder is not None or any(not getattr(part, "causal", True) for part in shape.attentions)


def in_parallel(stack: Stack) -> bool:
    """True if sublayers run in parallel, on one input or next to another sublayer."""
    return stack.block.order == "parallel" or any(sublayer.parallel for sublayer in stack.block.sublayers)


def joint_norm(part: Part) -> QKNorm | None:
    """The norm over the queries and keys of all heads; None if there is none."""
    norm = part.qk_norm if isinstance(part, Attention) else None
    return norm if norm is not None and norm.together else None


def norms_all_heads(part: Part) -> bool:
    """True for attention with such a norm, which no rank has alone, unless it is sharded as in an engine."""
    norm = joint_norm(part)
    return norm is not None and not norm.per_head


def gathers_heads(model: LoadedModel) -> bool:
    """True for a model with such attention: `tp` ranks shard its matmuls and gather their outputs."""
    return any(map(norms_all_heads, model.architecture.attentions))


def _fuses(model: LoadedModel, mesh: Mesh) -> bool:
    """True if the class stores several matmuls as one tensor whose gradient is in a bucket."""
    tensors = model.class_tensors
    every = [one.path for one in model.ledger.tensors() if not (mesh.ep > 1 and one.parameter.is_expert)]
    return len({tensors.get(path, path) for path in every}) < len({*every})


def routing_bits(model: LoadedModel, mesh: Mesh, bits: int, *, train: bool) -> int:
    """Bits of the routing weights, if they, their gradients or the expert sums are sent. Raises ConfigError for a class
    that was not checked."""
    sent = mesh.tp > 1 and (train or mesh.ep not in (1, mesh.tp))
    if not sent or not model.once(_has_experts):
        return bits
    if not any(verified(model.family, fact) for fact in ROUTING):
        what = "reduces the router's gradient in a way" if mesh.sp else "sends the sum over experts in a dtype"
        problem = f"{model.name}: {option('tp')} {what} that was not checked for its class"
        raise ConfigError(problem, f"it was checked for {listed(families(*ROUTING))}")
    if mesh.sp and verified(model.family, "fp32_router"):
        problem = f"{model.name}: {option('sp', True)} does not support fp32 router weights"
        raise ConfigError(problem, f"leave {option('sp', True)} out")
    return max(bits, 32) if verified(model.family, "fp32_routing") else bits


USUAL_BLOCK = 128
"""Channels of a block or group in most quantized formats."""


class CutError(UsageError):
    """Shards that cut quantization blocks."""


def check_formats(whole_model: LoadedModel, rank_model: LoadedModel, dtype: str | None) -> None:
    """Raises UsageError for weights in a format whose blocks, groups or words would be cut, or whose types depend on
    the layer."""
    check_shares(whole_model, dtype, (part.stored for part in rank_model.ledger.tensors()), rank_model.storage(dtype))


def check_shares(whole_model: LoadedModel, dtype: str | None, shares: Iterable[Stored], rank_storage: Storage) -> None:
    """The same for one rank's shard of each tensor, in the storage of the rank."""
    stored = whole_model.storage(dtype)
    if stored.name in DTYPES:
        return
    if stored.by_block:
        raise UsageError(f"{whole_model.name}: sharding is not supported for {stored.name} weights")
    for tensor, part in zip(whole_model.ledger.tensors(), shares, strict=True):
        name = stored.dtype(tensor.stored)
        if name != rank_storage.dtype(part) or (name not in PADDED and stored.cuts(tensor.stored, part)):
            shapes = " × ".join(f"{size:,}" for size in (part.outputs, part.inputs))
            what = f"{name} in {paths.short(tensor.path)}"
            experts = f"whole experts ({option('ep')}), " if tensor.parameter.is_expert else ""
            hint = f"use fewer ranks, {experts}or {option('dtype', 'bf16')}"
            width = getattr(whole_model.config, "intermediate_size", None)
            if width in (tensor.stored.inputs, tensor.stored.outputs):
                blocks_of_ranks = USUAL_BLOCK * (tensor.stored.elements // part.elements)
                padded = setting("intermediate_size", rounded_up(width, blocks_of_ranks) * blocks_of_ranks)
                hint = f"{padded} pads the MLP, as published quantized checkpoints do; or {hint}"
            raise CutError(
                f"{whole_model.name}: sharding cuts quantization blocks of {what}: a rank has {shapes}", hint
            )


def check_rows(model: LoadedModel, mesh: Mesh) -> None:
    """Raises ConfigError for padding that depends on the tensor layout of a class (fused or transposed), if that was
    not checked. Outside the layers, every class has the same embeddings and vectors."""
    if mesh.fsdp == 1:
        return  # rows stay whole
    sizes, ranks = _rows(model, mesh)
    padded = next((path for path, lengths in sizes.items() if any(size % ranks[path] for size in lengths)), None)
    if padded is not None:
        shape = " × ".join(f"{size:,}" for size in sizes[padded])
        every = rows_divisors(model, mesh)
        fitting = [size // mesh.sequence_shards for size in every if size % mesh.sequence_shards == 0]
        given = [option(name, size) for name, size in (("cp", mesh.cp), ("ulysses", mesh.ulysses)) if size > 1]
        them = "it" if len(given) == 1 else "them"
        with_axes = f" with {' and '.join(given)}" if given else ""
        raise UsageError(
            f"{model.name}: {option('fsdp', mesh.fsdp)}{with_axes} pads {paths.short(padded)} ({shape}):"
            " padding was not checked for its class",
            f"supported sizes: {', '.join(map(str, fitting))}"
            if fitting
            else f"no size works{with_axes}; without {them}: {', '.join(map(str, every))}",
        )


def _rows(model: LoadedModel, mesh: Mesh) -> tuple[dict[str, list[int]], dict[str, int]]:
    """Rows and columns of each tensor of the layers that `fsdp` shards, and its number of ranks."""
    sizes, ranks = {}, {}
    for unit in fsdp_units(model.ledger, mesh):
        for one in unit.shards if unit.what else ():
            sizes[one.path] = [size for size in (one.rows, one.columns)[: 1 + one.transposes] if size > 1]
            ranks[one.path] = unit.ranks
    return sizes, ranks


def rows_divisors(model: LoadedModel, mesh: Mesh) -> list[int]:
    """Numbers of ranks that divide the rows of all tensors of the layers, so that none is padded."""
    return divisors([size for lengths in _rows(model, mesh)[0].values() for size in lengths])


def supported_on(
    models: Sequence[LoadedModel], count: Callable[[LoadedModel], Found]
) -> tuple[list[LoadedModel], list[Found], list[Skipped]]:
    """The models that a mesh fits, the count of each, and the other models. Raises TfacctError if none fits."""
    found: list[tuple[LoadedModel, Found]] = []
    refused: list[tuple[LoadedModel, TfacctError]] = []
    for model in models:
        try:
            found.append((model, count(model)))
        except TfacctError as error:
            refused.append((model, error))
    if not found:
        raise refused[0][1]
    left_out = Skipped.of([model for model, _ in refused], "the layout does not fit; name one model alone to see why")
    return [model for model, _ in found], [each for _, each in found], left_out
