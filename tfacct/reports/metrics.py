"""The metrics by name, each with its unit and a sentence: what `sweep`, `solve` and `evaluate` can be asked for."""

from __future__ import annotations

from tfacct.accounts.metrics import METRICS, OF_A_NAME
from tfacct.output.report import Column, Report, Row

UNITS = {"flops": "FLOPs", "params": "parameters", "bytes": "bytes", "share": "share of 1", "ratio": "ratio"}


def metrics() -> Report:
    """Return every metric: its name, its unit and what it is.

    >>> metrics().rows[0]
    {'metric': 'total_flops', 'unit': 'FLOPs', 'about': 'FLOPs of one forward pass, or of one training step.'}
    """
    every = {name: (metric.unit, metric.about) for name, metric in METRICS.items()}
    whole, named = (
        tuple[Row, ...]({"metric": name, "unit": UNITS[unit], "about": about} for name, (unit, about) in found.items())
        for found in (every, OF_A_NAME)
    )
    return Report(
        command="metrics",
        title=f"{len(METRICS)} metrics, and two for every product, part and component",
        columns=(Column("metric", "metric"), Column("unit", "unit"), Column("about", "meaning")),
        sections=(whole, named),
        models=(),
        notes=(
            "NAME is an operation of `tfacct flops MODEL`, a part such as attn or mlp, or a component of its JSON.",
        ),
    )
