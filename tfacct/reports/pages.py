"""The cache as engines keep it: in pages of so many tokens, in the share of a card that they may take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tfacct.accounts.memory import cache_bytes
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.lines import WINDOW, State
from tfacct.ledger.storage import Width
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel

LARGEST = 1 << 20
"""No page is larger, in tokens."""


def checked(kv_block: int | None) -> int:
    """Tokens of a page; 1 where none was named. Raises UsageError."""
    if kv_block is None:
        return 1
    if not isinstance(kv_block, int) or isinstance(kv_block, bool) or not 1 <= kv_block <= LARGEST:
        raise UsageError(f"{option('kv_block')} must be a number of tokens, not {kv_block!r}", "for example 16")
    return kv_block


def usable(fit: int | None, use: float | None) -> int | None:
    """Bytes of a budget that an engine may take, rounded down. Raises UsageError."""
    if use is None:
        return fit
    if fit is None:
        raise UsageError(f"{option('use')} is a share of a budget: it needs {option('fit')}")
    if isinstance(use, bool) or not isinstance(use, (int, float)) or not 0 < use <= 1:
        raise UsageError(f"{option('use')} must be above 0 and at most 1, not {use!r}", "for example 0.9")
    return max(1, int(fit * Fraction(str(use))))


def facts(subject: LoadedModel, work: Workload, cache: Width, room: int | None) -> dict[str, Any]:
    """What is kept in pages. With `room`, the bytes that the weights leave, also what a start-up of vLLM says: the
    tokens that fit, and how many requests of this context. Of a model whose blocks keep different tokens none."""
    said: dict[str, Any] = {"kv_block": cache.page}
    if room is None or not alike(subject):
        return said
    one = replace(work, context=cache.page, tokens=1, batch=1)
    page = int(cache_bytes(subject.ledger, one.axes(), cache))
    fitting = room // page
    needed = -(-work.context // cache.page)
    return {
        **said,
        "pages": {
            "page_bytes": page,
            "pages": fitting,
            "tokens": fitting * cache.page,
            "concurrency": float(Fraction(fitting, needed)),
        },
    }


def alike(subject: LoadedModel) -> bool:
    """True if every state grows with every token."""
    groups = subject.ledger.groups
    states = [line for group in groups for line in group.lines if isinstance(line, State)]
    return bool(states) and all("S" in line.spec for line in states) and not any(WINDOW in g.axes for g in groups)


def notes(facts: Sequence[Mapping[str, Any]], given: int | None, use: float | None, card: str) -> list[str]:
    """Sentences about the pages, about the share of the budget, and the one about its card."""
    said = [card] if card else []
    if use is not None and given is not None:
        said.append(f"An engine may take {use:g} of {units.budget(given)}.")
    block = next((fact["kv_block"] for fact in facts if "kv_block" in fact), None)
    if block is None:
        return said
    said.append(f"The cache is in pages of {block:,} tokens: the last page of a sequence takes its whole space.")
    if len(facts) == 1 and "pages" in facts[0]:
        found, context = facts[0]["pages"], facts[0]["workload"]["keys"]
        said.append(
            f'vLLM would start with "GPU KV cache size: {found["tokens"]:,} tokens" and "Maximum concurrency for'
            f' {context:,} tokens per request: {found["concurrency"]:.2f}x" ({found["pages"]:,} pages), less what its'
            " trial run needs, which is not counted here."
        )
    return said
