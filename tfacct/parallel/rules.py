"""Collectives of one pass: three rules over the matmuls of a ledger, its logits and its weights.

1. A mesh axis shards one axis of a matmul; operands that share the axis send nothing.
2. An operand that is sharded along another axis is gathered, once for all matmuls that read it.
3. A sharded axis that is summed over leaves a partial sum: an all-reduce, or a reduce-scatter if the result is sharded.

Logits are gathered, or the loss is computed on sharded logits. Shoeybi et al., "Megatron-LM" (arXiv 1909.08053),
section 3: the loss is fused with the head's matmul, so that three numbers per token are sent instead of logits. torch's
loss_parallel sends the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias, TypedDict, TypeGuard, Unpack

from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, AxisNames, axis_names, packed_bytes, size
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import Line, Matmul, Pointwise, Table
from tfacct.parallel.collectives import Collective, Kind, Of, When, collective
from tfacct.parallel.context_parallel import of_context
from tfacct.parallel.data_parallel import of_replicas
from tfacct.parallel.expert_parallel import between, of_experts
from tfacct.parallel.mesh import HEADS, TOKENS, VOCABULARIES, VOCABULARY, Mesh, check, joint_qk_norm, tp_axis, tp_size
from tfacct.parallel.shard_shapes import fsdp_units, trained

AfterHead: TypeAlias = Literal["sharded", "gathered", "loss"]
Recomputed: TypeAlias = Literal["layers", "attention"]
"""What recomputation repeats, as far as it sends anything."""
LOSS_BITS = 32
"""Bits per element of a loss: logits are cast to fp32."""
OF_LOSS = ("max", "sum", "target")
"""Values that the loss of a token needs from all ranks: largest logit, sum of exponentials, target logit."""
LATENTS = frozenset(("R", "Rq", "Rs"))
"""Axes of latents, from which queries, keys and values of all heads are projected."""


class CollectiveOptions(TypedDict, total=False):
    """Options of a pass. `train`: a training step. `shares`: bits of the routing weights, if different from everything
    else. `modules`: the class's modules by path of the matmul; it fuses those of one module. `tensors`: those of the
    class, as in `buckets`. `after`: what happens to the logits. `reduced`: bits of the gradient reduction over batches,
    if different from everything else. `recomputed`: what the backward pass recomputes."""

    train: bool
    shares: int | None
    modules: Mapping[str, str] | None
    tensors: Mapping[str, str] | None
    after: AfterHead
    reduced: int | None
    recomputed: Recomputed | None


def collectives(ledger: Ledger, mesh: Mesh, at: Axes, bits: int, **how: Unpack[CollectiveOptions]) -> list[Collective]:
    """Every collective of a forward pass or a training step, with `bits` per element. Raises UsageError for sizes that
    the mesh does not divide."""
    train, reduced = how.get("train", False), how.get("reduced") or bits
    check(ledger, mesh, at)
    at = mesh.rank_axes(at)
    found: list[Collective] = []
    lookups = _of_source(ledger)
    for group in ledger.groups if mesh.ranks > 1 else ():
        every = [*of_context(group, mesh, at, bits, train)] if mesh.sequence_shards > 1 else []
        if mesh.tp > 1:
            every += _of_group(group, mesh, at, bits, train, how.get("modules") or {}, lookups)
        every += of_experts(group, mesh, at, bits, how.get("shares") or bits, train)
        found += every
        if (recomputed := how.get("recomputed")) and group.numbers:
            found += (one._replace(when="recompute") for one in every if _runs_again(one, group, mesh, recomputed))
    found += _of_logits(ledger, mesh, at, bits, how.get("after", "sharded"))
    if mesh.weight_shards > 1 or mesh.expert_shards > 1:
        found += _of_weights(ledger, mesh, bits, train, reduced)
    if mesh.replicas > 1 and train:
        found += of_replicas(ledger, mesh, reduced, how.get("tensors") or {})
    return found


def _runs_again(one: Collective, group: Group, mesh: Mesh, recomputed: Recomputed) -> bool:
    """True for a collective of the forward pass that recomputation repeats. Megatron-LM runs the whole layer again;
    torch stops at the last saved tensor, so that a sum at the end of a pre-norm layer is not repeated. Parts of a
    layer save the operands that they gather."""
    if one.when != "forward" or recomputed == "attention":
        return one.when == "forward" and one.over in ("cp", "ulysses")
    if mesh.plan == "megatron" or one.kind == "all-to-all" or (mesh.sp and one.kind == "all-gather"):
        return True
    ends = one.what
    if one.of == "experts":  # their sum follows their weighting; with `sp` it includes a shared expert
        module = paths.module_of(one.what)
        ends = module if mesh.sp and mesh.ep == 1 else f"{module}.weighting"
    last = max(at for at, line in enumerate(group.lines) if f"{line.path}.".startswith(f"{ends}."))
    return not all(isinstance(line, Pointwise) and line.saves_nothing for line in group.lines[last + 1 :])


class Sent(NamedTuple):
    """A collective over `tp`, before sizes are known: its operand has these axes on all ranks."""

    what: str
    kind: Kind
    when: When
    operand: AxisNames
    because: str
    of: Of = "stream"


def _of_group(
    group: Group, mesh: Mesh, at: Axes, bits: int, train: bool, modules: Mapping[str, str], lookups: bool
) -> Iterator[Collective]:
    """Collectives over `tp` of one group of layers. `lookups`: a source also reads rows of its embedding."""
    axes = group.bound(at)

    def sent(one: Sent) -> Collective:
        elements = size(axes, one.operand)
        result = elements // mesh.tp if one.kind == "reduce-scatter" else elements
        each = group.count, packed_bytes(result, bits), mesh.tp
        return collective(one.what, one.kind, "tp", one.when, one.of, *each, one.because)

    key = mesh.sp, mesh.plan, mesh.ep > 1, train, lookups, "N" in axes
    of_matmuls, of_work = group.cached_lines.once(
        (_of_group, *key, *modules.items()),
        lambda: ([*_of_matmuls(group, mesh, train, modules, lookups)], [*_of_work(group, mesh)] if train else []),
    )
    # A source of an earlier step has no tokens in this one.
    yield from (sent(one) for one in of_matmuls if size(axes, one.operand) != 0)
    if train and mesh.tp > (tp_size("K", axes) or mesh.tp):
        yield from _of_replicated_heads(group, mesh, axes, bits)
    yield from map(sent, of_work)


def _of_matmuls(group: Group, mesh: Mesh, train: bool, modules: Mapping[str, str], lookups: bool) -> Iterator[Sent]:
    """Collectives that the sharded matmuls of a group need."""
    whole: set[tuple[str, str, AxisNames]] = set()
    reduced: set[tuple[str, AxisNames]] = set()
    inside = between(group, mesh)
    whens: tuple[When, ...] = ("forward", "backward") if train else ("forward",)
    for line in _matmuls(group, lookups):
        sharded = mesh.sharded_axis(line.einsum.every)
        reads = paths.module_of(line.path)
        if (
            mesh.sp
            and sharded is None
            and _latent(line.einsum.out)
            and ("forward", reads, line.einsum.left) not in whole
        ):
            # Attention reads one gathered tensor: latents are whole, and so are their gradients.
            whole.add(("forward", reads, line.einsum.left))
            yield Sent(line.path, "all-gather", "forward", line.einsum.left, "T")
        if sharded is None or line.expert_axis or (inside is not None and line.path.startswith(inside)):
            continue
        for when in whens:
            read, made, what = line.einsum.left, line.einsum.out, reads
            if when == "backward":  # the gradient of the input is computed from that of the output
                read, made, what = made, read, line.path
            if mesh.sp and _streams(read, sharded) and (when, what, read) not in whole:
                whole.add((when, what, read))
                yield Sent(line.path, "all-gather", when, read, "T")
            if sharded in made:
                # A norm over all heads, or attention after it, reads them gathered.
                if tp_axis(sharded) in HEADS and joint_qk_norm(group):
                    yield Sent(line.path, "all-gather", when, made, sharded)
                continue
            if when == "backward":
                together = mesh.sp or mesh.plan == "megatron"
                gradient = reads if together else modules.get(line.path, line.path), made
                if gradient in reduced:
                    continue  # gradients of one tensor are summed before they are reduced
                reduced.add(gradient)
            scattered = mesh.sp and not _latent(made)
            yield Sent(line.path, "reduce-scatter" if scattered else "all-reduce", when, made, sharded)
    for line in _matmuls(group) if train and "N" in group.axes else ():
        if line.einsum.out[-1] == "Rs":  # all heads read the rotary part of the latent's matmul
            yield Sent(line.path, "all-reduce", "backward", ("B", "T", "Hr"), "N")


def _of_work(group: Group, mesh: Mesh) -> Iterator[Sent]:
    """All-reduces of the weight gradients of pointwise work."""
    for path, spec, weight in _shared(group):
        sharded = mesh.sharded_axis(spec) or ("T" if mesh.sp and not _latent(spec) else None)
        if sharded is not None and sharded not in weight:
            yield Sent(path, "all-reduce", "backward", weight, sharded, "shared weights")


def _of_replicated_heads(group: Group, mesh: Mesh, axes: Axes, bits: int) -> Iterator[Collective]:
    """All-reduces of the weight gradients of replicated key/value heads: they sum over G, which the ranks with the same
    head shard."""
    for line in _matmuls(group):
        sharded = mesh.sharded_axis(line.einsum.every)
        if sharded is None or tp_axis(sharded) != "K":
            continue
        ranks = mesh.tp // axes[sharded]
        for one in line.parameters():
            result = packed_bytes(size({**axes, sharded: 1}, one.axes), bits)
            yield collective(
                one.path, "all-reduce", "tp", "backward", "shared weights", group.count, result, ranks, "G"
            )


def _streams(operand: AxisNames, sharded: str) -> bool:
    """True if an operand is the residual stream, which is sharded along its tokens."""
    return sharded not in operand and any(axis in TOKENS for axis in operand) and not _latent(operand)


def _latent(operand: AxisNames) -> bool:
    """True for latents, which each rank has whole."""
    return not LATENTS.isdisjoint(operand)


def _of_source(ledger: Ledger) -> bool:
    """True if an encoder reads the decoder's embedding, having neither its own nor a stem."""
    lines = [line for group in ledger.groups for line in group.lines if paths.parse(line.path).side]
    return bool(lines) and not any(_looks_up(line) or paths.parse(line.path).part == "stem" for line in lines)


def _looks_up(line: Line) -> TypeGuard[Table]:
    return isinstance(line, Table) and tp_axis(axis_names(line.spec)[0]) in VOCABULARIES


def _matmuls(group: Group, lookups: bool = False) -> tuple[Matmul, ...]:
    """Matmuls of a group. A lookup counts as one, of one-hot tokens and the embedding."""

    def found() -> Iterator[Matmul]:
        for line in group.lines:
            if isinstance(line, Matmul) and line.weight_axes() is not None:
                yield line
            elif _looks_up(line):
                # Tokens need no gradient, and the embedding's gradient has no sum over V.
                rows, *width = axis_names(line.spec)
                source = paths.parse(line.path).side
                for tokens in ("I",) if source else ("T", "I") if lookups else ("T",):
                    yield Matmul(line.path, f"B {tokens} {rows}, {line.spec} -> B {tokens} {' '.join(width)}")

    return group.cached_lines.once((_matmuls, lookups), lambda: tuple(found()))


def _shared(group: Group) -> Iterator[tuple[str, AxisNames, AxisNames]]:
    """Weights of pointwise work: path, axes of the work, axes of the weight."""
    for line in group.lines:
        if isinstance(line, Pointwise):
            for parameter in line.parameters():
                if trained(parameter.path):
                    yield parameter.path, axis_names(line.spec), parameter.axes
        elif isinstance(line, Table) and not _looks_up(line):
            yield f"{line.path}.weight", ("B", "T", "D"), axis_names(line.spec)


def _of_logits(ledger: Ledger, mesh: Mesh, at: Axes, bits: int, after: AfterHead) -> Iterator[Collective]:
    """Collectives of logits that `tp` shards. Their gradients are not sent, because each rank needs only its own."""
    for group in ledger.groups if mesh.tp > 1 and after != "sharded" else ():
        axes = group.bound(at)
        for line in group.lines:
            if not isinstance(line, Matmul) or line.weight_axes() is None:
                continue
            sharded = next((axis for axis in line.einsum.out if tp_axis(axis) == VOCABULARY), None)
            if sharded is None:
                continue
            tokens = size(axes, tuple(axis for axis in line.einsum.out if axis != sharded))
            if after == "gathered":
                result = packed_bytes(tokens * mesh.tp * mesh.shard_size(sharded, axes[sharded]), bits)
                yield collective(line.path, "all-gather", "tp", "forward", "logits", group.count, result, mesh.tp, "V")
            for name in OF_LOSS if after == "loss" else ():
                result = packed_bytes(tokens, LOSS_BITS)
                yield collective(
                    f"loss.{name}", "all-reduce", "tp", "forward", "logits", group.count, result, mesh.tp, "V"
                )


def _of_weights(ledger: Ledger, mesh: Mesh, bits: int, train: bool, reduced: int) -> Iterator[Collective]:
    """Collectives over `fsdp`, which gathers weights before use and scatters their gradients."""
    for unit in fsdp_units(ledger, mesh):
        if unit.ranks == 1:
            continue
        part = packed_bytes(unit.elements, bits)
        steps: list[tuple[Kind, When, int]] = [("all-gather", "forward", unit.ranks * part)]
        if train:
            # Layers free gathered parameters after the forward pass; weights outside the layers stay gathered.
            steps += [("all-gather", "backward", unit.ranks * part)] if unit.what else []
            steps.append(("reduce-scatter", "backward", packed_bytes(unit.trained, reduced)))
        for kind, when, result in steps:
            yield collective(unit.what, kind, "fsdp", when, "weights", unit.times, result, unit.ranks, "B")
