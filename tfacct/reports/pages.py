"""The cache as engines keep it: in pages of so many tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tfacct.accounts.memory import cache_bytes
from tfacct.architecture.parts import Mixer
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger.lines import WINDOW, State
from tfacct.ledger.storage import Width
from tfacct.ledger.workload import Workload
from tfacct.loading.left_out import LeftOut
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


def paged(subjects: Sequence[LoadedModel], kv_block: int | None) -> tuple[list[LoadedModel], list[LeftOut]]:
    """Models whose cache is counted in pages, and the others. Raises UsageError where there is none."""
    if kv_block is None:
        return list(subjects), []
    able = [subject for subject in subjects if subject.keeps and not subject.architecture.having(Mixer)]
    reasons = {
        "a model that keeps nothing between steps has no pages": [one for one in subjects if not one.keeps],
        "pages of a model that keeps a state are not supported yet": [
            one for one in subjects if one.architecture.having(Mixer)
        ],
    }
    if not able:
        why = "; ".join(f"{', '.join(one.name for one in some)}: {why}" for why, some in reasons.items() if some)
        raise UsageError(f"{option('kv_block')}: {why}", f"leave {option('kv_block')} out")
    return able, [each for why, some in reasons.items() for each in LeftOut.of(some, why)]


def facts(subject: LoadedModel, work: Workload, cache: Width, room: int | None) -> dict[str, Any]:
    """What is kept in pages. With `room`, the bytes that the weights leave, also what a start-up of vLLM prints: the
    tokens that fit, and how many requests of this context. Nothing where not even one page fits, and of a model whose
    layers keep different tokens."""
    one = replace(work, context=cache.page, tokens=1, batch=1, source=0)
    page = int(cache_bytes(subject.ledger, one.axes(), cache))
    found: dict[str, Any] = {"kv_block": cache.page, "kv_page_bytes": page}
    if room is None or room < page or not alike(subject):
        return found
    fitting = room // page
    needed = -(-work.context // cache.page)
    tokens = fitting * cache.page
    return {
        **found,
        "pages": {
            "page_bytes": page,
            "count": fitting,
            "tokens": tokens,
            "concurrency": float(Fraction(fitting, needed)),
            "starts": fitting >= needed and subject.past_positions(work) is None,
            "largest_max_model_len": min(tokens, subject.position_limit or tokens),
        },
    }


def alike(subject: LoadedModel) -> bool:
    """True if every state grows with every token."""
    groups = subject.ledger.groups
    states = [line for group in groups for line in group.lines if isinstance(line, State)]
    return bool(states) and all("S" in line.spec for line in states) and not any(WINDOW in g.axes for g in groups)


def notes(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences about pages, and about vLLM's start."""
    block = next((fact["kv_block"] for fact in facts if "kv_block" in fact), None)
    if block is None:
        return []
    said = [f"The cache is in pages of {block:,} tokens: the last page of a sequence takes its whole space."]
    if len(facts) == 1 and "pages" in facts[0]:
        found, fit, context = facts[0]["pages"], facts[0]["fit"], facts[0]["workload"]["keys"]
        beyond = " beyond the reserve" if fit["reserve_bytes"] else ""
        less = f"less what its trial run needs{beyond}, which is not counted here"
        if found["starts"]:
            said.append(
                f'vLLM would start with "GPU KV cache size: {found["tokens"]:,} tokens" and "Maximum concurrency for'
                f' {context:,} tokens per request: {found["concurrency"]:.2f}x" ({found["count"]:,} pages), {less}.'
            )
        else:
            longest = found["largest_max_model_len"]
            less = "" if longest == fit["context_limit"] else f", {less}"
            said.append(
                f"vLLM would raise a ValueError at --max-model-len {context}. The largest that starts is"
                f" --max-model-len {longest}{less}."
            )
    return said
