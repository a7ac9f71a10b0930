"""A formula report as LaTeX."""

from __future__ import annotations

from tfacct.algebra.factored import latex_axis
from tfacct.base.errors import printable
from tfacct.ledger import paths
from tfacct.output.report import Report


def align(report: Report) -> str:
    """Lines and total as an `align*` environment (amsmath), with the axes that occur in comments."""
    (facts,) = report.models
    rows = [(paths.short(line["path"]), line["latex"]) for line in facts["lines"]]
    rows.append(("total", facts["total_latex"]))
    escaped = ((name.replace("_", r"\_"), formula) for name, formula in rows)
    texts = " ".join((*(formula for _, formula in rows), *(about["meaning"] for about in facts["legend"].values())))
    named = {axis: about for axis, about in facts["legend"].items() if latex_axis(axis) in texts}
    legend = (f"%   {latex_axis(axis)}: {about['meaning']}" for axis, about in named.items())
    mode = facts["latent_attention"] if facts["of"] == "flops" else None
    form = () if mode is None else (f"% latent attention in {mode} form",)
    head = (f"% {printable(report.title)}", *form, r"% needs \usepackage{amsmath}", *legend)
    body = " \\\\\n".join(rf"  \text{{{name}}} &= {formula}" for name, formula in escaped)
    return "\n".join((*head, r"\begin{align*}", body, r"\end{align*}", ""))
