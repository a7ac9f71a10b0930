"""Parameters, tensor by tensor; every tensor once."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict

from tfacct.accounts.products import by_part, never_called, stored
from tfacct.architecture.parts import headings
from tfacct.base import units
from tfacct.ledger import paths
from tfacct.ledger.evaluated import Tensor
from tfacct.loading.described import WITNESSES
from tfacct.loading.left_out import LeftOut
from tfacct.loading.model import LoadedModel
from tfacct.output.answer import answers
from tfacct.output.report import Column, NoteRow, Report, Row, Table, notes
from tfacct.reports import build, model_notes, ranks

if TYPE_CHECKING:
    from tfacct.parallel.mesh import Mesh
    from tfacct.parallel.rank_params import FullestRank

CONVENTION = "unique tensors, a tied head once; every stored parameter, embeddings and norms included"


class ParamsLine(TypedDict):
    """One tensor, with its shape."""

    path: str
    shape: list[int]
    times: int
    params: int
    rank_params: NotRequired[int]


class ParamsReport(build.ExplainedReport):
    """Number of stored parameters."""

    _line = ParamsLine

    total_params: int
    embedding_params: int
    non_embedding_params: int
    active_params: int
    active_non_embedding_params: int
    tied_head: bool | None
    not_included: build.NotIncluded | None
    expected_params: int | None
    expected_from: str | None
    tp: int | None
    fsdp: int | None
    ep: int | None
    pp: int | None
    mesh: build.MeshFacts | None
    stage: int | None
    rank_params: int | None


@answers(ParamsReport)
def params(subjects: Sequence[LoadedModel], mesh: Mesh | None = None) -> Report:
    """Stored parameters by tensor for one model, by part for several. `mesh`: ranks that divide it, for what the
    fullest stores beside the whole. Raises TfacctError."""
    left_out: list[LeftOut] = []
    if mesh is not None:
        from tfacct.parallel.rank_params import weight_shards

        subjects, left_out = weight_shards(subjects, mesh)
    facts = tuple(_facts(subject, mesh) for subject in subjects)
    if len(subjects) == 1:
        table = _one(subjects[0], facts[0], mesh)
        title = f"{build.name_of(subjects[0])}: parameters{_of_ranks(mesh)}"
    else:
        table = _several(subjects, facts)
        title = f"Parameters by part{_of_ranks(mesh)}"
    return build.report(
        "params",
        subjects,
        table,
        facts,
        title=title,
        convention=CONVENTION,
        answer=_answer(subjects, facts),
        notes=lambda at: notes(NOTES, About(subjects[at], facts[at], mesh)),
        counted="every stored tensor once, biases and norms included",
        hints=_differing(subjects, facts),
        left_out=left_out,
        headline="total_params",
        agrees=not _differing(subjects, facts),
    )


def _of_ranks(mesh: Mesh | None) -> str:
    return "" if mesh is None else f", whole and on one of {mesh.ranks:,} ranks"


def _answer(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]]) -> str:
    """The total of one model, or the smallest and the largest of several."""
    if len(facts) > 1:
        both = zip(subjects, facts, strict=True)
        return build.from_to([(fact["total_params"], subject.name) for subject, fact in both], units.people)
    total, active = facts[0]["total_params"], facts[0]["active_params"]
    used = f", of which a token uses {units.people(active)}" if active != total else ""
    if "rank_params" in facts[0]:
        held = facts[0]["rank_params"]
        return f"{held:,} parameters ({units.people(held)}) on one rank, of {total:,} ({units.people(total)})."
    return f"{total:,} parameters ({units.people(total)}){used}."


def _facts(subject: LoadedModel, mesh: Mesh | None = None) -> dict[str, Any]:
    from tfacct.parallel.mesh import facts as mesh_facts

    tensors, fullest = stored(subject.ledger.tensors()), _fullest(subject, mesh)
    total = sum(_in_all(tensor) for tensor in tensors)
    embedding = sum(_in_all(tensor) for tensor in tensors if tensor.embedding)
    active = sum(subject.ledger.active_parameters().values())
    return {
        "total_params": total,
        "embedding_params": embedding,
        "non_embedding_params": total - embedding,
        "active_params": active,
        "active_non_embedding_params": active - embedding,
        "tied_head": None if subject.architecture.head is None else subject.architecture.head.tied,
        "not_included": model_notes.not_included(subject),
        "expected_params": subject.expected,
        "expected_from": subject.provenance.expected_from if subject.provenance and subject.expected else None,
        "lines": [
            {
                "path": tensor.path,
                "shape": list(tensor.shape),
                "times": tensor.count,
                "params": _in_all(tensor),
                **_on_rank(tensor, fullest),
            }
            for tensor in tensors
        ],
        **(
            {}
            if fullest is None or mesh is None
            else {
                "tp": mesh.tp,
                "fsdp": mesh.fsdp,
                "ep": mesh.ep,
                "pp": mesh.pp,
                "mesh": mesh_facts(mesh),
                "stage": fullest.stage if mesh.pp > 1 else None,
                "rank_params": sum(map(fullest.holds, tensors)),
            }
        ),
    }


def _fullest(model: LoadedModel, mesh: Mesh | None) -> FullestRank | None:
    if mesh is None:
        return None
    from tfacct.parallel.rank_params import fullest_rank

    return fullest_rank(model, mesh)


def _on_rank(tensor: Tensor, fullest: FullestRank | None) -> dict[str, int]:
    """Elements of the tensor in all blocks that the fullest rank stores, where there are several."""
    return {} if fullest is None else {"rank_params": fullest.holds(tensor)}


def _differing(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"warning: {subject.name}: {fact['total_params']:,} parameters, but {fact['expected_params']:,} are expected"
        for subject, fact in zip(subjects, facts, strict=True)
        if fact["expected_params"] not in (None, fact["total_params"])
    ]


def _in_all(tensor: Tensor) -> int:
    return int(tensor.count * tensor.elements)


def _one(subject: LoadedModel, facts: dict[str, Any], mesh: Mesh | None) -> Table:
    columns = (
        Column("parameter", "parameter"),
        Column("shape", "shape", "dims", drop=2),
        Column("times", "times", "count", drop=1),
        Column("params", "params", "params"),
        *(() if mesh is None else (Column("rank_params", "one rank", "params"),)),
        Column("share", "share", "share", drop=3),
        Column("bar", "", "bar", drop=4),
    )
    total, fullest = facts["total_params"], _fullest(subject, mesh)
    sections = []
    for _, tensors in groupby(stored(subject.ledger.tensors()), key=lambda tensor: paths.holder_of(tensor.path)):
        rows: list[Row] = []
        for tensor in tensors:
            params = _in_all(tensor)
            row = {"parameter": paths.short(tensor.path), "shape": tensor.shape, "times": tensor.count}
            rows.append(build.with_share({**row, "params": params, **_on_rank(tensor, fullest)}, params, total))
        sections.append(tuple(rows))
    kinds = {"embedding": "embedding_params", "non-embedding": "non_embedding_params"}
    if facts["active_params"] != total:
        kinds |= {"active": "active_params", "active, non-embedding": "active_non_embedding_params"}
    totals: list[Row] = [
        {"parameter": "total", "params": total, "share": Fraction(1), "rank_params": facts.get("rank_params")},
        *(
            {"parameter": name, "params": facts[key], "share": Fraction(facts[key], total)}
            for name, key in kinds.items()
        ),
    ]
    return columns, tuple(sections), tuple(totals)


def _several(subjects: Sequence[LoadedModel], facts: Sequence[dict[str, Any]]) -> Table:
    rows: list[dict[str, Any]] = []
    ranked = "rank_params" in facts[0]
    routed = not ranked and any(fact["active_params"] != fact["total_params"] for fact in facts)
    for subject, fact in zip(subjects, facts, strict=True):
        row: dict[str, Any] = {"model": build.name_of(subject), "total": fact["total_params"]}
        row["rank_params"] = fact.get("rank_params")
        row["active"] = fact["active_params"]
        row["expected_params"] = fact["expected_params"]
        own = {line["path"]: 0 for line in fact["lines"]} if ranked else subject.ledger.parameters()
        for line in fact["lines"] if ranked else ():
            own[line["path"]] += line["rank_params"]
        rows.append(row | by_part(own))
    columns = (
        Column("model", "model"),
        *((Column("rank_params", "one rank", "params"),) if ranked else ()),
        Column("total", "whole model" if ranked else "params", "params"),
        *((Column("active", "active", "params", drop=1),) if routed else ()),
        *(
            Column(part, part, "params", drop=build.drop_of(part, rows))
            for part in headings()
            if any(part in row for row in rows)
        ),
        *(() if ranked else (Column("expected_params", "expected", "params", drop=3),)),
    )
    return columns, (tuple(rows),), ()


class About(NamedTuple):
    """What notes are about: some models and their facts."""

    models: Sequence[LoadedModel]
    facts: Sequence[dict[str, Any]]
    mesh: Mesh | None

    @property
    def alone(self) -> bool:
        return len(self.models) == 1


def _head(about: About) -> str:
    if not about.alone:
        return "A tied head has no parameters of its own: its weight is the embedding."
    return {
        None: "There is no language model's head.",
        True: "lm_head is tied to embed: one table, counted once, as embedding.",
        False: "lm_head is not tied: it has its own weight, counted as non-embedding.",
    }[about.facts[0]["tied_head"]]


def _expected(about: About) -> str:
    """The total that a source of the model's gives."""
    facts = about.facts[0]
    expected, more = facts["expected_params"], facts["total_params"] - (facts["expected_params"] or 0)
    if not about.alone or expected is None:
        return ""
    return f"{WITNESSES[facts['expected_from']]}: {expected:,} ({f'differs by {more:+,}' if more else 'equal'})"


def _untrained(about: About) -> str:
    """Position embeddings that are stored but not trained."""
    found = dict.fromkeys(
        tensor.path
        for model in about.models
        if (positions := model.architecture.positions) is not None and not positions.trained
        for tensor in model.ledger.tensors()
        if tensor.path.endswith("pos_embed.weight")
    )
    return ", ".join(found)


def _never_called(about: About) -> dict[str, str] | None:
    """What of one model is stored and never run."""
    idle = never_called(about.models[0].ledger) if about.alone else []
    are, their = ("are", "their") if len(idle) > 1 else ("is", "its")
    return {"names": ", ".join(map(paths.short, idle)), "are": are, "their": their} if idle else None


def _uneven(about: About) -> list[str]:
    return [] if about.mesh is None else ranks.uneven(about.models, about.mesh)


def _stages(about: About) -> list[str]:
    mesh = about.mesh
    return [] if mesh is None or mesh.pp == 1 or not about.alone else [ranks.division(about.models[0].ledger, mesh)]


def _one_rank(about: About) -> str:
    if about.mesh is None:
        return ""
    said = "One rank: what the fullest stores. All other columns are of the whole model."
    if not about.alone:
        said = "Counted is what the fullest rank stores, part by part, next to the total of the whole model."
    return f"{said} A tensor whose rows fsdp does not divide is padded." if about.mesh.fsdp > 1 else said


def _idle(about: About) -> list[str]:
    mesh = about.mesh
    if mesh is not None and mesh.fsdp > 1 and mesh.sequence_shards > 1:
        return [*ranks.of_parts(mesh, train=False)[-1:], *ranks.idle(mesh, "sp")]
    return [] if mesh is None else ranks.idle(mesh, "sp", "cp")


NOTES = (
    NoteRow("head", 3, _head),
    NoteRow("expected", 1, _expected),
    NoteRow("experts", 2, lambda about: model_notes.expert_notes(about.models)),
    NoteRow("shared_weights", 2, lambda about: model_notes.shared_notes(about.models)),
    NoteRow("projector", 2, lambda about: model_notes.projector_notes(about.models)),
    NoteRow("not_included", 1, lambda about: model_notes.not_included_notes(about.models, about.facts)),
    NoteRow("untrained", 2, _untrained, "Stored and counted, but not trained: {} (sines and cosines)."),
    NoteRow(
        "never_called",
        2,
        _never_called,
        "{names} {are} stored but never called: {their} parameters count, {their} work does not.",
    ),
    NoteRow("uneven", 1, _uneven),
    NoteRow("stages", 1, _stages),
    NoteRow("one_rank", 1, _one_rank),
    NoteRow("idle", 2, _idle),
)
