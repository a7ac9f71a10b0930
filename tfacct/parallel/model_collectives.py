"""Collectives of a loaded model, as its class fuses and orders its matmuls and stores its tensors."""

from __future__ import annotations

from typing import NamedTuple, Unpack, get_args

from tfacct.base import units
from tfacct.base.errors import ConfigError, UsageError, listed, naming
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.parallel.collectives import Collective
from tfacct.parallel.mesh import QK_NORMS, Mesh
from tfacct.parallel.pipeline import in_pipeline, stage_ledgers
from tfacct.parallel.rules import AfterHead, CollectiveOptions, Recomputed, collectives
from tfacct.parallel.shard_shapes import stored_elements
from tfacct.parallel.support import DTYPES, check_mesh, check_rows, encodes, routing_bits
from tfacct.parallel.verified import verified


def model_collectives(
    model: LoadedModel, mesh: Mesh, at: Axes, bits: int, **how: Unpack[CollectiveOptions]
) -> list[Collective]:
    """Every collective of the rank that sends most, with `bits` per element. Raises TfacctError."""
    every = {id(lines): lines for lines in stage_collectives(model, mesh, at, bits, **how)}
    return max(every.values(), key=lambda lines: sum(one.sent for one in lines))


def stage_collectives(
    model: LoadedModel, mesh: Mesh, at: Axes, bits: int, **how: Unpack[CollectiveOptions]
) -> list[list[Collective]]:
    """Every collective of each `pp` rank. Raises TfacctError."""
    train = how.get("train", False)
    how["shares"] = routing_bits(model, mesh, bits, train=train)
    how["modules"] = model.config.hf_modules
    how["tensors"] = model.once(tensors_in_order) if train and mesh.replicas > 1 else None
    if mesh.pp == 1:
        return [collectives(model.ledger, mesh, at, bits, **how)]
    return in_pipeline(model.ledger, mesh, at, bits, **how)


def tensors_in_order(model: LoadedModel) -> dict[str, str]:
    """The class's tensor for each tensor of the ledger, in the order in which the class uses them: it norms queries and
    keys after their matmuls, or after the values' matmul."""
    tensors = model.class_tensors
    if verified(model.family, "norms_last"):
        return tensors
    last = {paths.module_of(path): place for place, path in enumerate(tensors)}

    def place(path: str) -> int:
        module = paths.module_of(path)
        made = module.removesuffix("_norm") + "_proj" if module.endswith(QK_NORMS) else module
        return last.get(made, last[module])

    return {path: tensors[path] for path in sorted(tensors, key=place)}


class Ends(NamedTuple):
    """What happens to the logits, and the dtype of gradient reduction over batches; None: the dtype of everything
    else."""

    after: AfterHead = "sharded"
    reduced: str | None = None


class RankCollectives(NamedTuple):
    """Collectives of one rank of a model; in a pipeline, of the stage that sends most. `stored`: weight elements on the
    rank that stores most; `whole`: those of the model; `sent_by_stage`, `stored_by_stage`: those of each stage."""

    work: Workload
    lines: list[Collective]
    stored: int
    whole: int
    sent_by_stage: list[int]
    stored_by_stage: list[int]

    @property
    def sent(self) -> int:
        """Bytes that the rank sends in a ring."""
        return sum(line.sent for line in self.lines)

    @property
    def stage(self) -> int:
        """The stage that sends most, counted from 1."""
        return self.sent_by_stage.index(max(self.sent_by_stage)) + 1


def checked_ends(mesh: Mesh, train: bool, after: AfterHead, reduce_dtype: str | None) -> Ends:
    """The options of logits and gradients. Raises UsageError if they do not apply to this mesh or pass."""
    if after not in get_args(AfterHead):
        raise UsageError(f"{option('after_head')} must be {listed(get_args(AfterHead))}, not {after!r}")
    if after != "sharded" and mesh.tp == 1:
        problem = f"{option('after_head', after)} applies to logits that {option('tp')} shards"
        raise UsageError(problem, f"give {option('tp', 8)}")
    if after == "loss" and not train:
        problem = f"{option('after_head', after)} applies to a training step"
        raise UsageError(problem, f"{option('train', True)} counts it")
    if reduce_dtype is None:
        return Ends(after)
    name = units.dtype_name(reduce_dtype)
    if name not in DTYPES:
        raise UsageError(f"gradients are reduced in {listed(DTYPES)}, not {name}")
    if not train or mesh.batch_shards == 1:
        problem = f"{option('reduce_dtype', name)} applies to gradient reduction over data-parallel ranks"
        raise UsageError(problem, f"give {option('train', True)}, and {option('fsdp')} or {option('dp')}")
    return Ends(after, name)


def rank_collectives(
    model: LoadedModel,
    work: Workload,
    mesh: Mesh,
    train: bool,
    dtype: str,
    ends: Ends,
    recomputed: Recomputed | None = None,
) -> RankCollectives:
    """The collectives of the rank that sends most, and what each stage stores and sends. Raises TfacctError."""
    check_mesh(model, mesh, train=train)
    if train:
        _check_order(model, mesh)
    with naming(model.name, UsageError):
        reduced = None if ends.reduced is None else units.dtype_bits(ends.reduced)
        how: CollectiveOptions = {"train": train, "after": ends.after, "reduced": reduced, "recomputed": recomputed}
        every = stage_collectives(model, mesh, work.axes(), units.dtype_bits(dtype), **how)
    sizes = [sum(line.sent for line in lines) for lines in every]
    lines = every[sizes.index(max(sizes))]
    if mesh.imbalance != 1 and not any(line.kind == "all-to-all" and line.over == "ep" for line in lines):
        given = option("imbalance", f"{float(mesh.imbalance):g}")
        raise UsageError(
            f"{given} applies to routed tokens, and there are none here",
            f"tp ranks already have all tokens; only {option('ep')} above {option('tp')} exchanges them",
        )
    if not verified(model.family, "torch_plan"):
        check_rows(model, mesh)
    stored = [stored_elements(stage, mesh) for stage in stage_ledgers(model.ledger, mesh)]
    return RankCollectives(work, lines, max(stored), model.parameters, sizes, stored)


def _check_order(model: LoadedModel, mesh: Mesh) -> None:
    """Raises ConfigError for gradient buckets of a class whose order of gradients was not checked."""
    if mesh.replicas > 1 and mesh.fsdp == 1 and not mesh.zero and encodes(model.architecture):
        raise ConfigError(
            f"{model.name}: the gradient buckets of {option('dp')} were not checked for encoders",
            f"{option('fsdp')} and {option('zero')} reduce without buckets",
        )
