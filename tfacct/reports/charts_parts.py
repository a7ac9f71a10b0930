"""What the pictures of parameters and of a diff show: parts in rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from tfacct.accounts.metrics import Point
from tfacct.architecture.parts import headings
from tfacct.base import units
from tfacct.ledger import paths
from tfacct.ledger.workload import Request
from tfacct.loading.model import LoadedModel
from tfacct.output import look
from tfacct.output.chart import Chart
from tfacct.output.report import Kind, Report
from tfacct.reports import cells, compose, counting, sentences
from tfacct.reports.charts import Y_LABELS, all_components, counted, hue_of, label_of
from tfacct.reports.counting import Counting

OTHERS = "everything else"
CAPTION = "Every stored tensor once, biases and norms included; a tied head has no parameters of its own."
SPELLED = {"flops": units.si, "params": units.people, "bytes": units.binary}


def params_chart(subjects: Sequence[LoadedModel], report: Report) -> Chart:
    """Stored parameters: of one model by part, with what a token uses of its experts; of several by model."""
    subjects = counted(subjects, report)
    if len(subjects) == 1:
        return _parts(subjects[0], report)
    rows = [_folded(subject.ledger.parameters()) for subject in subjects]
    parts = [part for part in (*headings(), OTHERS) if any(part in row for row in rows)]
    return Chart(
        kind="bars",
        title=f"Where the parameters of {len(subjects)} models are",
        caption=CAPTION,
        x_label=Y_LABELS["params"],
        y_label="",
        x=[compose.name_of(subject) for subject in subjects],
        series={label_of(part): [row.get(part, 0) for row in rows] for part in parts},
        unit="params",
        hues=[hue_of(part) for part in parts],
        ends=[(units.people(facts["total_params"]),) for facts in report.models],
    )


def _folded(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by part; those without a colour of their own, positions and norms among them, as one."""
    found: dict[str, int] = {}
    for part, count in cells.by_part(counts).items():
        name = part if hue_of(part) != look.GREY else OTHERS
        found[name] = found.get(name, 0) + count
    return found


def _parts(subject: LoadedModel, report: Report) -> Chart:
    stored, active = (_sided(counts) for counts in (subject.ledger.parameters(), subject.ledger.active_parameters()))
    total, used = report.models[0]["total_params"], report.models[0]["active_params"]
    largest = max(stored, key=lambda part: stored[part])
    name = compose.name_of(subject)
    title = f"{units.percent(Fraction(stored[largest], total))} of the {units.people(total)} parameters of {name}"
    routed = used != total
    met = [active[part] for part in stored]
    idle = [stored[part] - active[part] for part in stored]
    return Chart(
        kind="bars",
        title=f"{title} are in {largest}" + (f"; a token uses {units.people(used)}" if routed else ""),
        caption=CAPTION,
        x_label=Y_LABELS["params"],
        y_label="",
        x=list(stored),
        series={"used by a token": met, "stored only": idle} if routed else {"stored": met},
        unit="params",
        hues=[look.BLUE, look.SKY][: 1 + routed],
        ends=[(f"{units.people(count)}, {units.percent(Fraction(count, total))}",) for count in stored.values()],
    )


def _sided(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by part, those of an encoder behind which a decoder stands on their own."""
    found: dict[str, int] = {}
    for path, count in counts.items():
        at = paths.parse(path)
        name = f"{at.side} {label_of(at._replace(side='').heading)}".strip()
        found[name] = found.get(name, 0) + count
    return found


def diff_chart(
    old: LoadedModel, new: LoadedModel, before: Request, after: Request, report: Report, terms: Counting
) -> Chart:
    """FLOPs, parameters and bytes by part, old and new side by side; those of them that change."""
    sides = ((old, before), (new, after))
    points = [terms.point(subject, counting.workload(subject, request)) for subject, request in sides]
    totals = {line["path"]: line for line in report.models[0]["totals"]}
    kept = sentences.kept([old, new])
    held = {"weights_bytes": "weights", **({"kv_cache_bytes": kept} if kept else {})}
    names, (step, words) = _names(old, new, before, after)
    found = [
        _pair(names, [_by_component(point) for point in points], "flops", all_components()),
        _pair(names, [_folded(subject.ledger.parameters()) for subject, _ in sides], "params", (*headings(), OTHERS)),
        _pair(
            names,
            [{held[name]: totals[name][side] for name in held if name in totals} for side in ("old", "new")],
            "bytes",
            tuple(held.values()),
        ),
    ]
    first, *others = [chart for chart in found if len({tuple(row) for row in chart.series.values()}) > 1] or found[:1]
    said = {"total_flops": "FLOPs", "total_params": "parameters", **({"kv_cache_bytes": kept} if kept else {})}
    changes = [
        f"{word} {change(totals[name]['old'], totals[name]['new'])}"
        for name, word in said.items()
        if totals[name]["old"] != totals[name]["new"]
    ] or ["nothing that is counted changes"]
    return replace(
        first,
        title=f"{words}: {', '.join(changes)}",
        caption=" ".join([f"{step}.", *report.details]),
        beside=others,
    )


def _names(
    old: LoadedModel, new: LoadedModel, before: Request, after: Request
) -> tuple[tuple[str, str], tuple[str, str]]:
    """Both sides' names for the rows; the workload, and what becomes what, in words."""
    asked = [compose.workload_words([subject], request) for subject, request in ((old, before), (new, after))]
    first, second = compose.name_of(old), compose.name_of(new)
    step = asked[0] if asked[0] == asked[1] else f"old at {asked[0]}; new at {asked[1]}"
    step = f"{step[0].upper()}{step[1:]}"
    if first != second:
        return (first, second), (step, f"From {first} to {second}")
    if asked[0] == asked[1]:
        return (f"{first}, old", f"{second}, new"), (step, f"From one {first} to the other")
    if before.batch == after.batch:
        asked = [words.removesuffix(f", batch {before.batch:,}") for words in asked]
    return (asked[0], asked[1]), (step, f"{first} from {asked[0]} to {asked[1]}")


def _by_component(point: Point) -> dict[str, int]:
    """FLOPs of each component; of both passes in a training step."""
    found: dict[str, int] = {}
    for product in point.ledger.products(point.at, masked=point.masked):
        name = paths.component_of(product.line)
        found[name] = found.get(name, 0) + product.forward + (product.backward if point.train else 0)
    return found


def _pair(names: tuple[str, str], sides: Sequence[Mapping[str, int]], unit: Kind, order: Sequence[str]) -> Chart:
    """Rows of the parts that either side has, in this order."""
    parts = [part for part in order if any(part in side for side in sides)]
    rows = [(sides[0].get(part, 0), sides[1].get(part, 0)) for part in parts]
    spoken = SPELLED[unit]
    return Chart(
        kind="pairs",
        title="",
        caption="",
        x_label=Y_LABELS[unit],
        y_label="",
        x=[label_of(part) for part in parts],
        series={name: [row[side] for row in rows] for side, name in enumerate(names)},
        unit=unit,
        hues=[look.GREY, look.BLUE],
        ends=[(spoken(one), f"{spoken(other)}  {change(one, other)}".rstrip()) for one, other in rows],
    )


def change(old: int | Fraction, new: int | Fraction) -> str:
    """Return what became of a number: as `units.change` says it, or that it is unchanged or new.

    >>> change(16, 2), change(0, 5), change(0, 0)
    ('÷ 8', 'new', 'unchanged')
    """
    return "unchanged" if old == new else units.change(Fraction(new) / old) if old else "new"
