"""Parameters, tensor by tensor; every tensor once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tfacct.accounts.products import by_part, never_called, stored
from tfacct.architecture.parts import headings
from tfacct.base import units
from tfacct.ledger import paths
from tfacct.ledger.evaluated import Tensor
from tfacct.loading.model import LoadedModel
from tfacct.loading.model_description import EXPECTED_FROM
from tfacct.loading.skipped import Skipped
from tfacct.output.keys import Keys, Object, values_of
from tfacct.output.report import Column, NoteRow, Row, Table, notes
from tfacct.reports import build, model_notes, ranks

if TYPE_CHECKING:
    from tfacct.parallel.mesh import Mesh
    from tfacct.parallel.rank_params import FullestRank

By = Literal["line", "part"]
CONVENTION = "every stored tensor once, biases and norms included"


of_model: Keys[[LoadedModel]] = Keys()
of_tensor: Keys[[Tensor, FullestRank | None]] = Keys()


class ParamsLine(Object):
    """One tensor, with its shape."""

    path: str = of_tensor(lambda tensor, _: tensor.path)
    shape: list[int] = of_tensor(lambda tensor, _: list(tensor.shape))
    times: int = of_tensor(lambda tensor, _: tensor.count)
    params: int = of_tensor(lambda tensor, _: int(tensor.count * tensor.elements))
    rank_params: int = of_tensor(lambda tensor, rank: rank and rank.holds(tensor), when=lambda _, rank: rank)


def _embedding(model: LoadedModel) -> int:
    return sum(int(tensor.count * tensor.elements) for tensor in stored(model.ledger.tensors()) if tensor.embedding)


def _active(model: LoadedModel) -> int:
    return sum(model.ledger.active_parameters().values())


class ParamsReport(build.ExplainedReport, build.RankReport):
    """Number of stored parameters."""

    _line = ParamsLine

    total_params: int = of_model(lambda model: model.parameters)
    embedding_params: int = of_model(_embedding)
    non_embedding_params: int = of_model(lambda model: model.parameters - _embedding(model))
    active_params: int = of_model(_active)
    active_non_embedding_params: int = of_model(lambda model: _active(model) - _embedding(model))
    tied_head: bool | None = of_model(lambda model: model.architecture.head and model.architecture.head.tied)
    not_included: build.NotIncluded | None = of_model(model_notes.not_included)
    expected_params: int | None = of_model(lambda model: model.expected)
    expected_from: str | None = of_model(
        lambda model: model.provenance.expected_from if model.provenance and model.expected else None
    )
    rank_params: int | None


def params(models: Sequence[LoadedModel], mesh: Mesh | None = None, *, by: By = "line") -> ParamsReport:
    """Stored parameters by tensor or by part for one model, by part for several. `mesh`: also those of the fullest
    rank. Raises TfacctError."""
    skipped: list[Skipped] = []
    if mesh is not None:
        from tfacct.parallel.rank_params import weight_shards

        models, skipped = weight_shards(models, mesh)
    facts = tuple(_facts(model, mesh) for model in models)
    alone = len(models) == 1
    title = build.titled(models, "parameters" if alone and by == "line" else "parameters by part")
    differing = _differing(models, facts)
    return build.report(
        ParamsReport,
        models,
        _one(facts[0], mesh, by) if alone else _several(models, facts),
        facts,
        title=title if mesh is None else f"{title}, whole and on one of {mesh.ranks:,} ranks",
        answer=_answer(models, facts),
        notes=lambda at: notes(NOTES, About(models[at], facts[at], mesh)),
        convention=CONVENTION,
        hints=differing,
        skipped=skipped,
        headline="total_params",
        agrees=not differing,
    )


def _answer(models: Sequence[LoadedModel], facts: Sequence[dict[str, Any]]) -> str:
    """The total of one model, or the range of several."""
    if len(facts) > 1:
        return build.from_to(models, (fact["total_params"] for fact in facts), units.people)
    total, active, rank = facts[0]["total_params"], facts[0]["active_params"], facts[0].get("rank_params")
    if rank is not None:
        return f"{rank:,} parameters ({units.people(rank)}) on one rank, of {total:,} ({units.people(total)})."
    used = f", of which a token uses {units.people(active)}" if active != total else ""
    return f"{total:,} parameters ({units.people(total)}){used}."


def _facts(model: LoadedModel, mesh: Mesh | None) -> dict[str, Any]:
    tensors = stored(model.ledger.tensors())
    if mesh is None:
        return values_of(ParamsReport, model, lines=[values_of(ParamsLine, tensor, None) for tensor in tensors])
    from tfacct.parallel.rank_params import fullest_rank

    rank = fullest_rank(model, mesh)
    return values_of(
        ParamsReport,
        model,
        lines=[values_of(ParamsLine, tensor, rank) for tensor in tensors],
        tp=mesh.tp,
        pp=mesh.pp,
        mesh=values_of(build.MeshFacts, mesh),
        stage=rank.stage if mesh.pp > 1 else None,
        rank_params=sum(map(rank.holds, tensors)),
    )


def _differing(models: Sequence[LoadedModel], facts: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"warning: {model.name}: {fact['total_params']:,} parameters, expected {fact['expected_params']:,}"
        for model, fact in zip(models, facts, strict=True)
        if fact["expected_params"] not in (None, fact["total_params"])
    ]


def _one(facts: dict[str, Any], mesh: Mesh | None, by: By) -> Table:
    total, counts = facts["total_params"], ("params", *(() if mesh is None else ("rank_params",)))
    if by == "line":
        first = "parameter"
        lines = [{**line, first: paths.short(line["path"]), "shape": tuple(line["shape"])} for line in facts["lines"]]
    else:
        first, parts = "part", {count: _parts(facts, count) for count in counts}
        lines = [{first: part, **{count: parts[count].get(part, 0) for count in counts}} for part in parts["params"]]
    of_tensors = (Column("shape", "shape", "dims", drop=2), Column("times", "times", "count", drop=1))
    columns = (
        Column(first, first),
        *(of_tensors if by == "line" else ()),
        Column("params", "params", "params"),
        *(() if mesh is None else (Column("rank_params", "one rank", "params"),)),
        *build.SHARES,
    )
    sections = tuple(
        tuple(build.with_share(line, line["params"], total) for line in section)
        for _, section in groupby(lines, key=lambda line: by == "line" and paths.holder_of(line["path"]))
    )
    kinds = {"embedding": "embedding_params", "non-embedding": "non_embedding_params"}
    if facts["active_params"] != total:
        kinds |= {"active": "active_params", "active, non-embedding": "active_non_embedding_params"}
    each: list[Row] = [
        {first: name, "params": facts[key], "share": Fraction(facts[key], total)} for name, key in kinds.items()
    ]
    total_row = {first: "total", "params": total, "share": Fraction(1), "rank_params": facts.get("rank_params")}
    return columns, sections, (total_row, *each)


def _parts(facts: Mapping[str, Any], count: str) -> dict[str, int]:
    """`params` or `rank_params` of all tensors, by part."""
    found: Counter[str] = Counter()
    for line in facts["lines"]:
        found[line["path"]] += line[count]
    return by_part(found)


def _several(models: Sequence[LoadedModel], facts: Sequence[dict[str, Any]]) -> Table:
    rows: list[dict[str, Any]] = []
    ranked = "rank_params" in facts[0]
    routed = not ranked and any(fact["active_params"] != fact["total_params"] for fact in facts)
    for model, fact in zip(models, facts, strict=True):
        parts = _parts(fact, "rank_params" if ranked else "params")
        rows.append({**fact, "model": build.label(model), **parts})
    columns = (
        Column("model", "model"),
        *((Column("rank_params", "one rank", "params"),) if ranked else ()),
        Column("total_params", "whole model" if ranked else "params", "params"),
        *((Column("active_params", "active", "params", drop=1),) if routed else ()),
        *(
            Column(part, part, "params", drop=build.drop_of(part, rows))
            for part in headings()
            if any(part in row for row in rows)
        ),
        *(() if ranked else (Column("expected_params", "expected", "params", drop=3),)),
    )
    return columns, (tuple(rows),), ()


class About(NamedTuple):
    """Models that notes describe, and their facts."""

    models: Sequence[LoadedModel]
    facts: Sequence[dict[str, Any]]
    mesh: Mesh | None

    @property
    def alone(self) -> bool:
        return len(self.models) == 1


def _head(about: About) -> str:
    tied = about.facts[0]["tied_head"]
    if not about.alone or tied is None:
        return ""
    if tied:
        return "lm_head is tied to embed: one weight, counted once, as embedding."
    own = _parts(about.facts[0], "params").get("lm_head", 0)
    return f"lm_head is not tied: its {units.people(own)} parameters are counted as non-embedding."


def _expected(about: About) -> str:
    """The published total of one model."""
    facts = about.facts[0]
    expected, more = facts["expected_params"], facts["total_params"] - (facts["expected_params"] or 0)
    if not about.alone or expected is None:
        return ""
    return f"{EXPECTED_FROM[facts['expected_from']]}: {expected:,} ({f'differs by {more:+,}' if more else 'equal'})"


def _encoder(about: About) -> str:
    """Which rows of one encoder–decoder are the decoder's, and embeddings that are in the encoder's row."""
    if not about.alone or about.models[0].architecture.encoder is None:
        return ""
    tensors = (
        one for one in about.models[0].ledger.tensors() if one.embedding and paths.heading_of(one.path) == "encoder"
    )
    own = sum(int(one.count * one.stored.elements) for one in tensors)
    positions = f"; embedding includes {units.people(own)} of the encoder" if own else ""
    return f"attn, cross, mlp and norms are those of the decoder{positions}."


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


def _never_called(about: About) -> str:
    """Modules of one model that are stored but never run."""
    return ", ".join(map(paths.short, never_called(about.models[0].ledger))) if about.alone else ""


def _stages(about: About) -> str:
    mesh = about.mesh
    return ranks.stage_sizes(about.models[0].ledger, mesh) if mesh and mesh.pp > 1 and about.alone else ""


def _one_rank(about: About) -> str:
    if about.mesh is None:
        return ""
    sentence = "One rank: parameters of the fullest rank. All other columns: the whole model."
    if not about.alone:
        sentence = "Parameters of the fullest rank, by part, next to the total of the whole model."
    return f"{sentence} Tensors are padded if FSDP does not divide their rows." if about.mesh.fsdp > 1 else sentence


NOTES = (
    NoteRow("head", 3, _head),
    NoteRow("expected", 1, _expected),
    NoteRow("encoder", 2, _encoder),
    NoteRow("experts", 2, lambda about: model_notes.expert_notes(about.models)),
    NoteRow("shared_weights", 2, lambda about: model_notes.shared_notes(about.models)),
    NoteRow("not_included", 1, lambda about: model_notes.not_included_notes(about.models, about.facts)),
    NoteRow("untrained", 2, _untrained, "Counted, but not trained: {} (sines and cosines)."),
    NoteRow("never_called", 2, _never_called, "Stored but never called, so without FLOPs: {}."),
    NoteRow("uneven", 1, lambda about: about.mesh and ranks.uneven_notes(about.models, about.mesh)),
    NoteRow("stages", 1, _stages),
    NoteRow("one_rank", 1, _one_rank),
    NoteRow("idle", 2, lambda about: about.mesh and ranks.axis_notes(about.mesh, "params")),
)
