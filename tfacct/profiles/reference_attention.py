"""What attention of the reference model keeps, which is scores, softmax and values one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import (
    SOURCES,
    Attention,
    ConvolvedAttention,
    DifferentialAttention,
    Disentangled,
    MergedAttention,
    QKNorm,
    RelativeAttention,
    SentAttention,
)
from tfacct.ledger.kept import Kept
from tfacct.profiles.reference_convolved import convolved
from tfacct.profiles.reference_differential import twice
from tfacct.profiles.reference_disentangled import by_sines, scored
from tfacct.profiles.reference_lines import Lines, adapted, is_
from tfacct.profiles.reference_pairs import merged
from tfacct.profiles.reference_sent import sent


def attention(own: Lines, at: str, reads: str, part: Attention) -> Iterator[Kept]:
    """Products, what is done to queries and keys, scores, softmax, values. Heads of keys are copied for queries."""
    if isinstance(part, SentAttention):
        yield from sent(own, at, reads, part)
        return
    made_of = () if part.borrowed else ("k",) if part.keys_as_values else ("k", "v")
    made_of = (*made_of, "late_v") if isinstance(part, ConvolvedAttention) else made_of
    products = ("q", *made_of, *(("gate",) if part.gated else ()))
    row, made = "Dj" if part.joined else "D", tuple(f"{at}.{which}_proj.weight" for which in products)
    yield Kept(reads, f"B T {row}", by=made)
    if part.adapter is not None:
        ways = {f"{which}_adapter_down": (f"{which}_adapter_up",) for which in "qkv"}
        yield from adapted(at, reads, row, ways)
    now = {which: f"{at}.{which}_proj" for which in "qkv"}
    now |= {"v": now["k"]} if part.keys_as_values else {}
    yield from _prepared(own, at, part, now)
    if isinstance(part, ConvolvedAttention):
        yield from convolved(at)
    if isinstance(part, RelativeAttention):
        yield from by_sines(at)
        now["q"] = f"{at}.content"
    if isinstance(part, DifferentialAttention):
        yield from twice(own, at, part, now["q"], now["k"])
        return
    single = is_(own.batch, 1) and (part.tiles is None or part.tiles == own.tokens)  # one window of one sequence
    viewed = single and is_(part.kv_heads, 1) and not is_(part.group, 1)
    keys, values = (now[which] if viewed else f"{at}.{which}_copies" for which in "kv")
    heads = "K" if viewed else "N"
    scores, softmax, summed = f"{at}.scores", f"{at}.softmax", f"{at}.values"
    pairs = f"B K G {part.pairs}"
    asked, read = Kept(now["q"], "B T N H", by=(scores,)), Kept(keys, f"B S {heads} H", by=(scores,))
    lent = part.borrowed and _as_lent(own, part)
    if lent:
        yield asked
    else:
        yield from own.scores(at, asked, read, pairs, far=part.score_function == "distance")
    if isinstance(part, MergedAttention):
        yield from merged(own, at, now["q"], part)
    if isinstance(part, Disentangled):
        yield from scored(own, at, part, now["q"], keys)
    if part.buckets is not None:
        yield Kept(f"{at}.distances", "T S", by=(f"{at}.rel_bias",), role="index")
    if part.softcap is not None:
        yield Kept(f"{at}.softcap", pairs, by=(f"{at}.softcap",))
    both = (f"{at}.{SOURCES}values",) if isinstance(part, MergedAttention) else ()
    yield Kept(softmax, pairs, by=(softmax, summed, *both))
    if part.sinks:
        yield Kept(f"{softmax}.sinks", "B N T", by=(softmax, summed))
    size = "H" if part.value_dim is None else "Hv"
    if not lent:
        yield Kept(values, f"B S {heads} {size}", by=(summed,))
    yield from _read(own, at, summed, part, f"B T N {size}")
    if part.channel_scale:
        yield Kept(f"{at}.read", "B T D", by=(f"{at}.channel_scale",))


def _as_lent(own: Lines, part: Attention) -> bool:
    """True if products read the keys and values of another layer as they are, which that one keeps: norms of each head
    have laid them out head by head."""
    if part.qk_norm is None or part.qk_norm.together or part.value_norm is None:
        raise own.refuse("keys and values of another layer without norms of each head")
    return is_(part.group, 1) or (is_(own.batch, 1) and is_(part.kv_heads, 1))


def _read(own: Lines, at: str, reads: str, part: Attention, rows: str) -> Iterator[Kept]:
    """What the last product reads: what the heads read, that times what the token lets through of it, and norms of
    either."""
    if part.head_norm is not None:
        yield from own.rms(f"{at}.head_norm", reads, rows, "B T N", "", less_one=False, scaled=False)
        reads = f"{at}.head_norm"
    if part.gated:
        gate, spec = f"{at}.gate", rows if part.gates == "elements" else "B T N"
        act, smooth = f"{gate}.sigmoid", part.gate_act == "sigmoid"
        if not smooth:
            yield Kept(f"{at}.gate_proj", spec, by=(act,))
        yield Kept(f"{gate}.act", spec, by=(act, gate) if smooth else (gate,))
        yield Kept(reads, rows, by=(gate,))
        reads = gate
    if part.read_norm is not None:
        yield from own.rms(f"{at}.read_norm", reads, rows, "B T", rows.removeprefix("B T "), less_one=False)
        reads = f"{at}.read_norm"
    yield Kept(reads, rows, by=(f"{at}.o_proj.weight",))


def _prepared(own: Lines, at: str, part: Attention, now: dict[str, str]) -> Iterator[Kept]:
    """What is done to queries, keys and values in front of the scores. `now`: the tensor that each is."""
    heads = {"q": "N"} if part.borrowed else {"q": "N", "k": "K", "v": "K"}
    if part.qk_norm is not None and part.qk_norm.together:
        yield from _qk_norms(own, at, part.qk_norm, heads, now)
    if part.clip is not None:
        for which, count in heads.items():
            yield Kept(now[which], f"B T {count} H", by=(f"{at}.{which}_clip",))
            now[which] = f"{at}.{which}_clip"
    if part.qk_norm is not None and not part.qk_norm.together and not part.qk_norm.late:
        yield from _qk_norms(own, at, part.qk_norm, heads, now)
    if part.value_norm is not None and not part.borrowed:
        yield from own.rms(f"{at}.v_norm", now["v"], "B T K H", "B T K", "", less_one=False, scaled=False)
        now["v"] = f"{at}.v_norm"
    if part.rotary is not None:
        now |= {which: f"{at}.{which}_rotary" for which in "qk"}
    if part.qk_norm is not None and part.qk_norm.late:
        yield from _qk_norms(own, at, part.qk_norm, heads, now)
    if part.temperature is not None:
        yield Kept(f"{at}.q_scale.factor", "T", by=(f"{at}.q_scale",))
        now["q"] = f"{at}.q_scale"


def _qk_norms(own: Lines, at: str, how: QKNorm, heads: dict[str, str], now: dict[str, str]) -> Iterator[Kept]:
    for which, count in ((which, count) for which, count in heads.items() if which != "v"):
        spec, norm = f"B T {count} H", f"{at}.{which}_norm"
        each, last = ("B T", f"{count} H") if how.together else (f"B T {count}", "H")
        if how.own:
            yield from own.layer(norm, now[which], spec, each)
            yield Kept(f"{norm}.normed", spec, by=(f"{norm}.weight",))
        elif how.kind == "layer" and how.learned:
            yield from own.layer(norm, now[which], spec, each)
        else:
            less_one, scaled = how.less_one and how.learned, how.learned
            yield from own.rms(norm, now[which], spec, each, last, less_one=less_one, scaled=scaled)
        now[which] = norm
