"""The page of a model, as Python's callers get it."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Unpack

from tfacct.api.asked import Asked, Source, loaded
from tfacct.api.keywords import request, spelled_out
from tfacct.base.record import record
from tfacct.ledger.workload import Logits, Step

HEIGHT = 900
"""Pixels of the page's frame in a notebook."""


@record
class Page:
    """One HTML file that recounts every line as its knobs are turned. A notebook shows it in a frame of its own, from
    which nothing reaches the notebook."""

    html: str

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the page, and return where it is. Raises UsageError, also for a file that is there already."""
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


class Paged(Asked):
    """The page."""

    @spelled_out
    def explore(
        self,
        *,
        vs: Source | Asked | None = None,
        logits: Logits = "all",
        masked: bool = False,
        train: bool = False,
        dtype: str | None = None,
        kv_dtype: str | None = None,
        **step: Unpack[Step],
    ) -> Page:
        """Page that recounts every line as its knobs are turned, one file without a network; `vs`: a model beside it.

        `save` writes it, and a notebook shows it. Raises TfacctError.
        """
        from tfacct.reports.counting import Counting
        from tfacct.reports.explore import page

        others = [] if vs is None else [loaded(vs, {})]
        terms = Counting(dtype, kv_dtype, masked, train)
        return Page(page([self.loaded, *others], request(step, logits=logits), terms))
