"""How Sphinx reads the pages and what they look like."""

from __future__ import annotations

import re
from typing import Any

from tfacct import __version__

project = "tfacct"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "tfacct"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_extra_path = ["as_they_are"]
exclude_patterns = ["as_they_are"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

myst_heading_anchors = 4
default_role = "code"
pygments_style, pygments_dark_style = "default", "github-dark"

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
maximum_signature_line_length = 80


def _as_written(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:  # noqa: ARG001
    """Docstrings are plain text with code in backticks: no star in them is emphasis."""
    lines[:] = [re.sub(r"(?<!`)[*|_](?=\W|$)", r"\\\g<0>", line) if ">>>" not in line else line for line in lines]


def setup(app: Any) -> None:
    """Register what reads the docstrings."""
    app.connect("autodoc-process-docstring", _as_written)
