"""What one rank of a mesh holds and sends, by the rules and by the class that torch divides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from tfacct.architecture.parts import Attention
from tfacct.base.errors import MissingExtraError, UsageError, cut
from tfacct.base.spelling import option
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.parallel.collectives import Collective
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.pipeline import blocks_in, microbatches, part, stages
from tfacct.parallel.shard_shapes import shard
from tfacct.verify.checks import Check
from tfacct.verify.renamed import renamed


def rank_checks(
    subject: LoadedModel, work: Workload, mesh: Mesh, sent: Sequence[Collective], dtype: str, *, published: bool
) -> list[Check]:
    """Ask the class about a step of the fullest rank: `sent` are the collectives by the rules, `published` says that
    transformers' own plan divides it, not torch's. Raises UsageError where it cannot be asked."""
    seen = _step(subject, work, mesh, dtype, published=published)
    around = _ring(subject, work, mesh, dtype) if mesh.cp > 1 else Counter()
    if mesh.parts > 1 and mesh.fsdp == 1:
        sent = [one for one in sent if one.of != "weights"]  # of gradients in buckets, which are not asked for
    return _checks(held(subject, mesh), seen.held, sent, seen.sent + around, "parameters of rank 0")


def stage_checks(
    subject: LoadedModel, work: Workload, mesh: Mesh, every: Sequence[Sequence[Collective]], dtype: str
) -> list[Check]:
    """Ask torch's schedule about all stages, and the class about the fullest: `every` has each rank's collectives by
    the rules."""
    room, own = _room("passing"), stages(blocks_in(subject.ledger), mesh)
    times = microbatches(mesh, work.axes(), train=True)
    if mesh.schedule == "1f1b" and times < mesh.pp:
        said = f"torch's 1F1B takes {mesh.pp:,} microbatches or more in {mesh.pp:,} stages, not {times:,}"
        raise UsageError(said, f"give a larger {option('batch')}, or {option('schedule', 'gpipe')}")
    width = next(group.axes["D"] for group in subject.ledger.groups if group.numbers)
    shape = (work.batch // times, work.tokens, width)
    seen: Counter[tuple[str, str, int]] = Counter()
    for rank in range(mesh.pp):
        sent = room.handed_on(mesh.pp, rank, mesh.chunks, times, mesh.schedule, shape, dtype)
        for (when, size), count in sent.items():
            seen[when, "send", size] += count
    stored = [
        {tensor.path: int(tensor.elements) for tensor in part(subject.ledger, each).tensors(unfolded=True)}
        for each in own
    ]
    fullest = max(range(mesh.pp), key=lambda rank: sum(stored[rank].values()))
    named = renamed(stored[fullest], subject.config.hf_module_paths(), subject.config.hf_tensor_names())
    blocks = [[stage.blocks for stage in each] for each in own]
    theirs = room.parameters_of_rank(subject.of_class, blocks, fullest, subject.config.task_head.auto)
    sends = [one for lines in every for one in lines if one.kind == "send"]
    return _checks(named, theirs, sends, seen, f"parameters of stage {fullest + 1}")


def _ring(subject: LoadedModel, work: Workload, mesh: Mesh, dtype: str) -> Counter[tuple[str, str, int]]:
    room = _room("passing")
    found: Counter[tuple[str, str, int]] = Counter()
    kinds: Counter[tuple[int, int, int]] = Counter()
    for stack in subject.architecture.stacks:
        part = stack.block.attention
        assert isinstance(part, Attention)  # the only kind with a rule beside cp
        kinds[part.kv_heads * part.group // mesh.tp, part.kv_heads // mesh.tp, part.head_dim] += stack.count
    for heads, blocks in kinds.items():
        found += room.ring(room.Heads(*heads), blocks, mesh.cp, work.batch, work.tokens // mesh.cp, dtype)
    return found


def _checks(
    held: dict[str, int],
    theirs_held: Mapping[str, int],
    sent: Sequence[Collective],
    theirs_sent: Mapping[tuple[str, str, int], int],
    whose: str,
) -> list[Check]:
    """Parameters, calls and bytes, by the rules and by the class."""
    calls: Counter[str] = Counter()
    for one in sent:
        calls[_call(one.when, one.kind, one.bytes // one.calls)] += one.calls
    theirs = Counter({_call(*which): count for which, count in theirs_sent.items()})
    moved: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for one in sent:
        moved[0][f"{one.when} {one.kind}"] += one.bytes
    for (when, kind, size), count in theirs_sent.items():
        moved[1][f"{when} {kind}"] += count * size
    return [
        Check(whose, "elements", held, dict(theirs_held)),
        Check("calls of collectives", "calls", calls, theirs),
        Check("bytes of their results", "bytes", *moved),
    ]


def held(subject: LoadedModel, mesh: Mesh) -> dict[str, int]:
    """Elements that the fullest rank stores, by the class's parameters."""
    counts: Counter[str] = Counter()
    for tensor in subject.ledger.tensors(unfolded=True):
        counts[tensor.path] += int(shard(tensor.parameter, tensor.axes, mesh).elements)
    return renamed(counts, subject.config.hf_module_paths(), subject.config.hf_tensor_names())


def _call(when: str, kind: str, size: int) -> str:
    return f"{when} {kind} of {size:,} bytes"


def _step(subject: LoadedModel, work: Workload, mesh: Mesh, dtype: str, *, published: bool) -> Any:
    divided = {
        "tp": mesh.tp,
        "fsdp": mesh.sharers,
        "dp": mesh.dp,
        "ep": mesh.ep,
        "sp": mesh.sp,
        "together": mesh.sp or mesh.plan == "megatron",
    }
    size: dict[str, Any] = {"batch": work.batch, "tokens": work.tokens // mesh.parts, "source": work.source}
    shape = subject.architecture
    encodes = shape.encoder is not None or not all(getattr(part, "causal", True) for part in shape.attentions)
    which = {"auto": subject.config.task_head.auto, "encodes": encodes}
    try:
        return _room("ranks").step(subject.of_class, **divided, **size, **which, dtype=dtype, published=published)
    except (AssertionError, RuntimeError) as error:  # weights of two dtypes, of which fully_shard makes no unit
        said = f"{subject.name}: torch does not divide its class so: {cut(str(error), 200)}"
        raise UsageError(said, f"leave {option('fsdp' if isinstance(error, AssertionError) else 'tp')} out") from None
    except (KeyError, ValueError, TypeError) as error:
        raise UsageError(
            f"{subject.name}: the transformers class refuses this config: {cut(repr(error), 200)}"
        ) from None


def _room(name: str) -> ModuleType:
    """The module that imports torch and transformers. Raises MissingExtraError where there are none."""
    try:
        return import_module(f"tfacct.reference.{name}")
    except ImportError:
        raise MissingExtraError(
            "the witnesses of a mesh need torch and transformers", "measure", "transformers"
        ) from None
