"""A formula report as LaTeX."""

from __future__ import annotations

import re

from tfacct.algebra.factored import latex_axis
from tfacct.base.errors import printable
from tfacct.ledger import paths
from tfacct.ledger.einsum import AXIS
from tfacct.output.report import Report

NAME = re.compile(r"\\?[A-Za-z]+(?:_\{\\mathrm\{\w+\}\})?")
"""A command or an axis in LaTeX."""


def align(report: Report) -> str:
    """Lines and total as an `align*` environment (amsmath), with the axes that occur, in comments."""
    (facts,) = report.models
    rows = [(paths.short(line["path"]), line["latex"]) for line in facts["lines"]]
    rows.append(("total", facts["total_latex"]))
    escaped = ((name.replace("_", r"\_"), formula) for name, formula in rows)
    used = {name for _, formula in rows for name in NAME.findall(formula)}
    meanings = {axis: about["meaning"] for axis, about in facts["legend"].items() if latex_axis(axis) in used}
    for axis, meaning in meanings.items():
        words, _, product = meaning.rpartition(", ")
        if words and "·" in product and not set(AXIS.findall(product)) <= meanings.keys():  # N for K · G without them
            meanings[axis] = words
    named = {axis for meaning in meanings.values() for axis in AXIS.findall(meaning)} | meanings.keys()
    legend = (
        f"%   {latex_axis(axis)}: {meanings.get(axis, about['meaning'])}"
        for axis, about in facts["legend"].items()
        if axis in named
    )
    mode = facts["latent_attention"] if facts["of"] == "flops" else None
    form = () if mode is None else (f"% latent attention in {mode} form",)
    title = report.title.partition(" and at context")[0]  # the values are in the table alone
    head = (f"% {printable(title)}", *form, r"% needs \usepackage{amsmath}", *legend)
    body = " \\\\\n".join(rf"  \text{{{name}}} &= {formula}" for name, formula in escaped)
    return "\n".join((*head, r"\begin{align*}", body, r"\end{align*}", ""))
