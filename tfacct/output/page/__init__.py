"""The interactive page: modules of JavaScript, a style and data in one HTML file. There is no build step."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from tfacct.output.html import body
from tfacct.output.report import Report

COUNTING = ("einsum", "lines", "storage", "ledger", "numbers")
"""The modules that count, each after those that it imports."""
SHOWING = (
    *("data", "paths", "models", "count", "report", "notes", "state", "dom", "bars", "picture", "detail", "charts"),
    *("cards", "roofline", "treemap", "training", "formula", "tables", "stops", "sizes", "knobs", "head", "focus"),
    *("appearance", "main"),
)
"""The modules that show the counts."""
_IMPORT = re.compile(r'^import \* as (\w+) from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|(?:async )?function|class)\b)", re.MULTILINE)
_NAMES = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)
_COMMENT = re.compile(r"^\t*// .*\n| // [^\"`\n]*$|^\t+", re.MULTILINE)
"""Comments and indentation of the script."""
_STYLE_COMMENT = re.compile(r"^/\*.*\*/\n", re.MULTILINE)
"""Comments of the style."""
LEVEL, RAW = 9, -15
"""Settings of deflate: highest level, no header."""


@cache
def source(name: str) -> str:
    """The text of one of the page's files."""
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


@cache
def style() -> str:
    """The style, without its comments."""
    return _STYLE_COMMENT.sub("", source("page.css"))


@cache
def script(names: tuple[str, ...] = (*COUNTING, *SHOWING)) -> str:
    """The modules as one script. Each is a function that returns its exports.

    Raises ValueError for an import of a later module, or under another name.
    """
    parts = ['"use strict";\n']
    for index, name in enumerate(names):
        text = source(f"{name}.js")
        for known_as, module in _IMPORT.findall(text):
            if known_as != module or module not in names[:index]:
                raise ValueError(f"{name}.js imports {module} as {known_as}")
        body = _COMMENT.sub("", _EXPORT.sub("", _IMPORT.sub("", text))).strip()
        parts.append(f"const {name} = (() => {{\n{body}\n\nreturn {{ {', '.join(_NAMES.findall(text))} }};\n}})();\n")
    return "\n".join(parts)


def policy() -> str:
    """Content-Security-Policy of every page: only its script and its style, by hash."""
    rules = {
        "default-src": "'none'",
        "script-src": _hash(script()),
        "style-src": _hash(style()),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {rule}" for name, rule in rules.items())


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def document(data: Mapping[str, Any], title: str, first: Report | None, version: str) -> str:
    """The page as HTML. `first`: the report that is shown if no script runs; without it, a list of the models.

    The bytes depend only on the models.
    """
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(policy())}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="tfacct {escape(version)}">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{escape(title)} · tfacct</title>
<style>{style()}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the numbers</a>
<header class="top"><strong>tfacct</strong><div id="tools"></div></header>
<div class="page">
<aside class="knobs" aria-label="Settings">
<details id="controls" open><summary>Settings</summary><div id="knobs"></div></details>
</aside>
<main id="main">
<div id="head"></div>
<div id="light"></div>
<div id="rest"></div>
<div id="still">
<h1>{escape(title)}</h1>
{_still(first) if first else _listed(len(data["models"]))}
</div>
</main>
</div>
<script type="text/plain" id="data">{embedded(data)}</script>
<script>{script()}</script>
</body>
</html>
"""


def embedded(data: Mapping[str, Any]) -> str:
    """The data as deflated JSON in base64, so that no text in it can end the element."""
    deflating = zlib.compressobj(LEVEL, wbits=RAW)
    text = json.dumps(data, separators=(",", ":"))
    return base64.b64encode(deflating.compress(text.encode()) + deflating.flush()).decode()


def extracted(html: str) -> Any:
    """The data of a page, decoded."""
    (text,) = re.findall(r' id="data">([^<]*)</script>', html)
    return json.loads(zlib.decompress(base64.b64decode(text), RAW))


def _still(report: Report) -> str:
    """The page without a script: the report, without notation and bars."""
    columns = tuple(column for column in report.columns if column.kind not in ("bar", "spec"))
    return "\n".join(['<div class="wide">', *body(replace(report, columns=columns), "p"), "</div>"])


def _listed(models: int) -> str:
    """The page of many models without a script."""
    return f"<p>{models} models. This page needs JavaScript.</p>"
