"""Sentences about which keys a token sees: windows, chunks, choices of an indexer, keys made of several tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfacct.architecture.parts import Attention, LatentAttention, SelfAttention, Stem
from tfacct.base import units
from tfacct.loading.model import LoadedModel


def window_notes(settings: Sequence[LoadedModel], *, kept: bool = False, masked: bool = False) -> list[str]:
    """How many blocks of one model have a window, and what that changes: of products, or of what is `kept`. Where the
    model stands in several settings that differ in it, of all of them."""
    windows = list(dict.fromkeys(_windows(subject) for subject in settings))
    if len(settings) == 1 and (tiled := _tiled(settings[0])):
        return tiled
    if settings and (compressed := _compressed(settings, kept=kept, masked=masked)):
        return compressed
    if not any(windows):
        return _chosen(settings[0], kept=kept, masked=masked) if len(settings) == 1 else []
    follows = (
        ", and only those are kept: once the window is full, a further token adds nothing there."
        if kept
        else "; pairs outside the window are left out."
        if masked
        else "; every pair of new tokens is counted, as an unfused kernel runs it (--masked: only pairs in the window)."
    )
    if len(windows) == 1:
        said = [
            (units.between([count]), units.between([of]), units.between([window])) for count, of, window in windows[0]
        ]
    else:
        counts, blocks, sizes = zip(*(each for found in windows for each in found), strict=True)
        said = [(units.between(counts), units.between(blocks), units.between(sizes))]
    chunked = [part for subject in settings for part in subject.architecture.attentions if _chunked(part)]
    chunk = ", those of its own chunk" if chunked else ""
    follows = follows.replace("the window", "the chunk") if chunked else follows
    where = "" if all(windows) else "With a window, in"
    chosen = _chosen(settings[0], kept=kept, masked=masked) if len(settings) == 1 else []
    return [
        *(
            f"{where or 'In'} {count} of {of} blocks a token sees at most {window} keys{chunk}{follows}"
            for count, of, window in said
        ),
        *chosen,
    ]


def _chosen(subject: LoadedModel, *, kept: bool, masked: bool) -> list[str]:
    """How many keys an indexer chooses for a token, and what that changes."""
    stacks = subject.architecture.having(LatentAttention)
    found = {part.indexer.top for _, part in stacks if part.indexer is not None}
    count = sum(stack.count for stack, part in stacks if part.indexer is not None)
    all_ = sum(stack.count for stack in subject.architecture.stacks)
    where = "every block" if count == all_ else f"{count:,} of {all_:,} blocks"
    if not found:
        return _chosen_blocks(subject, kept=kept, masked=masked)
    follows = (
        "; the cache keeps all keys, and the indexer's own."
        if kept
        else "; the other pairs are left out."
        if masked
        else "; all are counted, as transformers runs it (--masked: only those chosen)."
    )
    return [f"In {where} an indexer's choice leaves a token at most {units.between([*found])} keys{follows}"]


def _compressed(settings: Sequence[LoadedModel], *, kept: bool, masked: bool) -> list[str]:
    """Keys that are made of several tokens: in how many blocks of one model, of how many tokens, and what that
    changes. Of several settings, that of the first where all have the same."""
    each = list(dict.fromkeys(_of_keys(subject) for subject in settings))
    if not any(each):
        return []
    if len(each) > 1:
        return ["A token sees the last tokens, and keys that are made of several tokens each."]
    light = any("indexer" in words for words in each[0])
    follows = (
        " The cache also holds the tokens of keys that are not full yet."
        if kept
        else f" Pairs with keys that are not full yet{', or not chosen,' if light else ''} are left out."
        if masked
        else " All of these keys are counted, as transformers runs them (--masked: only those that a token sees)."
    )
    window = next(part.window for part in settings[0].architecture.attentions if part.compression is not None)
    total = sum(stack.count for stack in settings[0].architecture.stacks)
    return [f"In {total:,} blocks a token sees the last {window:,} tokens; {'; '.join(each[0])}.{follows}"]


def unwindowed(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """What one model's cache takes where layers with a window keep every token too; nothing where that is the same."""
    whole = facts[0]["kv_cache_bytes_without_windows"]
    if len(facts) > 1 or whole == facts[0]["kv_cache_bytes"]:
        return []
    return [f"An engine that keeps every token in every layer holds {units.binary(whole)} ({whole:,} bytes) of cache."]


def shrinking(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why a model's next token adds less than nothing, where it does."""
    if len(facts) > 1 or facts[0].get("kv_bytes_next_token", 0) >= 0:
        return []
    return ["The next token fills a key: the cache shrinks, for what waited for the key took more than it does."]


def _of_keys(subject: LoadedModel) -> tuple[str, ...]:
    """The blocks whose tokens are compressed, in words."""
    found = []
    for stack, part in subject.architecture.having(SelfAttention):
        keys = part.compression
        if keys is not None and keys.tokens is not None:
            chosen = f", of which an indexer chooses at most {keys.chosen:,}" if keys.chosen is not None else ""
            found.append(f"in {stack.count:,} of them also keys made of {keys.tokens:,} tokens each{chosen}")
    return tuple(found)


def _tiled(subject: LoadedModel) -> list[str]:
    """How many blocks have windows of patches that see themselves alone."""
    stacks = subject.architecture.stacks
    tiled = [(stack.count, part.tiles) for stack, part in subject.architecture.having(Attention) if part.tiles]
    every = sum(stack.count for stack in stacks)
    what = "position" if isinstance(subject.architecture.embed, Stem) else "patch"
    return [f"In {count} of {every} blocks, a {what} sees only the {size} of its own window." for count, size in tiled]


def _chosen_blocks(subject: LoadedModel, *, kept: bool, masked: bool) -> list[str]:
    """How many blocks of keys an indexer chooses for a token, and what that changes."""
    found = [(stack, part.indexer) for stack, part in subject.architecture.having(Attention) if part.indexer]
    if not found:
        return []
    count, all_ = sum(stack.count for stack, _ in found), sum(stack.count for stack in subject.architecture.stacks)
    tops, sizes = (units.between([*{getattr(own, name) for _, own in found}]) for name in ("top", "size"))
    follows = (
        "the cache keeps all keys, and the indexer's own."
        if kept
        else "those left out are counted under --masked too."
        if masked
        else "all are counted, as transformers runs it."
    )
    return [f"In {count:,} of {all_:,} blocks an indexer chooses {tops} × {sizes} keys for a token; {follows}"]


def _chunked(part: object) -> bool:
    return isinstance(part, Attention) and part.mask == "chunks"


def _windows(subject: LoadedModel) -> tuple[tuple[int, int, int], ...]:
    """Each window: in how many blocks, of how many, how many keys."""
    stacks = subject.architecture.stacks
    found: dict[int, int] = {}
    for stack in stacks:
        if stack.block.window is not None:
            found[stack.block.window] = found.get(stack.block.window, 0) + stack.count
    return tuple((count, sum(stack.count for stack in stacks), window) for window, count in found.items())
