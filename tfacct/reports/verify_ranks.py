"""A rank's parameters and collectives against the transformers class, as torch divides it among ranks that send
nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfacct.architecture.parts import Experts, LatentAttention
from tfacct.base import units
from tfacct.base.errors import ConfigError, TfacctError, UsageError, listed
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.workload import Request, Workload, whole_sequences
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Column, Report, Row, Table, Tick, unwatched
from tfacct.parallel.mesh import Mesh, checked, padded, replicated
from tfacct.parallel.mesh import facts as mesh_facts
from tfacct.parallel.model_collectives import fused_modules, stage_collectives
from tfacct.parallel.pipeline import blocks_in
from tfacct.parallel.rules import collectives
from tfacct.parallel.support import DTYPES, ROUTING, check_mesh, check_shardable, routing_bits, supported_on
from tfacct.parallel.verified import verified
from tfacct.reports import compose, counting
from tfacct.reports.verify import Pair, folded, rows, verdict, witness_facts, word
from tfacct.training.exact import starred
from tfacct.verify.checks import Check, in_one_go
from tfacct.verify.ranks import rank_checks, stage_checks

SOME = ("llama-3.2-1b", "qwen3-0.6b", "gpt2", "mixtral-8x7b", "aya-expanse-8b")
"""Presets that are asked where none is named: heads in groups, norms of heads, fused products, experts, sublayers
beside each other."""
USUAL = (Mesh(2, fsdp=2), Mesh(2), Mesh(fsdp=2))
"""Meshes of which the first that goes is asked about, where none was given."""
UNASKED = "Not asked: the loss, the optimizer; no byte was sent over a link, and nothing was timed."
PIPED = (
    "Messages are those of all stages, each by itself in torch's own schedule and a process group that sends nothing;"
    " parameters are the class's. Not asked: the sum of a tied table's gradients, the loss, the optimizer."
)


UNRUN = (
    ("dp", "torch reduces buckets of real numbers", "beside fsdp its copies are, as HSDP has them"),
    ("ulysses", "neither torch nor transformers divides heads for tokens", "a ring of cp is"),
)
"""Axes that are not asked about, why, and what is there instead."""


LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
"""Config fields of the number of layers."""
TWO = 2
"""Layers that run: the last and the first are different ones."""


def blocks_run(given: LoadedModel, all_layers: bool) -> tuple[int, int]:
    """Number of layers that run, and of those that the model has."""
    blocks = sum(stack.count for stack in given.architecture.stacks)
    return (blocks if all_layers or with_blocks(given, TWO) is None else TWO), blocks


def with_blocks(given: LoadedModel, count: int) -> LoadedModel | None:
    """The model with so many layers; None where it has no more, or has layers of several kinds."""
    field = next((name for name in LAYERS if name in given.raw), None)
    if (
        field is None
        or given.architecture.encoder is not None
        or len(given.architecture.stacks) > 1
        or given.architecture.stacks[0].count <= count
    ):
        return None
    try:
        found = given.with_fields({**given.changed, field: count})
    except ConfigError:  # a list has an entry for each layer
        return None
    return found if [stack.count for stack in found.architecture.stacks] == [count] else None


@record
class _Verified:
    """One model, the mesh that divides it, and what the class said of a rank. `published`: by transformers' plan."""

    subject: LoadedModel
    mesh: Mesh
    published: bool
    work: Workload
    checks: list[Check]
    run: tuple[int, int]

    @property
    def agrees(self) -> bool:
        return all(check.agrees for check in self.checks)


def verify_ranks(
    subjects: Sequence[LoadedModel],
    request: Request,
    mesh: Mesh | None = None,
    *,
    dtype: str | None = None,
    all_layers: bool = False,
    progress: Tick = unwatched,
) -> Report:
    """Ask the class what one rank holds and sends in a forward and a backward pass, and compare exactly. `mesh`: the
    ranks, two or four of them if none are given. Needs torch and transformers. Raises TfacctError."""
    if request.decode or request.tokens is not None:
        raise whole_sequences("shard")
    mesh = mesh and checked(mesh)
    if mesh is not None:
        _check_asked(mesh)
    stored = units.dtype_name(dtype or "bf16")
    if stored not in DTYPES:
        raise UsageError(f"ranks send {', '.join(DTYPES)}, not {stored}")
    subjects, found, left_out = supported_on(subjects, lambda subject: _mesh_for(subject, mesh))
    verified = []
    with in_one_go():
        for done, (subject, own) in enumerate(zip(subjects, found, strict=True)):
            progress(subject.name, done, len(subjects))
            verified.append(_asked(subject, request, *own, stored, all_layers=all_layers))
    one = verified[0] if len(verified) == 1 else None
    who = f"{compose.name_of(subjects[0])}: one of {one.mesh.ranks} ranks" if one else "One rank of each"
    return compose.report(
        "verify",
        subjects,
        _one(one) if one else _several(verified),
        [_facts(each, stored) for each in verified],
        title=f"{who} in {stored} against the class, {compose.workload_words(subjects, request)}",
        convention="what the fullest rank stores, and the results of its collectives in a forward and a backward pass",
        answer=verdict([(each.subject, each.checks) for each in verified], "call by call"),
        notes=lambda at: _notes(verified[at]),
        requests=[request],
        defaults=[],
        left_out=left_out,
        headline="rank_params",
        agrees=all(each.agrees for each in verified),
    )


def _check_asked(mesh: Mesh) -> None:
    """Raises UsageError for a mesh that no class is run on, with what one is."""
    for axis, why, hint in UNRUN:
        if (size := getattr(mesh, axis)) > 1 and (axis != "dp" or mesh.fsdp == 1):
            raise UsageError(f"{option(axis, size)} is not verified here: {why}", hint)
    if mesh.cp > 1 and mesh.cp_method != "ring":
        given = option("cp_method", mesh.cp_method)
        raise UsageError(f"{given} is not verified here: torch runs a ring", "leave it out")
    if mesh.pp > 1 and (mesh.ranks > mesh.pp or mesh.schedule == "zero-bubble"):
        other = "another axis" if mesh.ranks > mesh.pp else "zero bubble"
        raise UsageError(f"{option('pp', mesh.pp)} is not verified beside {other}", f"ask for {option('pp')} alone")
    if mesh.imbalance != 1:
        given = option("imbalance", f"{float(mesh.imbalance):g}")
        raise UsageError(f"{given} is not verified here: tokens are spread evenly", "leave it out")
    if mesh.zero:
        why = "an engine decides which tensors share a bucket"
        raise UsageError(f"{option('zero', mesh.zero)} is not verified here: {why}", f"{option('fsdp')} is")


def _mesh_for(subject: LoadedModel, mesh: Mesh | None) -> tuple[Mesh, bool]:
    """The mesh that a model is asked about, and whether transformers' plan divides it. Raises TfacctError."""
    refused: TfacctError | None = None
    for one in (mesh,) if mesh is not None else USUAL:
        try:
            check_shardable(subject, replace(one, sp=False))
            check_mesh(subject, one)
            return one, _by_published_plan(subject, one)
        except TfacctError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _by_published_plan(subject: LoadedModel, mesh: Mesh) -> bool:
    """Whether transformers' plan divides a class. Raises ConfigError for one that none does."""
    if not subject.config.hf_module_paths() or subject.config.hf_unsupported():
        raise ConfigError(f"{subject.name}: there is no transformers class that could be asked")
    experts = any(isinstance(part, Experts) for part in subject.architecture.parts())
    if mesh.tp > 1 and replicated(subject.ledger, mesh):
        raise ConfigError(f"{subject.name}: no plan gives several ranks of {option('tp', mesh.tp)} the same heads")
    whole = not padded(subject.ledger, mesh)  # torch's products by rows fail where a width is not divided evenly
    routed = mesh.sp and experts and any(verified(subject.family, fact) for fact in ROUTING)
    if mesh.ep > 1 and not verified(subject.family, "published_plan") and not routed:
        said = f"{subject.name}: no plan of {option('ep', mesh.ep)} was compared with its class"
        raise ConfigError(said, f"leave {option('ep')} out")
    if mesh.tp == 1 or (verified(subject.family, "torch_plan") and not experts and whole):
        return False
    latent = mesh.sp and subject.architecture.having(LatentAttention) and not experts
    if (routed or latent) and whole:
        return False  # torch's plan of the rest, between which experts run
    if mesh.sp or mesh.plan != "torch" or not verified(subject.family, "published_plan"):
        how = option("sp", True) if mesh.sp else option("tp", mesh.tp)
        raise ConfigError(f"{subject.name}: no plan of {how} was compared with its class", f"ask with {option('fsdp')}")
    return True


def _asked(
    given: LoadedModel, request: Request, mesh: Mesh, published: bool, dtype: str, *, all_layers: bool
) -> _Verified:
    if mesh.pp > 1:
        return _of_stages(given, request, mesh, dtype)
    subject = (None if all_layers else with_blocks(given, TWO)) or given
    if published and _tied(subject):
        subject = subject.with_fields({**subject.changed, "tie_word_embeddings": False})
    work, bits = counting.workload(given, request), units.dtype_bits(dtype)
    sent = collectives(
        subject.ledger,
        mesh,
        work.axes(),
        bits,
        train=True,
        shares=routing_bits(subject, mesh, bits, train=True),
        modules=fused_modules(subject),
        after="gathered" if published else "divided",
    )
    checks = rank_checks(subject, work, mesh, sent, dtype, published=published)
    return _Verified(given, mesh, published, work, checks, blocks_run(given, all_layers))


def _of_stages(given: LoadedModel, request: Request, mesh: Mesh, dtype: str) -> _Verified:
    work, bits = counting.workload(given, request), units.dtype_bits(dtype)
    every = stage_collectives(given, mesh, work.axes(), bits, train=True)
    blocks = blocks_in(given.ledger)
    return _Verified(given, mesh, False, work, stage_checks(given, work, mesh, every, dtype), (blocks, blocks))


def _tied(subject: LoadedModel) -> bool:
    return subject.architecture.head is not None and subject.architecture.head.tied


def _facts(verified: _Verified, dtype: str) -> dict[str, Any]:
    params = verified.checks[0]
    return {
        "workload": counting.workload_facts(verified.work, dtype=dtype),
        "agrees": verified.agrees,
        "blocks_traced": verified.run[0],
        "block_count": verified.run[1],
        "mesh": mesh_facts(verified.mesh),
        "plan": _plan(verified),
        "rank_params": params.totals[0],
        "measured_rank_params": params.totals[1],
        "witnesses": [witness_facts(check) for check in verified.checks],
        "lines": [
            {"path": path, "rank_params": pair[0], "measured_rank_params": pair[1], "equal": pair[0] == pair[1]}
            for path, pair in params.pairs().items()
        ],
    }


def _plan(verified: _Verified) -> str:
    return "transformers" if verified.published else "torch"


def _one(verified: _Verified) -> Table:
    columns = (
        Column("what", "one rank"),
        Column("formula", "formula", "count"),
        Column("measured", "measured", "count"),
        Column("verdict", "", "verdict"),
    )
    params, calls, moved = verified.checks
    total: dict[str, tuple[Pair, bool]] = {params.witness: (params.totals, params.agrees)}
    each: list[dict[str, tuple[Pair, bool]]] = []
    for check in (calls, moved):
        lines = {what: (pair, pair[0] == pair[1]) for what, pair in check.pairs().items()}
        each.append({**lines, check.witness: (check.totals, check.agrees)})
    return columns, (rows(folded(params.pairs(), starred)), rows(total), *map(rows, each)), ()


def _several(verified: Sequence[_Verified]) -> Table:
    columns = (
        Column("model", "model"),
        Column("tp", "tp", "count"),
        Column("fsdp", "fsdp", "count"),
        Column("plan", "plan", drop=2),
        Column("formula", "elements", "count"),
        Column("calls", "calls", "count"),
        Column("verdict", "", "verdict"),
    )
    found: tuple[Row, ...] = tuple(
        {
            "model": compose.name_of(each.subject),
            "tp": each.mesh.tp,
            "fsdp": each.mesh.fsdp,
            "plan": _plan(each),
            "formula": each.checks[0].totals[0],
            "calls": each.checks[1].totals[0],
            "verdict": word(each.checks[0].totals, each.agrees),
        }
        for each in verified
    )
    return columns, (found,), ()


def _notes(verified: Sequence[_Verified]) -> list[str]:
    if verified[0].mesh.pp > 1:
        return [PIPED]
    said = [_run(verified)]
    if verified[0].mesh.cp > 1:
        said.append("Keys and values went round in torch's own ring, at the class's sizes.")
        if verified[0].mesh.fsdp == 1:
            said.append("The sums of gradients over cp were not asked for: their buckets hold real numbers.")
    for published, whose in ((False, "torch's tutorials"), (True, "the plan that transformers publishes")):
        own = [each.subject.name for each in verified if each.mesh.tp > 1 and each.published is published]
        if own:
            said.append(f"Divided over tp by {whose}{'' if len(verified) == 1 else f': {listed(own)}'}.")
    if verified[0].mesh.sp and any(each.subject.architecture.having(LatentAttention) for each in verified):
        said.append("Latent attention reads the stream gathered, as torchtitan's plan of DeepSeek-V3 has it.")
    if any(each.published and _tied(each.subject) for each in verified):
        said.append("A tied head was asked as one of its own: the published plan takes it and its table apart.")
    if verified[0].mesh.ep > 1:
        said.append("Experts are divided as transformers divides them, and tokens are spread evenly over them.")
    if any(each.mesh.fsdp > 1 for each in verified):
        said.append("Divided over fsdp by fully_shard, block by block.")
    return [*said, UNASKED]


def _run(verified: Sequence[_Verified]) -> str:
    run, blocks = (sum(each.run[side] for each in verified) for side in (0, 1))
    how = "at full width, its tensors without numbers, in a process group that sends nothing"
    if run == blocks:
        return f"Ran all {blocks:,} blocks of the class {how}."
    return f"Ran {run:,} of {blocks:,} blocks of the class {how}; {option('all_layers', True)} runs every block."
