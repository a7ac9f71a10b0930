"""Latent attention in a step, in words and in the JSON: its form, and the cost of the other one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tfacct.accounts.metrics import MEMORY_TRAFFIC, Metric, Point, flops_of
from tfacct.architecture.parts import LatentAttention, MlaMode
from tfacct.base import units
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Note

HOW: dict[MlaMode, str] = {
    "expanded": "the latent is cached, and the keys and values of the whole context are rebuilt from it in every step,"
    " as transformers does",
    "absorbed": "the latent is cached, and attention is computed in its space, as engines do in decode steps",
    "unpacked": "the keys and values of all heads are cached; engines cache the latent",
}


def _how(subject: LoadedModel, runs: MlaMode) -> str:
    """What a form does, in words: where some blocks have a window, these rebuild what is in it."""
    windowed = any(part.window is not None for _, part in subject.architecture.having(LatentAttention))
    return HOW[runs].replace("of the whole context", "of all tokens in sight") if windowed else HOW[runs]


def form(subject: LoadedModel) -> MlaMode | None:
    """The form that its latent attention is asked to run in; None where it has none."""
    parts = subject.architecture.parts()
    return next((part.mla_mode for part in parts if isinstance(part, LatentAttention)), None)


def chosen(subject: LoadedModel, work: Workload, *, masked: bool = False) -> MlaMode | None:
    """The form that a step runs."""
    return form(subject.settled(work, masked=masked)) if form(subject) == "auto" else form(subject)


def step_notes(points: Sequence[tuple[LoadedModel, Point]]) -> list[str]:
    """How each model runs a step, and what its FLOPs would be in the other form."""
    runs = [(subject, point) for subject, point in points if form(subject) is not None]
    if len(points) == 1:
        return [_of_one(subject, point) for subject, point in runs]
    said = [f"{subject.name} {_of_several(subject, point)}" for subject, point in runs]
    return [f"Latent attention: {'; '.join(said)}."] if said else []


def _of_one(subject: LoadedModel, point: Point) -> str:
    runs, other = chosen(subject, point.work, masked=point.masked), _other(subject, point)
    assert runs is not None
    if other is None:
        return f"Latent attention runs {runs}, as set: {_how(subject, runs)}."
    return (
        f"Latent attention runs {runs}, which takes fewer FLOPs here: {_how(subject, runs)}. {_capital(other[0])}, it"
        f" would take {units.si(other[1])}FLOPs (--set {subject.config.mla_mode_field}={other[0]})."
    )


def _of_several(subject: LoadedModel, point: Point) -> str:
    runs, other = chosen(subject, point.work, masked=point.masked), _other(subject, point)
    return f"{runs} as set" if other is None else f"{runs} ({other[0]}, it would take {units.si(other[1])}FLOPs)"


def facts(subject: LoadedModel, point: Point) -> dict[str, Any]:
    """The form of a step, and what its FLOPs would be in the form that it chose against; null where there is none."""
    other = _other(subject, point)
    return {
        "latent_attention": chosen(subject, point.work, masked=point.masked),
        "total_flops_otherwise": None if other is None else {"latent_attention": other[0], "total_flops": other[1]},
    }


def _other(subject: LoadedModel, point: Point) -> tuple[MlaMode, int] | None:
    """The form that a step chose against, and its FLOPs."""
    if form(subject) != "auto":
        return None
    runs = chosen(subject, point.work, masked=point.masked)
    other: MlaMode = "absorbed" if runs == "expanded" else "expanded"
    ledger = subject.running(other).ledger
    return other, int(flops_of(replace(point, ledger=ledger)))


def notes(
    steps: Iterable[tuple[LoadedModel, Workload]], metrics: Iterable[Metric], *, masked: bool = False
) -> list[Note]:
    """Forms that several steps run, where a metric depends on it."""
    if not any(metric.unit in ("flops", "share", "ratio") or metric.name in MEMORY_TRAFFIC for metric in metrics):
        return []
    steps = list(steps)
    said = dict.fromkeys(one for subject, work in steps if (one := chosen(subject, work, masked=masked)))
    free = any(form(subject) == "auto" for subject, _ in steps)
    fewer = ", which" if len(said) == 1 else ", whichever"
    why = f"{fewer} takes fewer FLOPs" if free else " as set"
    return [Note("latent", 2, f"Latent attention runs {' or '.join(said)}{why}.")] if said else []


def request_facts(subject: LoadedModel, work: Workload, steps: int, *, masked: bool = False) -> dict[str, Any]:
    """The forms of a request's prefill and of its last decode step; null where there is none."""
    last = replace(work, context=work.context + steps, tokens=1, new_source=0)
    return {
        "prefill_latent_attention": chosen(subject, work, masked=masked),
        "decode_latent_attention": chosen(subject, last) if steps else None,
    }


def request_notes(requests: Sequence[tuple[LoadedModel, Workload, int]], *, masked: bool = False) -> list[str]:
    """How each model runs the prefill and the decode steps of a request."""
    said = []
    for subject, work, steps in requests:
        prefill, decode = request_facts(subject, work, steps, masked=masked).values()
        if prefill is not None:
            one = f"{prefill} in the prefill" + (f", {decode} in the decode steps" if decode else "")
            said.append(one if len(requests) == 1 else f"{subject.name} {one}")
    free = any(form(subject) == "auto" for subject, _, _ in requests)
    why = " Each step runs the form that takes fewer FLOPs." if free else ""
    return [f"Latent attention: {'; '.join(said)}.{why}"] if said else []


def written_notes(given: LoadedModel, subject: LoadedModel) -> list[str]:
    """Mode that the lines of a formula describe."""
    runs = form(subject)
    if runs is None:
        return []
    why = ", which takes fewer FLOPs in this step" if form(given) == "auto" else ", as set"
    other = f"--set {given.config.mla_mode_field}=FORM writes another form."
    return [f"Latent attention runs {runs}{why}: {_how(subject, runs)}. {other}"]


def kept_notes(subjects: Sequence[LoadedModel]) -> list[str]:
    """Note on what one model's latent attention keeps."""
    runs = form(subjects[0]) if len(subjects) == 1 else None
    if runs is None:
        return []
    if runs == "unpacked":
        return [
            "Latent attention runs unpacked: the keys and values of all heads are cached; engines cache the latent."
        ]
    return ["Latent attention caches a latent for each token, not the keys and values computed from it."]


def _capital(word: str) -> str:
    return word[0].upper() + word[1:]
