"""The metrics by name, each with its unit and a sentence: what `sweep`, `solve` and `evaluate` can be asked for."""

from __future__ import annotations

from tfacct.accounts.metrics import METRICS, OF_A_NAME, STEP_METRICS
from tfacct.output.report import Column, Report, Row

UNITS = {"flops": "FLOPs", "params": "parameters", "bytes": "bytes", "share": "share of 1", "ratio": "ratio"}


def metrics() -> Report:
    """Return every metric: its name, its unit and what it is.

    >>> metrics().rows[0]
    {'metric': 'total_flops', 'unit': 'FLOPs', 'about': 'FLOPs of one forward pass, or of one training step.'}
    """
    every, stepped = (
        {name: (metric.unit, metric.about) for name, metric in found.items()} for found in (METRICS, STEP_METRICS)
    )
    whole, step, named = (
        tuple[Row, ...]({"metric": name, "unit": UNITS[unit], "about": about} for name, (unit, about) in found.items())
        for found in (every, stepped, OF_A_NAME)
    )
    return Report(
        command="metrics",
        title=f"{len(METRICS) + len(STEP_METRICS)} metrics, and two for every product, part and component",
        columns=(Column("metric", "metric"), Column("unit", "unit"), Column("about", "meaning")),
        sections=(whole, step, named),
        models=(),
        notes=(
            f"{', '.join(STEP_METRICS)}: of a training step as `tfacct train` counts it.",
            "NAME is an operation of `tfacct flops MODEL`, a part such as attn or mlp, or a component of its JSON.",
        ),
    )
