"""Substitutes for signs that a stream cannot encode: `->` for →, `-` for ─, `#` for █, `x` for ×."""

from __future__ import annotations

import codecs
import re
from typing import Any

FALLBACK = {
    "×": "x", "·": "*", "÷": "/", "−": "-", "–": "-", "—": "-", "…": "...", "→": "->", "Δ": "delta", "√": "sqrt",
    "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "±": "+-", "½": "1/2", "⌈": "ceil(", "⌉": ")", "∞": "inf", "ₜ": "_t",
    "⌊": "floor(", "⌋": ")", "α": "alpha", "ε": "eps", "σ": "sigma", "µ": "u",
    "─": "-", "━": "-", "│": "|", "█": "#", "▌": "#",
}  # fmt: skip
RAISED, LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻ᵀ", "₀₁₂₃₄₅₆₇₈₉₋"
_LEVEL = {**dict(zip(RAISED, "0123456789-T", strict=True)), **dict(zip(LOWERED, "0123456789-", strict=True))}
_RUN = f"([{RAISED}]+)|([{LOWERED}]+)|(.)"
HANDLER = "tfacct.signs"


def fall_back(stream: Any) -> None:
    """Make a stream write a substitute for each sign that its encoding lacks, and never fail."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors=HANDLER)


def written(text: str, stream: Any) -> str:
    """The text as `stream` will write it. Substitutes may be longer, so they are applied before a table is laid out."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, HANDLER).decode(encoding)


def escaped(document: str, stream: Any) -> str:
    r"""JSON for `stream`, with signs that it cannot encode as JSON escapes such as `\u2192`."""
    try:
        document.encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        import json

        return re.sub(r"[^\x00-\x7f]+", lambda signs: json.dumps(signs[0])[1:-1], document)
    return document


def marked_down(document: str, stream: Any) -> str:
    """Markdown for `stream`: a star that replaces a · is escaped."""
    return document if written("·", stream) == "·" else document.replace("·", r"\*")


def _fallen_back(error: UnicodeError) -> tuple[str, int]:
    """Error handler of a codec: the substitute of a character."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(
        _meaning(raised, lowered, sign) for raised, lowered, sign in re.findall(_RUN, lacking, re.DOTALL)
    ), error.end


def _meaning(raised: str, lowered: str, sign: str) -> str:
    """10⁻¹² is 10^-12, k₁ is k_1."""
    if sign:
        return FALLBACK.get(sign, "?")
    return ("^" if raised else "_") + "".join(_LEVEL[digit] for digit in raised or lowered)


codecs.register_error(HANDLER, _fallen_back)
