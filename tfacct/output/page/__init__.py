"""The page: modules of JavaScript and a style, put together into one HTML file. Nothing is built or minified."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

COUNTING = ("einsum", "lines", "storage", "ledger", "numbers")
"""The modules that count, each behind those that it imports."""
_IMPORT = re.compile(r'^import \* as (\w+) from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|function|class)\b)", re.MULTILINE)
_NAMES = re.compile(r"^export (?:function|class) (\w+)|^export const (.+?);?$", re.MULTILINE)
_CONST = re.compile(r"(\w+) = ")


@cache
def source(name: str) -> str:
    """Text of a file of the page."""
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def script(names: tuple[str, ...] = COUNTING) -> str:
    """The modules as one script: each is closed in a function and known by its name, as the others import it.

    Raises ValueError for an import of what does not stand before it, or under another name.
    """
    parts = ['"use strict";\n']
    for index, name in enumerate(names):
        text = source(f"{name}.js")
        for known_as, module in _IMPORT.findall(text):
            if known_as != module or module not in names[:index]:
                raise ValueError(f"{name}.js imports {module} as {known_as}")
        exported = ", ".join(_exports(text))
        body = _EXPORT.sub("", _IMPORT.sub("", text)).strip()
        parts.append(f"const {name} = (() => {{\n{body}\n\nreturn {{ {exported} }};\n}})();\n")
    return "\n".join(parts)


def _exports(text: str) -> list[str]:
    """Names that a module exports."""
    found: list[str] = []
    for function, constants in _NAMES.findall(text):
        found += [function] if function else _constants(constants)
    return found


def _constants(text: str) -> list[str]:
    """Names of `export const A = 1, B = 2;`: those in front of a first-level `=`."""
    depth, flat = 0, ""
    for character in re.sub(r'"[^"]*"', '""', text):
        depth += (character in "([{") - (character in ")]}")
        flat += character if depth == 0 else ""
    return [part.partition("=")[0].strip() for part in flat.split(", ") if " = " in part]
