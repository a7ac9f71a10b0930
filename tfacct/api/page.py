"""`Page`: the interactive HTML page of a model."""

from __future__ import annotations

from html import escape
from pathlib import Path

from tfacct.base.record import record

HEIGHT = 900
"""Pixels of the page's frame in a notebook."""


@record
class Page:
    """An HTML file with sliders that recounts every line. A notebook shows it in a sandboxed frame."""

    html: str

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the page and return its path. Raises UsageError, also if the file exists."""
        from tfacct.reports.explore import save

        return save(self.html, str(path), force=force)

    def __repr__(self) -> str:
        return f"<tfacct page: {len(self.html.encode()):,} bytes>"

    def _repr_html_(self) -> str:
        allowed = "allow-scripts allow-popups allow-modals"
        return (
            f'<iframe title="tfacct" sandbox="{allowed}" width="100%" height="{HEIGHT}"'
            f' srcdoc="{escape(self.html)}"></iframe>'
        )
